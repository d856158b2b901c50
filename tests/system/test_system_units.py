"""What systemd itself says of our units."""

from __future__ import annotations

import pytest

from tests.system.conftest import Boot
from tests.system.machine import Machine

FOLDER = "/etc/systemd/system"
UNITS = (
    "gpuagent.service", "gpuagent-helper.socket", "gpuagent-helper.service", "gpuagent-server@demo.service",
    "gpuagent-check@demo.service", "gpuagent-ready@demo.service", "gpuagent.slice",
)  # fmt: skip
EXPOSURE = {
    "gpuagent.service": 2.0,
    "gpuagent-helper.service": 1.6,
    "gpuagent-ready@.service": 2.0,
    "gpuagent-check@.service": 4.5,
}
"""The most that systemd's own measure may say, of 10. The servers' template is none of a sandbox's: CUDA needs much."""


@pytest.fixture(scope="module")
def machine(boot: Boot) -> Machine:
    made: Machine = boot()
    made.run("rm", f"{FOLDER}/service.d/container.conf")  # the tests', and no part of what is judged
    made.run("systemctl", "daemon-reload")
    return made


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_finds_no_fault_with_the_unit(machine: Machine, unit: str) -> None:
    assert machine.run("systemd-analyze", "verify", "--man=no", unit) == ""


@pytest.mark.parametrize("unit", EXPOSURE)
def test_the_unit_is_as_little_exposed_as_it_can_be(machine: Machine, unit: str) -> None:
    most = round(EXPOSURE[unit] * 10)
    machine.run("systemd-analyze", "security", "--offline=yes", f"--threshold={most}", f"{FOLDER}/{unit}")


def test_nothing_of_ours_is_enabled_but_the_helpers_socket_before_an_administrator_says_so(machine: Machine) -> None:
    listed = machine.run("systemctl", "list-unit-files", "--no-legend", "--state=enabled", "gpuagent*").split()
    assert listed[0] == "gpuagent-helper.socket"
    assert listed.count("enabled") <= 2, listed  # the state, and what the distribution would have it be


def test_the_configuration_that_is_installed_lacks_nothing_but_a_server(machine: Machine) -> None:
    said = machine.run("gpuagent", "check-config")
    assert said.startswith("/etc/gpuagent/gpuagent.toml: good\n")
    assert "no server is defined: add a table [servers.NAME]" in said


def test_the_shell_completes_our_commands(machine: Machine) -> None:
    completed = """
source /usr/share/bash-completion/completions/gpuagent
COMP_WORDS=(gpuagent sta) COMP_CWORD=1
_gpuagent_completion gpuagent
printf '%s\\n' "${COMPREPLY[@]}"
"""
    assert set(machine.run("bash", "-c", completed).split()) == {"start", "starts", "stage", "status"}
