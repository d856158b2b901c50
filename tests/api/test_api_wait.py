"""`wait`: answers as soon as the answer is known, never later."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import httpx2
import pytest

from tests.api.api_house import House, busy, eventually, page

Begin = Callable[[str], "Future[httpx2.Response]"]
CAUSE = {"slug": "oom", "line": 7, "text": "CUDA out of memory", "remedy": "use less", "retry": "few"}


@pytest.fixture
def begin(house: House) -> Iterator[Begin]:
    """Begins a wait of ten minutes in another thread; returns when the API has it."""
    with ThreadPoolExecutor(8) as pool:

        def ask(query: str) -> httpx2.Response:
            with house.over_tcp() as client:
                return client.get(f"/servers/demo/wait?timeout=600{query}")

        def begun(query: str = "") -> Future[httpx2.Response]:
            before = busy(house)
            future = pool.submit(ask, query)
            eventually(lambda: busy(house) > before or future.done(), "the API has the request")
            return future

        yield begun
        house.board.close()


def test_a_ready_server_is_not_waited_for(house: House, tcp: httpx2.Client) -> None:
    snapshot = house.publish(page("demo", "ready"))
    answer = tcp.get("/servers/demo/wait")
    assert (answer.status_code, answer.content) == (200, snapshot.servers["demo"].public)


@pytest.mark.parametrize("stage", ["down", "failed", "stopping"])
def test_a_server_that_nobody_wants_is_said_at_once(house: House, tcp: httpx2.Client, stage: str) -> None:
    house.publish(page("demo", stage, wanted=False))
    answer = tcp.get("/servers/demo/wait")
    assert (answer.status_code, answer.json()["stage"]) == (409, stage)
    assert "not wanted" in answer.json()["detail"]


def test_a_server_that_gave_up_is_said_at_once_with_its_cause(house: House, tcp: httpx2.Client) -> None:
    house.publish(page("demo", "failed", dead=True, cause=CAUSE))
    answer = tcp.get("/servers/demo/wait")
    assert (answer.status_code, answer.json()["cause"]) == (409, CAUSE)
    assert "because it is failed" in answer.json()["detail"]


def test_all_who_wait_are_woken_when_it_gets_ready(house: House, begin: Begin) -> None:
    house.publish(page("demo", "starting"))
    waits = [begin("") for _ in range(5)]
    house.publish(page("demo", "starting", progress=0.5))
    assert not any(wait.done() for wait in waits)
    house.publish(page("demo", "ready"))
    assert [wait.result(60).status_code for wait in waits] == [200] * 5


def test_a_wait_ends_when_the_attempt_dies(house: House, begin: Begin) -> None:
    house.publish(page("demo", "starting"))
    wait = begin("")
    house.publish(page("demo", "backing-off", dead=True, cause=CAUSE))
    answer = wait.result(60)
    assert (answer.status_code, answer.json()["stage"], answer.json()["cause"]) == (409, "backing-off", CAUSE)


def test_a_wait_ends_when_somebody_stops_the_server(house: House, begin: Begin) -> None:
    house.publish(page("demo", "starting"))
    wait = begin("")
    house.publish(page("demo", "stopping", wanted=False))
    assert wait.result(60).status_code == 409


@pytest.mark.parametrize(("stalled", "progress"), [(False, "progressing"), (True, "stalled")])
def test_when_the_time_is_over_it_says_whether_there_is_progress(
    house: House, tcp: httpx2.Client, stalled: bool, progress: str
) -> None:
    house.publish(page("demo", "starting", stalled=stalled))
    for timeout in ("0", "0.05"):
        answer = tcp.get(f"/servers/demo/wait?timeout={timeout}")
        assert answer.headers["content-type"] == "application/problem+json"
        assert (answer.status_code, answer.json()["progress"]) == (504, progress)


def test_waiting_for_down_ends_when_every_process_is_gone(house: House, begin: Begin) -> None:
    house.publish(page("demo", "stopping", wanted=False))
    wait = begin("&for=down")
    house.publish(page("demo", "down", wanted=False))
    assert wait.result(60).status_code == 200


def test_waiting_for_down_of_a_server_that_is_wanted_is_refused_at_once(house: House, tcp: httpx2.Client) -> None:
    house.publish(page("demo", "ready"))
    answer = tcp.get("/servers/demo/wait?for=down")
    assert answer.status_code == 409
    assert "wanted" in answer.json()["detail"]


def test_the_end_of_the_agent_ends_a_wait(house: House, begin: Begin) -> None:
    house.publish(page("demo", "starting"))
    wait = begin("")
    house.board.close()
    assert wait.result(60).status_code == 503


def test_that_the_agent_takes_the_server_with_it_is_no_word_about_the_server(house: House, begin: Begin) -> None:
    house.publish(page("demo", "starting"))
    wait = begin("")
    house.publish(page("demo", "stopping", wanted=False, ending=True))
    assert wait.result(60).status_code == 503


def test_a_server_that_died_while_the_agent_ends_has_died_nevertheless(house: House, tcp: httpx2.Client) -> None:
    house.publish(page("demo", "stopping", wanted=False, ending=True, dead=True, cause=CAUSE))
    assert tcp.get("/servers/demo/wait").status_code == 409


def test_a_client_that_leaves_is_waited_for_no_more(house: House) -> None:
    house.publish(page("demo", "starting"))
    with socket.create_connection(("127.0.0.1", house.thread.port or 0), timeout=60) as client:
        client.sendall(b"GET /servers/demo/wait HTTP/1.1\r\nHost: localhost\r\n\r\n")
        eventually(lambda: busy(house) == 1, "the API waits")
    eventually(lambda: busy(house) == 0, "the API has noticed")


def test_the_cause_over_tcp_is_the_public_one(house: House, tcp: httpx2.Client) -> None:
    shown = page("demo", "failed", dead=True, cause={**CAUSE, "text": "out of memory"})
    full = {**json.loads(shown.full), "cause": {**CAUSE, "text": "--api-key hunter2"}}
    house.publish(type(shown)(**{**fields(shown), "full": json.dumps(full).encode()}))
    assert "hunter2" not in tcp.get("/servers/demo/wait").text


def fields(shown: object) -> dict[str, object]:
    """The fields of a page."""
    return {name: getattr(shown, name) for name in shown.__slots__}  # type: ignore[attr-defined]
