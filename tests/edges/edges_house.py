"""Real processes, files and sockets for the edges."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import anyio
import pytest

from agent.core.model import Exit
from agent.edges.child_server import ChildServer

FAKE = [sys.executable, "-S", str(Path(__file__).parents[1] / "fakes" / "server.py")]
PATIENCE_S = 30.0


async def until(met: Callable[[], Awaitable[Any]], what: str) -> Any:
    """The first true answer of `met`; fails after a generous time."""
    end = time.monotonic() + PATIENCE_S
    while not (answer := await met()):
        assert time.monotonic() < end, f"never came: {what}"
        await anyio.sleep(0.02)
    return answer


async def nothing_more_than(descriptors: set[str], threads: set[threading.Thread]) -> None:
    """Fails unless every other descriptor and thread of this process goes."""

    async def gone() -> bool:
        return set(os.listdir("/proc/self/fd")) <= descriptors and set(threading.enumerate()) <= threads

    await until(gone, "the end of every descriptor and thread")


class Attempt:
    """A ChildServer with what a test wants to know of it."""

    def __init__(self, folder: Path, mark: str, name: str) -> None:
        self.folder, self.mark, self.name = folder, mark, name
        self.exits: list[tuple[str, Exit]] = []
        self.made: list[ChildServer] = []

    def server(self, *command: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> ChildServer:
        given = dict(os.environ) if env is None else env
        server = ChildServer(self.name, command, lambda: given, cwd, self.mark)
        server.on_exit(lambda invocation, exit_: self.exits.append((invocation, exit_)))
        self.made.append(server)
        return server

    def fake(self, *flags: str) -> ChildServer:
        return self.server(*FAKE, *flags)

    def log(self, invocation: str = "i1") -> Path:
        return self.folder / "logs" / self.name / f"{invocation}.log"

    async def says(self, text: str, invocation: str = "i1") -> str:
        async def has() -> str:
            log = self.log(invocation)
            said = log.read_text() if log.exists() else ""
            return said if text in said else ""

        said: str = await until(has, f"{text!r} in the log")
        return said

    async def exit(self) -> Exit:
        async def came() -> bool:
            return bool(self.exits)

        await until(came, "the exit")
        assert len(self.exits) == 1
        return self.exits[0][1]


@pytest.fixture
async def attempt(tmp_path: Path) -> AsyncIterator[Attempt]:
    one = Attempt(tmp_path, uuid.uuid4().hex, "demo")
    yield one
    for server in one.made:
        await server.kill()

        async def empty(server: ChildServer = server) -> bool:
            return not (await server.look()).all

        await until(empty, "the end of every process")
        server.close()


@contextmanager
def background(*flags: str, first: str = "up") -> Iterator[Popen[bytes]]:
    """A fake server that is nobody's: it has said `first` when this begins."""
    process = Popen([*FAKE, *flags], stdout=PIPE)
    assert process.stdout is not None
    try:
        while first.encode() not in process.stdout.readline():
            assert process.poll() is None, "the fake server ended"
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()


@pytest.fixture
def port() -> int:
    """One that is free now."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        number: int = trial.getsockname()[1]
        return number
