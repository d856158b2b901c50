"""The agent's own log: lines to stderr, written by a thread of their own, so that nobody ever waits for a full pipe.

On a terminal a line is for a person; elsewhere it is key=value for a collector. Control characters never get through:
what a server wrote may be in a line, and must not move a cursor or forge another line.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import select
import threading
from collections.abc import Mapping
from typing import Any

import structlog

_LIMIT = 2000  # lines that may wait: a burst of a few hundred transitions fits several times, at under 1 MiB
_FLUSH_S = 1.0  # at the end; a reader that has not taken the lines by then never will
_CHATTY = ("httpx2", "uvicorn.access")  # a line for each probe and each request would bury what happened
_FIRST = ("timestamp", "level", "event", "exception")


def setup() -> None:
    """Send what structlog's and the standard library's loggers say to stderr. Once, at the start."""
    lines = QueuedLines(fd=2)
    terminal = os.isatty(2)
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if terminal else "iso", utc=not terminal),
        structlog.processors.format_exc_info,
    ]
    lines.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                for_a_person if terminal else for_a_collector,
            ],
        )
    )
    logging.basicConfig(level=logging.INFO, handlers=[lines], force=True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    atexit.register(lines.flush)


def for_a_person(_: object, __: str, event: Mapping[str, Any]) -> str:
    """12:03:04 warning  the sentence  key=value"""
    pairs = "".join(f"  {key}={_value(value)}" for key, value in event.items() if key not in _FIRST)
    line = f"{event['timestamp']} {event['level']:<8} {printable(str(event['event']))}{pairs}"
    trace = str(event.get("exception", ""))
    return "\n".join([line, *map(printable, trace.splitlines())])


def for_a_collector(_: object, __: str, event: Mapping[str, Any]) -> str:
    """timestamp=... level=warning event="the sentence" key=value"""
    keys = [*(key for key in _FIRST if key in event), *(key for key in event if key not in _FIRST)]
    return " ".join(f"{key}={_value(event[key])}" for key in keys)


def printable(text: str) -> str:
    """`text` with what does not print escaped: \\n, \\x1b, \\u202e."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _value(value: object) -> str:
    """As it is when that is unmistakable, else in quotes."""
    if value is None:
        return "-"
    text = printable(str(value))
    if text and not set(text) & set(' "='):
        return text
    return '"' + text.replace('"', '\\"') + '"'


class QueuedLines(logging.Handler):
    """Hands lines to a thread that writes them to `fd`. When `limit` wait, further ones are dropped, and counted."""

    def __init__(self, fd: int, limit: int = _LIMIT) -> None:
        super().__init__()
        self._fd = fd
        self._waiting: queue.Queue[str] = queue.Queue(limit)
        self._dropped = 0
        self._count = threading.Lock()
        # A daemon: a write that never returns must not keep the agent from ending.
        threading.Thread(target=self._write_all, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Never waits."""
        try:
            self._waiting.put_nowait(self.format(record))
        except queue.Full:
            with self._count:
                self._dropped += 1

    def flush(self) -> None:
        """Wait until all is written, or for a moment."""
        done = threading.Thread(target=self._waiting.join, name="log flush", daemon=True)
        done.start()
        done.join(_FLUSH_S)

    def _write_all(self) -> None:
        while True:
            line = self._waiting.get()
            self._write(line)
            with self._count:
                dropped, self._dropped = self._dropped, 0
            if dropped:
                self._write(f"gpuagent: {dropped} log lines dropped: stderr did not take them in time")
            self._waiting.task_done()

    def _write(self, line: str) -> None:
        # Not sys.stderr: its lock, held by a write that is stuck, would stop the interpreter from ending.
        rest = (line + "\n").encode(errors="backslashreplace")
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:  # somebody else made it non-blocking: it is shared with them
                select.select([], [self._fd], [])
            except OSError:  # closed, or its reader is gone: there is nobody to tell
                return
