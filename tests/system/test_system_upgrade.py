"""`make install` on a host that has gpuagent already: what was there counts until the new one is known to work."""

from __future__ import annotations

import pytest

from tests.real.real_house import until
from tests.system.conftest import Boot
from tests.system.installed import INSTALL_S, OFFLINE
from tests.system.machine import SOURCE, CommandError, Machine
from tests.system.servers import (
    CONFIGURATION,
    agent_of,
    cgroup,
    fake,
    processes,
    start,
    start_agent,
    until_other_agent,
)

INSTALL = ("make", "-C", SOURCE, "install")


@pytest.fixture(scope="module")
def machine(boot: Boot) -> Machine:
    restless = fake("restless", 8702, "--die-after", "0.3", restart={"attempts": 900, "pauses_s": [0.2]})
    return start_agent(boot(), fake("served", 8701), restless)


def versions(machine: Machine) -> list[str]:
    """What lies below /opt/gpuagent; the first is in force."""
    found = sorted(path.name for path in machine.path("/opt/gpuagent").glob("version-*"))
    in_force = machine.path("/opt/gpuagent/venv").readlink().name
    found.remove(in_force)
    return [in_force, *found]


def install(machine: Machine, *before: str) -> None:
    """Once more, until the new agent answers."""
    agent = agent_of(machine).pid
    machine.run(*before, *OFFLINE, *INSTALL, deadline_s=INSTALL_S)
    until_other_agent(machine, agent)


def test_an_install_that_cannot_get_its_packages_changes_nothing(machine: Machine) -> None:
    before, agent = versions(machine), agent_of(machine)
    with pytest.raises(CommandError, match="No matching distribution"):
        machine.run("env", "PIP_NO_INDEX=1", *INSTALL, deadline_s=INSTALL_S)
    assert (versions(machine), agent_of(machine)) == (before, agent)


def test_a_version_that_refuses_the_configuration_is_not_put_in_force(machine: Machine) -> None:
    before, agent, good = versions(machine), agent_of(machine), machine.path(CONFIGURATION).read_text()
    machine.write(CONFIGURATION, good + "\nnobody_knows_this_key = 1\n")
    try:
        with pytest.raises(CommandError, match="what was installed before stays in force"):
            machine.run(*OFFLINE, *INSTALL, deadline_s=INSTALL_S)
    finally:
        machine.write(CONFIGURATION, good)
    assert (versions(machine), agent_of(machine)) == (before, agent)


def test_a_python_in_a_home_is_refused_since_no_service_sees_it(machine: Machine) -> None:
    before = versions(machine)
    machine.run("sh", "-c", "mkdir -p /root/bin && cp /usr/bin/python3 /root/bin/python3")
    with pytest.raises(CommandError, match="PYTHON=/usr/bin/python3"):
        machine.run(*OFFLINE, *INSTALL, "PYTHON=/root/bin/python3", deadline_s=INSTALL_S)
    assert versions(machine) == before


def test_a_root_with_a_narrow_umask_installs_what_other_users_can_run(machine: Machine) -> None:
    before = start(machine, "served")
    install(machine, "sh", "-c", 'umask 077 && exec "$@"', "sh")
    after = machine.until_stage("served", "ready")
    assert (after["pid"], after["invocation"]) == (before["pid"], before["invocation"])
    assert machine.run("gpuagent", "stage", "served", user="gpuagent") == "ready\n"


def test_a_version_goes_with_the_last_that_runs_from_it(machine: Machine) -> None:
    start(machine, "served")
    machine.run("systemctl", "start", "gpuagent-ready@served")
    serving = machine.show("gpuagent-ready@served", "MainPID")
    (first, *_) = versions(machine)
    install(machine)
    install(machine)
    assert first in versions(machine)
    assert machine.show("gpuagent-ready@served", "MainPID") == serving
    machine.run("systemctl", "restart", "gpuagent-ready@served")
    until(lambda: machine.show("gpuagent-ready@served", "ActiveState")["ActiveState"] == "active", "it again")
    install(machine)
    assert first not in versions(machine)


BROKEN_SYSTEMCTL = """#!/bin/sh
[ "$1" != {verb} ] || {{ echo "systemctl {verb} fails" >&2; exit 1; }}
exec /usr/bin/systemctl "$@"
"""
UNITS = "cd /etc/systemd/system && ls -A && cat gpuagent*.service gpuagent*.socket | sha256sum"


@pytest.mark.parametrize("verb", ["daemon-reload", "enable", "start"])
def test_an_install_that_fails_half_way_leaves_what_was_there_in_force(machine: Machine, verb: str) -> None:
    before, agent, units = versions(machine), agent_of(machine), machine.run("sh", "-c", UNITS)
    machine.write("/opt/broken/systemctl", BROKEN_SYSTEMCTL.format(verb=verb), 0o755)
    with pytest.raises(CommandError, match="what was installed before stays in force"):
        machine.run("sh", "-c", 'PATH=/opt/broken:$PATH exec "$@"', "sh", *OFFLINE, *INSTALL, deadline_s=INSTALL_S)
    assert (versions(machine), agent_of(machine), machine.run("sh", "-c", UNITS)) == (before, agent, units)
    start(machine, "served")  # by the helper that was there before
    machine.run("gpuagent", "stop", "--wait", "served")


def test_an_uninstall_is_refused_while_a_server_runs(machine: Machine) -> None:
    server = start(machine, "served")
    with pytest.raises(CommandError, match="stop them first: gpuagent stop NAME"):
        machine.run("make", "-C", SOURCE, "uninstall")
    assert machine.until_stage("served", "ready")["pid"] == server["pid"]
    machine.run("gpuagent", "stop", "--wait", "served")


def test_an_uninstall_overlooks_no_server_that_is_started_meanwhile(machine: Machine) -> None:
    """One that comes again and again: whether it is there at that moment is chance, but never may it stay behind."""
    machine.until_answers()
    machine.run("gpuagent", "start", "restless")
    try:
        machine.run("make", "-C", SOURCE, "uninstall")
    except CommandError as error:
        assert "stop them first" in str(error)  # noqa: PT017  either may happen
        machine.until_answers()
        machine.run("gpuagent", "stop", "--wait", "restless")
    else:
        assert processes(machine, cgroup("restless")) == []
        machine.run(*OFFLINE, *INSTALL, deadline_s=INSTALL_S)
        machine.run("systemctl", "enable", "--now", "gpuagent")
        machine.run("gpuagent", "stop", "--wait", "restless")


def test_an_uninstall_leaves_an_administrators_own_units_alone(machine: Machine) -> None:
    theirs = "/etc/systemd/system/multi-user.target.wants/theirs.service"
    machine.run(
        "sh", "-c", f"mkdir -p /srv/gpuagent && touch /srv/gpuagent/theirs && ln -s /srv/gpuagent/theirs {theirs}"
    )
    machine.run("systemctl", "enable", "gpuagent-ready@served")
    machine.until_answers()
    machine.run("gpuagent", "stop", "--wait", "served")
    machine.run("make", "-C", SOURCE, "uninstall")
    left = machine.run("find", "/etc/systemd/system", "-name", "*gpuagent*", "-o", "-name", "theirs.service").split()
    assert left == [theirs]
