"""The real loop, with a scripted outside, on a virtual clock."""

from __future__ import annotations

import asyncio
import json

import pytest

from agent.core.model import Ask, Cause, Exit, Health, Need, Process, Retry, Saved, Want
from agent.errors import EdgeError
from tests.loop.outside import Bench

pytestmark = pytest.mark.anyio


def document(bench: Bench) -> dict[str, object]:
    """What the API would say of the only server."""
    return dict(json.loads(bench.board.read().servers["one"].full))


async def test_a_start_leads_through_starting_to_ready(bench: Bench) -> None:
    assert await bench.ask(Ask.START) is None
    assert bench.disk.saved["one"].want is Want.UP
    await bench.until("starting")
    bench.world.health = Health.OK
    await bench.until("ready")
    assert bench.world.launched == ["run1-1"]


async def test_a_death_shows_cause_exit_and_tail_and_the_server_is_launched_again(bench: Bench) -> None:
    await bench.ask(Ask.START)
    bench.world.health = Health.OK
    await bench.until("ready")
    bench.world.written += b"serving\nOSError: [Errno 98] Address already in use\n"
    bench.world.end(Exit(signal=9))
    shown = document(bench)
    assert shown["stage"] == "stopping"
    assert shown["cause"]
    assert shown["exit"] == {"code": None, "signal": 9, "oom": None, "asked": False, "stopped": False}
    assert "serving" in shown["tail"]  # type: ignore[operator]
    await bench.until("backing-off")
    await bench.until_launched(2)


async def test_a_stop_is_answered_after_the_save_and_ends_the_server(bench: Bench) -> None:
    await bench.ask(Ask.START)
    bench.world.health = Health.OK
    await bench.until("ready")
    assert await bench.ask(Ask.STOP) is None
    assert bench.disk.saved["one"].want is Want.DOWN
    await bench.until("down")
    assert bench.world.processes == []
    assert bench.world.signals == ["TERM"]


async def test_a_deaf_server_is_killed_after_the_patience(bench: Bench) -> None:
    await bench.ask(Ask.START)
    bench.world.health = Health.OK
    await bench.until("ready")
    bench.world.deaf = True
    await bench.ask(Ask.STOP)
    await bench.until("down")
    assert bench.world.signals == ["TERM", "KILL"]


async def test_what_the_first_process_leaves_behind_is_ended_before_the_next_launch(bench: Bench) -> None:
    await bench.ask(Ask.START)
    bench.world.health = Health.OK
    await bench.until("ready")
    bench.world.leaves = [Process(7, 70)]
    bench.world.end(Exit(signal=9))
    bench.world.leaves = []
    await bench.until("backing-off")
    assert bench.world.signals == ["TERM all"]


async def test_a_lost_exit_is_healed_by_looks(bench: Bench) -> None:
    await bench.ask(Ask.START)
    bench.world.health = Health.OK
    await bench.until("ready")
    bench.world.lossy = True
    bench.world.end(Exit(signal=9))
    await bench.until("backing-off")


async def test_a_refused_launch_is_a_failure_with_the_edges_own_cause(bench: Bench) -> None:
    bench.world.refuse_launch = EdgeError("child", "start /x", "no such file", "exec_missing")
    await bench.ask(Ask.START)
    await bench.until("failed")
    assert document(bench)["cause"]["slug"] == "exec_missing"  # type: ignore[index]


async def test_a_need_that_does_not_heal_fails_before_a_launch_and_goes_on_when_it_is_met(bench: Bench) -> None:
    cause = Cause(slug="port_taken", text="port 1 is taken by pid 7 (x)", remedy="end it", retry=Retry.NO)
    bench.world.unmet = (Need(name="port", cause=cause, heals=False),)
    await bench.ask(Ask.START)
    await bench.until("failed")
    assert bench.world.launched == []
    assert document(bench)["cause"]["text"] == cause.text  # type: ignore[index]
    bench.world.unmet = ()
    await bench.until("starting")


async def test_nothing_is_launched_while_looks_fail_and_the_blindness_is_said(bench: Bench) -> None:
    bench.world.blind = True
    await bench.ask(Ask.START)
    await asyncio.sleep(600)
    assert bench.stage() == "waiting"
    assert bench.world.launched == []
    assert "processes-not-seen" in bench.board.read().full.decode()
    bench.world.blind = False
    await bench.until("starting")


