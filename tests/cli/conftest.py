"""A fake agent, and two ways to run the CLI against it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli import gpuagent
from tests.cli.api_house import House
from tests.cli.fake_agent import FakeAgent, listening

Call = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def socket() -> Iterator[Path]:
    """A place for a socket. Not below tmp_path: the kernel takes 107 characters, and pytest's folders are long."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder, "api.sock")


@pytest.fixture
def fake(socket: Path) -> Iterator[FakeAgent]:
    """A fake agent with one ready server, "demo"."""
    with listening(FakeAgent(socket)) as agent:
        yield agent


@pytest.fixture
def house(socket: Path, tmp_path: Path) -> Iterator[House]:
    """The real API, with a log of three lines."""
    log = tmp_path / "server.log"
    log.write_bytes(b"one\ntwo\nthree\n")
    house = House(socket, log)
    house.come()
    yield house
    house.board.close()
    house.leave()


@pytest.fixture
def call(socket: Path) -> Call:
    """`call("status", "--json")` runs the CLI in this process."""

    def run(*args: str, **more: Any) -> Result:
        return CliRunner().invoke(gpuagent, ["--socket", str(socket), *args], catch_exceptions=False, **more)

    return run


@pytest.fixture
def start(socket: Path) -> Iterator[Start]:
    """`start("log", "-f")` runs the CLI as a process, which ends with the test at the latest."""
    running: list[subprocess.Popen[str]] = []

    def begin(*args: str, **more: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "agent", *args],
            stdin=subprocess.DEVNULL,
            stdout=more.pop("stdout", subprocess.PIPE),
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"GPUAGENT_SOCKET": str(socket)},
            **more,
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
