"""What every floor shares."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from agent.edges import processes


@pytest.fixture
def anyio_backend() -> str:
    """The product runs on asyncio alone."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _no_zombies(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test, wait for what it left behind. An edge makes this process a subreaper, as it makes the agent: the
    orphans of a server that was killed come here, and thousands of them would slow every later look at /proc.

    Only those of other sessions: a child that a fixture of a wider scope has started is waited for by that.
    """
    yield
    if request.path.parent.name not in ("edges", "real"):
        return  # no other floor starts a server
    table = processes.scan()
    ours = table[os.getpid()].session
    for one in table.values():
        if one.ppid == os.getpid() and one.state == "Z" and one.session != ours:
            with suppress(ChildProcessError):
                os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOHANG)
