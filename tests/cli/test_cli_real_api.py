"""The CLI against the real API; and that the fake agent speaks like it."""

from __future__ import annotations

import json
from pathlib import Path

from agent.api.schema import (
    HoldChangeDocument,
    HoldsDocument,
    ProblemDocument,
    RivalsDocument,
    ServerDocument,
    StatusDocument,
)
from agent.core.model import Ask
from tests.cli.api_house import House
from tests.cli.conftest import Call
from tests.cli.fake_agent import FakeAgent, failed, hold, problem, rival, server


def test_every_command_that_reads_understands_the_real_api(call: Call, house: House) -> None:
    house.show(failed())
    assert call("stage").stdout == "failed\n"
    assert "out of memory" in call("status").stdout
    assert "give it fewer layers" in call("why", "demo").stdout
    assert call("log", "-n", "2").stdout == "two\nthree\n"
    assert call("wait").exit_code == 3
    assert "Defined are: demo" in call("stage", "nemo").stderr


def test_waiting_understands_the_real_api(call: Call, house: House) -> None:
    house.show(server(stage="starting", why="launched"))
    assert call("wait", "--timeout", "0.05").exit_code == 4
    house.show(server(stage="starting", why="launched", stalled=True))
    assert call("wait", "--timeout", "0.05").exit_code == 5
    house.show(server(stage="down", want=None))
    assert call("wait").exit_code == 3
    assert call("stop", "--wait").exit_code == 0
    house.show(server())
    assert call("wait").exit_code == 0


def test_changing_understands_the_real_api(call: Call, house: House) -> None:
    house.show(server())
    assert call("start", "--without-gpu-check", "--wait").exit_code == 0
    assert house.asked == [("demo", Ask.START, False)]
    house.refusal = "the state cannot be saved"
    result = call("restart")
    assert (result.exit_code, "the state cannot be saved" in result.stderr) == (7, True)


def test_units_are_understood_as_the_real_api_tells_them(call: Call, house: House) -> None:
    up = rival("b.service", active="active", off=False, pids=[12], why="is active, pid 12")
    house.show(server(), [rival(), up], [hold(), hold("b.service", in_force=False, why="is active, pid 12")])
    assert [line.split()[:2] for line in call("rivals").stdout.splitlines()] == [
        ["vllm.service", "off"],
        ["b.service", "active"],
    ]
    assert "b.service     not in force" in call("holds").stdout
    assert "hold not in force: b.service: is active, pid 12" in call("status").stdout
    assert call("hold", "a@x\\x2dy").exit_code == 0
    assert call("release", "vllm.service").exit_code == 0
    assert house.held == [("a@x\\x2dy.service", True), ("vllm.service", False)]
    house.refusal = "no"
    assert (call("hold", "vllm").exit_code, call("hold", "nobody").exit_code) == (7, 2)


def test_an_agent_that_has_not_looked_around_yet_is_unreachable(call: Call, house: House) -> None:
    result = call("status")
    assert result.exit_code == 6
    assert "just started" in result.stderr


def test_the_fake_agent_speaks_as_the_schema_says() -> None:
    for document in (server(), failed()):
        ServerDocument.model_validate_json(json.dumps(document))
    agent = FakeAgent(Path(), rivals=[rival()], holds=[hold()])
    for path, shape in (("/status", StatusDocument), ("/rivals", RivalsDocument), ("/holds", HoldsDocument)):
        shape.model_validate_json(json.dumps(agent.answer("GET", path)[1]))
    HoldChangeDocument.model_validate_json(json.dumps(agent.answer("POST", "/holds/a.service/hold")[1]))
    for more in ({"known": ["demo"]}, {"stage": "down", "cause": None}, {"stage": "starting", "progress": "stalled"}):
        ProblemDocument.model_validate_json(json.dumps(problem(409, "no", **more)[1]))
