"""Which processes are a server's: by its environment mark, by session, by descent."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from agent.core.model import Life, Process
from agent.edges import processes
from agent.edges.processes import Stat

MARK = "GPUAGENT_MARK"  # "<mark>:<name>:<invocation>"
LAUNCHED = "GPUAGENT_LAUNCHED"  # when the launch began, in ticks since boot
COMPILERS = frozenset({"cicc", "ptxas", "nvcc", "ninja", "cc1plus", "gcc"})
LAUNCH_LIMIT_S = 20.0
"""An exec from a slow network mount, or the fork on a host that swaps, takes seconds. What takes longer is undone."""
MAIN_WITHIN_TICKS = int(LAUNCH_LIMIT_S * processes.TICKS_PER_S)  # from a launch's begin to the fork of its main
SETTLED_TICKS = 10 * processes.TICKS_PER_S  # between its fork and its exec a process shows its parent's environment


def mark_environment(mark: str, name: str, invocation: str) -> dict[str, str]:
    """What a launch adds to the server's environment, so that its processes are known again."""
    return {MARK: f"{mark}:{name}:{invocation}", LAUNCHED: str(_now_ticks())}


def _now_ticks() -> int:
    """Since boot, as /proc/PID/stat counts."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * processes.TICKS_PER_S)


@dataclass(frozen=True, slots=True)
class Marked:
    """What a process's environment says."""

    invocation: str
    launched: int  # ticks since boot


@dataclass(frozen=True, slots=True)
class Found:
    """One search. Zombies are not in it."""

    members: tuple[Stat, ...]
    unkillable: tuple[int, ...]
    ending: tuple[int, ...]  # dead, and being taken apart by the kernel
    invocation: str | None  # the one that the marks name; the newest, if several
    main: Process | None  # its first process, as far as the marks alone tell it
    orphans: tuple[Process, ...]  # zombies that this process has inherited and nobody waits for
    life: Life


class ServerTree:
    """Finds one server's processes; remembers those it has found, because an environment can be overwritten.

    A process that clears its environment, leaves the session and loses its parent before a search has ever seen
    it is not found: nothing on the host links it to the server any more.
    """

    def __init__(self, mark: str, name: str) -> None:
        self._prefix = f"{mark}:{name}:"
        self._marks: dict[Process, Marked | None] = {}
        self._known: frozenset[Process] = frozenset()
        self._main: Process | None = None  # of the last launch; its session is ours, also when it has ended

    def launched(self, main: Process) -> None:
        """This is the first process now."""
        self._main = main

    def find(self) -> Found:
        """Search once. Blocks for some milliseconds."""
        table = processes.scan()
        untouchable = processes.untouchable(table)
        self._read_marks(table)
        pids = {p.pid for p in self._known | {p for p, mark in self._marks.items() if mark} if _lives(p, table)}
        if self._main is not None and _lives(self._main, table):
            pids.add(self._main.pid)
        pids -= untouchable
        self._grow(pids, table, untouchable)
        everyone = [table[pid] for pid in sorted(pids)]
        members = tuple(one for one in everyone if not one.gone)
        self._known = frozenset(one.process for one in everyone)
        invocation = self._invocation(members)
        return Found(
            members=members,
            unkillable=tuple(one.pid for one in members if processes.stuck(one)),
            ending=tuple(one.pid for one in members if processes.ending(one)),
            invocation=invocation,
            main=self._marked_main(members, invocation),
            orphans=tuple(one.process for one in table.values() if _inherited(one, table)),
            life=_life(members),
        )

    def _read_marks(self, table: Mapping[int, Stat]) -> None:
        """Read the environment of every process not met before; forget the dead."""
        me, settled = os.getpid(), _now_ticks() - SETTLED_TICKS
        marks: dict[Process, Marked | None] = {}
        for one in table.values():
            process = one.process
            if process in self._marks:
                marks[process] = self._marks[process]
            elif one.gone or processes.KTHREADD in (one.pid, one.ppid):
                continue
            else:
                text = processes.environment_of(one.pid)
                mark = self._parse(text) if text else None
                # Not yet believed: a young one, a child of our own (its exec may hang), an environment that is empty.
                if mark is not None or (one.started < settled and one.ppid != me and text != b""):
                    marks[process] = mark
        self._marks = marks

    def _parse(self, environment: bytes) -> Marked | None:
        values = {}
        for entry in environment.split(b"\0"):
            key, _, value = entry.partition(b"=")
            values[key] = value
        mark = os.fsdecode(values.get(MARK.encode(), b""))
        launched = values.get(LAUNCHED.encode(), b"")
        invocation = mark.removeprefix(self._prefix)
        if not mark.startswith(self._prefix) or ":" in invocation:
            return None
        return Marked(invocation, int(launched) if launched.isdigit() else 0)

    def _grow(self, pids: set[int], table: Mapping[int, Stat], untouchable: frozenset[int]) -> None:
        """Add descendants and session members until nothing is added."""
        foreign = {0}  # the session of processes whose leader is outside this pid namespace
        if (me := table.get(os.getpid())) is not None:
            foreign.add(me.session)
        while True:
            sessions = {table[pid].session for pid in pids} - foreign
            ours = {sid for sid in sessions if sid in pids or sid not in table}  # never a session led by another
            more = {
                one.pid
                for one in table.values()
                if one.pid not in pids
                and (one.ppid in pids or one.session in ours or self._in_main_session(one, table))
            } - untouchable
            if not more:
                return
            pids |= more

    def _in_main_session(self, one: Stat, table: Mapping[int, Stat]) -> bool:
        """In the session that the first process began: it lives on, under that number, when its leader has ended."""
        main = self._main
        if main is None or one.session != main.pid or one.started < main.started:
            return False
        leader = table.get(main.pid)
        return leader is None or leader.started == main.started

    def _invocation(self, members: tuple[Stat, ...]) -> str | None:
        marks = [mark for one in members if (mark := self._marks.get(one.process))]
        return max(marks, key=lambda mark: mark.launched).invocation if marks else None

    def _marked_main(self, members: tuple[Stat, ...], invocation: str | None) -> Process | None:
        """The oldest that leads its session and that the launch can have forked.

        A left-over is mostly told by its age: one that began a session of its own within LAUNCH_LIMIT_S, and has
        outlived the first process while no agent ran, is taken for it. To take a server for a left-over is worse.
        """
        first: Stat | None = None
        for one in members:
            mark = self._marks.get(one.process)
            if mark is None or mark.invocation != invocation or one.session != one.pid:
                continue
            on_time = -1 <= one.started - mark.launched <= MAIN_WITHIN_TICKS
            if on_time and (first is None or one.started < first.started):
                first = one
        return first.process if first is not None else None


def _lives(process: Process, table: Mapping[int, Stat]) -> bool:
    one = table.get(process.pid)
    return one is not None and one.started == process.started


def _inherited(one: Stat, table: Mapping[int, Stat]) -> bool:
    """A zombie that came to us as subreaper: our own children are in our session, all but servers' first processes."""
    me = os.getpid()
    return one.ppid == me and one.state == "Z" and one.gone and me in table and one.session != table[me].session


def _life(members: tuple[Stat, ...]) -> Life:
    return Life(
        cpu_s=sum(one.cpu_ticks for one in members) / processes.TICKS_PER_S,
        read_bytes=sum(processes.read_bytes_of(one.pid) for one in members),
        faults=sum(one.faults for one in members),
        memory_mib=sum(one.resident_pages for one in members) * processes.PAGE_BYTES >> 20,
        compilers=sum(one.comm in COMPILERS for one in members),
    )
