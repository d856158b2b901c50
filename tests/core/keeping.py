"""The simulated agent's part that keeps units off: its holds, its hands and eyes on them, and what must be true."""

from __future__ import annotations

import itertools
from abc import abstractmethod

from agent.core import hold_words
from agent.core.hold_laws import check_holds
from agent.core.hold_words import pace_s
from agent.core.holding import MOST_TRIES, WINDOW_S, keep
from agent.core.holds import (
    Answer,
    CarriedOut,
    HoldEffect,
    HoldEvent,
    Holds,
    HoldsBooted,
    HoldsStored,
    HoldState,
    HoldsTick,
    HoldUnits,
    Listed,
    LookAtUnits,
    LookFailed,
    ReleaseUnits,
    SaveHolds,
    UnitAsked,
    UnitsLooked,
    Wanted,
)
from agent.core.model import NotOff, Rival
from tests.core.asked import holds
from tests.core.clock import Clock
from tests.core.rivals import Rivalry, Unit
from tests.core.world import Host, Weather

SLOW_S = 3.0  # how long a batch takes at most


class Keeping(Clock):
    """As agent/keeping_off.py does it."""

    def __init__(self, host: Host, weather: Weather) -> None:
        super().__init__(host, weather)
        self.holding = HoldState()
        self.rivals: NotOff = None
        self.numbers = itertools.count(1)
        self.turn = 0

    @property
    def fight(self) -> Rivalry:
        """What the host has of them."""
        return self.host.fight

    @property
    def now(self) -> float:
        """Simulated seconds."""
        return self.host.now

    @abstractmethod
    def tell_servers(self) -> None:
        """Another unit is off, or is not off any more."""

    def _may_crash(self, chance: float = 1.0) -> bool:
        """Whether the agent was killed just then."""
        if self.fight.luck.random() < self.weather.crash * chance:
            self.crash()
            return True
        return False

    def boot_holds(self) -> None:
        """As KeepingOff.boot does it."""
        self.holding, self.rivals = HoldState(), None
        for name, keep_off in self.fight.told.items():
            kept = name in self.fight.disk.held and name not in self.fight.disk.exempt
            is_true = kept if keep_off else name in self.fight.disk.exempt
            holds(is_true, f"law 2: an operator was told {keep_off} of {name}, and on the disk is {self.fight.disk}")
        self.keep(HoldsBooted(at=self.now, wall=self.now, saved=self.fight.disk, listed=self.host.listed, able=True))
        self._look_units()

    def want_holds(self) -> None:
        """As the loop does it after each turn."""
        if not any(state.wanted for state in self.states.values()):
            return
        self.fight.wanted = True
        if self.up and not self.holding.want.begun:
            self.keep(Wanted(at=self.now, wall=self.now))

    def list_units(self) -> None:
        """The configuration has changed."""
        if self.host.listed != self.holding.listed:
            self.keep(Listed(at=self.now, wall=self.now, units=self.host.listed))

    def ask_unit(self, name: str, *, keep_off: bool) -> None:
        """An operator asks, if the agent is there."""
        if self.booted and (name in self.holding.listed or (not keep_off and name in self.holding.watched)):
            number = next(self.numbers)
            self.fight.open[number] = (name, keep_off)
            self.fight.named.add(name)
            self.fight.done.pop(name, None)
            self.keep(UnitAsked(at=self.now, wall=self.now, id=number, unit=name, keep_off=keep_off))

    def hold_again(self) -> None:
        """An operator ends the truce that followed a fight without an end."""
        for name, care in self.holding.care.items():
            if care.spent:
                self.ask_unit(name, keep_off=True)

    def keep(self, event: HoldEvent) -> None:
        """One turn of the loop."""
        if not self.up:
            return
        before = self.holding
        done = keep(before, event)
        check_holds(before, event, done)
        self.holding, effects = done
        self._tell_holds(event, effects)
        for name in self._spent(self.holding) - self._spent(before):
            tries = len(self.fight.done.get(name, []))
            holds(tries >= MOST_TRIES, f"{name} is given up after {tries} tries")
        if isinstance(event, UnitsLooked):
            self.fight.looked = max(event.began, self.fight.looked or event.began)
        if hold_words.not_off(self.holding) != self.rivals:
            self.rivals = hold_words.not_off(self.holding)
            self.tell_servers()
        for effect in effects:
            if self.up:
                self._do(effect)
        if self.up and self.holding.deadline is not None and self.holding.deadline != before.deadline:
            at = self.holding.deadline
            self.later(at - self.now, lambda: self._ring(at))
        self._may_crash(1 / 20)

    def _spent(self, state: HoldState) -> set[str]:
        return {name for name, care in state.care.items() if care.spent}

    def _ring(self, at: float) -> None:
        if self.holding.deadline == at:
            self.keep(HoldsTick(at=at, wall=at))

    def _tell_holds(self, event: HoldEvent, effects: tuple[HoldEffect, ...]) -> None:
        if effects or not isinstance(event, UnitsLooked | HoldsTick):
            did = " ".join(map(repr, effects))
            self.transcript.append(f"{self.now:9.2f}  holds: {type(event).__name__}: [{did}]")

    # -- hands -----------------------------------------------------------------------------------------

    def _do(self, effect: HoldEffect) -> None:
        match effect:
            case SaveHolds(saved):
                self.later(self._took_s(), lambda: self._saved(saved))
            case HoldUnits(units):
                for name in sorted(units):
                    self._may_be_held(name)
                self.later(self._took_s(), lambda: self._held(effect))
            case ReleaseUnits(units):
                for name in sorted(units):
                    asked = self.fight.told.get(name) is False or (name, False) in self.fight.open.values()
                    unsure = name not in self.fight.told
                    holds(asked or unsure, f"law 4: {name} is released, and nobody has asked")
                self.later(self._took_s(), lambda: self._released(effect))
            case LookAtUnits():
                self._look_units()
            case Answer(number, refused):
                name, keep_off = self.fight.open.pop(number)
                if refused is None:
                    self.fight.told[name] = keep_off

    def _took_s(self) -> float:
        return self.fight.luck.choice((0.001, 0.05, 2.0))

    def _may_be_held(self, name: str) -> None:
        disk, told = self.fight.disk, self.fight.told.get(name)
        holds(name in disk.held, f"law 4: {name} is turned off, and is not in holds on the disk")
        holds(self.fight.wanted or name in self.fight.named, f"{name} is turned off, and no server was ever wanted")
        asked = (name, True) in self.fight.open.values()
        holds(told is not False or asked, f"{name} is turned off, and an operator has released it")

    def _saved(self, saved: Holds) -> None:
        if self._may_crash():
            return
        why = "no space left on device" if self.weather.no_disk else None
        if why is None:
            self.fight.disk = saved
        if not self._may_crash():
            self.keep(HoldsStored(at=self.now, wall=self.now, holds=saved, why=why))

    def _held(self, effect: HoldUnits) -> None:
        if self._may_crash():
            return
        refused = self.fight.deaf or self.fight.luck.random() < self.fight.half
        for name in sorted(effect.units):
            if not refused or (not self.fight.deaf and self.fight.luck.random() < 0.3):
                self._turn_off(name)
        if not refused:
            for name in sorted(effect.units):
                lately = self.fight.done.setdefault(name, [])
                lately[:] = [*(at for at in lately if at > self.now - WINDOW_S + SLOW_S), self.now]
                holds(len(lately) <= MOST_TRIES, f"{name} is turned off {len(lately)} times in 10 min")
        if not self._may_crash():
            self.keep(CarriedOut(at=self.now, wall=self.now, effect=effect, why="it is down" if refused else None))

    def _turn_off(self, name: str) -> None:
        unit = self.fight.units[name]
        self.fight.meddle(name, self.now, held=True)
        if unit.on and not unit.ending:
            unit.ending = True
            self.after(self.fight.luck.choice((0.05, 1.0, 20.0)), lambda: self._ended(unit))

    def _ended(self, unit: Unit) -> None:
        unit.on_since, unit.ending = None, False

    def _released(self, effect: ReleaseUnits) -> None:
        if self._may_crash():
            return
        if not self.fight.deaf:
            for name in sorted(effect.units):
                self.fight.meddle(name, self.now, held=False)
        why = "it is down" if self.fight.deaf else None
        if not self._may_crash():
            self.keep(CarriedOut(at=self.now, wall=self.now, effect=effect, why=why))

    # -- eyes ------------------------------------------------------------------------------------------

    def _look_units(self) -> None:
        self.turn += 1
        turn, began, took_s = self.turn, self.now, self.fight.luck.choice((0.01, 0.2, 3.0))
        self.later(took_s * self.fight.luck.random(), lambda: self._sample_units(turn, began, took_s))

    def _sample_units(self, turn: int, began: float, took_s: float) -> None:
        rivals = tuple(self._rival(name) for name in sorted(self.holding.watched))
        failed = self.fight.luck.random() < self.fight.blind
        self.later(took_s / 2, lambda: self._units_looked(turn, began, None if failed else rivals))

    def _units_looked(self, turn: int, began: float, rivals: tuple[Rival, ...] | None) -> None:
        if rivals is None:
            self.keep(LookFailed(at=self.now, wall=self.now, why="no bus"))
        else:
            self.keep(UnitsLooked(at=self.now, wall=self.now, began=began, rivals=rivals))
        if self.turn == turn:
            self.later(max(1.0, pace_s(self.holding, self.now)), lambda: self._units_again(turn))

    def _units_again(self, turn: int) -> None:
        if self.turn == turn:
            self._look_units()

    def _rival(self, name: str) -> Rival:
        unit = self.fight.units[name]
        active = "deactivating" if unit.ending else "active" if unit.on else "inactive"
        return Rival(unit=name, active=active, held=unit.in_force, pids=(9,) if unit.on else ())