async def test_a_want_that_cannot_be_saved_is_refused_and_said(bench: Bench) -> None:
    bench.disk.broken = "No space left on device"
    refused = await bench.ask(Ask.START)
    assert refused is not None
    assert "No space left" in refused
    assert "state-not-saved: No space left on device" in bench.board.read().full.decode()
    bench.disk.broken = None
    await asyncio.sleep(60)
    assert "state-not-saved" not in bench.board.read().full.decode()
    assert bench.stage() == "down"


async def test_stop_and_relaunch_go_on_while_saves_fail(bench: Bench) -> None:
    await bench.ask(Ask.START)
    bench.world.health = Health.OK
    await bench.until("ready")
    bench.disk.broken = "Input/output error"
    bench.world.end(Exit(signal=9))
    await bench.until_launched(2)
    assert await bench.ask(Ask.STOP) is None
    await bench.until("down")


async def test_a_running_server_is_adopted_when_the_agent_starts() -> None:
    bench = Bench({"one": Saved(want=Want.UP, invocation="old-1", attempt=1)})
    bench.world.processes, bench.world.invocation = [Process(7, 70)], "old-1"
    bench.world.health = Health.OK
    async with bench.running():
        await bench.until("ready")
        assert document(bench)["pid"] == 7
    assert bench.world.launched == []


async def test_a_command_that_comes_before_the_first_look_is_carried_out_after_it() -> None:
    bench = Bench({"one": Saved()})
    async with bench.running():
        assert bench.board.read().version == 0
        assert await bench.ask(Ask.START) is None
        await bench.until("starting")


async def test_the_end_of_the_agent_ends_the_server_and_the_want_stays() -> None:
    other = Bench({"one": Saved()})
    async with other.running():
        await other.ask(Ask.START)
        other.world.health = Health.OK
        await other.until("ready")
    assert other.world.processes == []
    assert other.disk.saved["one"].want is Want.UP
    assert other.disk.saved["one"].attempt == 0


async def test_a_storm_of_lines_keeps_neither_probes_nor_commands_from_their_turn(bench: Bench) -> None:
    await bench.ask(Ask.START)
    await bench.until_launched(1)
    bench.world.written += b"a line of no importance, and another one of the same kind\n" * 200_000
    bench.world.health = Health.OK
    await bench.until("ready")
    assert await bench.ask(Ask.STOP) is None


async def test_a_quiet_start_is_called_quiet_then_stalled_and_nothing_is_done_to_it(bench: Bench) -> None:
    await bench.ask(Ask.START)
    await bench.until_launched(1)
    await asyncio.sleep(125)
    assert document(bench)["quiet"] is True
    assert document(bench)["stalled"] is False
    await asyncio.sleep(900)
    assert document(bench)["stalled"] is True
    assert bench.stage() == "starting"
    assert bench.world.signals == []


async def test_a_busy_server_is_not_called_unhealthy_while_it_works(bench: Bench) -> None:
    await bench.ask(Ask.START)
    bench.world.health = Health.OK
    await bench.until("ready")
    bench.world.health = Health.TIMEOUT
    for _ in range(50):
        bench.world.cpu_s += 2
        await asyncio.sleep(2)
        assert bench.stage() == "ready"
    bench.world.health = Health.OK
    await asyncio.sleep(30)
    assert bench.stage() == "ready"


async def test_a_hung_server_becomes_unhealthy_and_is_restarted(bench: Bench) -> None:
    await bench.ask(Ask.START)
    bench.world.health = Health.OK
    await bench.until("ready")
    bench.world.health = Health.TIMEOUT
    await bench.until("unhealthy")
    await bench.until_launched(2)


async def test_a_server_that_wrote_faster_than_it_was_read_is_judged_by_its_last_words(bench: Bench) -> None:
    await bench.ask(Ask.START)
    await bench.until_launched(1)
    bench.world.written += b"all is well, and this line says so at some length\n" * 2_000_000
    bench.world.written += b"server: error: unrecognized arguments: --x\n"
    bench.world.end(Exit(code=2))
    cause = document(bench)["cause"]
    assert (cause["slug"], cause["line"]) == ("bad_flag", 2_000_001)  # type: ignore[index]


async def test_a_server_that_says_for_long_that_it_loads_is_asked_less_and_less_often(bench: Bench) -> None:
    await bench.ask(Ask.START)
    await bench.until("starting")
    bench.world.health = Health.LOADING
    counts = []
    for _ in range(3):
        before = bench.world.probes
        await asyncio.sleep(200)
        counts.append(bench.world.probes - before)
    assert counts[0] > 3 * counts[2]
    assert counts[2] >= 200, "it is asked once a second at least"
    bench.world.health = Health.OK
    await bench.until("ready")
