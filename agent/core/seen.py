"""The nouns of what is seen of the world: processes, exits, needs, GPUs, and a whole look. Frozen data only.

Times are seconds on one monotonic clock. Unknown is `None`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

NEVER = float("-inf")
"""A time before every other: nothing of that kind has happened yet."""


class Retry(StrEnum):
    """Whether another attempt can help."""

    NO = "no"  # the same again would fail the same way
    FEW = "few"  # worth a few attempts with growing pauses
    YES = "yes"
    WAIT = "wait"  # somebody else holds what is needed: wait for it, at no cost in attempts


class Health(StrEnum):
    """What one look at the server's own port said."""

    OK = "ok"  # the family's "ready" answer, from a listener that is provably ours
    LOADING = "loading"  # the family's "still loading" answer
    REFUSED = "refused"  # nobody listens
    TIMEOUT = "timeout"  # connected, no whole answer in time: busy or hung
    SICK = "sick"  # answered with an error
    FOREIGN = "foreign"  # somebody else listens there, or ownership could not be proved


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a server is not up.

    `text` is a sentence or, when `quoted`, a line of the server's log; `line` is its number there (from 1).
    """

    slug: str
    text: str
    remedy: str
    retry: Retry
    line: int | None = None
    quoted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How the server's first process ended. Either `code` or `signal` is set; neither: it ended unseen."""

    code: int | None = None
    signal: int | None = None
    oom: bool | None = None  # killed by the kernel for memory
    asked: bool = False  # we had told it to end
    stopped: bool = False  # an administrator stopped its unit; counts as an operator's stop
    shutdown: bool = False  # systemd stopped it because the host goes down: it is wanted as before
    at: float | None = None  # Unix seconds, of an end that nobody watched; None: not known


@dataclass(frozen=True, slots=True, order=True)
class Process:
    """One process, told from a later one with the same number by its start time."""

    pid: int
    started: int  # clock ticks since boot, /proc/PID/stat field 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A precondition that is not met."""

    name: str  # "port", "executable", "model", ...
    cause: Cause
    heals: bool  # True: worth waiting for in WAITING. False: FAILED until a look says otherwise
    subject: str = ""  # the path or address that it is about: tells two needs of one name apart
    since: float | None = None  # since when looks show it unmet; None: the first look is still to be dated


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """Signs of life of the process tree that need no log. Sums over the tree; a vanished process may lower them."""

    cpu_s: float = 0.0
    read_bytes: int = 0  # through the block layer and the page cache
    faults: int = 0  # major page faults
    memory_mib: int = 0  # resident
    gpu_mib: int | None = None
    compilers: int = 0  # children that compile kernels


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that holds GPU memory, and whose it is."""

    pid: int
    mib: int | None
    kind: str  # as in gpu_seen.HolderKind
    owner: str = ""  # for a person
    since: str = ""  # when it began; for a person


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU in one reading. MiB; None: the driver did not say."""

    uuid: str
    index: int
    total_mib: int | None
    free_mib: int | None
    holders: tuple[Holder, ...] = ()
    fault: str = ""  # why nothing is known of it, for a person


NotOff = tuple[str, ...] | None
"""The units that are not off, though they are to be, each in words; None: nobody knows. In the way of every server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """One look at one unit that is to be kept off, in the words of systemd."""

    unit: str
    load: str = "loaded"  # LoadState: loaded, not-found, masked, bad-setting, error
    active: str = "inactive"  # ActiveState
    held: bool = False  # the hold is in force: systemd has read it; of an absent or masked unit: its file is whole
    pids: tuple[int, ...] = ()  # live processes of its control group; zombies do not count
    revivers: tuple[str, ...] = ()  # active units that can bring it up: sockets, timers, paths, Upholds=, ...
    fault: str = ""  # why a hold that was written is not in force, for a person

    @property
    def off(self) -> bool:
        """Whether it is down, with every process, and cannot come up by itself."""
        return self.held and self.active in ("inactive", "failed") and not self.pids


class Fill(StrEnum):
    """How much room there is where a server writes."""

    OK = "ok"
    WARN = "warn"  # soon too little
    LOW = "low"  # too little: acted upon where the definition says so


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """One reading of one file system, by a folder that the server writes to. MiB; None: not known, or not counted."""

    path: str
    at: float
    total_mib: float | None = None
    free_mib: float | None = None  # for who is not root
    total_inodes: int | None = None
    free_inodes: int | None = None
    why: str = ""  # why it could not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """What is known of one file system over time: the last good reading, and what it means."""

    space: Space
    bytes_fill: Fill = Fill.OK
    inodes_fill: Fill = Fill.OK
    lasts_s: float | None = None  # until it is full, at the present rate; None: it does not fill, or is not known to
    unread: str = ""  # why the last reading failed
    past: tuple[Space, ...] = ()  # earlier readings, oldest first, by which the rate is told

    @property
    def fill(self) -> Fill:
        """The worse of the two."""
        order = tuple(Fill)
        return max(self.bytes_fill, self.inodes_fill, key=order.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One look at the world around a server. Levels, not edges: losing one look loses nothing.

    `began` is when the look began, so that it can be told from what happened since. A part that could not be
    looked at is None: unknown, which never launches and never kills.
    """

    began: float = NEVER
    tree: tuple[Process, ...] | None = None  # every live process of the server; zombies do not count
    main: Process | None = None  # its first process, while it lives
    invocation: str | None = None  # the attempt that the tree belongs to, as its own environment or record says
    ordered: bool = True  # False: somebody else than the agent has started what runs (`systemctl start`)
    unkillable: tuple[int, ...] = ()  # pids of the tree in uninterruptible sleep
    ending: tuple[int, ...] = ()  # pids of the tree that are dead, while the kernel frees what they held
    needs: tuple[Need, ...] | None = None
    rivals: NotOff = None
    neighbours: frozenset[str] = frozenset()  # servers present that share a GPU or the port
    wanted_neighbours: frozenset[str] = frozenset()  # ... and those that are wanted
    asks: int = 0  # the most that one of those that share something with it has been asked
    gpus: tuple[Gpu, ...] | None = None
    gpus_unread: Cause | None = None  # why there are none, though the definition names some
    life: Life | None = None
    storage: tuple[Space, ...] | None = None  # where it writes; None: not looked at yet


def in_the_way(seen: Seen) -> bool:
    """Whether somebody else has what the server needs, or may have it: another server, or a unit to be kept off."""
    return bool(seen.neighbours) or seen.rivals != ()
