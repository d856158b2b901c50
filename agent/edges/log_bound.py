"""The log files of one server: each bounded where it stands, those of earlier attempts kept by number and size.

The server itself writes its log, append only, so nothing can be moved under it. Instead a hole is punched from the
beginning of the file: those blocks are given back, what follows stays at its place, and the writer notices nothing.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from agent.edges.bounded import BoundedThread
from agent.errors import EdgeError
from agent.holed import data_begin

MIB = 1 << 20
EDGE = "log"
LIMIT_S = 5.0
GRAIN_BYTES = MIB  # holes end at a multiple of this, which is one of every file system's blocks
PUNCH_BYTES = 16 * MIB  # at once: the server cannot write meanwhile
LINE_BYTES = MIB  # a line that is longer may be cut within the bound
KEEP_SIZE, PUNCH_HOLE = 1, 2  # of linux/falloc.h
NO_HOLES = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})
ATTEMPT = re.compile(r"(?P<invocation>[0-9a-f]{8}-[0-9]+)\.log")  # run of the agent and number of the launch


@dataclass(frozen=True, slots=True)
class Attempt:
    """The log file of one attempt."""

    path: Path
    invocation: str
    written: int  # ns: when it last was
    taken_bytes: int  # on the disk


class LogBound:
    """Implements `agent.ports.Keeper` for the log files in `folder`. Other files there are left alone."""

    def __init__(self, folder: Path, max_mib: int, earlier: tuple[int, int] | None) -> None:
        """`max_mib`: of one attempt; `earlier`: how many earlier attempts are kept beside the latest, and MiB of all of
        them; None: somebody else sees to that."""
        self._folder = folder
        self._max_bytes = max_mib * MIB
        self._earlier = earlier
        self._worker = BoundedThread(EDGE)

    async def keep(self, present: frozenset[str]) -> None:
        """See `agent.ports.Keeper`."""
        await self._worker.run(f"keep {self._folder} within its bounds", LIMIT_S, partial(self._keep, present))

    def _keep(self, present: frozenset[str], given_up: threading.Event) -> None:
        fault: EdgeError | None = None
        for attempt in attempts(self._folder):
            try:
                bound(attempt.path, self._max_bytes, given_up)
            except FileNotFoundError:
                continue
            except OSError as error:
                fault = _refusal(attempt.path, error)
        for attempt in self._surplus(present):
            if given_up.is_set():
                return
            attempt.path.unlink(missing_ok=True)
        if fault is not None:
            raise fault

    def _surplus(self, present: frozenset[str]) -> Sequence[Attempt]:
        """The attempts to be forgotten. Never the latest one: it may be of a launch that has just begun."""
        if self._earlier is None:
            return ()
        keep_attempts, keep_mib = self._earlier
        earlier = [each for each in attempts(self._folder)[1:] if each.invocation not in present]
        kept_bytes = 0
        for number, attempt in enumerate(earlier):
            kept_bytes += attempt.taken_bytes
            if number >= keep_attempts or kept_bytes > keep_mib * MIB:
                return earlier[number:]
        return ()


def attempts(folder: Path) -> list[Attempt]:
    """The attempts' logs in a folder, the latest first. OSError: it cannot be read; none if it is not there yet."""
    found: list[Attempt] = []
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return found
    for name in names:
        path = folder / name
        if (match := ATTEMPT.fullmatch(name)) is None:
            continue
        try:
            state = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(state.st_mode):
            found.append(Attempt(path, match["invocation"], state.st_mtime_ns, state.st_blocks * 512))
    return sorted(found, key=lambda each: (each.written, each.invocation), reverse=True)


def bound(path: Path, max_bytes: int, given_up: threading.Event) -> None:
    """Give back what stands before the last `max_bytes` of a log, but for the line in which these begin.

    What is kept beyond them is less than two GRAIN_BYTES and a line. OSError: it could not be done; the log is whole.
    """
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        state = os.fstat(fd)
        begin = data_begin(fd, 0)
        if not stat.S_ISREG(state.st_mode) or state.st_size - max_bytes - begin < GRAIN_BYTES:
            return
        end = hole_end(fd, state.st_size - max_bytes)
        for at in range(begin, end, PUNCH_BYTES):
            if given_up.is_set():
                return
            punch(fd, at, min(PUNCH_BYTES, end - at))
    finally:
        os.close(fd)


def hole_end(fd: int, kept: int) -> int:
    """Where a hole must end, so that a reader that passes over the line in which it ends has all lines from `kept` on.

    A line that begins more than LINE_BYTES before `kept` is cut.
    """
    window = min(kept, LINE_BYTES)
    before = os.pread(fd, window, kept - window)
    line_end = max(before.rfind(b"\n"), before.rfind(b"\r"))
    last = kept if line_end < 0 else kept - window + line_end
    return last - last % GRAIN_BYTES


def punch(fd: int, begin: int, length: int) -> None:
    """Give back these bytes of a file: they read as NULs from now on. OSError."""
    if _libc().fallocate(fd, PUNCH_HOLE | KEEP_SIZE, begin, length) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return libc


def _refusal(path: Path, error: OSError) -> EdgeError:
    what = f"bound {path}"
    if error.errno in NO_HOLES:
        why = "its file system knows no holes, so it grows without bound; put log_dir on another one (ext4, xfs, btrfs)"
        return EdgeError(EDGE, what, why)
    return EdgeError(EDGE, what, error.strerror or str(error))
