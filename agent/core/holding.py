"""Holds: what an event means for them, and what follows from what is true then. Pure; `keep(state, event)`.

What is listed is written down, saved, turned off, and looked at; each of these is a level, so that a lost reply or
a crash between two of them costs time, never a hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from agent.core.holds import (
    Answer,
    Care,
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
    Pending,
    ReleaseUnits,
    SaveHolds,
    UnitAsked,
    UnitsLooked,
    Wanted,
)
from agent.core.model import UNSAVED, Rival

Kept = tuple[HoldState, tuple[HoldEffect, ...]]

MOST_TRIES = 6
"""Holds of one unit within WINDOW_S: the first, and five repairs. Each may make systemd read its files again, and that
can disturb the containers of others."""
WINDOW_S = 600.0
PAUSES_S = (2.0, 5.0, 15.0, 60.0, 120.0)
"""After each try, before the next."""
REFUSED_S = (1.0, 5.0, 15.0, 60.0)
"""After a refusal: who carries it out may be down, and is waited for without end."""
SAVE_AGAIN_S = 5.0

UNABLE = "this agent cannot turn units off: it runs without systemd"


def keep(state: HoldState, event: HoldEvent) -> Kept:
    """Apply one event, then do what is due."""
    state, told = RULES[type(event)](state, event)
    if not state.booted or not state.able:
        return replace(state, deadline=None), told
    state = write_down(state, event.wall)
    state, saves = _save(state, event.at)
    state, acts = act(state, event.at)
    return replace(state, deadline=deadline(state, event.at)), (*saves, *told, *acts)


# -- rules -----------------------------------------------------------------------------------------


def _booted(state: HoldState, event: HoldsBooted) -> Kept:
    care = {unit: Care(settled=True) for unit in event.saved.held}
    return HoldState(
        able=event.able, booted=True, listed=event.listed, want=event.saved, disk=event.saved, care=care
    ), ()


def _listed(state: HoldState, event: Listed) -> Kept:
    return replace(state, listed=event.units), (LookAtUnits(),)


def _wanted(state: HoldState, event: Wanted) -> Kept:
    return replace(state, want=replace(state.want, begun=state.able)), ()


def asked(state: HoldState, event: UnitAsked) -> Kept:
    """An operator's word: it counts, and is answered, once it is saved."""
    if refused := _refusal(state, event):
        return state, (Answer(event.id, refused),)
    unit, held, exempt = event.unit, dict(state.want.held), state.want.exempt
    held.setdefault(unit, event.wall)  # of a release, too: what is to be taken away stands there until it is
    exempt = exempt - {unit} if event.keep_off else exempt | {unit}
    want = replace(state.want, held=held, exempt=exempt)
    again = replace(_care(state, unit), tries=(), spent=False, refusals=0, wait_until=event.at)
    state = replace(state, care={**state.care, unit: again}, save_at=event.at)
    pending = Pending(id=event.id, unit=unit, keep_off=event.keep_off, was=state.want)
    if want == state.want == state.disk:  # it is so already: nothing to be saved
        return state, (Answer(event.id), LookAtUnits())
    return replace(state, want=want, pending=pending), ()


def _refusal(state: HoldState, event: UnitAsked) -> str:
    """Why the change cannot be had now; empty when it can."""
    if not state.booted:
        return "the agent is starting; ask again"
    if not state.able:
        return UNABLE
    known = state.listed if event.keep_off else state.watched
    if event.unit not in known:
        add = "add it to [rivals] units in /etc/gpuagent/gpuagent.toml, then: gpuagent reload"
        return f"{event.unit} is not listed: {add}"
    if state.pending is not None:
        verb = "hold" if state.pending.keep_off else "release"
        return f"{verb} {state.pending.unit} is under way; ask again when it is answered"
    return ""


def stored(state: HoldState, event: HoldsStored) -> Kept:
    """A save ended. A change that could not be saved is none: after a crash it would be forgotten."""
    state, pending = replace(state, saving=False), state.pending
    if event.why is None:
        state = replace(state, disk=event.holds, unsaved="")
    else:
        state = replace(state, unsaved=event.why, save_at=event.at + SAVE_AGAIN_S)
    if pending is None or not pending.sent:
        return state, ()
    state = replace(state, pending=None)
    if event.why is None:
        return state, (Answer(pending.id),)
    state = replace(state, want=_as_before(state.want, pending))
    return state, (Answer(pending.id, f"it {UNSAVED}: {event.why}"),)


def _as_before(now: Holds, pending: Pending) -> Holds:
    """Without the change of this unit."""
    unit, was = pending.unit, pending.was
    held = {each: since for each, since in now.held.items() if each != unit}
    if unit in was.held:
        held[unit] = was.held[unit]
    return replace(now, held=held, exempt=(now.exempt - {unit}) | (was.exempt & {unit}))


def looked(state: HoldState, event: UnitsLooked) -> Kept:
    """What it shows of a unit counts only if it began after the last hold or release of that unit was done."""
    if event.began < state.began:
        return state, ()
    told = (rival for rival in event.rivals if rival.unit not in state.busy)
    seen = {rival.unit: rival for rival in told if event.began > _care(state, rival.unit).carried_at}
    care = dict(state.care)
    for unit, rival in seen.items():
        if rival.off:
            one = replace(_care(state, unit), settled=True, spent=False)
            # Off is what a hold is for, and no sign that a release is done: why that was refused stays told.
            care[unit] = one if unit in state.want.exempt else replace(one, refusals=0, refused="")
    return replace(state, seen=seen, began=event.began, blind="", care=care), ()


def _look_failed(state: HoldState, event: LookFailed) -> Kept:
    return replace(state, seen={}, blind=event.why), ()


