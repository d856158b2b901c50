"""`gpuagent ready` against the real API, with a socket in systemd's place: what gpuagent-ready@ does for its jobs."""

from __future__ import annotations

import socket as sockets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.api_house import House
from tests.cli.conftest import Start
from tests.cli.fake_agent import FakeAgent, failed, listening, problem, server
from tests.cli.test_cli_processes import DEADLINE_S


class Systemd:
    """What the process tells it."""

    def __init__(self, path: Path) -> None:
        self._socket = sockets.socket(sockets.AF_UNIX, sockets.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(DEADLINE_S)
        self.path = str(path)

    def hears(self) -> str:
        """The next that it says. TimeoutError: nothing for long."""
        return self._socket.recv(65536).decode()

    def hears_until(self, part: str) -> list[str]:
        """All that it says until it says this, that included."""
        said: list[str] = []
        while not said or part not in said[-1]:
            said.append(self.hears())
        return said

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def systemd(socket: Path) -> Iterator[Systemd]:
    listener = Systemd(socket.with_name("notify.sock"))
    yield listener
    listener.close()


@pytest.fixture
def begin(start: Start, systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`begin("demo")` runs it as systemd would."""
    monkeypatch.setenv("NOTIFY_SOCKET", systemd.path)
    return lambda *names: start("ready", *names)


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code, and what it wrote for the journal."""
    _, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, err


def test_it_tells_systemd_once_that_the_server_is_ready_and_follows_it(
    begin: Any, house: House, systemd: Systemd
) -> None:
    house.show(server(stage="starting", why="launched"))
    process = begin("demo")
    assert systemd.hears_until("launched") == ["STATUS=demo: starting: launched"]
    house.show(server(why="it answers"))
    assert systemd.hears_until("answers") == ["READY=1", "STATUS=demo: ready: it answers"]
    house.show(server(why="it answers in 3 ms: größer, schneller"))
    assert systemd.hears_until("ms") == ["STATUS=demo: ready: it answers in 3 ms: größer, schneller"]
    assert process.poll() is None


@pytest.mark.parametrize(
    "document",
    [
        failed(),
        server(stage="unhealthy", why="it does not answer"),
        server(stage="stopping", why="asked to stop"),
        server(invocation="def-2", why="launched anew"),
    ],
    ids=["failed", "unhealthy", "stopping", "another launch"],
)
def test_it_ends_when_the_server_is_not_ready_any_more(
    begin: Any, house: House, systemd: Systemd, document: dict[str, Any]
) -> None:
    house.show(server())
    process = begin("demo")
    systemd.hears_until("answers")
    house.show(document)
    code, said = end(process)
    assert (code, said) == (3, f"gpuagent: not ready any more: demo: {document['stage']}: {document['why']}\n")


def test_a_server_that_fails_before_it_was_ready_is_waited_for(begin: Any, house: House, systemd: Systemd) -> None:
    house.show(failed())
    process = begin("demo")
    systemd.hears_until("gave up")
    house.show(server())
    assert "READY=1" in systemd.hears_until("answers")
    assert process.poll() is None


def test_the_agents_restart_says_nothing_about_the_server(begin: Any, house: House, systemd: Systemd) -> None:
    house.show(server())
    process = begin("demo")
    systemd.hears_until("answers")
    house.leave()
    assert systemd.hears().startswith("STATUS=the agent is away, and what it said last still counts: ")
    house.begin_anew()
    house.show(server(why="adopted"))
    house.come()
    assert systemd.hears_until("adopted") == ["STATUS=demo: ready: adopted"]
    assert process.poll() is None


def test_what_happened_while_the_agent_was_away_is_told_once_it_is_back(
    begin: Any, house: House, systemd: Systemd
) -> None:
    house.show(server())
    process = begin("demo")
    systemd.hears_until("answers")
    house.leave()
    systemd.hears_until("away")
    house.begin_anew()
    house.show(server(invocation="def-2", why="came back meanwhile"))
    house.come()
    code, said = end(process)
    assert code == 3
    outage, last = said.splitlines()  # one line an outage, however long
    assert outage.endswith("; asking until it answers")
    assert last == "gpuagent: not ready any more: demo: ready: came back meanwhile"


def test_it_may_begin_before_the_agent(begin: Any, house: House, systemd: Systemd) -> None:
    house.leave()
    process = begin("demo")
    assert systemd.hears().startswith("STATUS=the agent is away")
    house.show(server())
    house.come()
    assert "READY=1" in systemd.hears_until("answers")
    assert process.poll() is None


@pytest.mark.parametrize("status", [403, 500, 503])
def test_an_agent_that_answers_with_an_error_is_asked_again(
    begin: Any, socket: Path, systemd: Systemd, status: int
) -> None:
    agent = FakeAgent(socket, special={"GET /events": problem(status, "not now")})
    with listening(agent):
        process = begin("demo")
        systemd.hears_until("not now")
        agent.special.clear()
        assert "READY=1" in systemd.hears_until("answers")
        assert process.poll() is None


def test_a_server_that_is_not_defined_any_more_is_not_ready(begin: Any, fake: FakeAgent, systemd: Systemd) -> None:
    process = begin("demo")
    systemd.hears_until("answers")
    fake.servers = [server("other")]
    assert end(process) == (3, "gpuagent: not ready any more: it is not defined\n")


def test_a_server_that_is_not_defined_yet_is_waited_for(begin: Any, fake: FakeAgent, systemd: Systemd) -> None:
    fake.servers = [server("other")]
    process = begin("demo")
    assert systemd.hears() == "STATUS=it is not defined"
    fake.servers = [server("other", why="not this one"), server()]
    assert systemd.hears_until("demo: ready")[0] == "READY=1"
    assert process.poll() is None
