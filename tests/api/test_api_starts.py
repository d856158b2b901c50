"""GET /servers/NAME/starts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from agent.api.schema import StartsDocument
from agent.board import ServerPage
from agent.core.chronicle import Outcome, Start
from agent.core.model import Exit, Step
from agent.core.outage import Outage
from agent.view import show_start
from tests.api.api_house import CANARY, House, page

START = Start(server="demo", invocation="r-1", attempt=1, digest="d", boot_id="b", launched=1_700_000_000.5, began=10.0)
DEAD = replace(
    START,
    steps=((Step.LAUNCHED, 0.0), (Step.LOADING_WEIGHTS, 1.23456)),
    ended_s=3.0,
    outcome=Outcome.FAILED_START,
    cause_slug="cuda_oom",
    cause_text=f"CUDA out of memory {CANARY}",
    cause_quoted=True,
    exit=Exit(code=1),
)


def shown(*starts: Start) -> ServerPage:
    """The page of a server with these starts."""
    pages = [show_start(start, start.digest == "d") for start in starts]
    return replace(page(), starts=tuple(full for full, _ in pages), public_starts=tuple(public for _, public in pages))


def read(answer: httpx2.Response) -> list[dict[str, Any]]:
    """The starts, after checking the document's shape."""
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    document = StartsDocument.model_validate_json(answer.content)
    assert document.name == "demo"
    return list(json.loads(answer.content)["starts"])


def test_a_server_that_was_never_started_has_none(house: House, tcp: httpx2.Client) -> None:
    house.publish(page())
    assert read(tcp.get("/servers/demo/starts")) == []


def test_a_start_is_shown_with_its_steps_and_how_it_ended(house: House, local: httpx2.Client) -> None:
    house.publish(shown(DEAD))
    assert read(local.get("/servers/demo/starts")) == [
        {
            "invocation": "r-1",
            "attempt": 1,
            "launched": "2023-11-14T22:13:20.500Z",
            "same_definition": True,
            "watched": True,
            "steps": [{"step": "launched", "at_s": 0.0}, {"step": "loading-weights", "at_s": 1.235}],
            "ready_s": None,
            "ended_s": 3.0,
            "outcome": "failed-start",
            "cause": {"slug": "cuda_oom", "text": f"CUDA out of memory {CANARY}"},
            "exit": {"code": 1, "signal": None, "oom": None, "asked": False, "stopped": False},
            "outage": None,
        }
    ]


def test_the_outage_that_a_start_ended_is_told_to_everybody(house: House, tcp: httpx2.Client) -> None:
    house.publish(shown(replace(START, outage=Outage(since=1_700_000_000.0, tries=2, lasted_s=432.1234))))
    assert read(tcp.get("/servers/demo/starts"))[0]["outage"] == {
        "since": "2023-11-14T22:13:20.000Z",
        "lasted_s": 432.123,
        "attempts": 2,
    }


def test_over_tcp_a_cause_is_told_without_the_line_of_the_log(house: House, tcp: httpx2.Client) -> None:
    house.publish(shown(DEAD))
    answer = tcp.get("/servers/demo/starts")
    (start,) = read(answer)
    assert CANARY not in answer.text
    assert start["cause"]["slug"] == "cuda_oom"
    assert start["cause"]["text"]


def test_a_cause_that_is_our_own_sentence_is_told_to_everybody(house: House, tcp: httpx2.Client) -> None:
    house.publish(shown(replace(DEAD, cause_slug="agent_away", cause_text="it ended while no agent ran")))
    assert read(tcp.get("/servers/demo/starts"))[0]["cause"]["text"] == "it ended while no agent ran"


def test_a_start_that_lives_and_one_of_another_definition_are_told_as_such(house: House, local: httpx2.Client) -> None:
    house.publish(shown(START, replace(DEAD, digest="old", watched=False)))
    new, old = read(local.get("/servers/demo/starts"))
    assert (new["outcome"], new["cause"], new["exit"], new["same_definition"]) == (None, None, None, True)
    assert (old["same_definition"], old["watched"]) == (False, False)


def test_the_newest_come_first_up_to_the_limit(house: House, local: httpx2.Client) -> None:
    house.publish(shown(*(replace(START, invocation=f"r-{number}") for number in range(60, 0, -1))))
    assert [each["invocation"] for each in read(local.get("/servers/demo/starts?limit=2"))] == ["r-60", "r-59"]
    assert len(read(local.get("/servers/demo/starts"))) == 20
    assert len(read(local.get("/servers/demo/starts?limit=500"))) == 60
    assert read(local.get("/servers/demo/starts?limit=0")) == []


@pytest.mark.parametrize("limit", ["-1", "501", "many", ""])
def test_a_limit_that_makes_no_sense_is_refused(house: House, local: httpx2.Client, limit: str) -> None:
    house.publish(page())
    assert local.get(f"/servers/demo/starts?limit={limit}").status_code == 422


def test_a_server_that_is_not_there_is_404(house: House, tcp: httpx2.Client) -> None:
    house.publish(page())
    assert tcp.get("/servers/nemo/starts").status_code == 404
