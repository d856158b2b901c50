"""Several servers, a new configuration, and an agent that comes back: the real loop on a virtual clock."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from agent.core.model import Ask, Exit, Health, Policy, Process, Saved, Want
from agent.errors import ConfigError, EdgeError
from tests.loop.outside import Bench, World

pytestmark = pytest.mark.anyio

RIVALS = {name: Policy(overlaps=frozenset({"one", "two"}) - {name}) for name in ("one", "two")}


def two_rivals() -> Bench:
    """Servers "one" and "two", which share a port."""
    bench = Bench({"one": Saved(), "two": Saved()})
    bench.policies = RIVALS
    return bench


def shown(bench: Bench, name: str = "one") -> dict[str, object]:
    """The document of a server."""
    return dict(json.loads(bench.board.read().servers[name].full))


async def test_a_switch_ends_one_and_starts_the_other() -> None:
    bench = two_rivals()
    async with bench.running():
        await bench.ask(Ask.START, "one")
        bench.worlds["one"].health = Health.OK
        await bench.until("ready", "one")
        refused = await bench.ask(Ask.START, "two")
        assert refused is not None
        assert "one is wanted" in refused
        assert await bench.ask(Ask.SWITCH, "two") is None
        bench.worlds["two"].health = Health.OK
        await bench.until("ready", "two")
        assert (bench.stage("one"), bench.worlds["one"].processes) == ("down", [])


async def test_a_switch_returns_to_the_one_that_gave_way_when_the_new_one_fails() -> None:
    bench = two_rivals()
    async with bench.running():
        await bench.ask(Ask.START, "one")
        bench.worlds["one"].health = Health.OK
        await bench.until("ready", "one")
        assert await bench.ask(Ask.SWITCH, "two", back=True) is None
        await bench.until_launched(1, "two")
        bench.worlds["two"].written = b"server: error: unrecognized arguments: --x\n"  # no attempt can mend that
        bench.worlds["two"].end(Exit(code=2))
        await bench.until("starting", "one")
        bench.worlds["one"].health = Health.OK
        await bench.until("ready", "one")
        assert bench.disk.saved["two"].want is Want.DOWN


async def test_a_changed_definition_waits_for_the_end_of_what_runs_and_counts_from_then() -> None:
    bench = Bench({"one": Saved()})
    async with bench.running():
        await bench.ask(Ask.START)
        bench.world.health = Health.OK
        await bench.until("ready")
        old, bench.digest = bench.world, "d2"
        bench.worlds["one"] = World()
        await bench.loop.redefine(bench.defined())
        assert bench.stage() == "ready"
        assert "takes effect at restart" in str(shown(bench)["why"])
        assert await bench.ask(Ask.RESTART) is None
        await bench.until_launched(1)
        assert (old.processes, len(bench.world.launched)) == ([], 1)
        assert "takes effect" not in str(shown(bench)["why"])


async def test_a_definition_that_did_not_change_is_left_alone() -> None:
    bench = Bench({"one": Saved()})
    async with bench.running():
        await bench.ask(Ask.START)
        bench.world.health = Health.OK
        await bench.until("ready")
        await bench.loop.redefine(bench.defined())
        assert "takes effect" not in str(shown(bench)["why"])


async def test_a_server_that_is_added_is_booted_and_one_that_is_removed_is_gone() -> None:
    bench = Bench({"one": Saved()})
    async with bench.running():
        await bench.until("down")
        bench.worlds = {"two": World()}
        await bench.loop.redefine(bench.defined())
        assert list(bench.board.read().servers) == ["two"]
        assert await bench.ask(Ask.START, "two") is None
        bench.worlds["two"].health = Health.OK
        await bench.until("ready", "two")


async def test_a_server_that_runs_is_not_taken_away_and_nothing_else_of_that_configuration_counts() -> None:
    bench = Bench({"one": Saved()})
    async with bench.running():
        await bench.ask(Ask.START)
        bench.world.health = Health.OK
        await bench.until("ready")
        with pytest.raises(ConfigError, match=r"servers\.one"):
            await bench.loop.redefine({"two": replace(bench.defined()["one"])})
        assert list(bench.board.read().servers) == ["one"]
        assert bench.stage() == "ready"


async def test_a_server_that_served_and_answers_is_ready_from_the_first_word_of_the_next_agent() -> None:
    bench = Bench({"one": Saved(want=Want.UP, invocation="old-1", attempt=1, running=True, served=True)})
    bench.world.processes, bench.world.invocation = [Process(7, 70)], "old-1"
    bench.world.health = Health.OK
    stages: list[str] = []
    bench.board.subscribe(lambda: stages.append(bench.stage()))
    async with bench.running():
        await bench.until("ready")
        await asyncio.sleep(30)
        assert set(stages) == {"ready"}
    assert bench.world.launched == []


async def test_what_ended_while_no_agent_ran_is_told_with_the_cause_that_its_log_gives() -> None:
    bench = Bench({"one": Saved(want=Want.UP, invocation="old-1", attempt=1, running=True, served=True)})
    bench.world.written = b"serving\nOSError: [Errno 98] Address already in use\n"
    seen: list[object] = []
    bench.board.subscribe(lambda: seen.append(shown(bench)["cause"]))
    async with bench.running():
        await bench.until_launched(1)
    assert any(cause and cause["slug"] == "port_in_use" for cause in seen)  # type: ignore[index]


async def test_after_a_reboot_nothing_is_believed_of_the_processes_before_it() -> None:
    bench = Bench({"one": Saved(want=Want.UP, invocation="old-1", attempt=3, running=True, served=True)})
    bench.disk.rebooted = True
    bench.world.written = b"serving\n"
    async with bench.running():
        await bench.until_launched(1)
        assert shown(bench)["attempt"] == 1


@pytest.mark.parametrize("order", [["one", "two"], ["two", "one"]])
async def test_one_reload_may_change_a_server_and_add_its_rival_whatever_their_order(order: list[str]) -> None:
    bench = Bench({"one": Saved()})
    async with bench.running():
        await bench.ask(Ask.START)
        bench.world.health = Health.OK
        await bench.until("ready")
        bench.digest, bench.policies = "d2", RIVALS
        worlds = {"one": bench.world, "two": World()}
        bench.worlds = {name: worlds[name] for name in order}
        await bench.loop.redefine(bench.defined())
        assert list(bench.board.read().servers) == order
        assert "takes effect at restart" in str(shown(bench)["why"])
        refused = await bench.ask(Ask.START, "two")
        assert refused is not None
        assert "one is wanted" in refused


async def test_a_rival_that_comes_or_goes_is_no_change_of_a_definition() -> None:
    bench = Bench({"one": Saved()})
    async with bench.running():
        await bench.ask(Ask.START)
        bench.world.health = Health.OK
        await bench.until("ready")
        bench.policies = RIVALS
        bench.worlds = {"one": bench.world, "two": World()}
        await bench.loop.redefine(bench.defined())
        assert "takes effect" not in str(shown(bench)["why"])
        assert await bench.ask(Ask.START, "two") is not None


async def test_what_runs_by_an_older_definition_keeps_its_rivals_away_until_it_ends() -> None:
    bench = two_rivals()
    async with bench.running():
        await bench.ask(Ask.START, "one")
        bench.worlds["one"].health = Health.OK
        await bench.until("ready", "one")
        bench.digest, bench.policies = "d2", {}  # the new ones would not be in each other's way
        await bench.loop.redefine(bench.defined())
        assert await bench.ask(Ask.START, "two") is not None
        assert await bench.ask(Ask.STOP, "one") is None
        await bench.until("down", "one")
        assert await bench.ask(Ask.START, "two") is None
        assert await bench.ask(Ask.START, "one") is None
        await bench.until("starting", "one")
        await bench.until("starting", "two")


async def test_an_agent_that_ends_takes_no_new_configuration() -> None:
    bench = Bench({"one": Saved()})
    async with bench.running():
        await bench.until("down")
    with pytest.raises(EdgeError, match="ending"):
        await bench.loop.redefine(bench.defined())


async def test_a_server_that_was_given_up_is_not_launched_again_by_the_next_agent() -> None:
    bench = Bench({"one": Saved()})
    async with bench.running():
        await bench.ask(Ask.START)
        await bench.until_launched(1)
        bench.world.written = b"server: error: unrecognized arguments: --x\n"
        bench.world.end(Exit(code=2))
        await bench.until("failed")
        kept = dict(bench.disk.saved)
    bench.disk.saved = kept  # as after a SIGKILL
    bench.world.launched.clear()
    async with bench.running():
        await bench.until("failed")
        await asyncio.sleep(60)
        assert bench.world.launched == []
        assert await bench.ask(Ask.START) is None
        await bench.until_launched(1)


async def test_a_server_that_runs_and_is_not_defined_any_more_is_said() -> None:
    bench = Bench({"one": Saved()})
    bench.disk.saved["gone"] = Saved(want=Want.UP, running=True)
    async with bench.running():
        await bench.until("down")
        assert "undefined-server: gone" in bench.board.read().full.decode()
        assert b"undefined-server" in bench.board.read().public
