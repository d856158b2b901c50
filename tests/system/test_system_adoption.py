"""Servers outlive their agent, however it ends."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable

import pytest

from tests.real.real_house import Document, until
from tests.system.conftest import Boot
from tests.system.machine import Machine
from tests.system.servers import (
    agent_of,
    fake,
    kill_agent,
    live,
    same,
    start,
    start_agent,
    unit,
    until_other_agent,
    watched,
)

KILLS = int(os.environ.get("KILLS", "50"))
LOOK_EVERY = 5  # kills between two adoptions that are waited for: the others may hit an agent that is still starting
LAUNCH_DELAYS_MS = (0, 5, 10, 20, 30, 40, 60, 80, 120, 180)

STREAM = """
import json, socket, sys, time
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10) as connection:
    connection.sendall(b"GET /stream HTTP/1.0\\r\\n\\r\\n")
    connection.settimeout(10)
    print("open", flush=True)
    received = 0
    while more := connection.recv(65536):
        received += len(more)
print("closed after", received, flush=True)
"""

QUICK_RESTART = "[Service]\nRestartSec=50ms\n"


@pytest.fixture(scope="module")
def machine(boot: Boot) -> Machine:
    tables = [
        fake("steady", 8101),
        fake("quick", 8102),
        fake("slow", 8103, "--load-s", "3"),
        fake("deaf", 8104, "--ignore-term", stop_s=2),
        fake("ill", 8105, unhealthy_s=600),
        fake("dying", 8106, "--die-after", "0.3", "--exit-code", "3", restart={"attempts": 3, "pauses_s": [2]}),
        fake("failing", 8107, "--die-after", "0.3", "--exit-code", "3"),
        fake("fading", 8108, "--die-after", "4"),
        fake("hit", 8109),
        fake("halted", 8110),
        fake("begun", 8111),
        fake("ended", 8112, restart={"attempts": 3, "pauses_s": [0.1]}),
        fake("blind", 8113, gpus=[0]),  # waits for a reading of a GPU that this machine has not
        fake("other", 8104),  # in the place of "deaf", which takes its time to end
    ]
    made: Machine = boot()
    made.write("/etc/systemd/system/gpuagent.service.d/quick.conf", QUICK_RESTART)
    made.run("systemctl", "daemon-reload")
    return start_agent(made, *tables)


def adopted(machine: Machine, name: str, killed: int) -> Document:
    """The server's document, once another agent than that of pid `killed` shows it as ready."""
    until_other_agent(machine, killed)
    return machine.until_stage(name, "ready")


def stop(machine: Machine, name: str) -> None:
    machine.run("gpuagent", "stop", name)
    machine.until_stage(name, "down")
    assert live(machine, name) == []


def test_a_server_and_its_clients_outlive_many_kills_of_the_agent(machine: Machine) -> None:
    before, dice, took = start(machine, "steady"), random.Random(4), []
    client = machine.start("/usr/bin/python3", "-c", STREAM, "8101")
    with watched(machine, "steady") as seen:
        for number in range(1, KILLS + 1):
            killed = agent_of(machine).pid
            kill_agent(machine)
            if number % LOOK_EVERY:
                time.sleep(
                    dice.uniform(0.05, 1.5)
                )  # what is hit next is an agent at any point of its start or its life
                continue
            at = time.monotonic()
            same(before, adopted(machine, "steady", killed))
            took.append(time.monotonic() - at)
    print(f"{KILLS} kills; adopted again after {min(took):.1f} to {max(took):.1f} s")
    assert client.poll() is None, client.communicate(timeout=10)
    assert seen.most == len(seen.all) == 1
    starts = machine.ask("GET", "/servers/steady/starts").document["starts"]
    assert [each["invocation"] for each in starts] == [before["invocation"]]
    stop(machine, "steady")
    output, _ = client.communicate(timeout=30)
    assert output.startswith("open\nclosed after")


@pytest.mark.parametrize("delay_ms", LAUNCH_DELAYS_MS)
def test_a_kill_while_it_launches_makes_no_second_server(machine: Machine, delay_ms: int) -> None:
    """Whether the want was saved depends on the moment; what must never be is two servers, or one that nobody knows."""
    with watched(machine, "quick") as seen:
        asking = machine.start("gpuagent", "start", "quick")
        until(lambda: asking.poll() is not None or _asked(machine, "quick"), "the start has reached the agent")
        time.sleep(delay_ms / 1000)
        killed = agent_of(machine).pid
        kill_agent(machine)
        asking.communicate(timeout=60)
        until_other_agent(machine, killed)
        start(machine, "quick")
    assert len(seen.all) == seen.most == 1
    stop(machine, "quick")


def _asked(machine: Machine, name: str) -> bool:
    return bool(machine.server(name)["stage"] != "down")


def sicken(machine: Machine) -> None:
    os.kill(live(machine, "ill")[0].host_pid, signal.SIGUSR1)


def nothing(_: Machine) -> None:
    """The stage comes by itself."""


# The stage to be killed in; the server; what brings it there once it is started; the stages one of which must follow.
TRANSITIONS: list[tuple[str, str, Callable[[Machine], object], tuple[str, ...]]] = [
    ("waiting", "blind", nothing, ("waiting",)),
    ("starting", "slow", nothing, ("ready",)),
    ("ready", "slow", nothing, ("ready",)),
    ("unhealthy", "ill", sicken, ("unhealthy",)),
    ("stopping", "deaf", lambda machine: machine.start("gpuagent", "stop", "deaf"), ("down",)),
    ("backing-off", "dying", nothing, ("starting", "ready")),
    ("failed", "failing", nothing, ("failed",)),
]


