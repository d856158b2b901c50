"""Word of a death before the kernel has taken the process apart.

A process is dead as soon as all its threads have begun to exit, but its pidfd tells only when its memory is freed:
0.2 s a GiB here, minutes for a server that has pinned the weights of a large model. The other threads, which have
nothing to free, tell at once (Linux 6.9 or later; before that, this does nothing).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from agent.core.model import Process
from agent.edges import processes

PIDFD_THREAD = os.O_EXCL  # include/uapi/linux/pidfd.h
THREADS = 8
"""Watched at most; several, because one of them may be the one that frees the memory."""
LOOK_AGAIN_S = (0.001, 0.004, 0.015, 0.06)
"""After a thread has ended: those of a process that was killed follow within milliseconds."""


class EarlyEnd:
    """Watches one process. `tell` is called once, at most, with its wait status."""

    def __init__(self, process: Process, tell: Callable[[int], None]) -> None:
        self._process = process
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._threads: dict[int, int] = {}  # thread id -> pidfd
        self._later: asyncio.TimerHandle | None = None

    def refresh(self) -> None:
        """Watch as many threads as there are, up to THREADS. After each look: threads come and go."""
        try:
            tids = [int(name) for name in os.listdir(f"/proc/{self._process.pid}/task")]
        except OSError:
            return
        for tid in tids:
            if len(self._threads) >= THREADS:
                break
            if tid != self._process.pid and tid not in self._threads:
                self._watch(tid)

    def _watch(self, tid: int) -> None:
        try:
            fd = os.pidfd_open(tid, PIDFD_THREAD)
        except OSError:  # EINVAL: an older kernel; ESRCH: it has just ended
            return
        self._threads[tid] = fd
        self._loop.add_reader(fd, self._on_end, tid)

    def _on_end(self, tid: int) -> None:
        self._forget(tid)
        if self._later is None:
            self._look(LOOK_AGAIN_S)

    def _forget(self, tid: int) -> None:
        fd = self._threads.pop(tid)
        self._loop.remove_reader(fd)
        os.close(fd)

    def _look(self, again_s: tuple[float, ...]) -> None:
        """Is it the whole process? If not yet, look again some times: most threads end alone."""
        self._later = None
        now = processes.stat(self._process.pid)
        if now is None or now.started != self._process.started:
            return
        if processes.ending(now):
            if now.status or _may_know(now.pid):
                self.close()
                self._tell(now.status)
        elif again_s:
            self._later = self._loop.call_later(again_s[0], self._look, again_s[1:])

    def close(self) -> None:
        """Watch no more."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        for tid in list(self._threads):
            self._forget(tid)


def _may_know(pid: int) -> bool:
    """Whether a status of 0 is a word of the kernel, not a silence: it hides that of other users.

    From root, too, where it lacks CAP_SYS_PTRACE, as in most containers.
    """
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return False
