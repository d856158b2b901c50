"""`starts`: earlier starts and how they ended."""

from __future__ import annotations

import json
import re
from typing import Any

from agent.api.schema import StartsDocument
from tests.cli.conftest import Call
from tests.cli.fake_agent import FakeAgent, server

NASTY = "\x1b]0;owned\x07oom\x9b\x08"


def start(**changes: Any) -> dict[str, Any]:
    """A start that was ready and stopped, as the API says it."""
    document = {
        "invocation": "abc-1",
        "attempt": 1,
        "launched": "2026-01-02T03:04:05.678Z",
        "same_definition": True,
        "watched": True,
        "steps": [{"step": "launched", "at_s": 0.0}],
        "ready_s": 12.345,
        "ended_s": 3725.0,
        "outcome": "stopped",
        "cause": None,
        "exit": {"code": 0, "signal": None, "oom": None, "asked": True, "stopped": False},
        "outage": None,
    }
    assert changes.keys() <= document.keys()
    return {**document, **changes}


def remember(fake: FakeAgent, *found: dict[str, Any]) -> dict[str, Any]:
    """Let the fake agent answer with these."""
    document = {"name": "demo", "starts": list(found)}
    StartsDocument.model_validate_json(json.dumps(document))
    fake.special["GET /servers/demo/starts"] = 200, document
    return document


def test_starts_are_a_table_with_a_line_each(call: Call, fake: FakeAgent) -> None:
    died = {"slug": "cuda_oom", "text": "CUDA out of memory"}
    remember(
        fake,
        start(ready_s=None, ended_s=None, outcome=None),
        start(attempt=2, ready_s=None, ended_s=0.42, outcome="failed-start", cause=died),
        start(),
    )
    header, *lines = call("starts").stdout.splitlines()
    assert re.split(r"  +", header) == [
        "LAUNCHED", "ATTEMPT", "READY AFTER", "BACK AFTER", "ENDED AFTER", "OUTCOME", "CAUSE",
    ]  # fmt: skip
    cells = [re.split(r"  +", line)[1:] for line in lines]
    assert cells == [
        ["1", "starting"],
        ["2", "0.4 s", "failed-start", "cuda_oom: CUDA out of memory"],
        ["1", "12.3 s", "1 h 2 min", "stopped"],
    ]
    assert {line.index(word) for line, word in zip(lines, ["starting", "failed", "stopped"], strict=True)} == {
        header.index("OUTCOME")
    }


def test_a_server_that_serves_says_so_and_a_time_that_nobody_watched_is_marked(call: Call, fake: FakeAgent) -> None:
    remember(fake, start(ended_s=None, outcome=None, watched=False))
    assert re.split(r"  +", call("starts", "demo").stdout.splitlines()[1])[1:] == ["1", "<12.3 s", "serving"]


def test_a_start_that_ended_an_outage_says_how_long_the_server_was_away(call: Call, fake: FakeAgent) -> None:
    away = {"since": "2026-01-02T03:00:00.000Z", "lasted_s": 432.1, "attempts": 2}
    lasts = {**away, "lasted_s": None, "attempts": 3}
    remember(
        fake,
        start(ready_s=None, ended_s=None, outcome=None, outage=lasts),
        start(ended_s=None, outcome=None, outage=away),
        start(ended_s=None, outcome=None, outage={**away, "lasted_s": 2.04, "attempts": 1}),
    )
    cells = [re.split(r"  +", line)[1:] for line in call("starts").stdout.splitlines()[1:]]
    assert cells == [
        ["1", "starting"],
        ["1", "12.3 s", "7 min 12 s, 2 attempts", "serving"],
        ["1", "12.3 s", "2.0 s, 1 attempt", "serving"],
    ]


def test_without_any_start_it_says_so(call: Call, fake: FakeAgent) -> None:
    remember(fake)
    result = call("starts")
    assert (result.stdout, result.exit_code) == ("it was never started\n", 0)


def test_starts_as_json_is_the_document(call: Call, fake: FakeAgent) -> None:
    document = remember(fake, start())
    assert json.loads(call("starts", "demo", "--json").stdout) == document


def test_the_count_is_asked_for(call: Call, fake: FakeAgent) -> None:
    remember(fake, start())
    call("starts", "demo", "-n", "3")
    call("starts", "demo")
    assert [request for request, _ in fake.asked] == [
        "GET /servers/demo/starts?limit=3",
        "GET /servers/demo/starts?limit=20",
    ]
    assert call("starts", "demo", "-n", "0").exit_code == 2


def test_nothing_of_a_cause_moves_the_terminal(call: Call, fake: FakeAgent) -> None:
    remember(fake, start(outcome="crashed", cause={"slug": NASTY, "text": NASTY}))
    assert "\x1b" not in call("starts").stdout
    assert "oom: oom" in call("starts").stdout


def test_a_name_that_nobody_defined_is_wrong_usage(call: Call, fake: FakeAgent) -> None:
    result = call("starts", "nemo")
    assert result.exit_code == 2
    assert "Defined are: demo" in result.stderr


def test_without_a_name_and_with_several_servers_it_asks_which(call: Call, fake: FakeAgent) -> None:
    fake.servers = [server("a"), server("b")]
    assert call("starts").exit_code == 2
