"""The log of one attempt, as far as it is read."""

from __future__ import annotations

from agent.families import Family
from agent.families.reader import News, Reader
from agent.ports import Log

SLICE_BYTES = 16 * 1024
"""Read in one go before the loop may do something else: 1 ms, and several when the API's thread wants the same core."""
LAST_WORDS_BYTES = 1024 * 1024
"""Before the end of a log: judged at a death. What lies before it and was not read by then is jumped over: reading it
would take longer than a death may take to be told. The tracebacks of 8 ranks are a tenth of this."""
LAST_READ_S = 0.2
"""For a slow disk to bring the last words."""


class LogReading:
    """Reads and understands what an attempt writes."""

    def __init__(self, invocation: str, log: Log, family: Family) -> None:
        self.invocation = invocation
        self.reader = Reader(family)
        self.miscounted = False  # lines were jumped over that nobody has counted
        self._log = log
        self._unread = b""

    def read_some(self) -> News | None:
        """Read the next slice; None: there is nothing new. EdgeError: it cannot be read."""
        if not self._unread:
            self._unread = self._log.read()
        data, self._unread = self._unread[:SLICE_BYTES], self._unread[SLICE_BYTES:]
        return self.reader.feed(data) if data else None

    def jump_to_last_words(self) -> None:
        """Of a server that wrote faster than it was read, only the end tells why it died. EdgeError: see read_some."""
        self._unread = self._unread or self._log.read(LAST_READ_S)
        lines = self._log.seek_last(LAST_WORDS_BYTES)
        if lines == 0:
            return
        self.miscounted = self.miscounted or lines is None
        self.reader.skip(self._unread)
        self.reader.skip(b"\n" * (lines or 1))
        self._unread = self._log.read(LAST_READ_S)

    def end(self) -> News:
        """Nothing more will come: what stands behind the last newline is a line too."""
        return self.reader.close()

    @property
    def found(self) -> bool:
        """Whether there is such a log."""
        return self._log.found

    def close(self) -> None:
        """Let go of the file."""
        self._log.close()
