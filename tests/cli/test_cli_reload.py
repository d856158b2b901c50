"""`gpuagent reload`: what the agent said of its configuration."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Call
from tests.cli.fake_agent import Document, FakeAgent, problem


def changes(**named: list[str]) -> tuple[int, Document]:
    keys = ("added", "removed", "changed", "later", "listed", "unlisted")
    return 200, {**{key: [] for key in keys}, **named}


def test_what_has_changed_is_said_with_when_it_takes_effect(call: Call, fake: FakeAgent) -> None:
    fake.special["POST /reload"] = changes(added=["a", "b"], removed=["c"], changed=["d"], later=["agent.listen"])
    result = call("reload")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "added: a, b",
        "removed: c",
        "changed: d; takes effect when it is next launched",
        "changed: agent.listen; takes effect when the agent is next started",
    ]
    assert fake.asked == [("POST /reload", b"")]
    fake.special["POST /reload"] = changes(listed=["a.service"], unlisted=["b.timer", "c.service"])
    assert [line.partition(";")[0] for line in call("reload").stdout.splitlines()] == [
        "listed: a.service",
        "not listed any more: b.timer, c.service",
    ]


def test_a_reload_that_changes_nothing_says_so(call: Call, fake: FakeAgent) -> None:
    fake.special["POST /reload"] = changes()
    assert call("reload").stdout == "nothing has changed\n"


def test_a_reload_as_json_is_the_agents_answer(call: Call, fake: FakeAgent) -> None:
    fake.special["POST /reload"] = changes(added=["a"])
    assert json.loads(call("reload", "--json").stdout) == changes(added=["a"])[1]


def test_a_wrong_configuration_is_wrong_usage_and_every_fault_is_named(call: Call, fake: FakeAgent) -> None:
    faults = [{"where": "/x.toml", "what": "servers.a.port: is missing; add it"}, {"where": "/x.toml", "what": "no"}]
    fake.special["POST /reload"] = problem(422, "the configuration is wrong; the last good one stays", faults=faults)
    result = call("reload")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        "gpuagent: the configuration is wrong; the last good one stays",
        "  /x.toml: servers.a.port: is missing; add it",
        "  /x.toml: no",
    ]


@pytest.mark.parametrize(("status", "code"), [(403, 7), (409, 7), (503, 6), (504, 6), (500, 1)])
def test_a_reload_that_fails_ends_with_what_it_means(call: Call, fake: FakeAgent, status: int, code: int) -> None:
    fake.special["POST /reload"] = problem(status, "because")
    result = call("reload")
    assert (result.exit_code, "because" in result.stderr) == (code, True)