@pytest.mark.parametrize(("stage", "name", "bring", "then"), TRANSITIONS, ids=[each[0] for each in TRANSITIONS])
def test_a_kill_inside_a_stage_loses_nothing(
    machine: Machine, stage: str, name: str, bring: Callable[[Machine], object], then: tuple[str, ...]
) -> None:
    with watched(machine, name) as seen:
        machine.run("gpuagent", "start", name)
        if bring is not nothing:
            machine.until_stage(name, "ready")
            bring(machine)
        has_process = stage in ("starting", "ready", "unhealthy")  # else an order may get lost, and is given anew
        before = machine.until(lambda seen: seen["stage"] == stage and (seen["pid"] or not has_process), stage, name)
        killed = agent_of(machine).pid
        kill_agent(machine)
        until_other_agent(machine, killed)
        after = machine.until_stage(name, *then)
        if has_process:
            same(before, after)
    assert seen.most <= 1
    stop(machine, name)


def test_a_kill_while_one_server_gives_way_to_another_loses_nothing(machine: Machine) -> None:
    start(machine, "deaf")
    with watched(machine, "other") as seen:
        machine.start("gpuagent", "switch", "other")
        machine.until_stage("other", "clearing")
        killed = agent_of(machine).pid
        kill_agent(machine)
        until_other_agent(machine, killed)
        machine.until_stage("other", "ready")
    assert seen.most == len(seen.all) == 1
    assert live(machine, "deaf") == []
    stop(machine, "other")


def agent_away(machine: Machine) -> None:
    machine.run("systemctl", "stop", "gpuagent")


def agent_back(machine: Machine) -> None:
    machine.run("systemctl", "start", "gpuagent")


def test_the_end_of_the_agent_leaves_the_servers_alone(machine: Machine) -> None:
    before = start(machine, "halted")
    agent_away(machine)
    assert [one.pid for one in live(machine, "halted")] == [before["pid"]]
    agent_back(machine)
    same(before, machine.until_stage("halted", "ready"))


@pytest.mark.parametrize("spoil", ["rm", "truncate --size=7"])
def test_a_server_outlives_the_loss_of_all_that_was_saved(machine: Machine, spoil: str) -> None:
    before = start(machine, "halted")
    agent_away(machine)
    machine.run("sh", "-c", f"{spoil} /var/lib/gpuagent/state.json")
    agent_back(machine)
    after = machine.until_stage("halted", "ready")
    assert (after["pid"], after["invocation"], after["want"]) == (before["pid"], before["invocation"], "up")
    stop(machine, "halted")


def test_a_server_that_exits_0_while_the_agent_is_away_is_told(machine: Machine) -> None:
    start(machine, "fading")
    agent_away(machine)
    until(lambda: machine.show(unit("fading"), "ActiveState")["ActiveState"] == "inactive", "its end")
    agent_back(machine)
    server = machine.until_stage("fading", "failed")
    assert (server["exit"]["code"], server["exit"]["signal"], server["exit"]["asked"]) == (0, None, False)
    assert "0" in server["why"], server["why"]


def test_a_server_that_is_killed_while_the_agent_is_away_is_told(machine: Machine) -> None:
    start(machine, "hit")
    agent_away(machine)
    os.kill(live(machine, "hit")[0].host_pid, signal.SIGKILL)
    until(lambda: machine.show(unit("hit"), "ActiveState")["ActiveState"] in ("inactive", "failed"), "its end")
    agent_back(machine)
    server = machine.until_stage("hit", "failed")
    assert (server["exit"]["code"], server["exit"]["signal"]) == (None, signal.SIGKILL)


def test_a_server_that_an_administrator_stops_stays_down(machine: Machine) -> None:
    start(machine, "halted")
    machine.run("systemctl", "stop", unit("halted"))
    server = machine.until(lambda each: each["stage"] == "down" and each["want"] == "down", "taken as a stop", "halted")
    assert server["cause"] is None
    start(machine, "halted")
    agent_away(machine)
    machine.run("systemctl", "stop", unit("halted"))
    agent_back(machine)
    server = machine.until(lambda each: each["stage"] == "down" and each["want"] == "down", "taken as a stop", "halted")
    assert live(machine, "halted") == []


@pytest.mark.parametrize("away", [False, True], ids=["agent there", "agent away"])
def test_a_server_that_an_administrator_starts_is_adopted(machine: Machine, away: bool) -> None:
    if away:
        agent_away(machine)
    machine.run("systemctl", "start", unit("begun"))
    (process,) = until(lambda: live(machine, "begun"), "the server")
    if away:
        agent_back(machine)
    server = machine.until(lambda each: each["stage"] == "ready" and each["want"] == "up", "adopted", "begun")
    assert server["pid"] == process.pid
    stop(machine, "begun")


def test_a_crash_is_seen_by_the_agent_that_adopted(machine: Machine) -> None:
    before = start(machine, "ended")
    killed = agent_of(machine).pid
    kill_agent(machine)
    same(before, adopted(machine, "ended", killed))
    os.kill(live(machine, "ended")[0].host_pid, signal.SIGSEGV)
    after = machine.until(lambda each: each["stage"] == "ready" and each["pid"] != before["pid"], "a new one", "ended")
    assert after["invocation"] != before["invocation"]
    starts = machine.ask("GET", "/servers/ended/starts").document["starts"]
    assert starts[1]["exit"]["signal"] == signal.SIGSEGV, json.dumps(starts)
    stop(machine, "ended")
