"""The API's thread: its sockets, its limits, its end."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from agent.api import serve
from agent.api.app import build
from agent.api.serve import ApiThread
from agent.board import Board
from agent.errors import EdgeError
from tests.api.api_house import House, busy, eventually, page


@pytest.fixture
def board() -> Iterator[Board]:
    board = Board()
    yield board
    board.close()


def thread(board: Board, path: Path, tcp: tuple[str, int] | None = None, mode: int = 0o600) -> ApiThread:
    """An API thread that is not started; nothing is asked of its loop."""

    def ask(*_: object) -> None:
        raise AssertionError

    return ApiThread(build(board, ask, "0.1.0", path), tcp, path, mode)  # type: ignore[arg-type]


def connect(path: Path) -> socket.socket:
    """A client of the unix socket."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(60)
    client.connect(str(path))
    return client


def until(client: socket.socket, end: bytes) -> bytes:
    """What comes, until `end` has come."""
    come = b""
    while end not in come:
        more = client.recv(65536)
        assert more, come
        come += more
    return come


# -- binding ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o600, 0o660])
def test_the_socket_file_has_its_mode_whatever_the_umask_and_is_gone_after_the_end(
    board: Board, tmp_path: Path, mode: int
) -> None:
    path = tmp_path / "deep" / "er" / "api.sock"
    api = thread(board, path, mode=mode)
    api.start()
    assert stat.S_IMODE(path.stat().st_mode) == mode
    board.close()
    api.stop(30)
    assert not path.exists()


def test_a_socket_file_that_nobody_answers_on_is_replaced(board: Board, tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    api = thread(board, path)
    api.start()
    with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(path)), base_url="http://x") as client:
        assert client.get("/live").status_code == 503
    board.close()
    api.stop(30)


def test_a_socket_that_somebody_answers_on_is_left_alone_and_its_owner_is_named(house: House, board: Board) -> None:
    with pytest.raises(EdgeError) as error:
        thread(board, house.socket).start()
    assert str(house.socket) in str(error.value)
    assert f"pid {os.getpid()}" in str(error.value)
    house.publish(page())
    with house.over_socket() as client:
        assert client.get("/status").status_code == 200


