"""The nouns of holds: units of the host that are kept off its GPUs. They belong to no server. Frozen data only.

With each event come monotonic seconds (`at`) and Unix seconds (`wall`): what is saved outlives a boot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.core.model import NEVER
from agent.core.model import Answer as Answer
from agent.core.model import Rival as Rival


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """What must survive a crash of the agent."""

    begun: bool = False  # a server was wanted once: from then on every listed unit is held
    held: Mapping[str, float] = field(default_factory=dict)  # unit -> since when, Unix seconds
    exempt: frozenset[str] = frozenset()  # an operator has released them, until he says hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Care:
    """What has been done about one unit in this run of the agent."""

    tries: tuple[float, ...] = ()  # when it was turned off lately
    repairs: int = 0  # times that it had to be turned off again
    settled: bool = False  # it was off once, or held by an earlier run: from then on a try is a repair
    carried_at: float = NEVER  # when the last hold or release was done: an older look tells nothing
    wait_until: float = NEVER  # no further try before
    refusals: int = 0  # in a row
    refused: str = ""  # why the last hold or release was not carried out
    spent: bool = False  # it comes up again and again: no further try until it is off, or until an operator says hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A change that an operator has asked for and that is being saved."""

    id: int
    unit: str
    keep_off: bool
    was: Holds  # what was meant before
    sent: bool = False  # the save that is under way has it


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldState:
    """All that is known and meant about the host's holds. Only the loop holds one."""

    able: bool = False  # there is somebody to turn units off
    booted: bool = False
    listed: frozenset[str] = frozenset()  # what the configuration names
    want: Holds = Holds()  # what should be on the disk
    disk: Holds = Holds()  # what is
    saving: bool = False
    save_at: float = NEVER  # no further save before
    unsaved: str = ""  # why the last save failed
    pending: Pending | None = None
    busy: frozenset[str] = frozenset()  # units of the hold or the release that is under way
    seen: Mapping[str, Rival] = field(default_factory=dict)  # nothing is known of the units that are not in it
    began: float = NEVER  # when the last look did
    blind: str = ""  # why the last look failed
    care: Mapping[str, Care] = field(default_factory=dict)
    deadline: float | None = None  # the one time at which we want a HoldsTick

    @property
    def released(self) -> frozenset[str]:
        """Those that nobody waits for: released, and that is on the disk."""
        return self.want.exempt & self.disk.exempt

    @property
    def watched(self) -> frozenset[str]:
        """Every unit to be looked at."""
        return self.listed | self.want.exempt | self.want.held.keys()


# -- events ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldEvent:
    """Something happened at `at`."""

    at: float
    wall: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldsBooted(HoldEvent):
    """The agent started. `able`: there is somebody to turn units off."""

    saved: Holds
    listed: frozenset[str]
    able: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(HoldEvent):
    """The configuration names these units from now on."""

    units: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted(HoldEvent):
    """A server is wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitAsked(HoldEvent):
    """An operator asks to hold a unit, or to release it."""

    id: int
    unit: str
    keep_off: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldsStored(HoldEvent):
    """A SaveHolds ended; `why` is None when `holds` is on the disk for good."""

    holds: Holds
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitsLooked(HoldEvent):
    """A look at every unit that is watched. `began`: when it did."""

    began: float
    rivals: tuple[Rival, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookFailed(HoldEvent):
    """The units could not be looked at."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedOut(HoldEvent):
    """A HoldUnits or a ReleaseUnits ended; `why` is None when all of it is done."""

    effect: HoldUnits | ReleaseUnits
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldsTick(HoldEvent):
    """The deadline may have come."""


# -- effects ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SaveHolds:
    """Write to the disk. Answered by HoldsStored."""

    holds: Holds


@dataclass(frozen=True, slots=True)
class HoldUnits:
    """Turn them off and keep them off, as one batch. Answered by CarriedOut."""

    units: frozenset[str]


@dataclass(frozen=True, slots=True)
class ReleaseUnits:
    """Take their holds away; starts nothing. Answered by CarriedOut."""

    units: frozenset[str]


@dataclass(frozen=True, slots=True)
class LookAtUnits:
    """Look at once, not only at the next turn."""


HoldEffect = SaveHolds | HoldUnits | ReleaseUnits | LookAtUnits | Answer
