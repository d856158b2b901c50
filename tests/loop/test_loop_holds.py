"""The real loop with units that fight over the GPUs, on a virtual clock."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agent.core.holds import Holds
from agent.core.model import Ask, Health, Saved, Want
from tests.loop.fighting import Unit, Units
from tests.loop.outside import PATIENCE_S, Bench

pytestmark = pytest.mark.anyio

VLLM = "vllm.service"
BOTH = frozenset({VLLM, "ollama.service"})


def fight(units: Units | None = None, listed: frozenset[str] = frozenset({VLLM}), **saved: Any) -> Bench:
    """One server, and the units that are to be off."""
    bench = Bench({"one": Saved(**saved)})
    bench.rivals, bench.listed = units or Units(vllm=Unit()), listed
    bench.ends_servers = False
    return bench


def units_of(bench: Bench) -> Units:
    assert isinstance(bench.rivals, Units)
    return bench.rivals


def rival(bench: Bench, unit: str = VLLM) -> dict[str, Any]:
    """As GET /rivals shows it."""
    (one,) = (each for each in json.loads(bench.board.read().rivals)["rivals"] if each["unit"] == unit)
    return dict(one)


def status(bench: Bench) -> dict[str, Any]:
    return dict(json.loads(bench.board.read().full))


async def until(true: Any) -> None:
    end = asyncio.get_running_loop().time() + PATIENCE_S
    while not true():
        assert asyncio.get_running_loop().time() < end
        await asyncio.sleep(0.05)


async def word(bench: Bench, unit: str, *, keep_off: bool) -> str | None:
    return await asyncio.wrap_future(bench.loop.hold(unit, keep_off))


async def test_a_rival_is_written_down_then_held_and_the_server_is_launched_once_it_is_off() -> None:
    bench = fight()
    units = units_of(bench)
    on_disk: list[Holds] = []
    units.before = lambda verb, them: on_disk.append(bench.disk.holds)
    async with bench.running():
        await bench.until("down")
        await asyncio.sleep(60)
        assert units.batches == []
        assert rival(bench)["why"] == "not held yet: no server has been wanted; is active, pid 12"
        await bench.ask(Ask.START)
        await bench.until("starting")
        assert units.batches == [("hold", frozenset({VLLM}))]
        assert on_disk[0].held.keys() == {VLLM}
        assert not units.units[VLLM].on
        shown = rival(bench)
        assert (shown["off"], shown["held"], shown["why"]) == (True, True, "off")
        (held,) = status(bench)["holds"]
        assert (held["unit"], held["in_force"], held["repairs"]) == (VLLM, True, 0)
        assert held["since"].endswith("Z")
        assert json.loads(bench.board.read().holds) == {"holds": [held]}
        assert json.loads(bench.board.read().rivals)["warnings"] == ["a container of somebody else"]
    assert units.closed


async def test_two_rivals_are_one_batch() -> None:
    bench = fight(Units(vllm=Unit(), ollama=Unit(on=False)), BOTH)
    async with bench.running():
        await bench.ask(Ask.START)
        await bench.until("starting")
    assert units_of(bench).batches == [("hold", BOTH)]


async def test_a_launch_waits_for_a_rival_that_ends_slowly_and_says_so() -> None:
    bench = fight(Units(vllm=Unit(stop_s=80)))
    async with bench.running():
        await bench.ask(Ask.START)
        await bench.until("clearing")
        await asyncio.sleep(1)
        why = json.loads(bench.board.read().servers["one"].full)["why"]
        assert why == f"waiting for unit {VLLM} (is active, pid 12; being turned off) to be gone"
        await bench.until("starting")


async def test_while_the_helper_is_down_a_start_waits_and_says_why_and_goes_on_by_itself() -> None:
    bench = fight()
    units = units_of(bench)
    units.down = "the helper does not answer"
    async with bench.running():
        assert await bench.ask(Ask.START) is None
        await asyncio.sleep(150)
        assert bench.stage() == "clearing"
        assert "could not be turned off: the helper does not answer" in status(bench)["servers"][0]["why"]
        assert any(mark.startswith(f"hold: {VLLM}: ") for mark in status(bench)["degraded"])
        units.down = None
        await bench.until("starting")


async def test_while_nothing_can_be_seen_nothing_is_launched_and_nothing_is_turned_off() -> None:
    bench = fight(want=Want.UP)
    units = units_of(bench)
    units.blind = "no bus"
    async with bench.running():
        await asyncio.sleep(60)
        assert (bench.stage(), units.batches, bench.world.launched) == ("clearing", [], [])
        assert "not known: no bus" in rival(bench)["why"]
        units.blind = None
        await bench.until("starting")


async def test_a_port_that_hangs_delays_neither_the_loop_nor_its_end() -> None:
    bench = fight(want=Want.UP)
    units_of(bench).hangs = True
    async with bench.running():
        await asyncio.sleep(60)
        assert bench.stage() == "clearing"
        assert "no answer within" in rival(bench)["why"]
        assert await bench.ask(Ask.STOP) is None
        await bench.until("down")


async def test_a_rival_that_comes_up_beside_a_running_server_is_turned_off_at_once_and_the_server_goes_on() -> None:
    bench = fight()
    units = units_of(bench)
    async with bench.running():
        await bench.ask(Ask.START)
        bench.world.health = Health.OK
        await bench.until("ready")
        await asyncio.sleep(60)
        began = asyncio.get_running_loop().time()
        units.set(VLLM, True)
        await until(lambda: len(units.batches) == 2)
        assert asyncio.get_running_loop().time() - began < 0.5  # of virtual time: told, not found by the next look
        await until(lambda: rival(bench)["off"])
        assert (bench.stage(), bench.world.signals) == ("ready", [])
        assert status(bench)["holds"][0]["repairs"] == 1


async def test_a_fight_without_an_end_is_ended_and_told() -> None:
    bench = fight(Units(vllm=Unit(comes_back=True)), want=Want.UP)
    units = units_of(bench)
    async with bench.running():
        await asyncio.sleep(400)
        assert len(units.batches) == 6
        assert "comes up again and again" in rival(bench)["why"]
        units.units[VLLM].comes_back = False
        assert await word(bench, VLLM, keep_off=True) is None
        await bench.until("starting")


async def test_after_a_restart_of_the_agent_what_is_held_is_looked_at_and_not_held_anew() -> None:
    bench = fight()
    units = units_of(bench)
    async with bench.running():
        await bench.ask(Ask.START)
        await bench.until("starting")
    looks, batches = units.looks, len(units.batches)
    bench.world.processes = []
    async with bench.running():
        await bench.until_launched(2)
        assert units.looks > looks
    assert len(units.batches) == batches


async def test_after_a_boot_a_rival_that_runs_is_turned_off_before_anything_is_launched() -> None:
    bench = fight(want=Want.UP)
    bench.disk.holds = Holds(begun=True, held={VLLM: 5.0})
    bench.disk.rebooted = True
    async with bench.running():
        await bench.until("starting")
        assert units_of(bench).batches == [("hold", frozenset({VLLM}))]
        assert not units_of(bench).units[VLLM].on
        assert rival(bench)["since"] == "1970-01-01T00:00:05.000Z"


async def test_a_release_is_answered_saved_and_carried_out_and_outlasts_the_agent() -> None:
    bench = fight()
    units = units_of(bench)
    async with bench.running():
        await bench.ask(Ask.START)
        await bench.until("starting")
        assert await word(bench, VLLM, keep_off=False) is None
        assert bench.disk.holds.exempt == {VLLM}
        assert rival(bench)["exempt"]
        await until(lambda: rival(bench)["why"] == "released: not kept off")
        assert (units.batches[-1], units.units[VLLM].held) == (("release", frozenset({VLLM})), False)
    units.set(VLLM, True)
    async with bench.running():
        await asyncio.sleep(60)
        assert units.batches[-1][0] == "release"
        assert await word(bench, VLLM, keep_off=True) is None
        await until(lambda: rival(bench)["off"])


async def test_a_hold_that_cannot_be_saved_is_refused() -> None:
    bench = fight()
    async with bench.running():
        await bench.until("down")
        bench.disk.broken = "disk full"
        assert await word(bench, VLLM, keep_off=True) == "it could not be saved: disk full"
        await asyncio.sleep(60)
        assert units_of(bench).batches == []


async def test_an_unlisted_unit_is_refused_and_a_hold_needs_systemd() -> None:
    bench = fight()
    async with bench.running():
        told = await word(bench, "foo.service", keep_off=True)
        assert told is not None
        assert told.startswith("foo.service is not listed: ")
    bench = fight()
    bench.rivals = None
    async with bench.running():
        assert "without systemd" in str(await word(bench, VLLM, keep_off=True))
        assert any(mark.startswith("rivals-not-held: ") for mark in status(bench)["degraded"])
        await bench.ask(Ask.START)
        await bench.until("starting")


async def test_another_configuration_lists_other_units() -> None:
    bench = fight(Units(vllm=Unit(), ollama=Unit()), want=Want.UP)
    units = units_of(bench)
    async with bench.running():
        await bench.until("starting")
        await bench.loop.redefine(bench.defined(), frozenset({"ollama.service"}))
        await until(lambda: rival(bench, "ollama.service")["off"])
        assert units.batches[-1] == ("hold", frozenset({"ollama.service"}))
        assert rival(bench)["why"] == f"off; held, and not listed any more: gpuagent release {VLLM}"
        assert await word(bench, VLLM, keep_off=False) is None
        await until(lambda: not units.units[VLLM].held)


async def test_a_hold_that_root_alone_still_knows_is_one_until_it_is_released() -> None:
    """The state was lost; of these units one is listed, and one not any more."""
    bench = fight(Units(vllm=Unit(on=False, held=True), old=Unit(on=False, held=True)))
    units = units_of(bench)
    units.recorded = {VLLM: 1000.0, "old.service": 2000.0}
    async with bench.running():
        await bench.until("down")
        await until(lambda: rival(bench)["off"])
        assert [(each["unit"], each["in_force"]) for each in status(bench)["holds"]] == [
            ("old.service", True), (VLLM, True),
        ]  # fmt: skip
        assert rival(bench, "old.service")["why"] == "off; held, and not listed any more: gpuagent release old.service"
        assert rival(bench)["since"] == "1970-01-01T00:16:40.000Z"
        assert await word(bench, "old.service", keep_off=False) is None
        await until(lambda: not units.units["old.service"].held)
        assert units.batches == [("release", frozenset({"old.service"}))]
        assert bench.disk.holds.held.keys() == {VLLM}


async def test_what_is_decided_when_an_agent_is_told_to_end_is_saved() -> None:
    bench = fight()
    async with bench.running():
        await bench.until("down")
        answer = bench.loop.hold(VLLM, True)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert answer.result() in (None, "the agent is ending")
    assert (answer.result() is None) is (VLLM in bench.disk.holds.held)


async def test_units_are_looked_at_seldom_while_nothing_happens() -> None:
    bench = fight()
    units = units_of(bench)
    async with bench.running():
        await bench.until("down")
        before = units.looks
        await asyncio.sleep(600)
        assert units.looks - before < 130


async def test_a_release_that_is_refused_is_told_until_it_is_done_and_tried_seldom() -> None:
    bench = fight(want=Want.UP)
    units = units_of(bench)
    async with bench.running():
        await bench.until("starting")
        units.down = "read-only file system"
        tried: list[str] = []
        units.before = lambda verb, them: tried.append(verb)
        assert await word(bench, VLLM, keep_off=False) is None
        await until(lambda: tried)
        for _ in range(60):
            await asyncio.sleep(5)
            assert rival(bench)["why"] in ("could not be released: read-only file system", "being released")
        assert rival(bench)["why"] == "could not be released: read-only file system"
        assert f"hold: {VLLM}: could not be released: read-only file system" in status(bench)["degraded"]
        assert len(tried) < 12
        units.down = None
        await until(lambda: rival(bench)["why"] == "released: not kept off")
