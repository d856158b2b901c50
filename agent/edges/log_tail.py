"""What a server has newly written to its log file."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path

from agent.errors import EdgeError
from agent.holed import Cursor

READ_BYTES = 1 << 20
PATIENCE_S = 0.05  # a read of a sound disk takes microseconds; the loop waits no longer than this


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
        self._asked = False
        self._behind = 0

    def read(self) -> bytes:
        """See `agent.ports.Log`. EdgeError: there is a file, and it cannot be read."""
        if self._reader is None:
            self._reader = _Reader(self._next, self._let_go)
        reader = self._reader
        if not self._asked:
            self._asked = True
            reader.ask()
            reader.done.wait(PATIENCE_S)  # only the call that asks waits for a disk that hangs
        if not reader.done.is_set():
            return b""
        self._asked = False
        if reader.error is not None:
            why = reader.error.strerror or str(reader.error)
            raise EdgeError("log", f"read {self._path}", why) from reader.error
        return reader.data

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
            self._reader = None

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


class _Reader:
    """A thread that reads when it is asked to, one read at a time."""

    def __init__(self, read: Callable[[], bytes], close: Callable[[], None]) -> None:
        self.done = threading.Event()
        self.data = b""
        self.error: OSError | None = None
        self._read = read
        self._close = close
        self._wanted: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True, name="gpuagent-log")
        self._thread.start()

    def ask(self) -> None:
        """Begin a read."""
        self.done.clear()
        self._wanted.put(True)

    def end(self) -> None:
        """After the read that is under way, if there is one; that one is not waited for."""
        self._wanted.put(False)
        if self.done.is_set():
            self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        while self._wanted.get():
            self.data, self.error = b"", None
            try:
                self.data = self._read()
            except OSError as error:
                self.error = error
            finally:
                self.done.set()
        self._close()
