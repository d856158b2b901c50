"""/rivals and /holds: what is kept off is shown to anybody, and changed over the socket alone."""

from __future__ import annotations

from concurrent.futures import Future
from urllib.parse import quote

import httpx2
import pytest

from agent.api import changes
from agent.api.schema import HoldsDocument, ProblemDocument, RivalsDocument
from tests.api.api_house import House, hold, page, rival

NOT_LISTED = "foo.service is not listed: add it to [rivals] units"


def refuse(house: House, why: str) -> None:
    """The loop says no."""

    def answer(future: Future[str | None]) -> None:
        future.set_result(why)

    house.answer = answer


def test_the_same_rivals_and_holds_are_shown_over_the_socket_and_over_tcp(
    house: House, local: httpx2.Client, tcp: httpx2.Client
) -> None:
    up = rival("foo.service", active="active", off=False, pids=[12], revivers=["foo.timer"], why="is active, pid 12")
    house.rivals = [rival("vllm.service"), up, rival("new.socket", load=None, active=None, off=False, since=None)]
    house.holds = [hold("vllm.service"), hold("foo.service", in_force=False, repairs=2)]
    house.publish(page())
    for path, document, shown in (
        ("/rivals", RivalsDocument, {"rivals": house.rivals, "warnings": ["a warning"]}),
        ("/holds", HoldsDocument, {"holds": house.holds}),
    ):
        answers = [client.get(path) for client in (local, tcp)]
        assert [(each.status_code, each.json()) for each in answers] == [(200, shown)] * 2
        document.model_validate_json(answers[0].content)


def test_before_anything_is_published_there_is_nothing_to_show_or_change(house: House, local: httpx2.Client) -> None:
    assert [local.get(path).status_code for path in ("/rivals", "/holds")] == [503, 503]
    assert local.post("/holds/vllm.service/hold").status_code == 503
    assert house.held == []


@pytest.mark.parametrize(("verb", "keep_off"), [("hold", True), ("release", False)])
@pytest.mark.parametrize("unit", ["vllm.service", "a@.service", "a@1:x.timer", "x\\x2dy.path", "A_b-c.d.socket"])
def test_a_change_is_posted_with_the_unit_as_it_is_named(
    house: House, local: httpx2.Client, unit: str, verb: str, keep_off: bool
) -> None:
    house.publish(page())
    answer = local.post(f"/holds/{quote(unit, safe='')}/{verb}")
    assert (answer.status_code, answer.json()) == (200, {"unit": unit, "held": keep_off})
    assert house.held == [(unit, keep_off)]


@pytest.mark.parametrize(
    "unit",
    [
        "vllm",
        "vllm.mount",
        "multi-user.target",
        ".service",
        "a b.service",
        "a.service\n",
        "é.service",
        "a*.service",
        "a%25.service",
        "x" * 248 + ".service",
    ],
)
@pytest.mark.parametrize("verb", ["hold", "release"])
def test_a_name_that_no_such_unit_can_have_never_reaches_the_loop(
    house: House, local: httpx2.Client, unit: str, verb: str
) -> None:
    house.publish(page())
    answer = local.post(f"/holds/{quote(unit, safe='')}/{verb}")
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert house.held == []


@pytest.mark.parametrize("path", ["/holds/%2e%2e%2fx.service/hold", "/holds/a/b.service/hold", "/holds//hold"])
def test_a_path_in_a_units_name_leads_nowhere(house: House, local: httpx2.Client, path: str) -> None:
    house.publish(page())
    assert local.post(path).status_code in (404, 422)
    assert house.held == []


def test_a_refusal_of_a_unit_that_is_known_is_a_409_and_of_any_other_a_404(house: House, local: httpx2.Client) -> None:
    house.rivals = [rival("vllm.service")]
    house.publish(page())
    refuse(house, "the state cannot be saved: disk full")
    answer = local.post("/holds/vllm.service/hold")
    assert (answer.status_code, answer.json()["detail"]) == (409, "the state cannot be saved: disk full")
    refuse(house, NOT_LISTED)
    answer = local.post("/holds/foo.service/hold")
    assert (answer.status_code, answer.json()["detail"]) == (404, NOT_LISTED)
    ProblemDocument.model_validate_json(answer.content)


def test_what_is_not_shown_can_be_released_all_the_same(house: House, local: httpx2.Client) -> None:
    house.publish(page())
    assert local.post("/holds/forgotten.service/release").status_code == 200


def test_over_tcp_nothing_is_held_or_released(house: House, tcp: httpx2.Client) -> None:
    house.rivals = [rival("vllm.service")]
    house.publish(page())
    assert [tcp.post(f"/holds/vllm.service/{verb}").status_code for verb in ("hold", "release")] == [403, 403]
    assert house.held == []


def test_a_loop_that_does_not_answer_is_a_504_and_an_agent_that_ends_a_503(
    house: House, local: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "ANSWER_S", 0.05)
    house.publish(page())
    house.answer = lambda future: None
    assert local.post("/holds/vllm.service/hold").status_code == 504
    house.board.close()
    assert local.post("/holds/vllm.service/hold").status_code == 503
    assert len(house.held) == 1
