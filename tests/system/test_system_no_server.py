"""A fresh host, on which nobody has defined a server yet: the agent runs, says what to do, and takes the first one."""

from __future__ import annotations

import json

import pytest

from tests.real.real_house import until
from tests.system.conftest import Boot
from tests.system.machine import Machine
from tests.system.servers import fake

CONFIG = "/etc/gpuagent/gpuagent.toml"


@pytest.fixture(scope="module")
def machine(boot: Boot) -> Machine:
    made: Machine = boot()
    made.run("systemctl", "enable", "--now", "gpuagent")  # as the installer says; the file as it was installed
    return made


def test_the_agent_runs_and_says_what_to_do(machine: Machine) -> None:
    said = f"no server is defined: edit {CONFIG}, then: gpuagent reload"
    document = json.loads(machine.run("gpuagent", "status", "--json"))
    assert (document["servers"], document["degraded"]) == ([], [f"no-server: {said}"])
    assert machine.run("gpuagent", "status") == f"{said}\n"
    until(lambda: 'Status: "no server is defined' in machine.run("systemctl", "status", "gpuagent"), "a status of it")
    assert machine.run("systemctl", "show", "--value", "-P", "NRestarts", "gpuagent").strip() == "0"


def test_there_is_nothing_to_hold_and_nothing_held(machine: Machine) -> None:
    assert machine.run("gpuagent", "rivals").startswith("no unit is listed")
    assert machine.run("gpuagent", "holds").startswith("no unit is held")


def test_it_takes_the_first_server(machine: Machine) -> None:
    whole = machine.run("cat", CONFIG)
    machine.write(CONFIG, whole + fake("first", 8601))
    assert machine.run("gpuagent", "reload") == "added: first\n"
    machine.run("gpuagent", "start", "first")
    machine.until_stage("first", "ready")
