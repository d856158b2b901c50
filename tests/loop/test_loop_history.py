"""What the real loop remembers of its servers' starts, shows of them and expects after them."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

import pytest

from agent.core.chronicle import Outcome, Start
from agent.core.model import Ask, Exit, Health, Process, Saved, Step, Want
from tests.loop.outside import Bench

pytestmark = pytest.mark.anyio


def document(bench: Bench) -> dict[str, Any]:
    return dict(json.loads(bench.board.read().servers["one"].full))


def starts(bench: Bench, public: bool = False) -> list[dict[str, Any]]:
    """As the API says them."""
    page = bench.board.read().servers["one"]
    return [json.loads(each) for each in (page.public_starts if public else page.starts)]


def degraded(bench: Bench) -> list[str]:
    return list(json.loads(bench.board.read().full)["degraded"])


def remembered(bench: Bench) -> Start:
    """The newest start on the disk."""
    return list(bench.past.rows.values())[-1]


async def until_remembered(bench: Bench, outcome: Outcome | None) -> Start:
    """Until the newest start on the disk has this outcome."""
    for _ in range(10_000):
        if bench.past.rows and remembered(bench).outcome is outcome:
            return remembered(bench)
        await asyncio.sleep(0.01)
    raise AssertionError(f"never {outcome}: {bench.past.rows}")


async def start(bench: Bench, takes_s: float) -> None:
    """A start that is ready after so long, and is stopped then."""
    await bench.ask(Ask.START)
    await bench.until("starting")
    await asyncio.sleep(takes_s)
    bench.world.health = Health.OK
    await bench.until("ready")
    await bench.ask(Ask.STOP)
    await bench.until("down")


async def test_a_start_is_remembered_from_its_launch_to_its_end(bench: Bench) -> None:
    await bench.ask(Ask.START)
    await bench.until("starting")
    assert (await until_remembered(bench, None)).ready_s is None
    await asyncio.sleep(20)
    bench.world.health = Health.OK
    await bench.until("ready")
    await asyncio.sleep(1)
    ready_s = remembered(bench).ready_s
    assert ready_s == pytest.approx(20, abs=1)
    await bench.ask(Ask.STOP)
    record = await until_remembered(bench, Outcome.STOPPED)
    assert (record.invocation, record.attempt, record.digest, record.boot_id) == ("run1-1", 1, "d1", "boot1")
    assert record.exit == Exit(code=0, asked=True)


async def test_the_starts_are_shown_newest_first_and_the_present_one_as_it_is(bench: Bench) -> None:
    await start(bench, 5)
    await bench.ask(Ask.START)
    await bench.until("starting")
    shown = starts(bench)
    assert [(each["invocation"], each["outcome"]) for each in shown] == [("run1-2", None), ("run1-1", "stopped")]
    assert [each["step"] for each in shown[0]["steps"]] == ["launched"]
    assert shown[1]["ready_s"] == pytest.approx(5, abs=1)
    assert all(each["same_definition"] and each["watched"] for each in shown)


async def test_over_tcp_a_cause_holds_no_line_of_the_log(bench: Bench) -> None:
    await bench.ask(Ask.START)
    await bench.until_launched(1)
    bench.world.written += b"OSError: [Errno 98] Address already in use: my secret\n"
    bench.world.end(Exit(code=1))
    (full,), (public,) = starts(bench), starts(bench, public=True)
    assert "my secret" in full["cause"]["text"]
    assert "my secret" not in json.dumps(public)
    assert public["cause"]["slug"] == full["cause"]["slug"]
    assert (full["outcome"], full["exit"]["code"]) == ("failed-start", 1)


async def test_the_first_start_expects_nothing_and_the_second_one_its_end(bench: Bench) -> None:
    await bench.ask(Ask.START)
    await bench.until("starting")
    await asyncio.sleep(5)
    assert document(bench)["eta_s"] is None
    bench.world.health = Health.OK
    await bench.until("ready")
    await bench.ask(Ask.STOP)
    await bench.until("down")
    await bench.ask(Ask.START)
    await bench.until("starting")
    await asyncio.sleep(2)
    assert document(bench)["eta_s"] == pytest.approx(3, abs=0.6)
    bench.world.health = Health.OK
    await bench.until("ready")
    assert document(bench)["eta_s"] is None


async def test_the_expected_end_comes_nearer_while_nothing_happens_and_nothing_is_published_at_rest(
    bench: Bench,
) -> None:
    await start(bench, 60)
    await bench.ask(Ask.START)
    await bench.until("starting")
    seen = []
    for _ in range(20):
        await asyncio.sleep(1)
        seen.append(document(bench)["eta_s"])
    assert seen == sorted(set(seen), reverse=True)
    bench.world.health = Health.OK
    await bench.until("ready")
    await asyncio.sleep(20)
    version = bench.board.read().version
    await asyncio.sleep(5)  # one look, and ten beats
    assert bench.board.read().version <= version + 3


async def test_a_start_of_twice_the_usual_says_so_while_it_runs(bench: Bench) -> None:
    for _ in range(2):
        await start(bench, 20)
    await bench.ask(Ask.START)
    await bench.until("starting")
    await asyncio.sleep(15)
    assert "slower than usual" not in document(bench)["why"]
    await asyncio.sleep(20)
    assert "slower than usual (usually 20 s)" in document(bench)["why"]
    assert document(bench)["stage"] == "starting"
    bench.world.health = Health.OK
    await bench.until("ready")
    assert "slower" not in document(bench)["why"]


async def test_an_adopted_server_goes_on_with_its_start_and_not_with_a_new_one() -> None:
    bench = Bench({"one": Saved(want=Want.UP, invocation="old-1", attempt=1)})
    now = asyncio.get_running_loop().time()
    known = Start(
        server="one",
        invocation="old-1",
        attempt=1,
        digest="d1",
        boot_id="boot1",
        launched=5.0,
        began=now - 40,
        steps=((Step.LAUNCHED, 0.0), (Step.LOADING_WEIGHTS, 2.0)),
    )
    bench.past.rows["one", "old-1"] = known
    bench.world.processes, bench.world.invocation = [Process(7, 70)], "old-1"
    async with bench.running():
        await bench.until("starting")
        await asyncio.sleep(10)
        bench.world.health = Health.OK
        await bench.until("ready")
        (shown,) = starts(bench)
    assert shown["ready_s"] == pytest.approx(50, abs=1)
    assert not shown["watched"]
    assert shown["steps"][1] == {"step": "loading-weights", "at_s": 2.0}
    (record,) = bench.past.rows.values()
    assert (record.launched, record.outcome) == (5.0, Outcome.STOPPED)  # by the end of the agent
    assert bench.past.closed


async def test_what_ended_while_no_agent_ran_is_told_as_lost() -> None:
    bench = Bench({"one": Saved(invocation="old-2")})
    old = Start(server="one", invocation="old-1", attempt=1, digest="d", boot_id="boot1", launched=0.0, began=0.0)
    bench.past.rows["one", "old-1"] = replace(old, boot_id="boot0")
    bench.past.rows["one", "old-2"] = replace(old, invocation="old-2")
    async with bench.running():
        await bench.until("down")
        await asyncio.sleep(1)
        slugs = [each["cause"]["slug"] for each in starts(bench)]
    assert slugs == ["agent_away", "host_rebooted"]
    assert {start.outcome for start in bench.past.rows.values()} == {Outcome.LOST}


async def test_how_long_a_power_cut_kept_a_server_away_is_told_and_remembered() -> None:
    bench = Bench({"one": Saved(want=Want.UP, invocation="old-1", attempt=1, running=True, served=True)})
    bench.past.rows["one", "old-1"] = Start(
        server="one", invocation="old-1", attempt=1, digest="d1", boot_id="boot0", launched=5.0, began=1.0, ready_s=9.0
    )
    bench.past.seen = time.time() - 432
    bench.world.health = Health.OK
    async with bench.running():
        await bench.until("ready")
        now, old = starts(bench)
        assert (old["outcome"], old["cause"]["slug"], old["outage"]) == ("lost", "host_rebooted", None)
        assert now["outage"]["attempts"] == 1
        assert now["outage"]["lasted_s"] == pytest.approx(432, abs=60)
        assert starts(bench, public=True)[0]["outage"] == now["outage"]
        await asyncio.sleep(1)
        assert remembered(bench).outage is not None


async def test_a_history_that_cannot_be_written_is_said_and_everything_else_goes_on(bench: Bench) -> None:
    await bench.until("down")
    bench.past.broken = "database or disk is full"
    await start(bench, 5)
    assert degraded(bench) == ["history-not-written: database or disk is full"]
    await bench.ask(Ask.START)
    await bench.until("starting")
    await asyncio.sleep(2)
    assert document(bench)["eta_s"] == pytest.approx(3, abs=0.6)  # from memory
    bench.past.broken = None
    await asyncio.sleep(10)
    assert degraded(bench) == []
    assert [each.invocation for each in bench.past.rows.values()] == ["run1-1", "run1-2"]


async def test_a_history_that_is_read_late_is_joined_with_what_has_happened_since() -> None:
    bench = Bench({"one": Saved(want=Want.UP, invocation="old-1", attempt=1)})
    now = asyncio.get_running_loop().time()
    known = Start(
        server="one", invocation="old-1", attempt=1, digest="d1", boot_id="boot1", launched=5.0, began=now - 40
    )
    before = replace(known, invocation="old-0", ready_s=60.0, ended_s=80.0, outcome=Outcome.STOPPED)
    bench.past.rows.update({("one", "old-0"): before, ("one", "old-1"): known})
    bench.past.broken = "database is locked"
    bench.world.processes, bench.world.invocation = [Process(7, 70)], "old-1"
    async with bench.running():
        await bench.until("starting")
        assert degraded(bench) == ["history-not-read: database is locked"]
        await asyncio.sleep(2)
        bench.past.broken = None
        await asyncio.sleep(10)
        assert degraded(bench) == []
        assert [each["invocation"] for each in starts(bench)] == ["old-1", "old-0"]
        assert document(bench)["eta_s"] == pytest.approx(8, abs=2)
        assert (remembered(bench).began, remembered(bench).launched) == (known.began, 5.0)


async def test_what_is_wrong_with_the_history_itself_is_said() -> None:
    bench = Bench({"one": Saved()})
    bench.past.faults.append("set aside")
    async with bench.running():
        await bench.until("down")
        assert degraded(bench) == ["history: set aside"]
