"""What each route answers."""

from __future__ import annotations

import time
from concurrent.futures import Future

import httpx2
import pytest

from agent.core.model import Ask
from tests.api.api_house import House, page

PROBLEM = "application/problem+json"


def problem(answer: httpx2.Response) -> dict[str, object]:
    """The problem document, after checking that it is one."""
    assert answer.headers["content-type"] == PROBLEM
    document: dict[str, object] = answer.json()
    assert document["status"] == answer.status_code
    assert document["title"]
    assert document["detail"]
    return document


def test_the_documents_are_the_bytes_of_the_snapshot_all_over_the_socket_and_the_public_ones_over_tcp(
    house: House, local: httpx2.Client, tcp: httpx2.Client
) -> None:
    snapshot = house.publish(page("demo"))
    for path, shown in (("/status", snapshot), ("/servers/demo", snapshot.servers["demo"])):
        for client, content in ((local, shown.full), (tcp, shown.public)):
            answer = client.get(path)
            assert answer.headers["content-type"] == "application/json"
            assert answer.headers["cache-control"] == "no-store"
            assert answer.content == content


def test_the_stage_is_one_word(house: House, tcp: httpx2.Client) -> None:
    house.publish(page("demo", "backing-off"))
    answer = tcp.get("/servers/demo/stage")
    assert answer.text == "backing-off"
    assert answer.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize(("stage", "status"), [("ready", 200), ("starting", 503), ("unhealthy", 503), ("down", 503)])
def test_a_servers_ready_is_200_or_503_with_its_stage(
    house: House, tcp: httpx2.Client, stage: str, status: int
) -> None:
    house.publish(page("demo", stage))
    answer = tcp.get("/servers/demo/ready")
    assert (answer.status_code, answer.text) == (status, stage)


def test_the_agent_is_ready_when_every_wanted_server_is(house: House, tcp: httpx2.Client) -> None:
    house.publish(page("a", "ready"), page("b", "starting"), page("c", "down", wanted=False))
    answer = tcp.get("/ready")
    assert answer.status_code == 503
    assert problem(answer)["not_ready"] == {"b": "starting"}
    house.publish(page("a", "ready"), page("b", "ready"), page("c", "down", wanted=False))
    answer = tcp.get("/ready")
    assert (answer.status_code, answer.json()) == (200, {"ready": True, "servers": {"a": "ready", "b": "ready"}})


def test_the_agent_is_live_while_its_loop_turns_and_only_then(house: House, tcp: httpx2.Client) -> None:
    assert tcp.get("/live").status_code == 503
    house.board.beat(time.monotonic())
    assert tcp.get("/live").status_code == 200
    house.board.beat(time.monotonic() - 6)
    answer = tcp.get("/live")
    assert answer.status_code == 503
    assert "late" in str(problem(answer)["detail"])


def test_before_the_first_look_the_answer_is_503_and_nothing_invented(house: House, tcp: httpx2.Client) -> None:
    for path in ("/status", "/ready", "/servers/demo", "/servers/demo/stage", "/servers/demo/wait"):
        answer = tcp.get(path)
        assert answer.status_code == 503
        problem(answer)


def test_an_unknown_server_is_404_with_the_known_ones(house: House, local: httpx2.Client) -> None:
    house.publish(page("b"), page("a"))
    for path in ("", "/stage", "/ready", "/wait", "/log"):
        answer = local.get(f"/servers/nobody{path}")
        assert answer.status_code == 404
        assert problem(answer)["known"] == ["a", "b"]
    answer = local.post("/servers/nobody/start")
    assert answer.status_code == 404
    assert problem(answer)["known"] == ["a", "b"]
    assert house.asked == []


@pytest.mark.parametrize("path", ["/nothing", "/status/", "/docs", "/redoc", "/servers/demo/nothing"])
def test_an_unknown_path_is_a_404_problem(house: House, tcp: httpx2.Client, path: str) -> None:
    house.publish(page())
    answer = tcp.get(path)
    assert answer.status_code == 404
    problem(answer)


def test_another_method_is_a_405_problem_that_says_which_is_allowed(house: House, local: httpx2.Client) -> None:
    for method, path, allowed in (("DELETE", "/status", "GET"), ("GET", "/servers/demo/start", "POST")):
        answer = local.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
        problem(answer)


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("/servers/demo/wait?timeout=-1", "query.timeout"),
        ("/servers/demo/wait?timeout=nan", "query.timeout"),
        ("/servers/demo/wait?timeout=inf", "query.timeout"),
        ("/servers/demo/wait?for=lunch", "query.for"),
        ("/servers/demo/log?lines=-1", "query.lines"),
        ("/servers/demo/log?lines=100000000", "query.lines"),
        ("/servers/demo/log?follow=2", "query.follow"),
    ],
)
def test_a_wrong_parameter_is_a_422_problem_that_names_it(
    house: House, local: httpx2.Client, path: str, where: str
) -> None:
    house.publish(page())
    answer = local.get(path)
    assert answer.status_code == 422
    faults = problem(answer)["faults"]
    assert isinstance(faults, list)
    assert [fault["where"] for fault in faults] == [where]


