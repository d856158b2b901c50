"""The CLI against the real API; and that the fake agent speaks like it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from agent.api.app import build
from agent.api.schema import ProblemDocument, ServerDocument, StatusDocument
from agent.api.serve import ApiThread
from agent.board import Board, ServerPage, Snapshot
from agent.core.model import Ask
from tests.cli.conftest import Call
from tests.cli.fake_agent import Document, FakeAgent, failed, problem, server


class House:
    """The API around a board that the test writes on. `refusal`: the loop's answer to a change."""

    def __init__(self, log: Path) -> None:
        self.board = Board()
        self.log = log
        self.refusal: str | None = None
        self.asked: list[tuple[str, Ask, bool]] = []
        self._version = 0

    def show(self, document: Document) -> None:
        """Let the board show this one server."""
        self._version += 1
        full = json.dumps(document).encode()
        page = ServerPage(
            name=document["name"],
            stage=document["stage"],
            wanted=document["want"] == "up",
            dead=document["stage"] == "failed",
            stalled=document["stalled"],
            log=self.log,
            full=full,
            public=full,
        )
        status = FakeAgent(Path(), [document]).answer("GET", "/status")[1]
        body = json.dumps(status).encode()
        snapshot = Snapshot(version=self._version, servers={page.name: page}, full=body, public=body)
        self.board.publish(snapshot)

    def ask(self, name: str, ask: Ask, gpu_check: bool) -> Future[str | None]:
        """The loop, as the API sees it."""
        self.asked.append((name, ask, gpu_check))
        answer: Future[str | None] = Future()
        answer.set_result(self.refusal)
        return answer


@pytest.fixture
def house(socket: Path, tmp_path: Path) -> Iterator[House]:
    log = tmp_path / "server.log"
    log.write_bytes(b"one\ntwo\nthree\n")
    house = House(log)
    api = ApiThread(build(house.board, house.ask, "0", socket), None, socket)
    api.start()
    yield house
    house.board.close()
    api.stop(10.0)


def test_every_command_that_reads_understands_the_real_api(call: Call, house: House) -> None:
    house.show(failed())
    assert call("stage").stdout == "failed\n"
    assert "out of memory" in call("status").stdout
    assert "give it fewer layers" in call("why", "demo").stdout
    assert call("log", "-n", "2").stdout == "two\nthree\n"
    assert call("wait").exit_code == 3
    assert "Defined are: demo" in call("stage", "nemo").stderr


def test_waiting_understands_the_real_api(call: Call, house: House) -> None:
    house.show(server(stage="starting", why="launched"))
    assert call("wait", "--timeout", "0.05").exit_code == 4
    house.show(server(stage="starting", why="launched", stalled=True))
    assert call("wait", "--timeout", "0.05").exit_code == 5
    house.show(server(stage="down", want=None))
    assert call("wait").exit_code == 3
    assert call("stop", "--wait").exit_code == 0
    house.show(server())
    assert call("wait").exit_code == 0


def test_changing_understands_the_real_api(call: Call, house: House) -> None:
    house.show(server())
    assert call("start", "--without-gpu-check", "--wait").exit_code == 0
    assert house.asked == [("demo", Ask.START, False)]
    house.refusal = "the state cannot be saved"
    result = call("restart")
    assert (result.exit_code, "the state cannot be saved" in result.stderr) == (7, True)


def test_an_agent_that_has_not_looked_around_yet_is_unreachable(call: Call, house: House) -> None:
    result = call("status")
    assert result.exit_code == 6
    assert "just started" in result.stderr


def test_the_fake_agent_speaks_as_the_schema_says() -> None:
    for document in (server(), failed()):
        ServerDocument.model_validate_json(json.dumps(document))
    StatusDocument.model_validate_json(json.dumps(FakeAgent(Path()).answer("GET", "/status")[1]))
    for more in ({"known": ["demo"]}, {"stage": "down", "cause": None}, {"stage": "starting", "progress": "stalled"}):
        ProblemDocument.model_validate_json(json.dumps(problem(409, "no", **more)[1]))
