"""What is said of needs that are not met: each by name, and since when."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agent.core.model import Ask, Cause, Need, Retry
from tests.loop.outside import Bench

pytestmark = pytest.mark.anyio


def need(text: str, subject: str = "/models", name: str = "space", *, heals: bool = True) -> Need:
    cause = Cause(slug="space_low", text=text, remedy="free it", retry=Retry.WAIT if heals else Retry.NO)
    return Need(name=name, cause=cause, heals=heals, subject=subject)


def said(bench: Bench) -> list[dict[str, Any]]:
    """The needs of the only server, as the API tells them."""
    found: list[dict[str, Any]] = json.loads(bench.board.read().servers["one"].full)["needs"]
    return found


def since(bench: Bench) -> dict[str, float | None]:
    """Subject -> since when, on the loop's own clock."""
    return {each.subject: each.since for each in bench.loop._states["one"].seen.needs or ()}


async def test_a_need_keeps_its_time_while_its_figures_change_and_gets_another_when_it_comes_back(bench: Bench) -> None:
    bench.world.unmet = (need("5 MiB free"),)
    await bench.ask(Ask.START)
    await bench.until("waiting")
    await asyncio.sleep(10)
    (first,) = said(bench)
    assert (first["name"], first["subject"], first["heals"]) == ("space", "/models", True)
    began = since(bench)["/models"]
    assert began is not None
    bench.world.unmet = (need("4 MiB free"), need("1 MiB free", "/cache"))
    await asyncio.sleep(10)
    assert [each["text"] for each in said(bench)] == ["4 MiB free", "1 MiB free"]
    assert since(bench)["/models"] == began
    assert since(bench)["/cache"] == pytest.approx(began + 10, abs=2)
    bench.world.unmet = (need("1 MiB free", "/cache"),)
    await asyncio.sleep(10)
    bench.world.unmet = (need("3 MiB free"),)
    await asyncio.sleep(10)
    assert since(bench) == {"/models": pytest.approx(began + 30, abs=2)}


async def test_what_a_server_fails_for_is_told_whole_and_nothing_is_once_it_starts(bench: Bench) -> None:
    bench.world.unmet = (need("5 MiB free"), need("no patch", name="patch", heals=False))
    await bench.ask(Ask.START)
    await bench.until("failed")
    assert [each["name"] for each in said(bench)] == ["space", "patch"]
    bench.world.unmet = ()
    await bench.until("starting")
    assert said(bench) == []
