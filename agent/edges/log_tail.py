"""What a server has newly written to its log file."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from agent.errors import EdgeError
from agent.holed import Cursor, behind_cut, data_begin

READ_BYTES = 1 << 20
PATIENCE_S = 0.05  # a read of a sound disk takes microseconds; the loop waits no longer than this
COUNT_S = 0.1
"""Spent on counting the lines that are jumped over: 200 MiB from memory, far less from a disk."""

T = TypeVar("T")


class LogTail:
    """Implements `agent.ports.Log`. The file need not exist yet; a replaced or truncated one is read from its start.
    Where older lines were taken out of it (see log_bound.py), one line says so.

    Reads are made in a thread of its own, so that a frozen disk delays nobody: what it brings comes with a later call.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self._cursor = Cursor()
        self._reader: _Reader | None = None  # from the first read on
        self._asked: _Job[bytes] | None = None  # a read whose data are not handed over yet
        self._behind = 0

    def read(self, patience_s: float | None = None) -> bytes:
        """See `agent.ports.Log`. EdgeError: there is a file, and it cannot be read."""
        job = self._asked
        if job is None:
            job = self._asked = self._ask(self._next)
            job.done.wait(PATIENCE_S if patience_s is None else patience_s)
        elif patience_s is not None:  # else only the call that asks waits for a disk that hangs
            job.done.wait(patience_s)
        return self._handed_over(job) if job.done.is_set() else b""

    def seek_last(self, count: int) -> int | None:
        """See `agent.ports.Log`. EdgeError: there is a file, and it cannot be read."""
        held = self._asked
        if held is not None and not held.done.wait(PATIENCE_S):
            return None
        jump = self._ask(lambda: self._jump(count))
        if not jump.done.wait(COUNT_S + PATIENCE_S):
            return None
        jumped, newlines = self._result(jump)
        if held is None or not jumped:
            return newlines  # what was read before comes with the next call
        dropped = self._handed_over(held).count(b"\n")
        return None if newlines is None else dropped + newlines

    @property
    def found(self) -> bool:
        """See `agent.ports.Log`."""
        return self._fd is not None

    @property
    def behind(self) -> int:
        """See `agent.ports.Log`."""
        return self._behind

    def close(self) -> None:
        """Let go of it, now or when a read that hangs has ended."""
        if self._reader is not None:
            self._reader.end()
            self._reader = self._asked = None

    def _ask(self, work: Callable[[], T]) -> _Job[T]:
        if self._reader is None:
            self._reader = _Reader(self._let_go)
        return self._reader.ask(work)

    def _handed_over(self, job: _Job[bytes]) -> bytes:
        self._asked = None
        return self._result(job)

    def _result(self, job: _Job[T]) -> T:
        try:
            return job.result()
        except OSError as error:
            raise EdgeError("log", f"read {self._path}", error.strerror or str(error)) from error

    # -- in the reader's thread ---------------------------------------------------------------------

    def _let_go(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None

    def _next(self) -> bytes:
        if self._fd is None and not self._open():
            return b""
        if data := self._read_on():
            return data
        return self._read_on() if self._replaced() and self._open() else b""

    def _open(self) -> bool:
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe in its place must not block
        except FileNotFoundError:
            return False
        if self._fd is not None:
            os.close(self._fd)
        self._fd, self._cursor = fd, Cursor()
        return True

    def _read_on(self) -> bytes:
        assert self._fd is not None, "opened before"  # noqa: S101 - for the type checker
        size = os.fstat(self._fd).st_size
        if size < self._cursor.offset:  # truncated in place
            self._cursor = Cursor()
        data = self._cursor.read(self._fd, READ_BYTES)
        self._behind = max(0, size - self._cursor.offset)
        return data

    def _replaced(self) -> bool:
        """Whether another file stands at the path; what was left in the old one has been read."""
        assert self._fd is not None, "opened before"  # noqa: S101 - for the type checker
        try:
            return not os.path.samestat(os.stat(self._path), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def _jump(self, count: int) -> tuple[bool, int | None]:
        """Whether there was anything to jump over, and how many newlines were in it; see `seek_last`."""
        if self._fd is None and not self._open():
            return False, 0
        assert self._fd is not None, "opened before"  # noqa: S101 - for the type checker
        begin, size = self._cursor.offset, os.fstat(self._fd).st_size
        if size - begin <= count:  # or it was truncated: the next read begins anew
            return False, 0
        end = _line_begin(self._fd, size - count, size)
        self._cursor, self._behind = Cursor(end), size - end
        return True, _newlines(self._fd, begin, end)


def _line_begin(fd: int, offset: int, size: int) -> int:
    """The first place from `offset` on at which a line begins; `size` if there is none before it.

    Where that place lies in a hole, the hole itself: what follows a hole is the affair of whoever reads on.
    """
    if data_begin(fd, offset) > offset:
        return offset
    at = offset - 1  # a line that ends just before `offset` needs no search
    while at < size and (piece := os.pread(fd, min(READ_BYTES, size - at), at)):
        rest = behind_cut(piece)
        if rest is not None:
            return at + len(piece) - len(rest)
        at += len(piece)
    return size


def _newlines(fd: int, begin: int, end: int) -> int | None:
    """Those between two places; None: they are too many for COUNT_S."""
    deadline = time.monotonic() + COUNT_S
    count = 0
    while begin < end and (piece := os.pread(fd, min(READ_BYTES, end - begin), begin)):
        if time.monotonic() > deadline:
            return None
        count += piece.count(b"\n")
        begin += len(piece)
    return count


class _Job(Generic[T]):
    """Something for the reader's thread to do."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.done = threading.Event()
        self.error: BaseException | None = None
        self._work = work
        self._result: list[T] = []

    def run(self) -> None:
        """Do it, in that thread."""
        try:
            self._result.append(self._work())
        except BaseException as caught:  # handed over: raised again by `result`
            self.error = caught
        finally:
            self.done.set()

    def result(self) -> T:
        """Once it is done: what it returned, or raised."""
        if self.error is not None:
            raise self.error
        return self._result[0]


class _Reader:
    """A thread that does one job after another."""

    def __init__(self, close: Callable[[], None]) -> None:
        self._close = close
        self._last: threading.Event | None = None  # set when the last job is done
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True, name="gpuagent-log")
        self._thread.start()

    def ask(self, work: Callable[[], T]) -> _Job[T]:
        """Begin something, after what is under way."""
        job = _Job(work)
        self._last = job.done
        self._jobs.put(job)
        return job

    def end(self) -> None:
        """After what is under way, which is not waited for."""
        self._jobs.put(None)
        if self._last is None or self._last.is_set():
            self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
        self._close()
