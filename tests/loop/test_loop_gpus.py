"""The GPUs in the loop: who is waited for, how often they are read, and that nobody waits for a driver that hangs."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent.core.gpu_seen import REMEDY, GpuState, GpuUse, HolderKind, ProcessOwner
from agent.core.model import Ask, Policy, Saved
from agent.gpu_watch import CLOSE_S, IDLE_S, LATE, LATELY_S, NOBODY, UNREAD
from tests.loop.driver import Driver
from tests.loop.outside import Bench

pytestmark = pytest.mark.anyio

NEEDS = Policy(gpus=("0",), need_mib=60_000)
FAULTS = [state for state in GpuState if state is not GpuState.OK]
SINCE = 1_767_323_045.0


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
async def bench(driver: Driver) -> AsyncIterator[Bench]:
    """One server called "one", which needs 60,000 MiB of GPU 0."""
    bench = Bench({"one": Saved()}, NEEDS)
    bench.gpus = driver.eyes
    async with bench.running():
        yield bench
    assert driver.opened == driver.closed


def said(bench: Bench) -> dict[str, Any]:
    """The document of the only server."""
    document: dict[str, Any] = json.loads(bench.board.read().servers["one"].full)
    return document


def status(bench: Bench) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(bench.board.read().full)
    return document


def pages(bench: Bench) -> dict[str, Any] | None:
    """GET /gpus."""
    content = bench.board.read().gpus
    return None if content is None else json.loads(content)


async def until_why(bench: Bench, words: str) -> None:
    for _ in range(1000):
        if words in said(bench)["why"]:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"never said {words}: {said(bench)['why']}")


def held(driver: Driver, free_mib: int) -> None:
    """Somebody else's unit holds memory."""
    driver.free_mib, driver.uses = free_mib, (GpuUse(4123, 62_669),)
    driver.owners[4123] = ProcessOwner(pid=4123, kind=HolderKind.UNIT, owner="vllm.service", since=SINCE)


async def test_a_server_is_launched_when_its_gpus_have_had_room_for_some_readings(bench: Bench, driver: Driver) -> None:
    await bench.ask(Ask.START)
    await bench.until_launched(1)


async def test_who_holds_the_memory_is_named_and_the_launch_comes_once_it_is_back(bench: Bench, driver: Driver) -> None:
    held(driver, 10_000)
    await bench.ask(Ask.START)
    await bench.until("clearing")
    await asyncio.sleep(30)
    assert said(bench)["why"] == (
        "GPU 0: 9.7 GiB free, 58.6 GiB needed: 61.2 GiB held by vllm.service, pid 4123, since 2026-01-02 03:04:05 UTC"
    )
    assert bench.world.launched == []
    driver.free_mib, driver.uses = 70_000, ()
    await bench.until_launched(1)


@pytest.mark.parametrize("state", FAULTS)
async def test_while_the_driver_tells_nothing_that_is_named_and_nothing_is_launched(
    bench: Bench, driver: Driver, state: GpuState
) -> None:
    driver.state = state
    await bench.ask(Ask.START)
    await bench.until("waiting")
    await until_why(bench, f"{UNREAD[state]}: it says nothing; {REMEDY[state]}")
    (need,) = said(bench)["needs"]
    assert (need["name"], need["slug"], need["remedy"]) == ("gpus", "gpus_unread", REMEDY[state])
    await asyncio.sleep(10)
    marks = [] if state is GpuState.OPENING else [f"gpus: {state}: {REMEDY[state]}"]
    assert status(bench)["degraded"] == marks
    assert (status(bench)["gpus"]["state"], bench.stage(), bench.world.launched) == (state, "waiting", [])
    driver.state = GpuState.OK
    await bench.until_launched(1)
    await asyncio.sleep(2)
    assert (status(bench)["degraded"], said(bench)["needs"]) == ([], [])


async def test_nothing_is_launched_on_a_reading_from_before_the_driver_hung_and_a_stop_waits_for_no_driver(
    bench: Bench, driver: Driver
) -> None:
    await asyncio.sleep(5)
    assert status(bench)["gpus"]["state"] == "ok"
    driver.takes_s = 3600.0
    await bench.ask(Ask.START)
    await until_why(bench, LATE)
    await asyncio.sleep(10)
    assert (bench.stage(), bench.world.launched) == ("waiting", [])
    await bench.ask(Ask.STOP)
    await bench.until("down")


async def test_a_start_without_the_check_waits_for_no_driver(bench: Bench, driver: Driver) -> None:
    driver.state = GpuState.HUNG
    await bench.ask(Ask.START)
    await until_why(bench, "GPU driver hung")
    await asyncio.wrap_future(bench.loop.ask("one", Ask.START, gpu_check=False))
    await bench.until_launched(1)


async def test_a_gpu_that_is_lost_while_its_server_runs_ends_nothing(bench: Bench, driver: Driver) -> None:
    await bench.ask(Ask.START)
    await bench.until_launched(1)
    for driver.state in FAULTS:
        await asyncio.sleep(20)
    assert bench.world.signals == []
    assert bench.stage() == "starting"


