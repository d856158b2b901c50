"""Who may ask for what: attacks over real sockets."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent.api.guard import Guard, Peer, with_peer
from tests.api.api_house import CANARY, House, page, running

ADMINS = 77  # a group


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One for all: what is refused changes nothing."""
    with running(tmp_path_factory.mktemp("guard")) as house:
        yield house


def raw(house: House, request: str) -> tuple[int, str]:
    """Status and the rest of what is answered to these very bytes over TCP."""
    with socket.create_connection(("127.0.0.1", house.thread.port or 0), timeout=60) as client:
        client.sendall(request.encode("latin-1"))
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    head, _, body = answer.decode("latin-1").partition("\r\n\r\n")
    return int(head.split()[1]), body


def get(house: House, *headers: str, path: str = "/status") -> int:
    """The status of a GET with these headers and no others."""
    lines = "".join(f"{header}\r\n" for header in headers)
    return raw(house, f"GET {path} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n")[0]


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        (["localhost"], 200),
        (["localhost:8900"], 200),
        (["LocalHost:9000"], 200),  # a tunnel has a port of its own
        (["127.0.0.1"], 200),
        (["[::1]:8900"], 200),
        (["evil.example"], 421),
        (["evil.example:8900"], 421),
        (["localhost.evil.example"], 421),
        (["evil-localhost"], 421),
        (["127.0.0.1.nip.io"], 421),
        (["localhost."], 421),
        (["localhost:8900:1"], 421),
        (["localhost:x"], 421),
        (["localhost:"], 421),
        (["user@localhost"], 421),
        (["0.0.0.0:8900"], 421),
        (["[::]"], 421),
        (["127.1"], 421),
        (["2130706433"], 421),
        (["127.0.0.2"], 421),
        ([""], 421),
        (["localhost, evil.example"], 421),
        (["localhost", "evil.example"], 400),
        (["localhost", "localhost"], 400),
        ([], 400),
    ],
)
def test_over_tcp_only_our_own_names_are_answered(house: House, hosts: list[str], status: int) -> None:
    house.publish(page())
    assert get(house, *(f"Host: {host}" for host in hosts)) == status


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /status HTTP/1.0", 421),  # without Host, which 1.0 allows
        ("GET http://evil.example/status HTTP/1.1\r\nHost: localhost", 404),
        ("GET //status HTTP/1.1\r\nHost: localhost", 404),
        ("GET /servers/demo/../demo/log HTTP/1.1\r\nHost: localhost", 404),
        ("GET /servers/demo%2flog HTTP/1.1\r\nHost: localhost", 403),
        ("nonsense", 400),
    ],
)
def test_odd_request_lines_get_no_further(house: House, request_line: str, status: int) -> None:
    house.publish(page())
    got, body = raw(house, f"{request_line}\r\nConnection: close\r\n\r\n")
    assert got == status
    assert f'"status": {status}' in body  # a problem document, this one too


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], 200),
        (["Sec-Fetch-Site: none"], 200),  # typed into the address bar
        (["Sec-Fetch-Site: same-origin"], 200),
        (["Sec-Fetch-Site: same-origin", "Origin: http://localhost:8900"], 200),
        (["Sec-Fetch-Site: same-site"], 403),  # another port of this host
        (["Sec-Fetch-Site: cross-site"], 403),
        (["Sec-Fetch-Site: cross-site", "Origin: http://localhost:8900"], 403),
        (["Sec-Fetch-Site: "], 403),
        (["Sec-Fetch-Site: none", "Sec-Fetch-Site: cross-site"], 400),
        (["Origin: http://localhost:8900"], 200),  # a browser without Sec-Fetch
        (["Origin: HTTP://LOCALHOST:8900"], 200),
        (["Origin: http://localhost:3000"], 403),
        (["Origin: https://localhost:8900"], 403),
        (["Origin: http://127.0.0.1:8900"], 403),
        (["Origin: http://evil.example"], 403),
        (["Origin: http://localhost:8900.evil.example"], 403),
        (["Origin: null"], 403),
        (["Origin: "], 403),
        (["Origin: http://localhost:8900", "Origin: http://evil.example"], 400),
    ],
)
def test_a_web_page_of_somebody_else_is_refused(house: House, headers: list[str], status: int) -> None:
    house.publish(page())
    assert get(house, "Host: localhost:8900", *headers) == status


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Content-Length: 4097", 413),
        ("Content-Length: 99999999999999999999", 413),
        ("Transfer-Encoding: chunked", 411),
        ("Content-Length: many", 400),
    ],
)
def test_what_is_too_long_is_refused_before_it_is_read(house: House, header: str, status: int) -> None:
    house.publish(page())
    got, _ = raw(
        house, f"POST /servers/demo/start HTTP/1.1\r\nHost: localhost\r\n{header}\r\nConnection: close\r\n\r\n"
    )
    assert got == status


