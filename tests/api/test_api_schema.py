"""The documents of the API are exactly those of the design."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from agent.api.schema import ServerDocument, StatusDocument
from tests.api.api_house import document, page, status

CAUSE = {"slug": "bad-flag", "line": 3, "text": "unknown flag", "remedy": "remove it", "retry": "no"}
EXIT = {"code": 2, "signal": None, "oom": None, "asked": False, "stopped": False}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"step": "loading-weights", "progress": 0.5, "eta_s": 12.5},
        {"cause": CAUSE, "exit": EXIT, "tail": ["a line"]},
        {"want": None, "pid": None, "invocation": None, "url": None, "attempt": 0},
    ],
)
def test_a_server_document_of_the_designs_shape_goes_through_unchanged(changes: dict[str, Any]) -> None:
    given = document("demo", "starting", **changes)
    read = ServerDocument.model_validate_json(json.dumps(given))
    assert read.model_dump(mode="json", exclude={"since"}) == {k: v for k, v in given.items() if k != "since"}


@pytest.mark.parametrize(
    "changes",
    [
        {"stage": "sleeping"},
        {"progress": 1.5},
        {"since": "2026-01-02T03:04:05"},  # no zone: which time would that be?
        {"cause": {**CAUSE, "retry": "maybe"}},
        {"arguments": ["--secret"]},
    ],
)
def test_another_shape_is_a_fault(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ServerDocument.model_validate_json(json.dumps({**document("demo", "starting"), **changes}))


def test_the_status_document_holds_the_servers() -> None:
    read = StatusDocument.model_validate_json(status((page("a"), page("b", "ready")), full=True))
    assert [server.name for server in read.servers] == ["a", "b"]
