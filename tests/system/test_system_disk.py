"""Disks that fill up under a server and under the agent, and what a dead server leaves in shared memory."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.real.real_house import Document, table, until
from tests.system.conftest import Boot
from tests.system.machine import CommandError, Machine
from tests.system.servers import FAKE, agent_of, fake, live, start, start_agent

SMALL, STATE = "/srv/small", "/var/lib/gpuagent"
OURS = "shm-server"
DISK = {"folders": [SMALL], "warn_mib": 30, "low_mib": 10}
CLEARS = "clear-small.service"
TRIES = {"attempts": 9, "pauses_s": [0.1]}

LEAVE = """
cd /dev/shm
for name in psm_ours sem.ours nccl-ours open mapped; do head -c 1048576 /dev/zero >"$name"; done
mkdir folder
ln -s /var/victim/file link
exec "$@"
"""
MAP = """
import mmap, os, time
fd = os.open("/dev/shm/mapped", os.O_RDONLY)
held = mmap.mmap(fd, 4096, prot=mmap.PROT_READ)
os.close(fd)
print("holds", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def machine(boot: Boot) -> Machine:
    made: Machine = boot()
    made.run("mkdir", "-p", SMALL, STATE)
    made.run("mount", "-t", "tmpfs", "-o", "size=64m,mode=1777", "tmpfs", SMALL)
    made.run("mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", STATE)
    made.run("useradd", "--system", "--shell", "/usr/sbin/nologin", OURS)
    made.write("/var/victim/file", "untouched\n")
    made.write(f"/etc/systemd/system/{CLEARS}", f"[Service]\nType=oneshot\nExecStart=/bin/rm -f {SMALL}/fill\n")
    return start_agent(
        made,
        fake("stopped", 8601, disk={**DISK, "on_low": "stop"}),
        fake("reported", 8602, disk={**DISK, "folders": [SMALL, "/root/.cache"]}),
        fake("kept", 8603, restart=TRIES),
        fake("relieved", 8607, disk={**DISK, "start_unit": CLEARS}),
        fake("other", 8604),
        *(
            table(
                name,
                ["/bin/sh", "-c", LEAVE, "sh", *FAKE, "--port", port],
                port=port,
                user=OURS,
                restart={"attempts": 1},
            )
            for name, port in (("leaver", 8605), ("sibling", 8606))
        ),
    )


def status(machine: Machine) -> Document:
    return machine.ask("GET", "/status").document


def until_mark(machine: Machine, begin: str) -> str:
    """The first mark in /status that begins like this."""
    found: str = until(
        lambda: next((mark for mark in status(machine)["degraded"] if mark.startswith(begin)), ""), f"a mark {begin}"
    )
    return found


def until_healed(machine: Machine, begin: str) -> None:
    until(lambda: not [mark for mark in status(machine)["degraded"] if mark.startswith(begin)], f"the end of {begin}")


def fill(machine: Machine, mib: int, name: str = f"{SMALL}/fill") -> None:
    machine.run("dd", "if=/dev/zero", f"of={name}", "bs=1M", f"count={mib}")


def disk_of(server: Document) -> Any:
    return next(each for each in server["storage"] if each["path"] == SMALL)


# -- what the servers write ------------------------------------------------------------------------------


def test_a_server_ends_before_its_disk_is_full_and_comes_back_when_there_is_room(machine: Machine) -> None:
    before = start(machine, "stopped")
    start(machine, "reported")
    seen = machine.until(lambda server: server["storage"], "a reading", "stopped")
    assert disk_of(seen)["state"] == "ok"
    assert {each["path"] for each in seen["storage"]} >= {"/var/log/gpuagent/stopped", SMALL, "/dev/shm"}
    private = machine.until(lambda server: server["storage"], "a reading", "reported")["storage"]
    assert {each["state"] for each in private} == {"ok"}  # what the agent may not enter is on a disk that it sees
    fill(machine, 40)
    assert SMALL in until_mark(machine, "disk-warn: reported")
    until(lambda: "disk-warn" in machine.log("gpuagent"), "a word in the journal")
    assert machine.server("stopped")["stage"] == "ready"
    fill(machine, 58)
    failed = machine.until_stage("stopped", "failed")
    assert (failed["cause"]["slug"], failed["exit"]["asked"]) == ("disk_low", True)
    assert failed["cause"]["text"].startswith(f"{SMALL}: ")
    assert "MiB free" in failed["cause"]["text"] or "MiB of" in failed["cause"]["text"]
    assert SMALL in until_mark(machine, "disk-low: reported")
    assert "disk-low" in machine.run("gpuagent", "status")
    assert machine.server("reported")["stage"] == "ready"
    fill(machine, 40)  # more than too little is not enough yet
    assert machine.server("stopped")["stage"] == "failed"
    machine.run("rm", f"{SMALL}/fill")
    after = machine.until_stage("stopped", "ready")
    assert (after["invocation"] != before["invocation"], after["attempt"]) == (True, 1)
    until_healed(machine, "disk-")
    for name in ("stopped", "reported"):
        machine.run("gpuagent", "stop", name)
        machine.until_stage(name, "down")


def test_a_service_that_makes_room_is_started_when_a_disk_is_too_full(machine: Machine) -> None:
    before = start(machine, "relieved")
    fill(machine, 58)
    until(lambda: "fill" not in machine.run("ls", SMALL).split(), "room")
    until_healed(machine, "disk-low: relieved")
    assert machine.server("relieved")["pid"] == before["pid"], "the server goes on"
    machine.run("gpuagent", "stop", "relieved")


def test_inodes_that_run_out_are_told_like_bytes(machine: Machine) -> None:
    machine.run("mount", "-o", "remount,nr_inodes=200", SMALL)
    start(machine, "reported")
    machine.run("sh", "-c", f"cd {SMALL} && touch $(seq 300)", check=False)
    assert "inodes free" in until_mark(machine, "disk-low: reported")
    machine.run("sh", "-c", f"rm {SMALL}/*")
    until_healed(machine, "disk-")
    machine.run("gpuagent", "stop", "reported")
    machine.until_stage("reported", "down")


# -- shared memory ---------------------------------------------------------------------------------------


def in_shm(machine: Machine) -> set[str]:
    return {path.name for path in machine.path("/dev/shm").iterdir()}


def die(machine: Machine, name: str) -> Document:
    """Its first process, at once; what is written down of what it leaves."""
    os.kill(live(machine, name)[0].host_pid, signal.SIGKILL)
    machine.until_stage(name, "failed")
    record = machine.path(f"/run/gpuagent-server/{name}.leftovers.json")
    told: Document = until(lambda: record.exists() and json.loads(record.read_text()), "the record")
    record.unlink()
    return told


def test_what_a_dead_server_has_left_in_shared_memory_goes_and_nothing_else(machine: Machine) -> None:
    machine.run("sh", "-c", "echo older >/dev/shm/older", user=OURS)
    start(machine, "leaver")
    machine.run("sh", "-c", "echo theirs >/dev/shm/theirs", user="nobody")
    holders = [
        machine.start("sh", "-c", "exec 3</dev/shm/open; echo holds; exec sleep 600"),
        machine.start("/usr/bin/python3", "-I", "-c", MAP),
    ]
    for holder in holders:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holds\n"
    told = die(machine, "leaver")
    assert in_shm(machine) == {"older", "theirs", "open", "mapped", "folder", "link"}, told
    assert (told["removed"], told["mib"]) == (3, 3.0)
    why = {each["name"]: each["why"] for each in told["left"]}
    assert why == {"open": "is in use", "mapped": "is in use", "folder": "is a folder", "link": "is a symlink"}
    assert machine.run("cat", "/var/victim/file") == "untouched\n"
    assert "left in /dev/shm" in machine.log("gpuagent-server@leaver")
    machine.run("pkill", "-x", "sleep", check=False)
    machine.run("sh", "-c", "rm -rf /dev/shm/*")


def test_beside_a_server_of_the_same_user_nothing_is_taken(machine: Machine) -> None:
    start(machine, "leaver")
    machine.run("sh", "-c", "rm -rf /dev/shm/folder /dev/shm/link")
    sibling = start(machine, "sibling")
    told = die(machine, "leaver")
    assert in_shm(machine) >= {"psm_ours", "sem.ours", "nccl-ours"}
    why = {each["name"]: each["why"] for each in told["left"]}
    assert (told["removed"], why["psm_ours"]) == (0, f"pid {sibling['pid']} of the same user lives")
    die(machine, "sibling")
    machine.run("sh", "-c", "rm -rf /dev/shm/*")


# -- what the agent writes -------------------------------------------------------------------------------


def refused(machine: Machine, name: str) -> str:
    """Why a new want is refused."""
    with pytest.raises(CommandError) as error:
        machine.run("gpuagent", "start", name)
    assert "exit 7" in str(error.value)
    assert "HTTP 507" in str(error.value)
    return str(error.value)


def control_goes_on(machine: Machine, why: str) -> None:
    """While the state cannot be saved: a relaunch after a crash, a stop, a refusal, and all of it said."""
    before = machine.server("kept")
    os.kill(live(machine, "kept")[0].host_pid, signal.SIGKILL)
    machine.until(lambda server: server["stage"] == "ready" and server["pid"] != before["pid"], "up again", "kept")
    assert why in until_mark(machine, "state-not-saved")
    assert "state-not-saved" in machine.run("gpuagent", "status")
    assert why in machine.log("gpuagent")
    assert why in refused(machine, "other")
    assert live(machine, "other") == []
    machine.run("gpuagent", "stop", "kept")
    machine.until_stage("kept", "down")
    assert live(machine, "kept") == []
    assert why in refused(machine, "kept")


def healed(machine: Machine) -> None:
    """By itself; and what was asked meanwhile has come to the disk."""
    until_healed(machine, "state-not-saved")
    state = json.loads(machine.path(f"{STATE}/state.json").read_text())
    assert state["servers"]["kept"]["want"] == "down"
    assert start(machine, "other")["want"] == "up"
    machine.run("gpuagent", "stop", "other")
    machine.until_stage("other", "down")


def test_a_full_state_folder_leaves_control_as_it_is_and_heals_by_itself(machine: Machine) -> None:
    start(machine, "kept")
    machine.run("dd", "if=/dev/zero", f"of={STATE}/fill", "bs=4k", check=False)
    control_goes_on(machine, "No space left on device")
    machine.run("rm", f"{STATE}/fill")
    healed(machine)


def test_a_state_folder_that_turns_read_only_leaves_control_as_it_is_and_heals_by_itself(machine: Machine) -> None:
    def as_the_agent_sees_it(*words: str) -> None:
        machine.run("nsenter", "-t", str(agent_of(machine).pid), "-m", *words)

    start(machine, "kept")
    as_the_agent_sees_it("mount", "--bind", STATE, STATE)  # what is open for writing forbids it of that mount itself
    as_the_agent_sees_it("mount", "-o", "remount,bind,ro", STATE)
    control_goes_on(machine, "Read-only file system")
    as_the_agent_sees_it("umount", STATE)
    healed(machine)
