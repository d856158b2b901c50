"""What a server has newly written to its log file."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from agent.errors import EdgeError

READ_BYTES = 1 << 20
PATIENCE_S = 0.05  # a read of a sound disk takes microseconds; the loop waits no longer than this


class LogTail:
    """Implements `agent.ports.Log`. The file need not exist yet; a replaced or truncated one is read from its start.

    Each read is made in a thread, so that a frozen disk delays nobody: what it brings comes with a later call.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self._offset = 0
        self._reading: _Reading | None = None

    def read(self) -> bytes:
        """See `agent.ports.Log`. EdgeError: there is a file, and it cannot be read."""
        if self._reading is None:
            self._reading = _Reading(self._next)
        if not self._reading.done.wait(PATIENCE_S):
            return b""
        reading, self._reading = self._reading, None
        if reading.error is not None:
            why = reading.error.strerror or str(reading.error)
            raise EdgeError("log", f"read {self._path}", why) from reading.error
        return reading.data

    def close(self) -> None:
        """Let go of it. A read that hangs keeps its descriptor."""
        if self._reading is None and self._fd is not None:
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
        self._fd, self._offset = fd, 0
        return True

    def _read_on(self) -> bytes:
        assert self._fd is not None, "opened before"  # noqa: S101 - for the type checker
        if os.fstat(self._fd).st_size < self._offset:  # truncated in place
            self._offset = 0
        data = os.pread(self._fd, READ_BYTES, self._offset)
        self._offset += len(data)
        return data

    def _replaced(self) -> bool:
        """Whether another file stands at the path; what was left in the old one has been read."""
        assert self._fd is not None, "opened before"  # noqa: S101 - for the type checker
        try:
            return not os.path.samestat(os.stat(self._path), os.fstat(self._fd))
        except FileNotFoundError:
            return False


class _Reading:
    """One read under way."""

    def __init__(self, read: Callable[[], bytes]) -> None:
        self.done = threading.Event()
        self.data = b""
        self.error: OSError | None = None
        self._read = read
        threading.Thread(target=self._run, daemon=True, name="gpuagent-log").start()

    def _run(self) -> None:
        try:
            self.data = self._read()
        except OSError as error:
            self.error = error
        finally:
            self.done.set()
