"""The nouns of the lifecycle: frozen data only. No I/O, no clock, no third-party import.

Times are seconds on one monotonic clock, handed in with each event. Unknown is `None`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

# Named once more here, so that this is the one place from which the nouns are imported.
from agent.core.meant import After as After
from agent.core.meant import Ask as Ask
from agent.core.meant import Policy as Policy
from agent.core.meant import Saved as Saved
from agent.core.meant import Want as Want
from agent.core.seen import NEVER as NEVER
from agent.core.seen import Cause as Cause
from agent.core.seen import Exit as Exit
from agent.core.seen import Fill as Fill
from agent.core.seen import Gpu as Gpu
from agent.core.seen import Health as Health
from agent.core.seen import Holder as Holder
from agent.core.seen import Life as Life
from agent.core.seen import Need as Need
from agent.core.seen import NotOff as NotOff
from agent.core.seen import Process as Process
from agent.core.seen import Retry as Retry
from agent.core.seen import Rival as Rival
from agent.core.seen import Seen as Seen
from agent.core.seen import Space as Space
from agent.core.seen import Volume as Volume
from agent.core.seen import in_the_way as in_the_way


class Stage(StrEnum):
    """Where a server is: one word, the same in the log, the API, the page and the metrics."""

    DOWN = "down"  # not wanted, nothing runs
    WAITING = "waiting"  # wanted, a precondition is not met or not known yet
    CLEARING = "clearing"  # rivals going off, GPU memory draining
    STARTING = "starting"  # launched, does not answer yet
    READY = "ready"
    UNHEALTHY = "unhealthy"  # alive, but does not answer
    STOPPING = "stopping"  # told to end, until every process is gone
    BACKING_OFF = "backing-off"  # a pause before the next attempt
    FAILED = "failed"  # gave up, with a cause and a remedy


STAGE_CODE: Mapping[Stage, int] = {
    Stage.DOWN: 0,
    Stage.WAITING: 10,
    Stage.CLEARING: 20,
    Stage.STARTING: 30,
    Stage.READY: 40,
    Stage.UNHEALTHY: 50,
    Stage.STOPPING: 60,
    Stage.BACKING_OFF: 70,
    Stage.FAILED: 90,
}
"""Numbers for metrics. They never change."""


class Step(StrEnum):
    """How far a start has come, read from the log. Shown, never obeyed."""

    LAUNCHED = "launched"
    INITIALIZING = "initializing"
    DOWNLOADING = "downloading"
    LOADING_WEIGHTS = "loading-weights"
    COMPILING = "compiling"
    PROFILING = "profiling"
    ALLOCATING_KV = "allocating-kv"
    TUNING = "tuning"
    CAPTURING_GRAPHS = "capturing-graphs"
    WARMING_UP = "warming-up"
    LISTENING = "listening"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that is known and meant about one server. Only the loop holds one."""

    stage: Stage = Stage.DOWN
    since: float = 0.0
    deadline: float | None = None  # the one time at which we want a Tick
    why: str = "not started"
    saved: Saved = Saved()  # noqa: RUF009 - frozen
    seen: Seen = Seen()  # noqa: RUF009 - frozen
    run: str = ""  # this run of the agent; with `launches` it makes invocations unique
    launches: int = 0  # in this run
    sent: Saved = Saved()  # noqa: RUF009 - frozen; the last that was given to be saved
    saving: int = 0  # saves on their way to the disk
    degraded: bool = False  # the last save failed
    kept_want: Want | None = None  # the want that is on the disk: an administrator's may not be yet
    pending: Asked | None = None  # a change that is being saved
    proposed: Saved | None = None  # ... and what it makes of `saved`
    changed: bool = False  # its definition is newer than what runs
    closing: bool = False  # the agent ends, and its servers with it; or the host goes down
    launching: bool = False  # a Launch is under way, its reply still to come
    main: Process | None = None  # the first process, from the launch's reply until its exit
    confirmed: float = NEVER  # when the launch was confirmed, or the running server adopted
    missing: float | None = None  # since when looks do not show `main`
    ready_since: float | None = None
    answered: float = NEVER  # last time that health said OK
    health: Health | None = None
    misses: int = 0
    steps: tuple[tuple[Step, float], ...] = ()  # in the order first seen, with the time
    progress: float | None = None  # of the last step, 0..1
    quiet: bool = False
    stalled: bool = False
    heard: float = NEVER  # last log line
    lived: float = NEVER  # last sign of life
    life: Life | None = None  # the signs as of `life_at`
    life_at: float = NEVER
    after: After = After.DOWN  # what follows STOPPING
    signals: int = 0  # SIGTERMs sent to the first process
    swept: bool = False  # what was left of the tree was told to end
    killed: bool = False
    cause: Cause | None = None  # why it is not up
    exit: Exit | None = None
    blocked: bool = False  # FAILED for an unmet need: goes on by itself when the need is met
    before: Cause | None = None  # why the attempt before this one ended
    readings: tuple[tuple[Gpu, ...], ...] = ()  # the last few, newest last
    relieved: bool = False  # the unit that makes room was started, and there is not enough yet
    crowded: float = NEVER  # when somebody else was in its way last, or may have been
    volumes: tuple[Volume, ...] = ()  # where it writes

    @property
    def step(self) -> Step | None:
        """The step to show: the last new one."""
        return self.steps[-1][0] if self.steps else None

    @property
    def unlaunched(self) -> bool:
        """Whether its attempt has no process and no log yet."""
        return self.stage in (Stage.WAITING, Stage.CLEARING)

    @property
    def checked(self) -> bool:
        """Whether a launch may come next, so that its needs are looked at."""
        return self.unlaunched or self.stage is Stage.FAILED

    @property
    def wanted(self) -> bool:
        """Whether the server should be up."""
        return self.saved.want is Want.UP


