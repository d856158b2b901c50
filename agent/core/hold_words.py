"""What is told of holds: sentences for people, who is in the way of a launch, how often to look. Pure."""

from __future__ import annotations

from agent.core.holding import MOST_TRIES, UNABLE, WINDOW_S, going_off
from agent.core.holds import Care, HoldState
from agent.core.model import NotOff, Rival

GOING_S = 30.0
"""So long after a hold it is looked at often: most units end within it."""
OFF = {"not-found": "not installed; kept off when it comes", "masked": "off, and masked"}
LOOK_GOING_S = 0.2
LOOK_LATE_S = 1.0
LOOK_ELSE_S = 5.0


def not_off(state: HoldState) -> NotOff:
    """The listed units that keep every server from being launched, each with the reason; None: nobody knows yet."""
    if not state.booted:
        return None
    if not state.able:
        return ()
    seen, waited = state.seen, sorted(state.listed - state.released)
    return tuple(f"unit {unit} ({say(state, unit)})" for unit in waited if unit not in seen or not seen[unit].off)


def pace_s(state: HoldState, at: float) -> float:
    """How long until the next look, in seconds."""
    up = [unit for unit in state.want.held if unit not in state.seen or not state.seen[unit].off]
    if not up:
        return LOOK_ELSE_S
    lately = max(state.care[unit].carried_at if unit in state.care else at for unit in up)
    return LOOK_GOING_S if at - lately < GOING_S else LOOK_LATE_S


def say(state: HoldState, unit: str) -> str:
    """How it stands with one unit, in one sentence."""
    told = _released(state, unit) if unit in state.want.exempt else _kept(state, unit)
    listed = unit in state.listed or unit in state.want.exempt
    return told if listed else f"{told}; held, and not listed any more: gpuagent release {unit}"


def _released(state: HoldState, unit: str) -> str:
    one = state.care.get(unit, Care())
    if unit not in state.disk.exempt:
        return "its release is being written down"
    if unit not in state.want.held:
        return "released: not kept off"
    return f"could not be released: {one.refused}" if one.refused else "being released"


def _kept(state: HoldState, unit: str) -> str:
    rival = state.seen.get(unit)
    if not state.able:
        return f"not kept off: {UNABLE}"
    if unit in state.busy:
        return "being turned off"
    if unit not in state.want.held:
        return f"not held yet: no server has been wanted; {_is(rival)}" if rival else _unknown(state)
    if unit not in state.disk.held:
        return f"could not be written down: {state.unsaved}" if state.unsaved else "being written down"
    return _unknown(state) if rival is None else _held(state.care.get(unit, Care()), rival)


def _unknown(state: HoldState) -> str:
    return f"not known: {state.blind}" if state.blind else "not looked at yet"


def _held(one: Care, rival: Rival) -> str:
    if rival.off:
        return OFF.get(rival.load, "off")
    up = _is(rival)
    if rival.fault:
        return f"{up}; its hold is not in force: {rival.fault}"
    if going_off(rival):
        return f"{up}; waiting for it to end"
    if one.refused:
        return f"{up}; could not be turned off: {one.refused}"
    if one.spent:
        by = f": brought up by {', '.join(rival.revivers)}" if rival.revivers else ""
        lately = f"turned off {MOST_TRIES} times in {WINDOW_S / 60:.0f} min, and no more"
        return f"comes up again and again{by}; {up}; {lately}: end what starts it, then: gpuagent hold {rival.unit}"
    return f"{up}; being turned off"


def _is(rival: Rival) -> str:
    """How it is, in words."""
    pids = f", pid {', '.join(map(str, rival.pids[:5]))}" if rival.pids else ""
    return f"is {rival.active}{pids}"


def faults(state: HoldState) -> list[str]:
    """What is not as it should be, for /status. A unit that is being turned off is none."""
    if state.listed and not state.able:
        return [f"rivals-not-held: {UNABLE}: {', '.join(sorted(state.listed))}"]
    told = [f"holds-not-saved: {state.unsaved}"] if state.unsaved else []
    if state.blind and state.want.held:
        told.append(f"rivals-not-seen: {state.blind}")
    for unit in sorted(state.want.held):
        one, rival = state.care.get(unit, Care()), state.seen.get(unit)
        wrong = one.refused or one.spent or (rival is not None and (rival.fault or _drifted(rival)))
        if wrong or unit not in state.listed:
            told.append(f"hold: {unit}: {say(state, unit)}")
    return told


def _drifted(rival: Rival) -> bool:
    """Whether it is down, and yet not held, or not whole."""
    return rival.active in ("inactive", "failed") and not rival.off
