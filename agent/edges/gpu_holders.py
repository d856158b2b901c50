"""Who is on the GPUs: from the process numbers of a reading to servers, units, containers and strays.

Reads /proc alone: no name service, no engine, nothing that waits for the process itself. Needs no privilege.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from agent.core.gpu_seen import GpuReading, HolderKind, ProcessOwner
from agent.core.model import Process
from agent.edges import gpu_groups, processes
from agent.edges.gpu_groups import Group
from agent.edges.processes import Stat
from agent.protected import is_protected
from agent.protected_process import why_protected

KNOWN_S = 60.0
"""A process that lives may be moved to another control group: it is looked at again after so long."""
KEPT = 256
"""Descriptors at most; what is beyond is looked at each time."""
TICK_S = 1 / processes.TICKS_PER_S
PASSWD = Path("/etc/passwd")


@dataclass(slots=True)
class _Known:
    """A process that was looked at, and lives for as long as its pidfd says so."""

    owner: ProcessOwner
    pidfd: int
    until: float


class _Host:
    """What one resolution needs of the host, read when the first process needs it."""

    @cached_property
    def own_line(self) -> frozenset[int]:
        """The agent and its ancestors."""
        line, pid = set(), os.getpid()
        while pid > 0 and pid not in line:
            line.add(pid)
            parent = processes.stat(pid)
            pid = parent.ppid if parent is not None else 0
        return frozenset(line)

    @cached_property
    def users(self) -> Mapping[str, str]:
        """Names by number, from the host's own list alone: a name service may hang."""
        with suppress(OSError):
            lines = [line.split(":") for line in PASSWD.read_text(errors="replace").splitlines()]
            return {fields[2]: fields[0] for fields in reversed(lines) if len(fields) > 2}
        return {}


class GpuHolders:
    """Resolves the numbers of readings. It keeps a descriptor for each process, to know that it lives: `close` it."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        self._poll = select.poll()

    def resolve(self, reading: GpuReading, own: Mapping[Process, str] | None = None) -> GpuReading:
        """The reading with its `owners`. `own`: processes of servers that are no units, and the server's name.

        Some microseconds for each process that is known, a tenth of a millisecond for each new one.
        """
        pids = reading.pids()
        now = time.monotonic()
        self._forget_the_dead(pids)
        host = _Host()
        found = [self._owner(pid, reading.began, now, host) for pid in sorted(pids)]
        return replace(reading, owners=tuple(_ours(one, own) for one in found) if own else tuple(found))

    def close(self) -> None:
        """Let go of every descriptor."""
        for pid in list(self._known):
            self._forget(pid)

    def _forget_the_dead(self, pids: frozenset[int]) -> None:
        dead = {fd for fd, _ in self._poll.poll(0)} if self._known else set()
        for pid in [pid for pid, one in self._known.items() if one.pidfd in dead or pid not in pids]:
            self._forget(pid)

    def _forget(self, pid: int) -> None:
        one = self._known.pop(pid)
        self._poll.unregister(one.pidfd)
        os.close(one.pidfd)

    def _owner(self, pid: int, began: float, now: float, host: _Host) -> ProcessOwner:
        known = self._known.get(pid)
        if known is not None and now < known.until:
            return known.owner
        if known is not None:
            self._forget(pid)
        if len(self._known) >= KEPT:
            return _owner_of(pid, began, host)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:  # gone; or out of descriptors
            return _owner_of(pid, began, host)
        owner = _owner_of(pid, began, host)
        if owner.kind is HolderKind.GHOST or owner.gone:
            os.close(pidfd)
            return owner
        self._poll.register(pidfd, select.POLLIN)
        self._known[pid] = _Known(owner, pidfd, now + KNOWN_S)
        return owner


def _ours(owner: ProcessOwner, own: Mapping[Process, str]) -> ProcessOwner:
    """A server of the embedded mode has no control group of its own."""
    if owner.started is None or owner.kind is HolderKind.OURS:
        return owner
    name = own.get(Process(owner.pid, owner.started))
    return owner if name is None else replace(owner, kind=HolderKind.OURS, owner=name)


def _owner_of(pid: int, began: float, host: _Host) -> ProcessOwner:
    """As of now, for a number that the driver told at `began` or a little later."""
    stat = processes.stat(pid)
    if stat is None:
        if processes.hidden(pid):
            why = "/proc hides it from the agent (hidepid)"
            return ProcessOwner(pid=pid, kind=HolderKind.STRAY, owner="a hidden process", protected=why)
        return _ghost(pid, "no such process here: it is dead, or lives in another PID namespace")
    since = _since(stat)
    if _boottime_of(began) < stat.started * TICK_S - TICK_S:
        return _ghost(pid, "the number has gone to another process since")
    text = _read(pid, "cgroup")
    again = processes.stat(pid)
    if text is None or again is None or again.started != stat.started:
        return _ghost(pid, "it has just ended")
    group = gpu_groups.group_of(gpu_groups.path_of(text))
    uid = _uid(pid)
    return ProcessOwner(
        pid=pid,
        kind=group.kind,
        owner=group.owner,
        engine=group.engine,
        container=group.container,
        started=stat.started,
        since=since,
        user="" if uid is None else host.users.get(str(uid), str(uid)),
        uid=uid,
        name=stat.comm,
        gone=stat.gone,
        protected=_protected(stat, group, host),
    )


def _ghost(pid: int, why: str) -> ProcessOwner:
    return ProcessOwner(pid=pid, kind=HolderKind.GHOST, owner=why, protected=why)


def _protected(stat: Stat, group: Group, host: _Host) -> str:
    """Why it is never signalled."""
    if stat.pid == 1 or stat.pid == processes.KTHREADD or stat.ppid == processes.KTHREADD:
        return "it is the first process, or the kernel's"
    if stat.pid in host.own_line:
        return "it is the agent, or what the agent runs in"
    if stat.gone:
        return "it is dead; who started it has not taken note"
    if group.kind is HolderKind.UNIT and is_protected(group.unit) and group.unit.endswith(".service"):
        return f"{group.unit} is protected: the host, its GPUs or gpuagent itself need it"
    return "" if group.kind is HolderKind.OURS else why_protected(stat.comm)


def _boottime_of(monotonic_s: float) -> float:
    """Seconds since boot, sleep of the host included, as start times are."""
    return monotonic_s + time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


def _since(stat: Stat) -> float:
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + stat.started * TICK_S


def _read(pid: int, file: str) -> str | None:
    with suppress(OSError):
        return Path(f"/proc/{pid}/{file}").read_text(errors="backslashreplace")
    return None


def _uid(pid: int) -> int | None:
    """The real one: the owner of /proc/PID is root wherever the process may not be looked into."""
    for line in (_read(pid, "status") or "").splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[1])
    return None
