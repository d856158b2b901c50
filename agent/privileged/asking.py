"""A child that makes the looks, since a file system that hangs hangs whoever looks; and its parent, which does not.

Standard library only: the parent is root, the child becomes the server's user.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

ANSWER_BYTES = 4 << 20
PATH_LENGTH = 4096
STALLED_S = 2.0
"""Without a word of the child: a look at one file takes milliseconds, the slowest, at a large index, a second."""
END_S = 2.0
"""From a child's last word to its end: microseconds in health. What may signal it may also hold it up there."""
AGAIN_S = 0.5
"""Between two times that a look under way is told of."""

Say = Callable[[dict[str, Any]], None]
"""Given to the child: {"at": PATH} before each look, the answer at last."""


class Asking:
    """One child. `work(say)` runs in it and says what it does; what it says last is the answer."""

    def __init__(self, work: Callable[[Say], None]) -> None:
        self.path = ""  # what the child looks at
        self.since = time.time()
        self._begun = self._news = time.monotonic()
        self._rest = self._last = b""
        self._bytes = 0
        read, write = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(read)
            _work(work, write)
        os.close(write)
        self._pipe = read

    @property
    def stalled(self) -> bool:
        """Whether the file system under `path` does not answer."""
        return time.monotonic() - self._news > STALLED_S

    @property
    def slow(self) -> bool:
        """Whether whoever waits for the answer should be told of it before it is there."""
        return time.monotonic() - self._begun > STALLED_S

    def wait(self) -> bool:
        """Shortly. Whether the child has nothing more to say; then `answer` is its answer."""
        until = time.monotonic() + AGAIN_S
        while (left_s := until - time.monotonic()) > 0:
            if not select.select([self._pipe], [], [], left_s)[0]:
                continue
            data = os.read(self._pipe, 1 << 16)
            self._bytes += len(data)
            if self._bytes > ANSWER_BYTES:  # it is not ours any more
                self._kill()
                return True
            if not data:
                return True
            self._take(data)
        return False

    def _take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._last = line
            with suppress(ValueError, RecursionError):
                said = json.loads(line)
                if isinstance(said, dict) and isinstance(said.get("at"), str):
                    self.path, self.since, self._news = said["at"][:PATH_LENGTH], time.time(), time.monotonic()

    def answer(self) -> Any:
        """What it has said last. ValueError: that makes no sense; the text says how it ended."""
        os.close(self._pipe)
        end = self._end()
        try:
            return json.loads(self._last)
        except (ValueError, RecursionError):
            raise ValueError(f"ended early ({end})") from None

    def leave(self) -> None:
        """A child that hangs in the kernel outlives even its SIGKILL, until the file system answers."""
        os.close(self._pipe)
        self._kill()

    def _end(self) -> str:
        held = os.pidfd_open(self._pid)  # ours, and not reaped yet: the number is no other's
        try:
            if select.select([held], [], [], END_S)[0]:
                return str(os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1]))
        finally:
            os.close(held)
        self._kill()
        return "it does not end"

    def _kill(self) -> None:
        """It is another user's by now: that needs CAP_KILL."""
        os.kill(self._pid, signal.SIGKILL)


def _work(work: Callable[[Say], None], write: int) -> None:
    try:
        with open(write, "w", buffering=1) as pipe:
            work(lambda said: print(json.dumps(said), file=pipe, flush=True))
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)