@pytest.mark.parametrize("kind", ["file", "folder", "dangling link"])
def test_what_is_no_socket_is_never_replaced(board: Board, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "api.sock"
    {"file": path.touch, "folder": path.mkdir, "dangling link": lambda: path.symlink_to("nowhere")}[kind]()
    with pytest.raises(EdgeError, match="something else"):
        thread(board, path).start()
    assert os.path.lexists(path)


def test_a_path_that_cannot_be_bound_is_an_edge_error(board: Board, tmp_path: Path) -> None:
    with pytest.raises(EdgeError, match="too long"):
        thread(board, tmp_path / ("x" * 200)).start()
    (tmp_path / "file").touch()
    with pytest.raises(EdgeError, match="api"):
        thread(board, tmp_path / "file" / "api.sock").start()


def test_a_taken_port_is_said_with_who_has_it_and_no_socket_file_is_left(board: Board, tmp_path: Path) -> None:
    code = "import socket,sys; s=socket.create_server(('127.0.0.1',0)); print(s.getsockname()[1],flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        port = int(other.stdout.readline())
        with pytest.raises(EdgeError) as error:
            thread(board, tmp_path / "api.sock", ("127.0.0.1", port)).start()
        other.communicate(b"\n")
    assert f"127.0.0.1:{port}" in str(error.value)
    assert f"pid {other.pid}" in str(error.value)
    assert not (tmp_path / "api.sock").exists()


def test_an_address_that_is_no_address_is_an_edge_error(board: Board, tmp_path: Path) -> None:
    with pytest.raises(EdgeError, match=r"localhost\.example:1"):
        thread(board, tmp_path / "api.sock", ("localhost.example", 1)).start()


def test_the_port_can_be_had_again_at_once(tmp_path: Path) -> None:
    port = 0
    for turn in range(3):
        board = Board()
        api = thread(board, tmp_path / f"{turn}.sock", ("127.0.0.1", port))
        api.start()
        port = api.port or 0
        with httpx2.Client(trust_env=False) as client:
            assert client.get(f"http://127.0.0.1:{port}/live").status_code == 503
        board.close()
        api.stop(30)


def test_another_agents_socket_file_is_not_removed_at_the_end(board: Board, tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    api = thread(board, path)
    api.start()
    path.unlink()
    path.touch()
    board.close()
    api.stop(30)
    assert path.exists()


def test_stopping_what_was_never_started_is_nothing(board: Board, tmp_path: Path) -> None:
    thread(board, tmp_path / "api.sock").stop()


# -- the end ---------------------------------------------------------------------------------------


def test_with_200_open_streams_and_waits_the_end_comes_before_its_deadline(house: House, tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("one\n")
    house.publish(page("demo", "starting", log=log))
    with ExitStack() as clients:
        opened = [clients.enter_context(connect(house.socket)) for _ in range(200)]
        for i, client in enumerate(opened):
            path = "log?follow=1" if i % 2 else "wait?timeout=900"
            client.sendall(f"GET /servers/demo/{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        for stream in opened[1::2]:
            assert until(stream, b"one\n").startswith(b"HTTP/1.1 200 ")
        eventually(lambda: busy(house) == 200, "all of them wait")
        house.board.close()
        house.thread.stop(30)  # raises when it has not ended
        answers = [b"".join(iter(lambda c=client: c.recv(65536), b"")) for client in opened]  # type: ignore[misc]
    assert all(answer.startswith(b"HTTP/1.1 503 ") for answer in answers[0::2])
    assert all(answer.endswith(b"0\r\n\r\n") for answer in answers[1::2])  # the last chunk: a clean end


def test_a_client_that_never_reads_does_not_keep_the_end_from_coming(
    house: House, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "x.log"
    log.write_text("x" * 1000 + "\n")
    with log.open("a") as file:
        file.writelines(["y" * 1000 + "\n"] * 8000)
    house.publish(page("demo", "starting", log=log))
    with connect(house.socket) as client:
        client.sendall(b"GET /servers/demo/log?follow=1&lines=10000 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(10)
        house.board.close()
        house.thread.stop(6)
    assert not [record for record in caplog.records if record.exc_info]  # no fault: no traceback for each client


def test_a_change_that_the_loop_never_answers_does_not_keep_the_end_from_coming(house: House) -> None:
    house.publish(page())
    house.answer = lambda future: None
    with connect(house.socket) as client:
        client.sendall(b"POST /servers/demo/stop HTTP/1.1\r\nHost: x\r\n\r\n")
        eventually(lambda: len(house.asked) == 1, "it was asked")
        house.board.close()
        house.thread.stop(6)  # less than the 10 s that the API waits for an answer


# -- limits ----------------------------------------------------------------------------------------


def test_a_request_that_drips_in_is_ended(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "REQUEST_S", 0.2)
    for begin in (b"", b"GET /sta", b"POST /servers/demo/stop HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"):
        with connect(house.socket) as client:
            client.sendall(begin)
            assert ended(client)


def test_over_the_limit_of_connections_the_answer_is_a_problem_document(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.publish(page("demo", "starting"))
    with ExitStack() as clients:
        first = clients.enter_context(house.over_socket())
        assert first.get("/servers/demo/stage").text == "starting"
        monkeypatch.setattr(serve, "connection_limit", lambda: 2)
        with house.over_socket() as second:
            answer = second.get("/servers/demo/stage")
        assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
        assert "too many connections" in answer.json()["detail"]
        eventually(lambda: len(house.thread._server.server_state.connections) == 1, "it has gone")
        assert first.get("/servers/demo/stage").text == "starting"


def ended(client: socket.socket) -> bool:
    """Whether the other end closes; a client that waits for it for ever fails by its own time-out."""
    try:
        while client.recv(65536):
            continue
    except ConnectionResetError:
        return True
    return True


def test_an_answer_that_takes_long_is_no_request_that_drips_in(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "REQUEST_S", 0.05)
    house.publish(page("demo", "starting"))
    with house.over_socket() as client:
        assert client.get("/servers/demo/wait?timeout=0.3").status_code == 504


def test_however_many_connect_over_tcp_the_socket_still_answers(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "tcp_limit", lambda: 5)
    house.publish(page("demo", "starting"))
    with ExitStack() as clients:
        opened = [
            clients.enter_context(socket.create_connection(("127.0.0.1", house.thread.port or 0), timeout=60))
            for _ in range(20)
        ]
        eventually(lambda: len(house.thread._server.server_state.connections) == 5, "the others were sent away")
        with house.over_socket() as client:
            assert client.get("/servers/demo/stage").text == "starting"
        assert opened[0].send(b"GET") == 3  # who came first is served
