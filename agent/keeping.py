"""Keeps the logs of one server within their bounds, now and then and at each new attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agent.errors import EdgeError
from agent.ports import Keeper

KEEP_S = 10.0
"""Between two times that the logs are brought back within their bounds."""


class Keeping:
    """`present`: the attempts whose logs must stay. `fault`: why it could not be done the last time."""

    def __init__(self, keeper: Keeper, present: Callable[[], frozenset[str]]) -> None:
        self.fault: str | None = None
        self._keeper = keeper
        self._present = present
        self._now = asyncio.Event()

    def now(self) -> None:
        """An attempt begins: make room for its log."""
        self._now.set()

    async def run(self) -> None:
        """Keep until cancelled."""
        while True:
            self._now.clear()
            try:
                await self._keeper.keep(self._present())
                self.fault = None
            except EdgeError as error:
                self.fault = str(error)
            await wait(self._now, KEEP_S)


async def wait(event: asyncio.Event, pause_s: float | None) -> None:
    """Until the event is set or the pause is over; None: only the event."""
    try:
        async with asyncio.timeout(pause_s):
            await event.wait()
    except TimeoutError:
        return
