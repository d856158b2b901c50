"""A job that runs while a server is ready, whatever the agent does meanwhile."""

from __future__ import annotations

import os
import signal

import pytest

from tests.real.real_house import Document, until
from tests.system.conftest import Boot
from tests.system.installed import INSTALL_S, OFFLINE
from tests.system.machine import SOURCE, Machine
from tests.system.servers import agent_of, fake, live, start, start_agent, until_other_agent

JOB = """
[Unit]
BindsTo=gpuagent-ready@served.service
After=gpuagent-ready@served.service

[Service]
ExecStart=/usr/bin/sleep infinity

[Install]
WantedBy=gpuagent-ready@served.service
"""


@pytest.fixture(scope="module")
def machine(boot: Boot) -> Machine:
    made: Machine = boot()
    made.write("/etc/systemd/system/job.service", JOB)
    made.run("systemctl", "enable", "job.service")
    start_agent(made, fake("served", 8401, restart={"attempts": 5, "pauses_s": [3]}))
    made.run("systemctl", "enable", "--now", "--no-block", "gpuagent-ready@served")
    return made


def job(machine: Machine) -> str:
    """The job's pid; empty: it does not run."""
    shown = machine.show("job", "ActiveState", "MainPID")
    return shown["MainPID"] if shown["ActiveState"] == "active" else ""


@pytest.fixture
def running(machine: Machine) -> str:
    start(machine, "served")
    pid: str = until(lambda: job(machine), "the job")
    return pid


def test_the_job_does_not_run_before_the_server_is_ready(machine: Machine) -> None:
    assert machine.show("gpuagent-ready@served", "ActiveState") == {"ActiveState": "activating"}
    assert job(machine) == ""


def test_the_job_outlives_kills_restarts_and_an_upgrade_of_the_agent(machine: Machine, running: str) -> None:
    before = machine.server("served")
    for command in (
        ("systemctl", "kill", "--signal=KILL", "gpuagent"),
        ("systemctl", "restart", "gpuagent"),
        (*OFFLINE, "make", "-C", SOURCE, "install"),
    ):
        agent = agent_of(machine).pid
        machine.run(*command, deadline_s=INSTALL_S)
        until_other_agent(machine, agent)
        after: Document = machine.until_stage("served", "ready")
        assert after["pid"] == before["pid"]
        assert job(machine) == running


def test_the_job_ends_with_the_servers_crash_and_comes_back_with_it(machine: Machine, running: str) -> None:
    os.kill(live(machine, "served")[0].host_pid, signal.SIGKILL)
    until(lambda: job(machine) != running, "its end")
    machine.until_stage("served", "ready")
    assert until(lambda: job(machine), "the job again") != running


def test_a_crash_while_the_agent_is_away_ends_the_job_once_the_agent_is_back(machine: Machine, running: str) -> None:
    machine.run("systemctl", "stop", "gpuagent")
    os.kill(live(machine, "served")[0].host_pid, signal.SIGKILL)
    until(lambda: not live(machine, "served"), "the end of the server")
    assert job(machine) == running
    machine.run("systemctl", "start", "gpuagent")
    until(lambda: job(machine) != running, "its end")
    machine.until_stage("served", "ready")
    assert until(lambda: job(machine), "the job again")
