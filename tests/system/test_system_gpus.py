"""GPUs on a real host: a unit's processes on a GPU are named by their unit, our server's by its own name.

The driver's library is a stand-in; what it answers is written from outside.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from tests.disks import disk
from tests.fakes.nvml.driver import Driver, build
from tests.real.real_house import Document, until
from tests.system.conftest import Boot
from tests.system.machine import Machine
from tests.system.servers import fake, start_agent

LIBRARY = "/opt/nvml"
WITH_LIBRARY = f"[Service]\nEnvironment=LD_LIBRARY_PATH={LIBRARY} FAKE_NVML={LIBRARY}/nvml.script\n"
VLLM = "[Service]\nExecStart=/usr/bin/sleep 600\n"
NEED_MIB = 100_000
BLOCKED = "/mnt/blocked"


@pytest.fixture
def machine(boot: Boot) -> Machine:
    """With a unit vllm.service that runs, and the agent not started."""
    made: Machine = boot()
    made.write("/etc/systemd/system/gpuagent.service.d/gpus.conf", WITH_LIBRARY)
    made.write("/etc/systemd/system/vllm.service", VLLM)
    made.run("mkdir", "-p", LIBRARY)
    made.run("systemctl", "daemon-reload")
    made.run("systemctl", "start", "vllm")
    return made


def holders(machine: Machine) -> list[Document]:
    """Of GPU 0."""
    document = machine.ask("GET", "/gpus").document
    found: list[Document] = document["devices"][0]["holders"] if document["devices"] else []
    return found


def test_a_units_memory_is_waited_for_by_its_name_and_a_hung_driver_harms_no_server_nor_the_agents_restart(
    machine: Machine,
) -> None:
    folder = machine.path(LIBRARY)
    driver = Driver(folder, build(folder))
    rival = int(machine.show("vllm.service", "MainPID")["MainPID"])
    driver.gpus[0].used, driver.gpus[0].processes = "62669", [(rival, 62_669, "compute")]
    driver.say()
    start_agent(machine, fake("demo", 8101, gpus=[0], need_mib=NEED_MIB))
    machine.run("gpuagent", "start", "demo")
    named = f"GPU 0: 78.6 GiB free, 97.7 GiB needed: 61.2 GiB held by vllm.service, pid {rival}, since 20"
    machine.until(lambda it: it["stage"] == "clearing" and it["why"].startswith(named), named, "demo")
    (holder,) = holders(machine)
    assert (holder["kind"], holder["owner"], holder["name"], holder["user"]) == (
        "unit",
        "vllm.service",
        "sleep",
        "root",
    )

    driver.gpus[0].used, driver.gpus[0].processes = "0", []
    driver.say()
    pid = machine.until_stage("demo", "ready")["pid"]
    driver.gpus[0].used, driver.gpus[0].processes = "50000", [(pid, 50_000, "compute")]
    driver.say("hang nvmlDeviceGetMemoryInfo_v2")
    until(lambda: machine.ask("GET", "/gpus").document["state"] == "hung", "the hang is named")
    machine.run("systemctl", "restart", "gpuagent")
    assert machine.until_stage("demo", "ready")["pid"] == pid, "adopted"
    driver.say()
    until(
        lambda: [(it["pid"], it["kind"], it["owner"]) for it in holders(machine)] == [(pid, "ours", "demo")],
        "its memory shown as its own",
    )
    machine.run("gpuagent", "stop", "demo")
    machine.until_stage("demo", "down")


def test_a_reader_that_is_stuck_in_the_kernel_keeps_no_agent_from_coming_back(machine: Machine, tmp_path: Path) -> None:
    folder = machine.path(LIBRARY)
    driver = Driver(folder, build(folder))
    with disk(tmp_path, apart=True) as volume:
        volume.kept.chmod(0o777)
        os.mknod(machine.path(volume.device), stat.S_IFBLK | 0o600, os.makedev(*volume.number))
        machine.run("mkdir", "-p", BLOCKED)
        machine.run("mount", volume.device, BLOCKED)
        driver.say(f"block nvmlDeviceGetMemoryInfo_v2 {BLOCKED}/file")
        start_agent(machine, fake("demo", 8101, gpus=[0], need_mib=NEED_MIB))
        machine.run("gpuagent", "start", "demo")
        pid = machine.until_stage("demo", "ready")["pid"]
        volume.freeze()
        try:
            until(lambda: "no signal reaches it" in machine.ask("GET", "/gpus").document["why"], "the hang is named")
            before = machine.show("gpuagent.service", "MainPID")["MainPID"]
            began = time.monotonic()
            machine.run("systemctl", "kill", "--kill-whom=main", "-s", "KILL", "gpuagent")
            until(lambda: machine.show("gpuagent.service", "MainPID")["MainPID"] not in (before, "0"), "another agent")
            machine.until_answers()
            print(f"killed beside a stuck reader: another answers after {time.monotonic() - began:.1f} s")
            assert machine.until_stage("demo", "ready")["pid"] == pid, "adopted"
            began = time.monotonic()
            machine.run("systemctl", "restart", "gpuagent")
            machine.until_answers()
            print(f"restarted beside a stuck reader: answers after {time.monotonic() - began:.1f} s")
            assert machine.until_stage("demo", "ready")["pid"] == pid, "adopted"
        finally:
            volume.thaw()
        until(lambda: machine.ask("GET", "/gpus").document["state"] == "ok", "the driver is back")
        machine.run("gpuagent", "stop", "demo")
        machine.until_stage("demo", "down")
        machine.run("systemctl", "stop", "gpuagent")
        machine.run("umount", BLOCKED)
