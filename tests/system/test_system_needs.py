"""What a launch needs of the host, on a real one: a volume that comes late, broken files, disks that freeze."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import weights
from tests.disks import Disk, disk
from tests.real.real_house import Document
from tests.system.conftest import Boot
from tests.system.machine import Machine
from tests.system.servers import fake, live, start, start_agent

MODELS = "/models"
ENGINE = "/opt/engine.py"
PATCH = "local fix 17"


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Disk]:
    with disk(tmp_path, apart=True) as made:
        yield made


@pytest.fixture
def machine(boot: Boot) -> Machine:
    made: Machine = boot()
    return made


def mount(machine: Machine, volume: Disk, place: str) -> None:
    """There, under the device that it has now."""
    node = machine.path(volume.device)
    if not node.exists():
        os.mknod(node, stat.S_IFBLK | 0o600, os.makedev(*volume.number))
    machine.run("mkdir", "-p", place)
    machine.run("mount", volume.device, place)


def names(server: Document) -> set[str]:
    """Of the needs that are not met."""
    return {need["name"] for need in server["needs"]}


def slugs(server: Document) -> list[str]:
    """Of the same."""
    return [need["slug"] for need in server["needs"]]


def until_needs(machine: Machine, name: str, stage: str, *needs: str) -> list[Document]:
    """What is said of them, once it is these that keep a server in that stage."""
    fits = machine.until(lambda it: it["stage"] == stage and names(it) == {*needs}, f"{stage} for {needs}", name)
    found: list[Document] = fits["needs"]
    assert all(need["text"] and need["remedy"] and need["since"] for need in found)
    return found


def test_after_a_catastrophe_each_thing_that_is_missing_is_named_and_the_server_comes_up_once_all_is_mended(
    machine: Machine, volume: Disk
) -> None:
    """The volume is gone at boot, and back later under another device; a shard is cut short; the patch is missing."""
    (volume.kept / "m").mkdir()
    shard = weights.sharded(volume.kept / "m")[1]
    mount(machine, volume, MODELS)
    machine.write(ENGINE, f"# {PATCH}\n")
    needs = [
        "[servers.demo.needs]",
        f'filesystems = {{ "{MODELS}" = "{volume.uuid}" }}',
        f'contains = {{ "{ENGINE}" = "{PATCH}" }}',
    ]
    start_agent(machine, fake("demo", 8601, model=[f"{MODELS}/m"]), "\n".join(needs))
    start(machine, "demo")

    machine.power_cut()
    whole, before = shard.read_bytes(), volume.device
    weights.cut(shard, 100)
    volume.take_away()
    machine.boot()
    machine.write(ENGINE, "# upgraded\n")
    (need,) = until_needs(machine, "demo", "waiting", "mount")
    assert (need["subject"], need["slug"], need["heals"]) == (MODELS, "mount_missing", True)
    assert f"Nothing is mounted at {MODELS}" in machine.server("demo")["why"]
    assert live(machine, "demo") == []
    assert "mount" in machine.run("gpuagent", "status")

    volume.attach(other_than=before)
    assert volume.device != before
    mount(machine, volume, MODELS)
    broken, patch = until_needs(machine, "demo", "failed", "weights", "patch")
    assert shard.name in broken["text"]
    assert (broken["slug"], patch["slug"], patch["subject"]) == ("missing_weights", "patch_missing", ENGINE)
    assert not live(machine, "demo")

    shard.write_bytes(whole)
    until_needs(machine, "demo", "failed", "patch")
    machine.write(ENGINE, f"# upgraded, and {PATCH}\n")
    after = machine.until_stage("demo", "ready")
    assert (after["attempt"], after["needs"], after["want"]) == (1, [], "up")


def test_what_lies_where_a_boot_forgets_it_is_refused_before_the_boot(machine: Machine) -> None:
    machine.write("/tmp/serve.sh", "#!/bin/sh\nexec sleep 600\n", 0o755)
    script = '[servers.script]\ncommand = ["/bin/sh", "/tmp/serve.sh"]\nport = 8602\nautostart = true\n'
    start_agent(machine, script)
    (need,) = until_needs(machine, "script", "failed", "volatile")
    assert (need["slug"], need["heals"]) == ("volatile_path", False)


@pytest.mark.parametrize("place", [MODELS, "/var/log/gpuagent"])
def test_a_frozen_disk_is_told_by_name_and_freezes_nothing_but_the_launch(
    machine: Machine, volume: Disk, place: str
) -> None:
    mount(machine, volume, place)
    (volume.kept / "m").mkdir()
    weights.sharded(volume.kept / "m")
    model = [f"{MODELS}/m"] if place == MODELS else []
    start_agent(machine, fake("demo", 8603, model=model)).until_answers()
    volume.freeze()
    machine.run("gpuagent", "start", "demo")
    stalled = machine.until(lambda it: slugs(it) == ["storage_stalled"], "a word on the frozen disk", "demo")
    (need,) = stalled["needs"]
    assert need["text"].startswith(f"Storage stalled: {place}")
    assert need["text"] in stalled["why"]
    assert (stalled["stage"], need["heals"]) == ("waiting", True)
    assert machine.ask("GET", "/live").status == 200
    machine.run("gpuagent", "status")
    assert [each["text"] for each in machine.server("demo")["needs"]] == [need["text"]], "since the same time"
    assert live(machine, "demo") == []
    volume.thaw()
    assert machine.until_stage("demo", "ready")["attempt"] == 1


def test_a_frozen_state_folder_refuses_a_new_want_by_name_and_holds_up_nothing_else(
    machine: Machine, volume: Disk
) -> None:
    state = "/var/lib/gpuagent"
    mount(machine, volume, state)
    start_agent(machine, fake("demo", 8604), fake("other", 8605)).until_answers()
    start(machine, "demo")
    volume.freeze()
    said = machine.run("gpuagent", "start", "other", check=False)
    assert f"storage stalled: {state} does not answer" in said
    assert machine.server("demo")["stage"] == "ready"
    degraded = machine.ask("GET", "/status").document["degraded"]
    assert any(f"storage stalled: {state}" in mark for mark in degraded), degraded
    machine.run("gpuagent", "stop", "demo", check=False)
    machine.until(lambda it: it["stage"] == "down" and not live(machine, "demo"), "a stop all the same", "demo")
    volume.thaw()
    start(machine, "other")
