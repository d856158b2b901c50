"""POST /reload: over the socket, whole or not at all, with every fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

import httpx2
import pytest

from agent.api import reload as reloading
from agent.api.app import build
from agent.api.reload import impossible
from agent.api.schema import ProblemDocument, ReloadDocument
from agent.api.serve import ApiThread
from agent.board import Board
from agent.errors import ConfigError, EdgeError

Answer = Callable[[], "Future[Mapping[str, Sequence[str]]]"]


class House:
    """An API whose loop answers a reload as the test says."""

    def __init__(self, folder: Path) -> None:
        self.board = Board()
        self.socket = folder / "api.sock"
        self.answer: Answer = impossible
        self.asked = 0
        self.port: int | None = None

    def reload(self) -> Future[Mapping[str, Sequence[str]]]:
        self.asked += 1
        return self.answer()

    def post(self) -> httpx2.Response:
        transport = httpx2.HTTPTransport(uds=str(self.socket))
        with httpx2.Client(transport=transport, base_url="http://localhost", timeout=60) as client:
            return client.post("/reload")


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)

    def ask(*_: object) -> Future[str | None]:
        raise AssertionError("nobody asked for a change")

    app = build(house.board, ask, "0.1.0", house.socket, reload=house.reload)
    thread = ApiThread(app, ("127.0.0.1", 0), house.socket)
    thread.start()
    house.port = thread.port
    yield house
    house.board.close()
    thread.stop(30)


def raises(error: Exception) -> Answer:
    def answer() -> Future[Mapping[str, Sequence[str]]]:
        future: Future[Mapping[str, Sequence[str]]] = Future()
        future.set_exception(error)
        return future

    return answer


def test_what_has_changed_is_answered(house: House) -> None:
    future: Future[Mapping[str, Sequence[str]]] = Future()
    servers = {"added": ("b",), "removed": (), "changed": ("a",), "later": ("agent.listen",)}
    future.set_result({**servers, "listed": ("c.service",), "unlisted": ()})
    house.answer = lambda: future
    answer = house.post()
    assert answer.status_code == 200
    servers = {"added": ["b"], "removed": [], "changed": ["a"], "later": ["agent.listen"]}
    assert answer.json() == {**servers, "listed": ["c.service"], "unlisted": []}
    ReloadDocument.model_validate_json(answer.content)


def test_a_configuration_that_is_wrong_is_a_422_with_every_fault(house: House) -> None:
    house.answer = raises(ConfigError(["/etc/x.toml: servers.a.port: is missing; add it", "/etc/x.toml: b: no; c"]))
    answer = house.post()
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    problem = ProblemDocument.model_validate_json(answer.content)
    assert "the last good one stays in force" in problem.detail
    assert problem.faults is not None
    assert [(each.where, each.what) for each in problem.faults] == [
        ("/etc/x.toml", "servers.a.port: is missing; add it"),
        ("/etc/x.toml", "b: no; c"),
    ]


def test_a_reload_that_is_refused_is_a_409_with_its_reason(house: House) -> None:
    house.answer = raises(EdgeError("store", "save", "disk full"))
    answer = house.post()
    assert answer.status_code == 409
    assert answer.json()["detail"] == "store: save: disk full; the last good one stays in force"


def test_an_agent_that_cannot_reload_says_so(house: House) -> None:
    assert house.post().status_code == 409


def test_a_loop_that_does_not_answer_is_a_504(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading, "RELOAD_S", 0.05)
    house.answer = Future
    assert house.post().status_code == 504


def test_nothing_is_read_again_while_the_agent_ends(house: House) -> None:
    house.board.close()
    assert (house.post().status_code, house.asked) == (503, 0)


def test_over_tcp_and_by_get_it_is_refused(house: House) -> None:
    with httpx2.Client(base_url=f"http://127.0.0.1:{house.port}", timeout=60) as client:
        assert client.post("/reload").status_code == 403
        assert client.get("/reload").status_code == 405
    assert house.asked == 0
