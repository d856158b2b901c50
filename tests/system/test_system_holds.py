"""Units of every kind are kept off over boots, upgrades and whatever brings them up, and come back to the byte."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.real.real_house import until
from tests.system.conftest import Boot
from tests.system.installed import OFFLINE
from tests.system.machine import SOURCE, CommandError, Machine
from tests.system.rivals import (
    FOLDER,
    active,
    edge,
    install_package,
    lay_out,
    let_time_pass,
    service,
    starts,
    tree,
    until_off,
)
from tests.system.servers import CONFIGURATION, FAKE, fake, start_agent

HOLD = "zz-gpuagent-hold.conf"
RIVALS = (
    "vllm.service", "sock.service", "tick.service", "pathed.service", "upheld.service", "tpl@.service",
    "one@1.service", "static.service", "masked.service", "ollama.service", "late.service", "a\\x2db.service",
)  # fmt: skip
LISTED = (*RIVALS, "gdm.service", "alias.service", "linked.service")
TRIGGERS = ("sock.socket", "nightly.timer", "pathed.path")
QUIET = """
import asyncio, sys
from agent.edges.privileged import Privileged
from agent.edges.rivals import UnitRivals
from agent.edges.systemd import Systemd

async def main():
    async with Systemd() as eyes:
        while eyes.fault:
            await asyncio.sleep(0.005)
        edge, told = UnitRivals(Privileged(), eyes), []
        edge.on_change(lambda: told.append(1))
        await edge.look(frozenset(sys.argv[1:]))
        print("looked", flush=True)
        end = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
        while not end.done():
            await edge.look(frozenset(sys.argv[1:]))
            await asyncio.sleep(0.1)
        print(len(told))