def carried_out(state: HoldState, event: CarriedOut) -> Kept:
    """A hold or a release ended, well or not: only a look tells what came of it."""
    care, units = dict(state.care), event.effect.units
    for unit in units:
        one = replace(_care(state, unit), carried_at=event.at, refused=event.why or "")
        care[unit] = _waiting(one, event) if event.why is None else _put_off(one, event)
    state = replace(state, busy=frozenset(), care=care)
    if isinstance(event.effect, ReleaseUnits) and event.why is None:
        let_go = units & state.want.exempt  # if it is to be held again meanwhile, it still is
        held = {unit: since for unit, since in state.want.held.items() if unit not in let_go}
        state = replace(state, want=replace(state.want, held=held))
    return state, (LookAtUnits(),)


def _waiting(one: Care, event: CarriedOut) -> Care:
    """Carried out: give it time."""
    pause_s = PAUSES_S[min(len(one.tries), len(PAUSES_S)) - 1] if one.tries else 0.0
    return replace(one, refusals=0, wait_until=event.at + pause_s)


def _put_off(one: Care, event: CarriedOut) -> Care:
    """Refused: that was no try."""
    pause_s = REFUSED_S[min(one.refusals, len(REFUSED_S) - 1)]
    tries = one.tries[:-1] if isinstance(event.effect, HoldUnits) else one.tries
    return replace(one, tries=tries, refusals=one.refusals + 1, wait_until=event.at + pause_s)


def _tick(state: HoldState, event: HoldsTick) -> Kept:
    return state, ()


RULES: Mapping[type[HoldEvent], Callable[[HoldState, Any], Kept]] = {
    HoldsBooted: _booted,
    Listed: _listed,
    Wanted: _wanted,
    UnitAsked: asked,
    HoldsStored: stored,
    UnitsLooked: looked,
    LookFailed: _look_failed,
    CarriedOut: carried_out,
    HoldsTick: _tick,
}


# -- levels ----------------------------------------------------------------------------------------


def write_down(state: HoldState, wall: float) -> HoldState:
    """Once a server was wanted, every listed unit belongs in holds that no operator has released."""
    new = state.listed - state.want.exempt - state.want.held.keys() if state.want.begun else frozenset[str]()
    if not new:
        return state
    return replace(state, want=replace(state.want, held={**state.want.held, **dict.fromkeys(sorted(new), wall)}))


def _save(state: HoldState, at: float) -> Kept:
    """One at a time: a slow disk must not pile them up."""
    if state.want == state.disk or state.saving or at < state.save_at:
        return state, ()
    pending = None if state.pending is None else replace(state.pending, sent=True)
    return replace(state, saving=True, pending=pending), (SaveHolds(state.want),)


def act(state: HoldState, at: float) -> Kept:
    """The next hold or release, one at a time. What was refused goes alone: one unit must not keep the others on."""
    if state.busy:
        return state, ()
    if units := _batch(state, {unit for unit in to_release(state) if at >= _care(state, unit).wait_until}):
        return _under_way(state, units), (ReleaseUnits(units),)
    due = {unit for unit in to_hold(state) if at >= _care(state, unit).wait_until}
    spent = {unit for unit in due if len(_lately(_care(state, unit), at)) >= MOST_TRIES}
    care = {**state.care, **{unit: replace(_care(state, unit), spent=True) for unit in spent}}
    state = replace(state, care=care)
    if not (units := _batch(state, due - spent)):
        return state, ()
    return _under_way(replace(state, care={**care, **{unit: _tried(care, unit, at) for unit in units}}), units), (
        HoldUnits(units),
    )


def to_release(state: HoldState) -> frozenset[str]:
    """What an operator has released, and that is on the disk, and it is still held."""
    return state.released & state.want.held.keys()


def to_hold(state: HoldState) -> frozenset[str]:
    """What stands in holds, on the disk, and a look has shown that it is neither off nor going off."""
    held = state.want.held.keys() & state.disk.held.keys() & state.listed
    mine = held - state.want.exempt - state.disk.exempt
    return frozenset(
        unit
        for unit in mine & state.seen.keys()
        if not (state.seen[unit].off or going_off(state.seen[unit]) or _care(state, unit).spent)
    )


def going_off(rival: Rival) -> bool:
    """Whether it ends, and will not come back."""
    return rival.held and rival.active == "deactivating"


def _batch(state: HoldState, due: set[str]) -> frozenset[str]:
    """Those that go together."""
    if fine := frozenset(unit for unit in due if not _care(state, unit).refusals):
        return fine
    return frozenset(sorted(due, key=lambda unit: (_care(state, unit).wait_until, unit))[:1])


def _under_way(state: HoldState, units: frozenset[str]) -> HoldState:
    """From now until a look that begins when it is done, nothing is known of them."""
    return replace(state, busy=units, seen={unit: each for unit, each in state.seen.items() if unit not in units})


def _tried(care: Mapping[str, Care], unit: str, at: float) -> Care:
    one = care.get(unit, Care())
    return replace(one, tries=(*_lately(one, at), at), repairs=one.repairs + one.settled)


def _lately(one: Care, at: float) -> tuple[float, ...]:
    return tuple(tried for tried in one.tries if tried > at - WINDOW_S)


def _care(state: HoldState, unit: str) -> Care:
    return state.care.get(unit, Care())


def deadline(state: HoldState, at: float) -> float | None:
    """When something is due that no event will tell."""
    due = [] if state.busy else [_care(state, unit).wait_until for unit in to_release(state) | to_hold(state)]
    if state.want != state.disk and not state.saving:
        due.append(state.save_at)
    return min((time for time in due if time > at), default=None)
