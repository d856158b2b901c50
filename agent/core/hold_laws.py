"""The laws of holds that one step can show: for tests and the simulation. Pure."""

from __future__ import annotations

from agent.core.holding import MOST_TRIES, WINDOW_S, Kept
from agent.core.holds import (
    Answer,
    CarriedOut,
    HoldEvent,
    HoldsBooted,
    HoldsStored,
    HoldState,
    HoldUnits,
    ReleaseUnits,
    SaveHolds,
    UnitAsked,
)
from agent.core.machine import LawBrokenError


def check_holds(before: HoldState, event: HoldEvent, done: Kept) -> None:
    """Raises LawBrokenError."""
    now, effects = done
    _law(not any(isinstance(effect, SaveHolds) for effect in effects[1:]), "2: save before act", now)
    _law(sum(isinstance(effect, HoldUnits | ReleaseUnits) for effect in effects) <= 1, "one act at a time", now)
    _check_memory(before, event, now)
    for effect in effects:
        match effect:
            case HoldUnits(units):
                _check_hold(before, event, now, units)
            case ReleaseUnits(units):
                _law(units <= now.disk.exempt, "4: a hold ends only by a release that is on the disk", now)
                _law(not before.busy or isinstance(event, CarriedOut), "one act at a time", now)
            case Answer(number, None):
                _check_answer(before, event, now, number)
            case _:
                pass


def _check_hold(before: HoldState, event: HoldEvent, now: HoldState, units: frozenset[str]) -> None:
    kept = bool(units) and units <= now.disk.held.keys() & now.want.held.keys()
    _law(kept, "4: a unit is turned off only once it stands in holds, on the disk", now)
    _law(not units & (now.disk.exempt | now.want.exempt), "4: a released unit is not turned off", now)
    _law(units <= now.listed, "4: a unit is turned off only while it is listed", now)
    _law(not before.busy or isinstance(event, CarriedOut), "one act at a time", now)
    for unit in sorted(units):
        lately = [tried for tried in now.care[unit].tries if tried > event.at - WINDOW_S]
        _law(len(lately) <= MOST_TRIES, f"the fight for {unit} is bounded", now)


def _check_memory(before: HoldState, event: HoldEvent, now: HoldState) -> None:
    """What is on the disk is forgotten for a reason only."""
    had = event.saved if isinstance(event, HoldsBooted) else before.disk
    ended = event.effect.units if isinstance(event, CarriedOut) and isinstance(event.effect, ReleaseUnits) else None
    lost = had.held.keys() & before.want.held.keys() - now.want.held.keys() - now.want.exempt
    _law(not lost or isinstance(event, HoldsBooted), f"4: {sorted(lost)}: a hold ends only by a release", now)
    if isinstance(event, HoldsBooted):
        _law(event.saved.held.keys() <= now.want.held.keys(), "4: an agent that starts forgets no hold", now)
    gone = before.want.held.keys() & had.held.keys() - now.want.held.keys()
    _law(not gone or gone <= (ended or frozenset()), f"4: {sorted(gone)}: let go before that is done", now)
    held_again = event.unit if isinstance(event, UnitAsked) and event.keep_off else ""
    back = {before.pending.unit} if isinstance(event, HoldsStored) and before.pending else set()
    forgotten = had.exempt - now.want.exempt - {held_again} - back
    _law(not forgotten or _pending_hold(before, forgotten), f"released until an operator says hold: {forgotten}", now)


def _pending_hold(before: HoldState, forgotten: frozenset[str]) -> bool:
    """Whether an operator has asked to hold it, and the disk has still to be told."""
    return not forgotten & before.want.exempt


def _check_answer(before: HoldState, event: HoldEvent, now: HoldState, number: int) -> None:
    pending = before.pending
    asked = event if isinstance(event, UnitAsked) else pending
    if asked is None or asked.id != number:
        raise LawBrokenError(f"an answer to nobody: {now}")
    unit, keep_off = asked.unit, asked.keep_off
    kept = unit in now.disk.held and unit not in now.disk.exempt if keep_off else unit in now.disk.exempt
    _law(kept, "2: an operator is answered after the save", now)


def _law(kept: bool, law: str, state: HoldState) -> None:
    if not kept:
        raise LawBrokenError(f"{law}: {state}")