# -- events: what happened. Past tense, stamped at the edge ---------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something happened at `at`."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Booted(Event):
    """The agent started: what was saved, what is there. `run` names this run of the agent."""

    saved: Saved
    seen: Seen
    run: str
    health: Health | None = None  # of a server that runs
    launched: float | None = None  # when it was, if that is known
    ready: float | None = None  # when it became ready first
    steps: tuple[tuple[Step, float], ...] = ()
    ended: Cause | None = None  # what the log says of a server that ended while no agent ran
    exit: Exit = Exit()  # noqa: RUF009 - frozen; ... and how it ended, as far as there is evidence
    same: bool | None = None  # whether its definition is the one of its last launch; None: not known
    rebooted: bool = False  # the host has booted since the last save


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Event):
    """An operator asked for a change; the answer goes to `id`."""

    ask: Ask
    id: int = 0  # 0: nobody waits for the answer
    gpu_check: bool = True
    back: bool = False  # with SWITCH: return to the server that gives way when this one fails
    reason: str = ""  # why, when it was not an operator who asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconfigured(Event):
    """The definition of the server has changed; a server that runs keeps the old one until its next launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored(Event):
    """A Save ended; `why` is None when `saved` is on the disk for good."""

    saved: Saved
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched(Event):
    """A Launch ended well: `main` runs."""

    invocation: str
    main: Process


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(Event):
    """An effect could not be carried out."""

    effect: Effect
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited(Event):
    """The first process of an attempt ended; `cause` is what its log and its exit say."""

    invocation: str
    exit: Exit
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked(Event):
    """A look at the world."""

    seen: Seen


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRead(Event):
    """New lines in the log: at most one new step, and the last progress seen in it."""

    invocation: str
    step: Step | None = None
    progress: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed(Event):
    """A look at the server's port."""

    invocation: str
    health: Health


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick(Event):
    """The deadline may have come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed(Event):
    """The agent is ending, and its servers with it (embedded mode)."""


# -- effects: what to do. Imperative, idempotent, compared with == --------------------------------


@dataclass(frozen=True, slots=True)
class Effect:
    """Something to be done outside."""


@dataclass(frozen=True, slots=True)
class Save(Effect):
    """Write to the disk, before the effects that follow. Answered by Stored."""

    saved: Saved


@dataclass(frozen=True, slots=True)
class Launch(Effect):
    """Start the server. Answered by Launched or Refused."""

    invocation: str


@dataclass(frozen=True, slots=True)
class Terminate(Effect):
    """SIGTERM to the first process or, `whole`, to all that is left of the tree."""

    whole: bool = False


@dataclass(frozen=True, slots=True)
class Kill(Effect):
    """SIGKILL to the whole tree."""


@dataclass(frozen=True, slots=True)
class Relieve(Effect):
    """Start the unit that makes room on the disks."""


@dataclass(frozen=True, slots=True)
class Look(Effect):
    """Look at once, not only at the next turn."""


UNSAVED = "could not be saved"
"""In every refusal for want of a disk that takes the state: by it the faces tell these from the others."""


@dataclass(frozen=True, slots=True)
class Answer(Effect):
    """Tell the operator who asked `id`; `refused` is None when the change is made and saved."""

    id: int
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Transition:
    """What one event led to."""

    state: State
    effects: tuple[Effect, ...] = field(default=())
