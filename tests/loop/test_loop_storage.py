"""The room on a server's disk, from its reading to what every face shows and what the loop does."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agent.core.model import Ask, Health, Policy, Saved
from agent.watch import LOOK_ELSE_S
from tests.loop.outside import PATIENCE_S, Bench

pytestmark = pytest.mark.anyio

STOP = Policy(on_disk_low="stop")


def shown(bench: Bench) -> Any:
    """The document of the server, over the socket."""
    return json.loads(bench.board.read().servers["one"].full)


def degraded(bench: Bench) -> list[str]:
    marks: list[str] = json.loads(bench.board.read().full)["degraded"]
    return marks


async def until(met: Any, what: str) -> None:
    end = asyncio.get_running_loop().time() + PATIENCE_S
    while not met():
        assert asyncio.get_running_loop().time() < end, f"never: {what}"
        await asyncio.sleep(0.1)


async def serve(bench: Bench) -> None:
    await bench.ask(Ask.START)
    await bench.until("starting")
    bench.world.health = Health.OK
    await bench.until("ready")


async def test_the_room_and_how_long_it_lasts_are_shown() -> None:
    bench = Bench({"one": Saved()})
    async with bench.running():
        await serve(bench)
        for _ in range(12):
            bench.world.free_mib -= 1000.0
            await asyncio.sleep(5.0)
        (disk,) = shown(bench)["storage"]
        assert (disk["path"], disk["state"], disk["free_inodes"]) == ("/srv", "ok", None)
        assert 100 < disk["lasts_s"] < 400
        assert json.loads(bench.board.read().servers["one"].public)["storage"] == []  # it names folders


async def test_little_room_is_told_to_everybody_and_the_server_goes_on() -> None:
    bench = Bench({"one": Saved()})
    async with bench.running():
        await serve(bench)
        bench.world.free_mib = 5000.0
        await until(lambda: any(mark.startswith("disk-warn: one: /srv") for mark in degraded(bench)), "a warning")
        bench.world.free_mib = 500.0
        await until(lambda: any(mark.startswith("disk-low: one: /srv") for mark in degraded(bench)), "too little")
        public = json.loads(bench.board.read().public)
        assert public["degraded"] == ["disk-low"]  # over TCP without the folder
        bench.world.free_mib = None
        await until(lambda: any(mark.startswith("storage-not-seen: one: /srv") for mark in degraded(bench)), "unknown")
        assert (bench.stage(), bench.world.signals) == ("ready", [])
        bench.world.free_mib = 50_000.0
        await until(lambda: degraded(bench) == [], "the end of it")


async def test_a_server_that_is_to_stop_does_and_comes_back_when_there_is_room() -> None:
    bench = Bench({"one": Saved()}, STOP)
    async with bench.running():
        await serve(bench)
        bench.world.free_mib = 500.0
        await bench.until("failed")
        assert bench.world.signals == ["TERM"]
        cause = shown(bench)["cause"]
        assert (cause["slug"], cause["retry"]) == ("disk_low", "wait")
        assert "500 MiB of 100.0 GiB free" in cause["text"]
        assert "/srv" not in bench.board.read().servers["one"].public.decode()
        await asyncio.sleep(60)
        assert bench.stage() == "failed"
        bench.world.free_mib = 50_000.0
        await bench.until_launched(2)
        bench.world.health = Health.OK
        await bench.until("ready")


async def test_a_disk_that_fills_fast_is_looked_at_once_a_second() -> None:
    bench = Bench({"one": Saved()}, STOP)
    async with bench.running():
        await serve(bench)
        bench.world.free_mib = 9000.0
        await until(lambda: shown(bench)["storage"][0]["state"] == "warn", "a warning")
        began = asyncio.get_running_loop().time()
        bench.world.free_mib = 500.0
        await bench.until("stopping")
        assert asyncio.get_running_loop().time() - began < 1.5  # virtual


async def test_at_rest_a_reading_of_the_disks_brings_no_look_of_its_own() -> None:
    bench = Bench({"one": Saved()})
    async with bench.running():
        await serve(bench)
        before = bench.world.looks
        await asyncio.sleep(600)
        assert bench.world.looks - before <= 600 / LOOK_ELSE_S + 1
