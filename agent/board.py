"""The latest snapshot, already serialised, for everyone who reads.

The loop's thread publishes; any thread reads, and none of them can make the loop wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPage:
    """What is shown of one server. `full` and `public`: the JSON document over the socket, and over TCP."""

    name: str
    stage: str
    wanted: bool
    dead: bool  # the attempt being waited for died, or the server gave up: a `wait` for it ends now
    stalled: bool
    log: Path | None  # of the present attempt, or of the last one
    full: bytes
    public: bytes  # without logs, arguments and secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that is shown, as of one moment. `full` and `public`: the JSON document of GET /status."""

    version: int  # counts up from 1; 0: the loop has not published yet
    servers: Mapping[str, ServerPage] = field(default_factory=dict)
    full: bytes = b"{}"
    public: bytes = b"{}"


class Board:
    """One writer, many readers. Reading and publishing take no lock: a snapshot is replaced whole."""

    def __init__(self) -> None:
        self._snapshot = Snapshot(version=0)
        self._beat: float | None = None
        self._closed = False
        self._wakers: tuple[Callable[[], None], ...] = ()
        self._changing_wakers = threading.Lock()

    def publish(self, snapshot: Snapshot) -> None:
        """Show `snapshot` from now on, and wake those who wait. Loop's thread only."""
        self._snapshot = snapshot
        self._wake()

    def read(self) -> Snapshot:
        """The latest snapshot; version 0 until the first one is published."""
        return self._snapshot

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
