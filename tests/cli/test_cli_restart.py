"""The agent goes away in the middle of `wait` and `status --watch`, and comes back, or does not."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from agent.cli import wait
from tests.cli.api_house import House
from tests.cli.conftest import Call, Start
from tests.cli.fake_agent import FakeAgent, listening, problem, server
from tests.cli.test_cli_processes import DEADLINE_S, line_of


class Dying(FakeAgent):
    """Begins to answer a `wait`, and goes away when it is told to."""

    def __init__(self, socket: Path) -> None:
        super().__init__(socket, [server(stage="starting")])
        self.waited_for, self.dies = threading.Event(), threading.Event()
        self.on_request = self._die

    def _die(self, request: str) -> None:
        if "/wait" in request:
            self.waited_for.set()
            self.dies.wait(DEADLINE_S)
            raise ConnectionAbortedError


@pytest.mark.parametrize("command", [["wait", "demo"], ["wait"], ["start", "--wait"]])
def test_wait_goes_on_when_the_agent_is_restarted(start: Start, socket: Path, command: list[str]) -> None:
    with listening(Dying(socket)) as first:
        assert isinstance(first, Dying)
        process = start(*command, "--timeout", "60")
        assert first.waited_for.wait(DEADLINE_S)
    first.dies.set()
    assert process.stderr is not None
    said = process.stderr.readline()
    assert said.startswith("gpuagent: the agent went away without an answer")
    assert said.endswith("; waiting for it to come back\n")
    with listening(FakeAgent(socket)) as second:
        out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out.splitlines()[-1], err) == (0, "demo: ready: it answers", "")
    left_s = float(second.asked[-1][0].rpartition("=")[2])
    assert 0 < left_s < 60  # its own time goes on


def test_wait_goes_on_while_the_agent_says_that_it_ends_or_begins(call: Call, fake: FakeAgent) -> None:
    says = iter(["the agent is ending", "the agent has just started", "the agent has just started"])

    def next_word(_request: str) -> None:
        word = next(says, None)
        fake.special = {} if word is None else {"GET /servers/demo/wait": problem(503, word)}

    fake.on_request = next_word
    result = call("wait", "demo")
    assert (result.exit_code, result.stdout) == (0, "demo: ready: it answers\n")
    assert result.stderr == "gpuagent: the agent is ending (HTTP 503); waiting for it to come back\n"


def test_wait_tells_of_a_failure_after_a_restart_as_ever(call: Call, fake: FakeAgent) -> None:
    fake.special["GET /servers/demo/wait"] = problem(503, "the agent is ending")

    def fail(_request: str) -> None:
        fake.special = {"GET /servers/demo/wait": problem(409, "demo is failed", stage="failed", cause=None)}
        fake.on_request = lambda _request: None

    fake.on_request = lambda _request: setattr(fake, "on_request", fail)
    result = call("wait", "demo")
    assert result.exit_code == 3
    assert result.stderr.splitlines()[1] == "gpuagent: demo is failed"


def test_an_agent_that_does_not_come_back_is_waited_for_only_so_long(
    call: Call, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait, "GRACE_S", 0.3)

    def die(_request: str) -> None:
        fake.socket.unlink()  # nobody can connect again
        raise ConnectionAbortedError

    fake.on_request = die
    result = call("wait", "demo")
    assert (result.exit_code, result.stdout) == (6, "")
    assert "waiting for it to come back\ngpuagent: no agent can be reached" in result.stderr


def test_an_agent_that_was_never_there_is_not_waited_for(call: Call) -> None:
    result = call("wait", "demo")
    assert result.exit_code == 6
    assert "waiting" not in result.stderr


# -- status --watch against the real API -----------------------------------------------------------


def test_watch_resumes_where_it_was_and_shows_what_it_missed(start: Start, house: House) -> None:
    house.show(server(stage="starting", why="launched"))
    process = start("status", "--watch")
    assert line_of(process).startswith("demo  starting")
    house.leave()
    assert line_of(process).startswith("the agent is gone: ")
    house.show(server(stage="ready"))
    house.show(server(stage="unhealthy", why="it does not answer"))
    house.come()
    assert line_of(process) == "the agent is back\n"
    assert line_of(process).startswith("demo  ready")
    assert line_of(process).startswith("demo  unhealthy")


def test_watch_of_an_agent_that_has_started_again_says_so(start: Start, house: House) -> None:
    house.show(server(stage="ready"))
    process = start("status", "--watch", "--json")
    assert json.loads(line_of(process))["servers"][0]["stage"] == "ready"
    house.leave()
    house.begin_anew()
    house.show(server(stage="starting"))
    house.come()
    assert json.loads(line_of(process))["servers"][0]["stage"] == "starting"
    process.terminate()
    _, err = process.communicate(timeout=DEADLINE_S)
    gone, *rest = err.splitlines()
    assert gone.startswith("gpuagent: the agent is gone: ")
    assert rest == [
        "gpuagent: the agent is back",
        "gpuagent: some changes were not seen: the agent has started again since",
    ]


def test_watch_shows_every_change_of_stage_however_fast(start: Start, house: House) -> None:
    house.show(server(stage="down"))
    process = start("status", "--watch")
    assert line_of(process).startswith("demo  down")
    stages = ["waiting", "starting", "ready", "unhealthy", "stopping"] * 20
    for stage in stages:
        house.show(server(stage=stage))
    assert [line_of(process).split()[1] for _ in stages] == stages
