"""Reading a log of which the oldest part was given up: a hole from its first byte on (see edges/log_bound.py).

A hole reads as NULs; of the line in which it ends, nobody knows how much is gone. Neither is ever shown: in the place
of both stands GONE.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import BinaryIO

GONE = b"[older lines are gone: this log is kept within its bound]\n"
PIECE_BYTES = 1 << 20

_NO_ANSWER = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ESPIPE})
"""Of a file system, or a pipe, that cannot tell holes from data."""


def data_begin(fd: int, offset: int) -> int:
    """The first place from `offset` on that lies in no hole; `offset` if nobody can tell. Moves the file's position."""
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing but a hole from there on
            return max(offset, os.fstat(fd).st_size)
        if error.errno in _NO_ANSWER:
            return offset
        raise


def behind_cut(text: bytes) -> bytes | None:
    """`text`, which begins within a line, from its next line on; None: that line goes on.

    A carriage return ends one too: a progress bar may have no newline for hours.
    """
    ends = [end for end in (text.find(b"\n"), text.find(b"\r")) if end >= 0]
    return text[min(ends) + 1 :] if ends else None


class Cursor:
    """A place in a log that is read forward."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self._cut = False  # within a line whose beginning is gone
        self._open = False  # within a line whose beginning was handed out

    def read(self, fd: int, count: int) -> bytes:
        """What comes next, at most `count` bytes and GONE; b"": nothing yet."""
        while data := os.pread(fd, count, self.offset):
            lost = self._lost(fd, data)
            if lost == 0:
                self.offset, self._cut = data_begin(fd, self.offset), True
                continue
            if shown := self.shown(data[:lost]):
                return shown
        return b""

    def shown(self, data: bytes) -> bytes:
        """Of the next bytes of the log, what may be handed out."""
        if self.offset == 0 and data.startswith(b"\0"):  # the copy of a log with a hole
            self._cut = True
        self.offset += len(data)
        if self._cut:
            rest = behind_cut(data)
            if rest is None:
                return b""
            data = (b"\n" if self._open else b"") + GONE + rest
            self._cut = False
        self._open = not data.endswith((b"\n", b"\r"))
        return data

    def _lost(self, fd: int, data: bytes) -> int | None:
        """Where in `data`, just read, a hole begins; None: nowhere. A server may write NULs of its own."""
        nul = data.find(b"\0")
        place = self.offset + nul
        return nul if nul >= 0 and data_begin(fd, place) > place else None


def pieces(log: BinaryIO) -> Iterator[bytes]:
    """A log from where it stands to its end; a pipe, too."""
    cursor = Cursor()
    try:
        fd = log.fileno()
        cursor.offset = os.lseek(fd, 0, os.SEEK_CUR)
    except OSError:
        yield from _piped(log)
        return
    while piece := cursor.read(fd, PIECE_BYTES):
        yield piece


def _piped(log: BinaryIO) -> Iterator[bytes]:
    cursor = Cursor()
    while piece := log.read(PIECE_BYTES):
        if shown := cursor.shown(piece):
            yield shown
