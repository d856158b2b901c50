"""The latest snapshot, already serialised, for everyone who reads.

The loop's thread publishes; any thread reads, and none of them can make the loop wait.
"""

from __future__ import annotations

import secrets
import threading
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

TURNS = 500  # changes of stage that are kept for readers of /events: some fifty starts
TURN_BYTES = 2 * 1024 * 1024  # ... and their bytes, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPage:
    """What is shown of one server. `full` and `public`: the JSON document over the socket, and over TCP."""

    name: str
    stage: str
    wanted: bool
    dead: bool  # the attempt being waited for died, or the server gave up: a `wait` for it ends now
    stalled: bool
    ending: bool = False  # the agent ends, and the server with it: that tells a `wait` nothing about the server
    log: Path | None  # of the present attempt, or of the last one
    full: bytes
    public: bytes  # without logs, arguments and secrets
    starts: tuple[bytes, ...] = ()  # a JSON document each, newest first
    public_starts: tuple[bytes, ...] = ()  # the same without a word of the log


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that is shown, as of one moment. `full` and `public`: the JSON document of GET /status."""

    version: int  # counts up from 1; 0: the loop has not published yet
    servers: Mapping[str, ServerPage] = field(default_factory=dict)
    full: bytes = b"{}"
    public: bytes = b"{}"
    about: bytes = b"{}"  # the same, with the servers' names instead of their documents; the same for everyone
    holds: bytes = b'{"holds":[]}'  # the JSON document of GET /holds; the same for everyone
    rivals: bytes = b'{"rivals":[],"warnings":[]}'  # ... and of GET /rivals
    gpus: bytes | None = None  # ... and of GET /gpus; None: they are not being read


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Change:
    """One event of GET /events. `full` and `public`: its bytes over the socket and over TCP, made once for everyone."""

    number: int
    full: bytes
    public: bytes


def _number(change: Change) -> int:
    return change.number


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """What has changed: every change of stage, within bounds, but of other changes only the latest of each server."""

    run: str  # names this run of the agent: numbers of another one mean nothing here
    number: int = 0  # of the latest change; they count up from 1
    floor: int = 0  # changes of stage up to this number are not all kept
    turns: tuple[Change, ...] = ()  # the changes of stage
    turn_bytes: int = 0
    latest: Mapping[str, Change] = field(default_factory=dict)  # by server; "": the agent's own

    def present(self) -> list[Change]:
        """The latest of everything, in the order in which it came."""
        return sorted(self.latest.values(), key=_number)

    def after(self, number: int) -> Change | None:
        """The first change after `number` that is kept."""
        turn = bisect_right(self.turns, number, key=_number)
        news = [change for change in self.latest.values() if change.number > number]
        return min([*news, *self.turns[turn : turn + 1]], key=_number, default=None)

    def with_news(self, old: Snapshot, new: Snapshot) -> Journal:
        """With what is different in `new`. Its cost grows with the servers, not with the readers."""
        number, turns = self.number, self.turns
        latest = {name: change for name, change in self.latest.items() if not name or name in new.servers}
        if old.about != new.about or not self.number:
            number += 1
            latest[""] = self._change(number, "status", new.about, new.about)
        for name, page in new.servers.items():
            before = old.servers.get(name)
            if before and (before is page or (before.full, before.public) == (page.full, page.public)):
                continue
            number += 1
            latest[name] = self._change(number, "server", page.full, page.public)
            if before is None or before.stage != page.stage:
                turns = (*turns, latest[name])
        return self._bounded(number, turns, latest)

    def _change(self, number: int, kind: str, full: bytes, public: bytes) -> Change:
        head = f"id: {self.run}-{number}\nevent: {kind}\ndata: ".encode()
        return Change(number=number, full=head + full + b"\n\n", public=head + public + b"\n\n")

    def _bounded(self, number: int, turns: tuple[Change, ...], latest: Mapping[str, Change]) -> Journal:
        size = self.turn_bytes + sum(_size(change) for change in turns[len(self.turns) :])
        dropped = 0
        while len(turns) - dropped > TURNS or size > TURN_BYTES:
            size -= _size(turns[dropped])
            dropped += 1
        floor = turns[dropped - 1].number if dropped else self.floor
        kept = turns[dropped:]
        return Journal(run=self.run, number=number, floor=floor, turns=kept, turn_bytes=size, latest=latest)


def _size(change: Change) -> int:
    return len(change.full) + len(change.public)


class Board:
    """One writer, many readers. Reading and publishing take no lock: a snapshot is replaced whole."""

    def __init__(self) -> None:
        self._snapshot = Snapshot(version=0)
        self._journal = Journal(run=secrets.token_hex(4))
        self._beat: float | None = None
        self._closed = False
        self._wakers: tuple[Callable[[], None], ...] = ()
        self._changing_wakers = threading.Lock()

    def publish(self, snapshot: Snapshot) -> None:
        """Show `snapshot` from now on, and wake those who wait. Loop's thread only."""
        self._journal = self._journal.with_news(self._snapshot, snapshot)
        self._snapshot = snapshot
        self._wake()

    def read(self) -> Snapshot:
        """The latest snapshot; version 0 until the first one is published."""
        return self._snapshot

    @property
    def journal(self) -> Journal:
        """What has changed, for readers of /events."""
        return self._journal

    def beat(self, at: float) -> None:
        """The loop turned at `at` (monotonic seconds)."""
        self._beat = at

    def beat_age_s(self, now: float) -> float | None:
        """How long ago the loop turned, in seconds; None: never."""
        return None if self._beat is None else now - self._beat

    def subscribe(self, waker: Callable[[], None]) -> None:
        """Call `waker` after each change, in the thread that made it. It must return at once and raise nothing.

        One for each face, not one for each client, or publishing would get slower with their number.
        """
        with self._changing_wakers:
            self._wakers = (*self._wakers, waker)

    def unsubscribe(self, waker: Callable[[], None]) -> None:
        """Call `waker` no more; a call that is under way may still come."""
        with self._changing_wakers:
            self._wakers = tuple(each for each in self._wakers if each != waker)

    @property
    def closed(self) -> bool:
        """Whether the agent is ending."""
        return self._closed

    def close(self) -> None:
        """The agent is ending: every wait and stream ends, and no new one begins. Reading still works."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        for waker in self._wakers:
            waker()
