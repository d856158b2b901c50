"""The real loop with servers that outlive it: systemd's units, started and stopped by others too."""

from __future__ import annotations

import asyncio

import pytest

from agent.core.chronicle import Outcome
from agent.core.model import Ask, Exit, Health, Saved, Want
from tests.loop.outside import Bench

pytestmark = pytest.mark.anyio


async def test_an_agent_that_ends_leaves_its_servers_running_and_the_next_one_goes_on_with_them() -> None:
    bench = Bench({"one": Saved()})
    bench.ends_servers = False
    async with bench.running():
        await bench.ask(Ask.START)
        bench.world.health = Health.OK
        await bench.until("ready")
    assert bench.world.signals == []
    async with bench.running():
        await bench.until("ready")
        assert bench.world.launched == ["run1-1"]
    assert bench.world.signals == []


async def test_what_was_decided_when_an_agent_is_told_to_end_is_saved() -> None:
    bench = Bench({"one": Saved()})
    bench.ends_servers = False
    async with bench.running():
        await bench.until("down")
        asked = bench.loop.ask("one", Ask.START)
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
    assert (asked.result(), bench.disk.saved["one"].want) == (None, Want.UP)


async def test_an_agent_that_ends_takes_no_more_commands() -> None:
    bench = Bench({"one": Saved()})
    bench.ends_servers = False
    async with bench.running():
        await bench.until("down")
    late = bench.loop.ask("one", Ask.START)
    await asyncio.sleep(0.01)
    assert late.result() == "the agent is ending"


async def test_a_server_that_an_administrator_starts_is_adopted_at_once() -> None:
    bench = Bench({"one": Saved()})
    bench.ends_servers = False
    async with bench.running():
        await bench.until("down")
        await asyncio.sleep(1)
        begun = asyncio.get_running_loop().time()
        bench.world.start_outside("0123abcd-0")
        bench.world.health = Health.OK
        await bench.until("ready")
        assert asyncio.get_running_loop().time() - begun < 1.0  # of virtual time: told, not found by the next look
        assert (bench.world.launched, bench.world.signals) == ([], [])
    assert bench.disk.saved["one"].want is Want.UP


async def test_a_server_that_an_administrator_stops_stays_down() -> None:
    bench = Bench({"one": Saved()})
    bench.ends_servers = False
    async with bench.running():
        await bench.ask(Ask.START)
        bench.world.health = Health.OK
        await bench.until("ready")
        bench.world.end(Exit(signal=15, stopped=True))
        await bench.until("down")
        await asyncio.sleep(60)
        assert (bench.stage(), bench.world.launched) == ("down", ["run1-1"])
    (start,) = bench.past.rows.values()
    assert (start.outcome, start.cause_slug) == (Outcome.STOPPED, None)


async def test_how_a_server_ended_while_no_agent_ran_is_told_by_its_record() -> None:
    bench = Bench({"one": Saved()})
    bench.ends_servers = False
    async with bench.running():
        await bench.ask(Ask.START)
        bench.world.health = Health.OK
        await bench.until("ready")
    (start,) = bench.past.rows.values()
    bench.world.evidence["run1-1"] = Exit(signal=11, at=start.launched + 30)
    bench.world.end(Exit(signal=11))
    async with bench.running():
        await bench.until_launched(2)
    first = bench.past.rows["one", "run1-1"]
    assert (first.outcome, first.exit) == (Outcome.CRASHED, bench.world.evidence["run1-1"])
    assert first.ended_s is not None
    assert abs(first.ended_s - 30) < 0.001


async def test_a_stop_by_an_administrator_while_no_agent_ran_is_told_by_its_record() -> None:
    bench = Bench({"one": Saved()})
    bench.ends_servers = False
    async with bench.running():
        await bench.ask(Ask.START)
        bench.world.health = Health.OK
        await bench.until("ready")
    bench.world.evidence["run1-1"] = Exit(signal=15, stopped=True)
    bench.world.end(Exit(signal=15))
    async with bench.running():
        await bench.until("down")
        await asyncio.sleep(60)
        assert bench.world.launched == ["run1-1"]
    assert bench.past.rows["one", "run1-1"].outcome is Outcome.STOPPED


@pytest.mark.parametrize(
    ("how", "outcome", "slug"),
    [
        (Exit(signal=15, stopped=True), Outcome.STOPPED, None),
        (Exit(signal=11), Outcome.CRASHED, "worker_signal"),
    ],
)
async def test_how_a_server_ended_is_told_also_when_an_administrator_has_started_it_again_before_the_agent_came(
    how: Exit, outcome: Outcome, slug: str | None
) -> None:
    bench = Bench({"one": Saved()})
    bench.ends_servers = False
    async with bench.running():
        await bench.ask(Ask.START)
        bench.world.health = Health.OK
        await bench.until("ready")
    bench.world.evidence["run1-1"] = how
    bench.world.end(how)
    bench.world.start_outside("0123abcd-0")
    async with bench.running():
        await bench.until("starting")
        assert (bench.world.launched, bench.world.signals) == (["run1-1"], [])
    first = bench.past.rows["one", "run1-1"]
    assert (first.outcome, first.exit, first.cause_slug) == (outcome, how, slug)
    assert bench.past.rows["one", "0123abcd-0"].outcome is None


async def test_a_start_that_runs_when_the_host_goes_down_is_remembered_as_that() -> None:
    bench = Bench({"one": Saved()})
    bench.ends_servers = False
    async with bench.running():
        await bench.ask(Ask.START)
        bench.world.health = Health.OK
        await bench.until("ready")
        bench.shutting_down = True
    (start,) = bench.past.rows.values()
    assert (start.outcome, start.cause_slug) == (Outcome.STOPPED, "host_shutdown")
    assert bench.disk.saved["one"].want is Want.UP


async def test_a_server_that_systemd_stops_before_the_agent_when_the_host_goes_down_stays_wanted() -> None:
    bench = Bench({"one": Saved()})
    bench.ends_servers = False
    async with bench.running():
        await bench.ask(Ask.START)
        bench.world.health = Health.OK
        await bench.until("ready")
        bench.shutting_down = True
        bench.world.end(Exit(signal=15, shutdown=True))
        await bench.until("down")
        await asyncio.sleep(30)
        assert bench.world.launched == ["run1-1"]
    (start,) = bench.past.rows.values()
    assert (start.outcome, start.cause_slug) == (Outcome.STOPPED, "host_shutdown")
    assert bench.disk.saved["one"].want is Want.UP
