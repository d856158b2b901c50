"""`rivals`, `holds`, `hold` and `release` on a real host: what an operator sees of a unit that fights over the GPUs."""

from __future__ import annotations

import pytest

from tests.real.real_house import until
from tests.system.conftest import Boot
from tests.system.machine import CommandError, Machine
from tests.system.servers import CONFIGURATION, fake, start_agent

RIVALS = '[rivals]\nunits = ["vllm.service", "stubborn.service", "absent.service"]\n'
VLLM = "[Service]\nExecStart=/bin/sleep infinity\nRestart=always\n[Install]\nWantedBy=multi-user.target\n"
STUBBORN = "[Service]\nExecStart=/bin/sh -c 'trap \"\" TERM; exec sleep infinity'\nTimeoutStopSec=infinity\n"


@pytest.fixture(scope="module")
def machine(boot: Boot) -> Machine:
    """Its tests are the steps of one story, in their order."""
    made: Machine = boot()
    made.write("/etc/systemd/system/vllm.service", VLLM)
    made.write("/etc/systemd/system/stubborn.service", STUBBORN)
    made.run("systemctl", "daemon-reload")
    made.run("systemctl", "enable", "--now", "vllm")
    made.run("systemctl", "start", "stubborn")
    return start_agent(made, RIVALS, fake("demo", 8601))


def line(machine: Machine, command: str, unit: str) -> str:
    """What the command says of a unit."""
    return next((each for each in machine.run("gpuagent", command).splitlines() if each.startswith(unit)), "")


def says(machine: Machine, command: str, unit: str, words: str) -> str:
    """That line, once it has these words."""
    until(lambda: words in line(machine, command, unit), f"{command}: {unit}: {words}")
    return line(machine, command, unit)


def state(machine: Machine) -> str:
    return machine.run("systemctl", "is-active", "vllm", check=False).strip()


def refused(machine: Machine, *words: str) -> str:
    with pytest.raises(CommandError) as error:
        machine.run("gpuagent", *words)
    return str(error.value)


def test_before_a_server_is_wanted_the_rival_is_seen_and_left_alone(machine: Machine) -> None:
    assert "not held yet: no server has been wanted" in says(machine, "rivals", "vllm.service", "active (not held)")
    assert machine.run("gpuagent", "holds").startswith("no unit is held")
    assert "rival up: vllm.service: " in machine.run("gpuagent", "status")
    assert state(machine) == "active"


def test_the_first_start_turns_it_off_and_says_what_it_waits_for(machine: Machine) -> None:
    machine.run("gpuagent", "start", "demo")
    machine.until_stage("demo", "clearing")
    says(machine, "why", "  rival:   stubborn.service: ", "is deactivating, pid ")
    says(machine, "status", "rival up: stubborn.service: ", "is deactivating, pid ")
    says(machine, "rivals", "vllm.service", "  off  ")
    assert machine.server("demo")["stage"] == "clearing"


def test_once_every_rival_is_off_the_server_comes_up(machine: Machine) -> None:
    machine.run("systemctl", "kill", "--signal=KILL", "stubborn")
    machine.until_stage("demo", "ready")
    assert state(machine) == "inactive"
    says(machine, "rivals", "vllm.service", "  off  ")
    says(machine, "rivals", "absent.service", "not installed; kept off when it comes")
    says(machine, "holds", "vllm.service", "in force")
    assert machine.run("gpuagent", "status").count("\n") == 1
    machine.run("systemctl", "start", "vllm")  # an unmet condition is no error
    assert state(machine) == "inactive"


def test_what_is_released_may_run_and_is_told_while_the_server_goes_on(machine: Machine) -> None:
    before = machine.until_stage("demo", "ready")
    assert "not started" in machine.run("gpuagent", "release", "vllm")
    says(machine, "rivals", "vllm.service", "released: not kept off")
    assert state(machine) == "inactive"
    machine.run("systemctl", "start", "vllm")
    assert state(machine) == "active"
    says(machine, "status", "rival up: vllm.service: ", "released: not kept off")
    assert machine.until_stage("demo", "ready")["invocation"] == before["invocation"]


def test_it_is_held_again_at_a_word(machine: Machine) -> None:
    assert "kept off from now on" in machine.run("gpuagent", "hold", "vllm")
    says(machine, "rivals", "vllm.service", "  off  ")
    assert state(machine) == "inactive"


def test_a_unit_that_nobody_listed_is_refused_with_what_to_do(machine: Machine) -> None:
    assert "cron.service is not listed: add it to [rivals] units in" in refused(machine, "hold", "cron")
    assert "is no service, socket, timer or path unit" in refused(machine, "hold", "multi-user.target")


def test_holds_outlive_the_loss_of_the_state(machine: Machine) -> None:
    machine.run("systemctl", "stop", "gpuagent")
    machine.path("/var/lib/gpuagent/state.json").unlink()
    machine.run("systemctl", "start", "gpuagent")
    machine.until_answers()
    for unit in ("absent.service", "stubborn.service", "vllm.service"):
        says(machine, "holds", unit, "in force")
    assert "held, and not in the state" in machine.log("gpuagent")
    assert state(machine) == "inactive"


def test_what_is_not_listed_any_more_stays_held_until_it_is_released(machine: Machine) -> None:
    machine.write(CONFIGURATION, fake("demo", 8601))
    said = machine.run("gpuagent", "reload")
    units = ("absent.service", "stubborn.service", "vllm.service")
    assert said.startswith(f"not listed any more: {', '.join(units)}; what is held stays held")
    says(machine, "rivals", "vllm.service", "held, and not listed any more: gpuagent release vllm.service")
    for unit in units:
        machine.run("gpuagent", "release", unit)
    until(lambda: machine.run("gpuagent", "holds").startswith("no unit is held"), "no hold")
    assert state(machine) == "inactive"
    machine.run("systemctl", "start", "vllm")
    assert state(machine) == "active"