def test_a_head_that_goes_on_and_on_is_refused_before_its_end(house: House) -> None:
    assert raw(house, f"GET /status HTTP/1.1\r\nX: {'x' * 20_000}")[0] == 400


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "NONSENSE"])
def test_over_tcp_nothing_can_be_changed_and_the_answer_says_where_it_can(
    house: House, tcp: httpx2.Client, method: str
) -> None:
    house.publish(page())
    house.asked.clear()
    answer = tcp.request(method, "/servers/demo/start")
    assert answer.status_code == 403
    assert answer.headers["content-type"] == "application/problem+json"
    assert str(house.socket) in answer.json()["detail"]
    assert "access-control-allow-origin" not in answer.headers
    assert house.asked == []


def test_over_tcp_no_path_shows_what_is_not_public(house: House, tcp: httpx2.Client, tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text(f"{CANARY} --api-key {CANARY}\n")
    house.publish(page("demo", "failed", log=log, dead=True), page("other", "ready", log=log))
    paths = ["/openapi.json", "/nothing", "/", "/servers/demo/log?follow=1"]
    known = house.thread._server.config.loaded_app.openapi()["paths"]  # type: ignore[union-attr]
    for path in {*paths, *known} - {"/events"}:  # which has no end; see test_api_events.py
        for name in ("demo", "other"):
            answer = tcp.get(path.replace("{name}", name), headers={"X-Forwarded-For": "", "Forwarded": "for=unix:"})
            assert CANARY not in answer.text, path
            assert CANARY not in str(answer.headers), path


def test_over_the_socket_any_host_name_is_answered(house: House, local: httpx2.Client) -> None:
    house.publish(page())
    assert local.get("/status", headers={"Host": "gpuagent"}).status_code == 200


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("method", "peer", "status"),
    [
        ("POST", Peer(pid=1, uid=1000, gid=5), 200),
        ("POST", Peer(pid=1, uid=0, gid=0), 200),
        ("POST", Peer(pid=1, uid=1001, gid=1000), 403),
        ("POST", Peer(pid=1, uid=65534, gid=65534), 403),
        ("POST", None, 403),
        ("GET", Peer(pid=1, uid=1001, gid=1000), 200),
        ("POST", Peer(pid=1, uid=1001, gid=ADMINS), 200),
        ("POST", Peer(pid=1, uid=1001, gid=1001, groups=frozenset({4, ADMINS})), 200),
        ("POST", Peer(pid=1, uid=1001, gid=1001, groups=frozenset({4})), 403),
    ],
)
async def test_only_root_the_agents_own_user_and_its_administrators_may_change(
    method: str, peer: Peer | None, status: int
) -> None:
    """The peer is put in as the server does it: a process of another user cannot be had in every test run."""

    async def answer_200(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    guard = Guard(answer_200, socket=Path("/run/x.sock"), uid=1000, gid=ADMINS)
    transport = httpx2.ASGITransport(with_peer(guard, peer) if peer else guard, client=None)  # type: ignore[arg-type]
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.request(method, "/x")).status_code == status


def test_the_peer_is_the_process_that_connected(house: House, local: httpx2.Client) -> None:
    house.publish(page())
    seen: list[Peer | None] = []
    house.answer = lambda future: (
        seen.extend(each.peer for each in house.thread._server.server_state.connections),  # type: ignore[union-attr]
        future.set_result(None),
    )[1]
    assert local.post("/servers/demo/start").status_code == 200
    assert seen == [Peer(os.getpid(), os.getuid(), os.getgid(), frozenset(os.getgroups()))]
