"""The CLI as a process: streams, pipes, signals, and what it costs."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Call, Start
from tests.cli.fake_agent import FakeAgent, hold, listening, server

DEADLINE_S = 30.0  # generous: the machine may be busy


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line that it prints, however long that takes; the deadline ends the process."""
    assert process.stdout is not None
    guard = threading.Timer(DEADLINE_S, process.kill)
    guard.start()
    try:
        return process.stdout.readline()
    finally:
        guard.cancel()


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and stderr after a Ctrl-C."""
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, err


def test_stage_imports_nothing_that_is_slow(fake: FakeAgent) -> None:
    program = """
import sys
from agent.cli import gpuagent
try:
    gpuagent(["stage"])
finally:
    print(*{name.partition(".")[0] for name in sys.modules}, *sys.modules)
"""
    environment = os.environ | {"GPUAGENT_SOCKET": str(fake.socket)}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    word, _, modules = ended.stdout.partition("\n")
    imported = set(modules.split())
    assert word == "ready"
    assert "agent.cli.stage" in imported
    slow = {"fastapi", "starlette", "pydantic", "httpx", "httpx2", "rich", "uvicorn", "asyncio", "psutil", "structlog"}
    assert not imported & slow
    ours = {name for name in imported if name.startswith("agent.")}
    assert not {name for name in ours if not name.startswith(("agent.cli", "agent.socket_path"))}


def test_python_m_agent_and_the_entry_point_are_the_same(start: Start, fake: FakeAgent) -> None:
    assert start("stage").communicate(timeout=DEADLINE_S) == ("ready\n", "")


def test_watch_in_a_pipe_prints_a_line_a_change(start: Start, fake: FakeAgent) -> None:
    process = start("status", "--watch")
    assert line_of(process).startswith("demo  ready  ")
    fake.servers = [server(stage="unhealthy", why="it does not answer")]
    assert line_of(process).endswith("it does not answer\n")
    fake.degraded = ["bus"]
    assert line_of(process) == "degraded: bus\n"
    fake.degraded = []
    assert line_of(process) == "degraded: no more\n"
    fake.holds = [hold("a.service", in_force=False, why="is active")]
    assert line_of(process) == "hold not in force: a.service: is active\n"
    fake.holds = [hold("a.service")]
    assert line_of(process) == "every hold is in force\n"
    assert interrupted(process) == (130, "")


def test_watch_prints_no_line_while_only_a_number_counts(start: Start, fake: FakeAgent) -> None:
    measured = {"stage": "starting", "step": "loading-weights"}
    fake.servers = [server(**measured, progress=0.31, why="31 %")]
    process = start("status", "--watch")
    assert "31 %" in line_of(process)
    for percent in range(32, 40):
        fake.servers = [server(**measured, progress=percent / 100, why=f"{percent} %")]
    fake.servers = [server(**measured, progress=0.4, why="40 %")]
    assert line_of(process).endswith("40 %\n")


def test_watch_says_when_the_agent_goes_and_when_it_comes_back(start: Start, socket: Path) -> None:
    with listening(FakeAgent(socket)):
        process = start("status", "--watch")
        assert line_of(process).startswith("demo  ready")
    assert line_of(process).startswith("the agent is gone: ")
    with listening(FakeAgent(socket, [server(stage="starting")])):
        assert line_of(process) == "the agent is back\n"
        assert line_of(process) == "some changes were not seen: too much has changed since\n"
        assert line_of(process).startswith("demo  starting")


def test_watch_as_json_prints_a_document_a_change(start: Start, fake: FakeAgent) -> None:
    process = start("status", "--watch", "--json")
    assert json.loads(line_of(process))["servers"] == [server()]
    fake.servers = [server(stage="stopping")]
    assert json.loads(line_of(process))["servers"] == [server(stage="stopping")]


def test_watch_without_an_agent_ends_at_once(call: Call, socket: Path) -> None:
    assert call("status", "--watch").exit_code == 6


def test_watch_on_a_terminal_draws_a_bar_and_brings_the_cursor_back(start: Start, fake: FakeAgent) -> None:
    fake.servers = [server(stage="starting", step="loading-weights", progress=0.5, why="half \x1b[2Jof it")]
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 120))
    process = start("status", "--watch", stdout=slave)
    os.close(slave)
    drawn = read_until(master, "half of it")
    assert "loading-weights 50 %" in drawn
    assert "━" in drawn  # rich's bar
    process.send_signal(signal.SIGTERM)
    assert "\x1b[?25h" in drawn + read_until(master, "\x1b[?25h")
    process.communicate(timeout=DEADLINE_S)
    os.close(master)
    assert process.returncode == 128 + signal.SIGTERM


def read_until(terminal: int, text: str) -> str:
    """What a terminal was sent, up to `text`."""
    end = time.monotonic() + DEADLINE_S
    seen = b""
    while text.encode() not in seen and time.monotonic() < end:
        try:
            seen += os.read(terminal, 65536)
        except OSError:  # EIO: the other end is closed
            break
    return seen.decode(errors="replace")


def test_log_prints_the_bytes_as_they_are(start: Start, fake: FakeAgent) -> None:
    fake.log = (b"a \x1b[31mred\x1b[0m line\n", "größe\n".encode())
    assert start("log", "-n", "5").communicate(timeout=DEADLINE_S)[0] == "a \x1b[31mred\x1b[0m line\ngröße\n"
    assert fake.asked[-1][0] == "GET /servers/demo/log?lines=5"


def test_log_on_a_terminal_is_harmless(start: Start, fake: FakeAgent) -> None:
    fake.log = (b"a \x1b[2Jre", b"d\x9b line\xff\r\nthe last")
    master, slave = pty.openpty()
    start("log", stdout=slave)
    os.close(slave)
    shown = read_until(master, "the last")
    os.close(master)
    assert shown.splitlines()[:2] == ["a red\ufffd line\ufffd", "the last"]


def test_log_as_json_is_an_object_a_line(call: Call, fake: FakeAgent) -> None:
    fake.log = (b"on", b"e\ntwo\n\n", b"open end")
    lines = [json.loads(line) for line in call("log", "--json").stdout.splitlines()]
    assert lines == [{"line": "one"}, {"line": "two"}, {"line": ""}, {"line": "open end"}]


def test_log_follow_shows_a_line_as_soon_as_it_comes(start: Start, fake: FakeAgent) -> None:
    go_on = threading.Event()

    def slowly() -> Iterator[bytes]:
        yield b"first\n"
        go_on.wait(DEADLINE_S)
        yield b"second\n"

    fake.log = slowly()
    process = start("log", "-f")
    assert line_of(process) == "first\n"
    assert fake.asked[-1][0] == "GET /servers/demo/log?lines=100&follow=1"
    go_on.set()
    assert line_of(process) == "second\n"
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 6
    assert "the agent is ending" in err


def test_ctrl_c_ends_a_follower_quietly(start: Start, fake: FakeAgent) -> None:
    for_ever = threading.Event()

    def silent() -> Iterator[bytes]:
        yield b"first\n"
        for_ever.wait(DEADLINE_S)

    fake.log = silent()
    process = start("log", "-f")
    assert line_of(process) == "first\n"
    assert interrupted(process) == (130, "")
    for_ever.set()


@pytest.mark.parametrize("command", [["log"], ["log", "--json"], ["status", "--watch"]])
def test_a_reader_that_has_seen_enough_ends_it_quietly(start: Start, fake: FakeAgent, command: list[str]) -> None:
    fake.log = [b"x" * 1000 + b"\n"] * 1000
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = start(*command, stdout=write_end)
    os.close(write_end)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (141, "")


def test_what_the_encoding_of_the_terminal_does_not_know_ends_no_command(fake: FakeAgent) -> None:
    fake.servers = [server(why="läuft 😀")]
    ended = subprocess.run(
        [sys.executable, "-m", "agent", "wait"],
        env=os.environ | {"GPUAGENT_SOCKET": str(fake.socket), "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        timeout=DEADLINE_S,
    )
    assert (ended.returncode, ended.stdout) == (0, "demo: ready: läuft ?\n".encode("latin-1"))
