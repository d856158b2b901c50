"""What the tests put into a machine, and how they see its processes: from outside, so that looking disturbs nothing."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.real.real_house import Document, table, until
from tests.system.machine import SOURCE, CommandError, Machine

CONFIGURATION = "/etc/gpuagent/gpuagent.toml"
FAKE = ("/usr/bin/python3", "-S", f"{SOURCE}/tests/fakes/server.py")
LOOK_S = 0.01


def fake(name: str, port: int, *flags: str, **keys: Any) -> str:
    """A stand-in server's table. It is tried once, unless `keys` say otherwise."""
    return table(name, [*FAKE, "--port", str(port), *flags], port=port, **{"restart": {"attempts": 1}, **keys})


def start_agent(machine: Machine, *tables: str) -> Machine:
    """With this configuration, until its API answers."""
    machine.write(CONFIGURATION, "\n".join(tables))
    try:
        machine.run("systemctl", "enable", "--now", "gpuagent")
    except CommandError as error:
        raise AssertionError(machine.journal_end()) from error
    return machine


def unit(name: str) -> str:
    return f"gpuagent-server@{name}.service"


def cgroup(name: str) -> str:
    """The folder of a server's control group."""
    return f"/sys/fs/cgroup/gpuagent.slice/{unit(name)}"


@dataclass(frozen=True)
class Process:
    """A process of a machine. `pid`: as the machine counts; `host_pid`: as we do."""

    pid: int
    host_pid: int
    started: str
    command: str


def processes(machine: Machine, folder: str) -> list[Process]:
    """Those in a control group there that are no zombies."""
    try:
        listed = (machine.path(folder) / "cgroup.procs").read_text().split()
    except OSError:  # there is no such group, or it goes away now
        return []
    return [found for pid in listed if (found := _process(int(pid)))]


def _process(pid: int) -> Process | None:
    proc = Path(f"/proc/{pid}")
    try:
        stat = (proc / "stat").read_text().rpartition(")")[2].split()
        inner = (proc / "status").read_text().split("NSpid:")[1].split("\n")[0].split()[-1]
        command = (proc / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (OSError, IndexError):
        return None
    return None if stat[0] in "ZX" else Process(int(inner), pid, stat[19], command)


def live(machine: Machine, name: str) -> list[Process]:
    """The processes of a stand-in server, without those by which systemd starts and ends it."""
    return [one for one in processes(machine, cgroup(name)) if FAKE[-1] in one.command]


def agent_of(machine: Machine) -> Process:
    """The agent's own process."""

    def find() -> Process | None:
        found = processes(machine, "/sys/fs/cgroup/gpuagent.slice/gpuagent.service")
        return next((one for one in found if "gpuagent" in one.command), None)

    process: Process = until(find, "a process of gpuagent.service")
    return process


def kill_agent(machine: Machine) -> None:
    """SIGKILL, at once. One that has just been hit, and is found in the midst of its end, is not hit again."""
    with suppress(ProcessLookupError):
        os.kill(agent_of(machine).host_pid, signal.SIGKILL)


def until_other_agent(machine: Machine, pid: int) -> None:
    """Until the agent is another process than `pid`, and answers."""
    until(lambda: agent_of(machine).pid != pid, "another agent")
    machine.until_answers()


@dataclass
class Seen:
    """Every process that a server was while somebody looked, and the most that there were at a time."""

    most: int = 0
    all: set[tuple[int, str]] = field(default_factory=set)


@contextmanager
def watched(machine: Machine, name: str) -> Iterator[Seen]:
    """Looks at a stand-in server's processes all the time."""
    seen, enough = Seen(), threading.Event()

    def look() -> None:
        while not enough.wait(LOOK_S):
            now = live(machine, name)
            seen.most = max(seen.most, len(now))
            seen.all.update((one.host_pid, one.started) for one in now)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        enough.set()
        thread.join()


def start(machine: Machine, name: str) -> Document:
    """An operator's start, until the server is ready."""
    machine.until_answers()
    machine.run("gpuagent", "start", name)
    return machine.until_stage(name, "ready")


def same(before: Document, after: Document) -> None:
    """It is the same process and the same start."""
    known = [key for key in ("pid", "invocation", "attempt") if before[key] is not None]
    assert [after[key] for key in known] == [before[key] for key in known], f"{before}\n{after}"