@pytest.mark.parametrize("verb", [Ask.START, Ask.STOP, Ask.RESTART])
def test_a_change_is_answered_with_the_document_as_it_is_after_the_save(
    house: House, local: httpx2.Client, verb: Ask
) -> None:
    house.publish(page("demo", "down"))

    def save(future: Future[str | None]) -> None:
        house.publish(page("demo", "waiting"))
        future.set_result(None)

    house.answer = save
    answer = local.post(f"/servers/demo/{verb}")
    assert (answer.status_code, answer.json()["stage"]) == (200, "waiting")
    assert house.asked == [("demo", verb, True)]


@pytest.mark.parametrize(
    ("body", "gpu_check"), [({}, True), ({"gpu_check": True}, True), ({"gpu_check": False}, False)]
)
def test_a_start_can_do_without_the_look_at_the_gpus(
    house: House, local: httpx2.Client, body: dict[str, bool], gpu_check: bool
) -> None:
    house.publish(page())
    assert local.post("/servers/demo/start", json=body).status_code == 200
    assert house.asked == [("demo", Ask.START, gpu_check)]


@pytest.mark.parametrize("body", [b'{"gpu_check": "no"}', b'{"gpu_chekc": false}', b"[]", b"{", b"\xff"])
def test_a_body_that_is_not_understood_is_refused_and_nothing_is_asked(
    house: House, local: httpx2.Client, body: bytes
) -> None:
    house.publish(page())
    answer = local.post("/servers/demo/start", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    problem(answer)
    assert house.asked == []


@pytest.mark.parametrize(
    ("why", "status"), [("other is wanted", 409), ("the want could not be saved: No space left on device", 507)]
)
def test_a_refused_change_is_a_problem_with_the_reason(
    house: House, local: httpx2.Client, why: str, status: int
) -> None:
    house.publish(page())
    house.answer = lambda future: future.set_result(why)
    answer = local.post("/servers/demo/start")
    assert answer.status_code == status
    assert problem(answer)["detail"] == why


def test_a_loop_that_does_not_answer_is_504_and_may_still_answer_later(
    house: House, local: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.api.changes.ANSWER_S", 0.05)
    house.publish(page())
    left: list[Future[str | None]] = []
    house.answer = left.append
    answer = local.post("/servers/demo/stop")
    assert answer.status_code == 504
    problem(answer)
    left[0].set_result(None)  # raises if the API had cancelled it: in the loop's thread, that would be a crash


def test_a_bug_is_a_500_problem_that_tells_no_secrets(house: House, local: httpx2.Client) -> None:
    house.publish(page())
    house.answer = lambda future: future.set_exception(RuntimeError("hf_secret"))
    answer = local.post("/servers/demo/stop")
    assert answer.status_code == 500
    assert "hf_secret" not in str(problem(answer))


def test_while_the_agent_ends_reading_goes_on_and_changes_do_not(house: House, local: httpx2.Client) -> None:
    house.publish(page("demo", "starting"))
    house.board.close()
    assert local.get("/servers/demo/stage").text == "starting"
    for answer in (
        local.post("/servers/demo/start"),
        local.get("/servers/demo/wait"),
        local.get("/servers/demo/log?follow=1"),
    ):
        assert answer.status_code == 503
        assert "ending" in str(problem(answer)["detail"])
    assert house.asked == []


@pytest.mark.parametrize(("body", "back"), [({"to": "b"}, False), ({"to": "b", "back": True}, True)])
def test_a_switch_asks_for_the_server_that_is_wanted_and_answers_with_its_document(
    house: House, local: httpx2.Client, body: dict[str, object], back: bool
) -> None:
    house.publish(page("a"), page("b", "down"))
    answer = local.post("/switch", json=body)
    assert (answer.status_code, answer.json()["name"]) == (200, "b")
    assert (house.asked, house.backs) == ([("b", Ask.SWITCH, True)], [back])


@pytest.mark.parametrize(("body", "status"), [({"to": "nobody"}, 404), ({}, 422), ({"to": "a", "back": "yes"}, 422)])
def test_a_switch_to_what_is_not_there_or_not_said_asks_nothing(
    house: House, local: httpx2.Client, body: dict[str, object], status: int
) -> None:
    house.publish(page("a"))
    answer = local.post("/switch", json=body)
    assert answer.status_code == status
    problem(answer)
    assert house.asked == []
