"""What takes time to answer: waiting for a change, and following a log. All of it ends when the board is closed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from anyio.to_thread import run_sync

from agent.board import Board
from agent.holed import GONE, Cursor, behind_cut, data_begin

BLOCK_BYTES = 64 * 1024
TAIL_BYTES = 1024 * 1024  # the most that is read backward, however many lines were asked for
LINE_BYTES = 64 * 1024  # a followed line is cut here, so that a log without a newline costs no memory
# A growing file has no event that can be relied on: inotify is silent on NFS and FUSE, and a host with many
# containers runs out of its instances. So, while somebody follows, there is one look at the size this often.
FOLLOW_S = 0.25

Found = TypeVar("Found")
Hide = Callable[[str], str]  # takes the secrets out of a text
Position = tuple[Path | None, int]  # a log, and an offset in it


class Changes:
    """Turns the board's call, which comes from the loop's thread, into a wake-up of all who wait in this one."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._next = asyncio.Event()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """In the thread and asyncio loop of those who wait."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            # RuntimeError: that loop is closed, and nobody is left to be woken.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._turn)

        self._board.subscribe(wake)
        try:
            yield
        finally:
            self._board.unsubscribe(wake)

    def _turn(self) -> None:
        past, self._next = self._next, asyncio.Event()
        past.set()

    def next(self) -> asyncio.Event:
        """Set at the next change. Take it before looking: then no change can fall between look and wait."""
        return self._next

    async def until(self, look: Callable[[], Found | None], timeout_s: float) -> Found | None:
        """What `look` finds, as soon as it finds something; None: nothing in `timeout_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while True:
                    change = self.next()
                    if (found := look()) is not None:
                        return found
                    await change.wait()
        return None


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a log: its last whole lines, then `open`, what has been written of the one after, from `end` on.

    Where it goes back to what was given up (see agent/holed.py), its first line says so.
    """

    whole: bytes
    open: bytes
    end: int


def read_tail(log: Path, lines: int) -> Tail:
    """The last `lines` lines, an open one included. Reads TAIL_BYTES at most. OSError: it cannot be read."""
    with log.open("rb", buffering=0) as file:
        size = begin = file.seek(0, os.SEEK_END)
        blocks: list[bytes] = []
        newlines = 0
        while begin > 0 and newlines <= lines and size - begin < TAIL_BYTES:
            length = min(BLOCK_BYTES, begin)
            begin -= length
            blocks.append(os.pread(file.fileno(), length, begin))
            newlines += blocks[-1].count(b"\n")
        first = data_begin(file.fileno(), 0)  # after the reading: the hole may have grown meanwhile
    text = b"".join(reversed(blocks))
    gone = begin < first
    text = text[max(0, first - begin) :]
    if gone:
        text = behind_cut(text) or b""
    elif begin > 0:  # it begins within a line, and half a line could show half a secret
        text = text.partition(b"\n")[2]
    *whole, opened = text.split(b"\n")
    wanted = whole[max(0, len(whole) - lines + bool(opened)) :]
    said = GONE if gone and len(wanted) == len(whole) else b""
    return Tail(said + b"".join(line + b"\n" for line in wanted), opened, size - len(opened))


def read_on(log: Path, cursor: Cursor) -> bytes:
    """The next block. Nothing, too, when it cannot be read: a log may be removed while it is followed."""
    try:
        with log.open("rb", buffering=0) as file:
            return cursor.read(file.fileno(), BLOCK_BYTES)
    except OSError:
        return b""


class WholeLines:
    """Cuts a stream of blocks into whole lines, so that `hide` never sees a secret in two halves."""

    def __init__(self, hide: Hide) -> None:
        self._hide = hide
        self._open = b""  # the line that has not ended
        self._cut = False  # ... of which the rest is dropped

    def feed(self, block: bytes) -> bytes:
        """What can be shown now: up to the last line end. A progress bar's carriage return is one too."""
        end = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
        if not end:
            return self._grow(block)
        whole, self._open = self._open + block[:end], b""
        if self._cut:
            whole = b"".join(whole.splitlines(keepends=True)[1:])
            self._cut = False
        return self.shown(whole) + self._grow(block[end:])

    def rest(self) -> bytes:
        """The line that never ended, ended."""
        rest, self._open, self._cut = self._open, b"", False
        return self.shown(rest) + b"\n" if rest else b""

    def shown(self, text: bytes) -> bytes:
        """As it may be shown: valid UTF-8 without secrets."""
        # Line by line: one search through a megabyte would keep the loop's thread from running meanwhile.
        lines = text.decode("utf-8", "replace").splitlines(keepends=True)
        return "".join(map(self._hide, lines)).encode()

    def _grow(self, block: bytes) -> bytes:
        if self._cut:
            return b""
        self._open += block
        if len(self._open) <= LINE_BYTES:
            return b""
        # At a space, because a word could be a secret. A line without one is not shown at all.
        line, self._open, self._cut = self._open.rpartition(b" ")[0], b"", True
        return self.shown(line) + b" [line cut]\n"


async def in_thread(read: Callable[[], Found]) -> Found:
    """`read`, in a thread that may be left behind: a disk that hangs must not hold up the API, or its end."""
    return await run_sync(read, abandon_on_cancel=True)


async def follow(board: Board, changes: Changes, name: str, begin: Position, hide: Hide) -> AsyncIterator[bytes]:
    """The log from `begin` on, then the log of each later attempt, until the server or the board is no more."""
    lines = WholeLines(hide)
    log, cursor = begin[0], Cursor(begin[1])
    while not board.closed:
        change = changes.next()
        page = board.read().servers.get(name)  # None: a reload has removed it
        block = await in_thread(partial(read_on, log, cursor)) if log else b""
        if block:
            yield lines.feed(block)
        elif page is None:
            yield lines.rest()
            return
        elif page.log != log:
            yield lines.rest()
            log, cursor = page.log, Cursor()
        else:
            with suppress(TimeoutError):
                await asyncio.wait_for(change.wait(), FOLLOW_S)
