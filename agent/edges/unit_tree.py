"""Which processes are a unit's: those in its control group, whatever they have done to themselves."""

from __future__ import annotations

import os.path
import time
from dataclasses import dataclass

from agent.core.model import Life
from agent.edges import processes
from agent.edges.cgroup import Cgroup
from agent.edges.processes import Stat
from agent.edges.server_tree import COMPILERS
from agent.edges.unit_records import Launched, UnitRecords

HIDDEN = "/proc hides its processes (hidepid): mount it with gid=GROUP, and give gpuagent.service that group"
OURS = (b"-I", b"-m", b"agent.privileged.launch")
"""The arguments of what systemd runs of ours in the group: before the server, and after it to write down its end."""
LAUNCHER = (*OURS, b"run")
"""... of what becomes the server by an exec, which keeps its pid and start time."""
FORKED = frozenset({b"systemd", b"systemd-executor", b"init"})
"""What systemd's child is called before it becomes the launcher, until it calls itself "(python)"; also as seen in
the midst of the exec: nothing at all."""
FORKED_S = 5.0
"""Systemd's child executes its program within some ten milliseconds of its birth."""


@dataclass(frozen=True, slots=True)
class Found:
    """One search. Zombies are not in it."""

    members: tuple[Stat, ...]
    unkillable: tuple[int, ...]
    ending: tuple[int, ...]  # dead, and being taken apart by the kernel
    launched: Launched | None  # the last launch
    lives: bool  # whether the first process of that launch is among them
    passing: bool  # systemd is at work there: a start that is not written down yet, or the last steps of an end
    life: Life


def find(group: Cgroup, records: UnitRecords) -> Found:
    """Search once. Blocks for some milliseconds. OSError: the group cannot be read, or its processes are hidden."""
    seen = {pid: processes.stat(pid) for pid in group.pids()}
    if any(one is None and processes.hidden(pid) for pid, one in seen.items()):
        raise OSError(HIDDEN)
    members = tuple(one for one in seen.values() if one is not None and not one.gone)
    alive = {one.process for one in members}
    launched, passing = records.launched(), False
    if launched is None or launched.main not in alive:  # else who is who is known, and no command line is read
        passing = any(_passing(one) for one in members)
        launched = records.launched()  # again: of one seen as the server, what was written before its exec is seen
    lives = launched is not None and launched.main in alive
    return Found(
        members=members,
        unkillable=tuple(one.pid for one in members if processes.stuck(one)),
        ending=tuple(one.pid for one in members if processes.ending(one)),
        launched=launched,
        lives=lives,
        passing=passing and not lives,
        life=_life(group, members),
    )


def is_launcher(pid: int) -> bool:
    """Whether it has still to become the server, by one exec."""
    return processes.command_of(pid)[1 : 1 + len(LAUNCHER)] == LAUNCHER


def _passing(one: Stat) -> bool:
    """Whether it is systemd's, on its way to become the server, or there for the server's end: no server's process."""
    command = processes.command_of(one.pid)
    if command[1 : 1 + len(OURS)] == OURS:
        return True
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - one.started / processes.TICKS_PER_S
    if age_s > FORKED_S or one.exiting:
        return False
    program = command[0] if command else b""
    return program == b"" or program.startswith(b"(") or os.path.basename(program) in FORKED


def _life(group: Cgroup, members: tuple[Stat, ...]) -> Life:
    """The group's own counts where it has them: they know those who came and went between two looks."""
    counts = group.counts()
    ticks = sum(one.cpu_ticks for one in members)
    resident = sum(one.resident_pages for one in members) * processes.PAGE_BYTES
    return Life(
        cpu_s=counts.cpu_s if counts.cpu_s is not None else ticks / processes.TICKS_PER_S,
        read_bytes=counts.read_bytes or 0,
        faults=sum(one.faults for one in members),
        memory_mib=(resident if counts.memory_bytes is None else counts.memory_bytes) >> 20,
        compilers=sum(one.comm in COMPILERS for one in members),
    )
