"""An asyncio loop whose clock is virtual: it jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

STUCK_S = 30.0
"""Real seconds without a timer or a thread's call: the test waits for something that will never come."""


class VirtualSelector(selectors.DefaultSelector):
    """Never sleeps for a timer: moves the clock. Real files and threads' calls are still seen."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0  # not 0, so that a time that was forgotten to be set shows

    def select(self, timeout: float | None = None) -> list[Any]:
        """What is ready now; else jump ahead by `timeout`."""
        if timeout is None:
            ready = super().select(STUCK_S)
            if not ready:
                raise RuntimeError("nothing will ever happen in this loop")
            return ready
        ready = super().select(0)
        if not ready:
            self.now += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """For anyio: `("asyncio", {"loop_factory": VirtualLoop})`."""

    def __init__(self) -> None:
        self._virtual = VirtualSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Virtual seconds."""
        return self._virtual.now
