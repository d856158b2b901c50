"""What lasts longer than the agent: a `wait` and a reader of events go on over its restart."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.cli.client import Client
from agent.cli.event_stream import Event
from tests.real.conftest import Make
from tests.real.real_house import FAKE, Agent, free_port, table, until


def slow(load_s: float) -> str:
    port = free_port()
    command = [*FAKE, "--port", str(port), "--load-s", str(load_s)]
    return table("demo", command, port=port, autostart=True, stop_s=1)


def connections(agent: Agent) -> int:
    """How many clients are connected to the agent's socket."""
    ends = [line for line in Path("/proc/net/unix").read_text().splitlines() if line.endswith(f" {agent.socket}")]
    return len(ends) - 1  # one is the socket that listens


@contextmanager
def restarted(agent: Agent, by: signal.Signals) -> Iterator[None]:
    """The agent is ended, and is there again afterwards; what stands between happens while it is not."""
    agent.signal(by)
    agent.ended()
    yield
    agent.start()


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_wait_goes_on_over_a_restart_of_the_agent(make: Make, by: signal.Signals) -> None:
    agent = make(slow(4)).start()
    agent.until_stage("starting")
    until(lambda: connections(agent) == 0, "our own connection is closed")
    waiting = agent.cli_start("wait", "demo", "--timeout", "60")
    until(lambda: connections(agent) == 1, "the agent has taken the request")
    with restarted(agent, by):
        pass
    ended = waiting.finish()
    assert (ended.returncode, ended.stdout.split(":")[:2]) == (0, ["demo", " ready"]), ended.stderr
    assert ended.stderr.startswith("gpuagent: the agent ")
    assert ended.stderr.endswith("; waiting for it to come back\n")
    assert agent.end() == 0


def test_a_reader_that_resumes_misses_no_stage_or_is_told(make: Make) -> None:
    agent = make(slow(0)).start()
    agent.until_stage("ready")
    client = Client([agent.socket])
    assert agent.post("/servers/demo/stop").status == 200
    agent.until_stage("down")
    seen = list(until_stage(client, "", "down"))
    first = next(event.id for event in seen if event.id)
    run = first.partition("-")[0]
    stages = ["starting", "ready", "stopping", "down"]
    told = [event.data["stage"] for event in until_stage(client, f"{run}-0", "down") if event.kind == "server"]
    assert [stage for stage, _ in itertools.groupby(told) if stage in stages] == stages
    with restarted(agent, signal.SIGTERM):
        pass
    again = list(until_stage(client, seen[-1].id, "down"))
    assert [event.kind for event in again][:2] == ["open", "missed"]
    assert again[1].data["reason"] == "other-run"
    assert agent.end() == 0


def until_stage(client: Client, last_id: str, stage: str) -> Iterator[Event]:
    """The events up to the one that shows the server in `stage`."""
    for event in client.events(last_id):
        yield event
        if event.data.get("stage") == stage:
            return
