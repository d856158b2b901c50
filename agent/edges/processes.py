"""Plain readers of /proc, and signals that cannot hit the wrong process. No state."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import NamedTuple

from agent.core.model import Process

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
STAT_BYTES = 4096  # a stat line has about 300
KTHREADD = 2  # the parent of all kernel threads
PF_EXITING = 0x4  # include/linux/sched.h: the thread runs no more of its program


class Stat(NamedTuple):
    """One process, as /proc/PID/stat tells it."""

    pid: int
    comm: str
    state: str
    ppid: int
    session: int
    faults: int  # major ones
    cpu_ticks: int
    threads: int
    started: int  # ticks since boot
    resident_pages: int
    exiting: bool  # this thread of it
    status: int  # as for wait(), once it is exiting; 0 also where we may not know it

    @property
    def process(self) -> Process:
        """Its identity."""
        return Process(self.pid, self.started)

    @property
    def gone(self) -> bool:
        """A zombie. One whose first thread has ended while others run looks like one and is not."""
        return self.state in "ZX" and self.threads <= 1


def parse_stat(line: bytes) -> Stat:
    """The command name may hold spaces, brackets and line ends: only the last ')' ends it."""
    head, _, tail = line.rpartition(b")")
    pid, _, comm = head.partition(b" (")
    rest = tail.split()
    return Stat(
        pid=int(pid),
        comm=comm.decode(errors="replace"),
        state=rest[0].decode(),
        ppid=int(rest[1]),
        session=int(rest[3]),
        faults=int(rest[9]),
        cpu_ticks=int(rest[11]) + int(rest[12]),
        threads=int(rest[17]),
        started=int(rest[19]),
        resident_pages=int(rest[21]),
        exiting=bool(int(rest[6]) & PF_EXITING),
        status=int(rest[49]),
    )


def stat(pid: int) -> Stat | None:
    """None: there is no such process, or it is hidden from us (hidepid)."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            line = os.read(fd, STAT_BYTES)
        finally:
            os.close(fd)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return parse_stat(line) if line else None


def scan() -> dict[int, Stat]:
    """Every process, by pid. About 20 µs each."""
    found = (stat(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {one.pid: one for one in found if one is not None}


def environment_of(pid: int) -> bytes | None:
    """NUL-separated; b"" for one without memory of its own (zombie, kernel thread); None: gone, or not ours to read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:  # ENOENT, ESRCH, EACCES, EPERM: each of them means that we cannot know it
        return None


def hidden(pid: int) -> bool:
    """Whether there is such a process though /proc does not show it to us (hidepid)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return not os.path.exists(f"/proc/{pid}/stat")
    except ProcessLookupError:
        return False
    return False


def command_of(pid: int) -> tuple[bytes, ...]:
    """Its arguments; () for one without memory of its own, or one that is gone. May hang with the process itself."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return tuple(file.read().removesuffix(b"\0").split(b"\0"))
    except OSError:
        return ()


def read_bytes_of(pid: int) -> int:
    """Bytes read so far, by read() or through the block layer (mmap), whichever is more; 0 if not ours to read."""
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            fields = dict(line.split(b": ") for line in file.read().splitlines())
    except OSError:
        return 0
    return max(int(fields[b"rchar"]), int(fields[b"read_bytes"]))


def any_thread_in(pid: int, state: str) -> bool:
    """Whether a thread of the process is in that state."""
    try:
        tids = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    return any(one is not None and one.state == state for one in (stat(int(tid)) for tid in tids))


def stuck(one: Stat) -> bool:
    """In uninterruptible sleep, also when only a thread is and the first thread has ended."""
    return one.state == "D" or (one.state == "Z" and any_thread_in(one.pid, "D"))


def ending(one: Stat) -> bool:
    """Whether no thread of it runs any more: it is dead, though the kernel may take long to free what it held."""
    if not one.exiting:
        return False
    try:
        tids = os.listdir(f"/proc/{one.pid}/task")
    except OSError:
        return True
    return all(thread is None or thread.exiting for thread in (stat(int(tid)) for tid in tids))


def untouchable(table: Mapping[int, Stat]) -> frozenset[int]:
    """Pids that are never signalled: this process, its ancestors, the first process and the kernel's parent."""
    pids = {1, KTHREADD}
    pid = os.getpid()
    while pid > 0 and pid not in pids:
        pids.add(pid)
        pid = table[pid].ppid if pid in table else 0
    return frozenset(pids)


def send(process: Process, number: signal.Signals) -> bool:
    """Signal exactly this process. False: it is gone. PermissionError: it is another user's."""
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        now = stat(process.pid)  # read after the opening: if it is the right one now, it was then
        if now is None or now.started != process.started:
            return False
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True