asyncio.run(main())
"""
"""Looks again and again, until it is told to end, and says how many changes it was told of."""

ENABLED = ("vllm", "sock", "tick", "pathed", "upheld", "one-1", "ollama")
"""Those that would be back after a boot."""


@pytest.fixture(scope="module")
def machine(boot: Boot) -> Machine:
    """All of them run; the agent does not."""
    made: Machine = boot()
    made.write(CONFIGURATION, fake("demo", 8801) + f"[rivals]\nunits = {json.dumps(LISTED)}\n")
    lay_out(made)
    return made


@pytest.fixture(scope="module")
def before(machine: Machine) -> Any:
    """What the folders of units held before the first hold."""
    return tree(machine)


@pytest.fixture
def held(machine: Machine, before: Any) -> Machine:
    """All of them are held, and off."""
    assert before
    assert edge(machine, "hold", *RIVALS) == {}
    until_off(machine, *RIVALS)
    return machine


def test_rivals_of_every_kind_go_off_and_what_triggers_them_first(machine: Machine, before: Any) -> None:
    until(lambda: starts(machine, "tick"), "a tick")
    running = edge(machine, "look", *RIVALS)
    assert not any(rival["off"] or rival["held"] for rival in running.values())
    assert running["vllm.service"]["pids"]
    assert running["sock.service"]["revivers"] == ["sock.socket"]
    assert edge(machine, "hold", *RIVALS) == {}
    seen = until_off(machine, *RIVALS)
    assert {unit: rival["fault"] for unit, rival in seen.items() if rival["fault"]} == {}
    assert [active(machine, each) for each in TRIGGERS] == ["inactive"] * 3
    assert seen["upheld.service"]["revivers"] == ["up.service"]
    assert (seen["masked.service"]["load"], seen["late.service"]["load"]) == ("masked", "not-found")
    assert active(machine, "one@2.service") == "active"  # another instance, and not listed
    assert machine.run("systemctl", "--failed", "--plain", "--no-legend") == ""


def test_what_is_held_already_costs_no_reload(held: Machine) -> None:
    def reloads() -> int:
        return held.run("journalctl", "--boot", "--no-pager", "_PID=1", "--output=cat").count("Reloading")

    before = reloads()
    assert edge(held, "hold", *RIVALS) == {}
    assert reloads() == before


def test_nobody_brings_them_up_again(held: Machine) -> None:
    counts = {name: starts(held, name) for name in ENABLED}
    for unit in ("vllm.service", "sock.socket", "nightly.timer", "tpl@1.service", "tpl@9.service", "static.service"):
        held.run("systemctl", "start", unit)
    with pytest.raises(CommandError, match="ConnectionRefusedError"):
        held.run("python3", "-c", "import socket; socket.create_connection(('127.0.0.1', 8710), 60)")
    let_time_pass(held)
    until_off(held, *RIVALS)
    assert {name: starts(held, name) for name in ENABLED} == counts
    assert starts(held, "tpl-9") == 0


def test_neither_looks_nor_starts_that_come_to_nothing_are_told_as_changes(held: Machine) -> None:
    words = ["/opt/gpuagent/venv/bin/python", "-I", "-c", QUIET, *RIVALS]
    process = held.start(*words, user="gpuagent")
    assert process.stdout is not None
    assert process.stdout.readline() == "looked\n"
    held.run("systemctl", "start", "vllm.service", "upheld.service", "tpl@1.service")
    let_time_pass(held)
    output, _ = process.communicate("\n", 60)
    assert output == "0\n"


def test_a_package_that_is_installed_again_or_comes_new_does_not_bring_it_up(held: Machine) -> None:
    count = starts(held, "ollama")
    assert count == 1
    install_package(held, "ollama", "2.0")
    install_package(held, "late", "1.0")
    seen = until_off(held, "ollama.service", "late.service")
    assert seen["late.service"]["load"] == "loaded"
    assert "VERSION=2.0" in held.run("systemctl", "cat", "ollama.service")
    assert (starts(held, "ollama"), starts(held, "late")) == (count, 0)


def test_a_unit_that_is_unmasked_is_off_as_well(held: Machine) -> None:
    held.run("systemctl", "unmask", "masked.service")
    held.run("systemctl", "start", "masked.service")
    assert until_off(held, "masked.service")["masked.service"]["load"] == "loaded"
    held.run("systemctl", "mask", "masked.service")


def test_a_later_drop_in_that_empties_the_conditions_is_named(held: Machine) -> None:
    later = f"{FOLDER}/vllm.service.d/zzz.conf"
    held.write(later, "[Unit]\nConditionPathExists=\n")
    held.run("systemctl", "daemon-reload")
    held.run("systemctl", "start", "vllm.service")
    seen = edge(held, "look", "vllm.service")["vllm.service"]
    assert (seen["active"], seen["held"], seen["fault"]) == (
        "active", False, f"a later drop-in empties its conditions: {later}",
    )  # fmt: skip
    held.path(later).unlink()
    held.run("systemctl", "daemon-reload")
    edge(held, "hold", "vllm.service")
    until_off(held, "vllm.service")


def test_a_file_that_somebody_takes_away_is_missed_and_written_again(held: Machine) -> None:
    path = f"{FOLDER}/vllm.service.d/{HOLD}"
    held.path(path).unlink()
    assert edge(held, "look", "vllm.service")["vllm.service"]["fault"] == f"its file was taken away: {path}"
    edge(held, "hold", "vllm.service")
    until_off(held, "vllm.service")


def test_a_trigger_that_somebody_starts_or_adds_is_named_and_held_with_the_next_hold(held: Machine) -> None:
    held.write(f"{FOLDER}/new.timer", "[Timer]\nOnActiveSec=1d\nUnit=vllm.service\n")
    held.run("systemctl", "daemon-reload")
    held.run("systemctl", "start", "new.timer")
    seen = edge(held, "look", "vllm.service")["vllm.service"]
    assert (seen["off"], seen["revivers"]) == (False, ["new.timer"])
    edge(held, "hold", "vllm.service")
    until_off(held, "vllm.service")
    edge(held, "release", "vllm.service")
    held.path(f"{FOLDER}/new.timer").unlink()
    held.run("systemctl", "daemon-reload")


def test_processes_that_outlive_their_unit_are_named(held: Machine) -> None:
    held.write(
        f"{FOLDER}/static.service.d/50-forking.conf",
        "[Service]\nType=forking\nKillMode=process\nExecStart=\nExecStart=/bin/sh -c 'sleep 1000 & sleep 1001 &'\n",
    )
    edge(held, "release", "static.service")
    held.run("systemctl", "start", "static.service")
    edge(held, "hold", "static.service")
    until(lambda: active(held, "static.service") == "inactive", "its end")
    seen = edge(held, "look", "static.service")["static.service"]
    assert (seen["held"], seen["off"], len(seen["pids"])) == (True, False, 2)
    held.run("kill", *map(str, seen["pids"]))
    until_off(held, "static.service")
    edge(held, "release", "static.service")
    held.run("rm", "-r", f"{FOLDER}/static.service.d")
    held.run("systemctl", "daemon-reload")


def test_what_is_protected_under_another_name_or_leads_elsewhere_is_refused_by_name(held: Machine) -> None:
    held.write(f"{FOLDER}/gdm.service", service("gdm"))
    held.run("ln", "-s", "gdm.service", f"{FOLDER}/alias.service")
    held.run("ln", "-s", "/tmp", f"{FOLDER}/linked.service.d")
    held.run("systemctl", "daemon-reload")
    refused = edge(held, "hold", "alias.service", "linked.service", "strange.service", "vllm.service")
    assert refused["slug"] == "not_listed"
    for part in ("strange.service is not listed", "alias.service is or belongs to gdm.service", "is a symlink"):
        assert part in refused["why"]
    assert [
        each for each in ("alias", "linked", "strange") if held.path(f"{FOLDER}/{each}.service.d/{HOLD}").exists()
    ] == []
    held.run("rm", *(f"{FOLDER}/{each}" for each in ("gdm.service", "alias.service", "linked.service.d")))
    held.run("systemctl", "daemon-reload")
    assert not held.path(f"/tmp/{HOLD}").exists()


def test_none_of_them_starts_at_the_next_boot(held: Machine) -> None:
    counts = {name: starts(held, name) for name in ENABLED}
    held.power_cut()
    held.boot()
    let_time_pass(held)
    assert {name: starts(held, name) for name in ENABLED} == counts
    until_off(held, *RIVALS)
    assert held.run("systemctl", "--failed", "--plain", "--no-legend") == ""


def test_a_release_brings_everything_back_to_the_byte_and_starts_nothing(held: Machine, before: Any) -> None:
    held.run("sh", "-c", f"dpkg --purge late && rm -f {FOLDER}/*.wants/late.service; systemctl daemon-reload")
    states = {unit: active(held, unit) for unit in (*RIVALS, *TRIGGERS) if "@." not in unit}
    held.run("systemctl", "stop", "up.service")  # which would start one at once
    assert edge(held, "release", *RIVALS) == {}
    now = tree(held)
    packaged = [path for path in now if path.endswith("/ollama.service")]
    assert {path: told for path, told in now.items() if path not in packaged} == {
        path: told for path, told in before.items() if path not in packaged
    }
    assert {unit: active(held, unit) for unit in states} == states
    assert list(held.path("/var/lib/gpuagent-holds").iterdir()) == []
    held.run("systemctl", "start", "vllm.service", "sock.socket", "up.service")
    until(lambda: active(held, "upheld.service") == "active", "the unit that is upheld")


def test_uninstalling_brings_everything_back_even_if_the_program_is_gone(held: Machine, before: Any) -> None:
    held.write(f"{FOLDER}/tpl@.service.d/{HOLD}", "# somebody else's\n", 0o640)
    edge(held, "release", "tpl@.service")
    held.write(f"{FOLDER}/tpl@.service.d/{HOLD}", "# somebody else's\n", 0o640)
    theirs = {path: told for path, told in tree(held).items() if "/tpl@.service.d" in path}
    edge(held, "hold", *RIVALS)
    counts = {name: starts(held, name) for name in ENABLED}
    held.run("sh", "-c", "rm -rf /opt/gpuagent/venv/*")
    said = held.run(*OFFLINE, "make", "-C", SOURCE, "uninstall")
    assert said.count("is not kept off any more") == len(RIVALS) + len(TRIGGERS)
    now = tree(held)
    ours = [path for path in now if path.endswith("/ollama.service")]
    assert {path: told for path, told in now.items() if path not in ours} == {
        **{path: told for path, told in before.items() if path not in ours}, **theirs,
    }  # fmt: skip
    assert not held.path("/var/lib/gpuagent-holds").exists()
    assert {name: starts(held, name) for name in ("vllm", "ollama", "one-1")} == {
        name: counts[name] for name in ("vllm", "ollama", "one-1")
    }


# -- the whole ------------------------------------------------------------------------------------------


def test_a_server_comes_up_beside_rivals_that_held_its_port_and_they_stay_off_over_a_boot(boot: Boot) -> None:
    machine = boot()
    machine.write(
        f"{FOLDER}/vllm.service",
        service("vllm", f"ExecStart={' '.join(FAKE)} --port 8802", "Restart=always", wanted_by="multi-user.target"),
    )
    machine.write(f"{FOLDER}/extra.service", service("extra"))
    machine.write("/var/log/starts/none", "")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "enable", "--now", "vllm.service")
    before = tree(machine)
    start_agent(machine, fake("demo", 8802), '[rivals]\nunits = ["vllm.service", "extra.service"]\n')
    machine.until_answers()
    assert active(machine, "vllm.service") == "active"  # nothing is held by an installation
    machine.run("gpuagent", "start", "demo")
    machine.until_stage("demo", "ready")
    assert (active(machine, "vllm.service"), starts(machine, "vllm")) == ("inactive", 1)
    machine.power_cut()
    machine.boot()
    machine.until_answers()
    machine.until_stage("demo", "ready")
    assert (active(machine, "vllm.service"), starts(machine, "vllm")) == ("inactive", 1)
    _drifts(machine)
    machine.run("gpuagent", "stop", "demo")
    machine.until_stage("demo", "down")
    machine.run("gpuagent", "release", "vllm.service")
    machine.run("gpuagent", "release", "extra.service")
    until(lambda: tree(machine) == before, "everything as it was")
    assert starts(machine, "vllm") == 1


def _drifts(machine: Machine) -> None:
    """What is spoilt is told or mended, by the agent alone."""

    def why() -> str:
        rivals = machine.ask("GET", "/rivals").document["rivals"]
        said: str = next(each["why"] for each in rivals if each["unit"] == "extra.service")
        return said

    file, later = (machine.path(f"{FOLDER}/extra.service.d/{name}") for name in (HOLD, "zzz.conf"))
    file.unlink()
    until(file.exists, "the file of the hold, written again")
    until(lambda: why() == "off", "a hold that is in force")
    later.write_text("[Unit]\nConditionPathExists=\n")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", "extra.service")
    until(lambda: f"a later drop-in empties its conditions: {FOLDER}/extra.service.d/zzz.conf" in why(), "its name")
    later.unlink()
    machine.run("systemctl", "daemon-reload")
    until(lambda: why() == "off", "a hold that is in force")
