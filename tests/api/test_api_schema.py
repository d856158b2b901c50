"""The documents of the API are exactly those of the design."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pydantic import ValidationError

from agent.api.schema import ServerDocument, StatusDocument
from tests.api.api_house import document, page, status

SINCE = "2026-01-02T03:04:05.678Z"
CAUSE = {"slug": "bad-flag", "line": 3, "text": "unknown flag", "remedy": "remove it", "retry": "no"}
MOUNT = {"name": "mount", "slug": "not_mounted", "subject": "/m"}
NEED = {**MOUNT, "text": "/m is not mounted", "remedy": "mount it", "heals": True, "since": SINCE}
DISK = {"path": "/m", "free_mib": 12.5, "free_inodes": None, "lasts_s": 60.0, "state": "low"}
EXIT = {"code": 2, "signal": None, "oom": None, "asked": False, "stopped": False}
TIMES = re.compile(r"(?<=[0-9])[0]*Z")
"""Zeros at the end of a second's fraction."""


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"step": "loading-weights", "progress": 0.5, "eta_s": 12.5},
        {"cause": CAUSE, "exit": EXIT, "tail": ["a line"]},
        {"stage": "waiting", "needs": [NEED]},
        {"storage": [DISK]},
        {"want": None, "pid": None, "invocation": None, "url": None, "attempt": 0},
    ],
)
def test_a_server_document_of_the_designs_shape_goes_through_unchanged(changes: dict[str, Any]) -> None:
    given = document("demo", **{"stage": "starting", **changes})
    read = ServerDocument.model_validate_json(json.dumps(given))
    assert json.loads(TIMES.sub("Z", read.model_dump_json())) == json.loads(TIMES.sub("Z", json.dumps(given)))


@pytest.mark.parametrize(
    "changes",
    [
        {"stage": "sleeping"},
        {"progress": 1.5},
        {"since": "2026-01-02T03:04:05"},  # no zone: which time would that be?
        {"cause": {**CAUSE, "retry": "maybe"}},
        {"arguments": ["--secret"]},
        {"needs": [{**NEED, "heals": "perhaps"}]},
    ],
)
def test_another_shape_is_a_fault(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ServerDocument.model_validate_json(json.dumps({**document("demo", "starting"), **changes}))


def test_the_status_document_holds_the_servers() -> None:
    read = StatusDocument.model_validate_json(status((page("a"), page("b", "ready")), full=True))
    assert [server.name for server in read.servers] == ["a", "b"]
