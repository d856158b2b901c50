"""The real loop on a virtual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent.core.model import Saved
from tests.loop.outside import Bench
from tests.loop.virtual import VirtualLoop


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """asyncio, on a clock that jumps."""
    return "asyncio", {"loop_factory": VirtualLoop}


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """One server called "one", wanted by nobody yet; the loop runs until the test ends."""
    bench = Bench({"one": Saved()})
    async with bench.running():
        yield bench
