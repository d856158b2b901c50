"""What the loop needs from the outside. The edges fill these; tests fill them with fakes.

Every method that can wait has a deadline of its own and raises EdgeError when it comes; nothing else is raised
for a fault of the outside world. Calls for one server come one after another, never side by side, except `look`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agent.core.chronicle import Start
from agent.core.gpu_seen import GpuReading
from agent.core.holds import Holds
from agent.core.model import Exit, Health, Life, Need, Process, Rival, Saved, Space


@dataclass(frozen=True, slots=True)
class Tree:
    """A look at one server's processes."""

    main: Process | None  # the first process, while it lives
    all: tuple[Process, ...]  # every live one, main included; zombies do not count
    unkillable: tuple[int, ...]  # pids in uninterruptible sleep
    ending: tuple[int, ...]  # pids that are dead, while the kernel frees what they held
    invocation: str | None  # of main, or else of any of them
    life: Life
    ordered: bool = True  # False: somebody else than the agent has started what runs (`systemctl start`)


class Server(Protocol):
    """One server's processes: a child, or a systemd unit."""

    async def launch(self, invocation: str, log: Path) -> Process:
        """Start it, writing to `log` (opened, append only, before anything is started)."""

    async def terminate(self, whole: bool) -> None:
        """SIGTERM to the first process or to the whole tree."""

    async def kill(self) -> None:
        """SIGKILL to the whole tree."""

    async def look(self) -> Tree:
        """Which of its processes live."""

    def on_exit(self, tell: Callable[[str, Exit], None]) -> None:
        """`tell(invocation, exit)` is called once, at once, in the loop's thread, when a first process has ended."""

    def on_started(self, tell: Callable[[], None]) -> None:
        """`tell()` is called once, in the loop's thread, when somebody else than the agent has started the server."""

    def last_exit(self, invocation: str) -> Exit | None:
        """Evidence of an end that nobody watched; None: there is none. Reads a small file at most."""

    def close(self) -> None:
        """Watch no more, and let go of every descriptor, as often as one likes; what runs goes on."""


class Store(Protocol):
    """The state file."""

    def load(self) -> dict[str, Saved]:
        """What was saved, by server. A broken file is set aside, and named in `faults`."""

    async def save(self, name: str, saved: Saved) -> None:
        """On the disk for good when this returns; EdgeError: the old file is still whole."""

    @property
    def holds(self) -> Holds:
        """What was saved of the host's holds. Only after `load`."""

    async def save_holds(self, holds: Holds) -> None:
        """As `save`, of the host's holds."""

    @property
    def faults(self) -> list[str]:
        """What was found wrong while loading, for a person."""

    @property
    def rebooted(self) -> bool | None:
        """Whether the host has booted since the last save; None: not known. Only after `load`."""


class History(Protocol):
    """What is remembered of earlier starts. The lifecycle never depends on it."""

    async def starts(self, server: str, limit: int) -> list[Start]:
        """The last `limit` starts of a server, newest first."""

    async def put(self, start: Start) -> None:
        """Remember the start as it is now, in place of what was known of it."""

    async def last_seen(self) -> float | None:
        """When an agent was last known to be here, in Unix seconds; None: never."""

    async def still_here(self) -> None:
        """Remember that one is here now."""

    async def close(self) -> None:
        """Let go of it."""

    @property
    def faults(self) -> list[str]:
        """What was found wrong with it, for a person."""


class Checks(Protocol):
    """The preconditions of a launch."""

    async def needs(self, ours: frozenset[int]) -> tuple[Need, ...]:
        """Those that are not met. `ours`: pids of the server's own tree, whose port is no conflict."""


class Probe(Protocol):
    """The server's port."""

    async def ask(self, ours: frozenset[int]) -> tuple[Health, str]:
        """Its health, and a few words about it. OK and LOADING only if the listener is one of `ours`."""

    async def close(self) -> None:
        """Let go of it, as often as one likes; nothing is asked any more."""


class Rivals(Protocol):
    """The units of the host that are to be kept off the GPUs."""

    async def look(self, units: frozenset[str]) -> tuple[Rival, ...]:
        """Each of them, as it is now. EdgeError: they could not all be looked at."""

    async def hold(self, units: frozenset[str]) -> None:
        """Turn them off and keep them off, as one batch; what is held already costs nothing.

        Returns once it is begun: looks tell when they are off. EdgeError: refused, or not all of it was done.
        """

    async def release(self, units: frozenset[str]) -> None:
        """Take the holds away, to the byte; starts nothing. What is not held costs nothing."""

    def held(self) -> Mapping[str, float]:
        """What whoever holds them has written down of it: unit -> since when, Unix seconds. EdgeError: unreadable."""

    def on_change(self, tell: Callable[[], None]) -> None:
        """`tell()` is called, in the loop's thread, when something of a unit that was looked at has changed."""

    def warnings(self) -> list[str]:
        """What a person should know of them: who else a hold may disturb, user units with the name of a rival."""

    def close(self) -> None:
        """Watch no more, as often as one likes; what is held stays held."""


class Gpus(Protocol):
    """The driver of the host's GPUs."""

    async def read(self) -> GpuReading:
        """All of them, as they are now, within 5 s. A fault is a state of the reading, never an error.

        Who asks while a question is outstanding is given the answer to that one.
        """

    @property
    def stuck(self) -> int | None:
        """Pid of a reader that hangs in the driver, was given up, and cannot end. There is no other beside it."""

    async def close(self) -> None:
        """Let go of it, for good, within seconds."""


class Holders(Protocol):
    """Whose the processes on the GPUs are."""

    def resolve(self, reading: GpuReading, own: Mapping[Process, str] | None = None) -> GpuReading:
        """The reading with its `owners`. `own`: processes of servers that are no units, and the server's name."""

    def close(self) -> None:
        """Let go of every descriptor, as often as one likes; it goes on to work."""


class Storage(Protocol):
    """The file systems that the server writes to."""

    async def look(self, at: float) -> tuple[Space, ...]:
        """A reading of each, as of `at`; one that does not answer in time has no figures, and says why."""


class Keeper(Protocol):
    """The log files of one server's attempts."""

    async def keep(self, present: frozenset[str]) -> None:
        """Bring each back within its bound, and forget the oldest, never those of the invocations `present`.

        EdgeError: what could not be done; no line within a bound is ever lost.
        """


class Log(Protocol):
    """The log file of one attempt."""

    @property
    def found(self) -> bool:
        """Whether a read has found a file."""

    @property
    def behind(self) -> int:
        """Bytes that were there, and not read, as of the last read."""

    def read(self, patience_s: float | None = None) -> bytes:
        """What has come since the last call, at most 1 MiB; b"" when there is nothing new. Never blocks for long.

        `patience_s`: wait so long at most, also for a read that is under way, where the disk is slow. For a death.
        """

    def seek_last(self, count: int) -> int | None:
        """Jump so that at most `count` bytes are left; what is read next begins a line. Blocks for 0.2 s at most.

        How many newlines were jumped over, 0 if nothing was; None: they were too many to be counted, or the disk
        is too slow to tell: then the jump comes before any later read, or not at all.
        """

    def close(self) -> None:
        """Let go of it, as often as one likes."""