async def test_they_are_read_once_a_second_and_often_while_a_server_begins(bench: Bench, driver: Driver) -> None:
    def pauses(since: int) -> list[float]:
        at = driver.read_at[since:]
        return [later - earlier for earlier, later in itertools.pairwise(at)]

    await asyncio.sleep(10)
    assert pauses(1) == pytest.approx([IDLE_S] * len(pauses(1)), abs=0.05)
    held(driver, 10_000)
    await bench.ask(Ask.START)
    await bench.until("clearing")
    began = len(driver.read_at)
    await asyncio.sleep(10)
    assert max(pauses(began)) < 2 * CLOSE_S
    driver.free_mib = 70_000
    await bench.until_launched(1)
    began = len(driver.read_at)
    await asyncio.sleep(10)
    assert pauses(began) == pytest.approx([CLOSE_S] * len(pauses(began)), abs=0.05)


async def test_the_processes_of_a_server_are_shown_as_its_own(bench: Bench, driver: Driver) -> None:
    await bench.ask(Ask.START)
    await bench.until_launched(1)
    (main,) = bench.world.processes
    driver.uses = (GpuUse(main.pid, 1000), GpuUse(9, None))
    await asyncio.sleep(5)
    shown = pages(bench)
    assert shown is not None
    first, other = shown["devices"][0]["holders"]
    assert (first["kind"], first["owner"], first["mib"]) == ("ours", "one", 1000)
    assert (other["pid"], other["mib"], other["since"]) == (9, None, None)


async def test_figures_that_have_not_changed_to_the_eye_are_no_event(bench: Bench, driver: Driver) -> None:
    await asyncio.sleep(5)
    number = bench.board.journal.latest[""].number
    for driver.free_mib in (70_010, 70_001, 69_999):
        await asyncio.sleep(5)
        shown = pages(bench)
        assert shown is not None
        assert shown["devices"][0]["free_mib"] == driver.free_mib
    assert bench.board.journal.latest[""].number == number


async def test_where_no_server_names_a_gpu_none_is_read_until_somebody_asks(driver: Driver) -> None:
    bench = Bench({"one": Saved()})
    bench.gpus = driver.eyes
    async with bench.running():
        await bench.ask(Ask.START)
        await bench.until_launched(1)
        await asyncio.sleep(100)
        assert (driver.opened, pages(bench), status(bench)["gpus"]["state"]) == (0, None, "not_read")
        driver.state = GpuState.NO_LIBRARY
        bench.gpu_watch.ask()
        await asyncio.sleep(1)
        shown = pages(bench)
        assert shown is not None
        assert (driver.opened, driver.closed, shown["state"]) == (1, 0, "no_library")
        assert status(bench)["degraded"] == []
        await asyncio.sleep(LATELY_S + 2)
        assert (driver.opened, driver.closed, pages(bench)) == (1, 1, None)


async def test_a_reader_that_hangs_is_kept_when_nobody_asks_so_that_there_is_never_another(driver: Driver) -> None:
    bench = Bench({"one": Saved()})
    bench.gpus, driver.state, driver.stuck = driver.eyes, GpuState.HUNG, 77
    async with bench.running():
        for _ in range(3):
            bench.gpu_watch.ask()
            await asyncio.sleep(LATELY_S + 2)
            assert (driver.opened, driver.closed) == (1, 0)
        driver.stuck = None
        await asyncio.sleep(2)
        assert driver.closed == 1


@pytest.mark.parametrize(
    ("owner", "named"),
    [
        (ProcessOwner(pid=7, kind=HolderKind.OURS, owner="chat"), "server chat"),
        (ProcessOwner(pid=7, kind=HolderKind.UNIT, owner="vllm.service", name="python3"), "vllm.service"),
        (ProcessOwner(pid=7, kind=HolderKind.CONTAINER, owner="docker 0123456789ab", name="python3"), "docker 0123"),
        (ProcessOwner(pid=7, kind=HolderKind.STRAY, owner="/user.slice", name="python3", user="ann"), "python3 of ann"),
        (ProcessOwner(pid=7, kind=HolderKind.STRAY, owner="a hidden process"), "a hidden process"),
        (
            ProcessOwner(pid=7, kind=HolderKind.GHOST, owner="it has just ended"),
            "an unknown process (it has",
        ),
        (None, "stray"),
    ],
)
async def test_every_kind_of_holder_has_a_name(
    bench: Bench, driver: Driver, owner: ProcessOwner | None, named: str
) -> None:
    driver.free_mib, driver.uses = 10_000, (GpuUse(7, 1024),)
    driver.owners = {} if owner is None else {7: owner}
    await bench.ask(Ask.START)
    await until_why(bench, f"1.0 GiB held by {named}")


async def test_without_anything_that_could_read_them_a_server_with_gpus_waits_and_says_so() -> None:
    bench = Bench({"one": Saved()}, NEEDS)
    async with bench.running():
        await bench.ask(Ask.START)
        await bench.until("waiting")
        await until_why(bench, NOBODY)
