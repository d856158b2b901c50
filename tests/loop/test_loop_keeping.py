"""The logs are looked after: from time to time, at each launch, and never the present one's in vain."""

from __future__ import annotations

import asyncio
import json

import pytest

from agent.core.model import Ask, Exit, Saved
from agent.errors import EdgeError
from agent.keeping import KEEP_S
from tests.loop.outside import Bench

pytestmark = pytest.mark.anyio


async def test_logs_are_looked_after_again_and_again_and_the_present_one_is_named() -> None:
    bench = Bench({"one": Saved()})
    async with bench.running():
        await asyncio.sleep(KEEP_S * 3.5)
        assert bench.world.kept == [frozenset()] * 4
        await bench.ask(Ask.START)
        await bench.until_launched(1)
        await asyncio.sleep(0.1)
        assert bench.world.kept[4:] == [frozenset(bench.world.launched)], "at the launch, too"


async def test_the_log_of_the_attempt_that_ended_is_spared_until_another_is_launched() -> None:
    bench = Bench({"one": Saved()})
    async with bench.running():
        await bench.ask(Ask.START)
        await bench.until_launched(1)
        bench.world.end(Exit(code=1))
        await bench.until("backing-off")
        await bench.until_launched(2)
        await asyncio.sleep(KEEP_S * 2)
        first, second = bench.world.launched
        assert first in bench.world.kept[-4]
        assert bench.world.kept[-1] == frozenset({second})


async def test_logs_that_cannot_be_bounded_are_said_and_change_nothing_else() -> None:
    bench = Bench({"one": Saved()})
    async with bench.running():
        bench.world.refuse_keep = EdgeError("log", "bound x.log", "its file system knows no holes")
        await bench.ask(Ask.START)
        await bench.until_launched(1)
        await asyncio.sleep(KEEP_S * 2)
        await bench.ask(Ask.STOP)
        await bench.until("down")
        marks = json.loads(bench.board.read().full)["degraded"]
        assert marks == ["log-not-bounded: one: log: bound x.log: its file system knows no holes"]
        bench.world.refuse_keep = None
        await asyncio.sleep(KEEP_S * 2)
        await bench.ask(Ask.START)
        await bench.until_launched(2)
        assert json.loads(bench.board.read().full)["degraded"] == []
