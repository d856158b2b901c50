"""What an administrator and systemd do beside the agent: the bus goes, units are read anew, many start at once."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.real.real_house import Document, until
from tests.system.conftest import Boot
from tests.system.machine import CommandError, Machine
from tests.system.servers import CONFIGURATION, agent_of, cgroup, fake, live, same, start, start_agent, unit, watched

PARALLEL = 50

LEFT_OVER = """
set -e
mkdir -p "$1"
sleep 600 >/dev/null 2>&1 &
echo $! >"$1/cgroup.procs"
"""


@pytest.fixture(scope="module")
def machine(boot: Boot) -> Machine:
    tables = [
        fake("calm", 8201, restart={"attempts": 3, "pauses_s": [0.1]}),
        fake("crowd", 8202),
        fake("queue", 8203),
        fake("litter", 8204),
    ]
    return start_agent(boot(), *tables)


@pytest.fixture
def calm(machine: Machine) -> Document:
    return start(machine, "calm")  # anew, even if it runs: no failure is counted then


DISTURBANCES = {
    "the bus restarts": ("systemctl restart dbus",),
    "the bus is killed": ("systemctl kill --signal=KILL dbus", "systemctl start dbus"),
    "units are read anew": ("systemctl daemon-reload",) * 5,
    "systemd executes itself anew": ("systemctl daemon-reexec",),
}


@pytest.mark.parametrize("what", DISTURBANCES)
def test_a_disturbance_ends_nothing_and_hides_nothing(machine: Machine, calm: Document, what: str) -> None:
    agent = agent_of(machine)
    with watched(machine, "calm") as seen:
        for command in DISTURBANCES[what]:
            machine.run("sh", "-c", command)
        # A crash after it is told with its signal: the agent hears systemd again, or looks.
        same(calm, machine.server("calm"))
        os.kill(live(machine, "calm")[0].host_pid, signal.SIGKILL)
        machine.until(lambda each: each["stage"] == "ready" and each["pid"] != calm["pid"], "a new one", "calm")
    assert agent_of(machine) == agent
    assert (seen.most, len(seen.all)) == (1, 2)
    starts = machine.ask("GET", "/servers/calm/starts").document["starts"]
    assert starts[1]["exit"]["signal"] == signal.SIGKILL
    assert starts[0]["invocation"] != starts[1]["invocation"] == calm["invocation"]


def test_a_reload_takes_what_is_new_and_refuses_what_is_wrong(machine: Machine, calm: Document) -> None:
    before = machine.path(CONFIGURATION).read_text()
    machine.write(CONFIGURATION, f"{before}\n{fake('added', 8205)}")
    machine.run("systemctl", "reload", "gpuagent")
    machine.until_stage("added", "down")
    machine.write(CONFIGURATION, f"{before}\nnonsense")
    with pytest.raises(CommandError):
        machine.run("systemctl", "reload", "gpuagent")
    machine.until_stage("added", "down")
    same(calm, machine.until_stage("calm", "ready"))
    machine.write(CONFIGURATION, before)
    machine.run("systemctl", "reload", "gpuagent")


def test_many_starts_at_once_make_one_server(machine: Machine) -> None:
    with watched(machine, "crowd") as seen, ThreadPoolExecutor(PARALLEL) as crowd:
        replies = list(crowd.map(lambda _: machine.ask("POST", "/servers/crowd/start").status, range(PARALLEL)))
        machine.until_stage("crowd", "ready")
    assert {200} <= set(replies) <= {200, 409}  # 409: another change is under way
    assert len(seen.all) == seen.most == 1


def test_many_starts_by_systemctl_and_the_agent_make_one_server(machine: Machine) -> None:
    with watched(machine, "queue") as seen:
        asking = [machine.start("systemctl", "start", unit("queue")) for _ in range(PARALLEL)]
        asking.append(machine.start("gpuagent", "start", "queue"))
        for each in asking:
            each.communicate(timeout=60)
        machine.until_stage("queue", "ready")
    assert len(seen.all) == seen.most == 1


def test_a_left_over_in_the_group_is_ended_before_a_launch(machine: Machine) -> None:
    machine.run("sh", "-c", LEFT_OVER, "sh", cgroup("litter"))
    left = until(lambda: (machine.path(cgroup("litter")) / "cgroup.procs").read_text().split(), "the left-over")
    start(machine, "litter")
    present = (machine.path(cgroup("litter")) / "cgroup.procs").read_text().split()
    assert not set(left) & set(present)
    assert len(live(machine, "litter")) == 1
