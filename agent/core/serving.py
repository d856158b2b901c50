"""Levels of a server that runs: what is done when its disk gets full, because the operator chose so. Pure."""

from __future__ import annotations

from dataclasses import replace

from agent.core import storage
from agent.core.model import After, Policy, Relieve, State, Transition
from agent.core.moves import stop


def relieve(state: State, at: float, policy: Policy) -> Transition | None:
    """STARTING, READY, UNHEALTHY: what makes room is started, once each time that there comes to be too little."""
    low = bool(storage.low(state.volumes))
    if policy.relief is None or low == state.relieved:
        return None
    return Transition(replace(state, relieved=low), (Relieve(),) if low else ())


def out_of_room(state: State, at: float, policy: Policy) -> Transition | None:
    """STARTING, READY, UNHEALTHY: it ends, cleanly, before the disk that it writes is full. Unknown never ends it."""
    if state.closing or state.seen.began <= max(state.since, state.confirmed):
        return None
    full = [volume for volume in storage.too_full(state.volumes, policy) if not volume.unread]
    if not full:
        return None
    cause = storage.low_cause(full[0], policy)
    return stop(replace(state, blocked=True), at, policy, cause.text, After.FAILED, cause)
