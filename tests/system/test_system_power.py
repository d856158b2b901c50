"""A host that goes down, in good order or by a power cut, and comes up again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.system.conftest import Boot
from tests.system.machine import Machine
from tests.system.servers import fake, live, start, start_agent


@pytest.fixture
def machine(boot: Boot) -> Machine:
    made = start_agent(boot(), fake("wanted", 8501), fake("idle", 8502))
    start(made, "wanted")
    return made


@pytest.mark.parametrize("go_down", [Machine.power_cut, Machine.power_off], ids=["power cut", "shutdown"])
def test_what_was_wanted_is_up_again_and_nothing_else(machine: Machine, go_down: Callable[[Machine], None]) -> None:
    before = machine.server("wanted")
    go_down(machine)
    machine.boot()
    after = machine.until_stage("wanted", "ready")
    assert after["invocation"] != before["invocation"]
    assert (after["attempt"], after["want"]) == (1, "up")
    assert machine.server("idle")["stage"] == "down"
    assert len(live(machine, "wanted")) == 1
    ended = machine.ask("GET", "/servers/wanted/starts").document["starts"][1]
    assert ended["invocation"] == before["invocation"]
    told = f"{ended['outcome']} {ended['cause']}"
    assert ("shutdown" in told) if go_down is Machine.power_off else ("host_rebooted" in told), told


def test_power_cuts_one_after_the_other_lose_nothing(machine: Machine) -> None:
    for _ in range(5):
        machine.power_cut()
        machine.boot()
    assert machine.until_stage("wanted", "ready")["want"] == "up"
    assert machine.server("wanted")["attempt"] == 1
