"""GPU readings: whose memory is it, and is there room for the server. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from agent.core.model import Gpu, Holder, Policy, Seen, State

SAMPLES = 3
"""Readings that must agree: a neighbour that is still draining makes a server mis-measure its own memory."""
STEADY_MIB = 64
"""How far they may differ: drivers and display servers move a few MiB all the time."""
NAMED = 3
"""Holders that are named in a sentence."""


@dataclass(frozen=True, slots=True)
class Room:
    """A verdict on the GPUs of one server. `why` is empty when there is room.

    Not known: the driver does not tell, or a GPU is not there; that is waited for as any other need is.
    """

    known: bool
    free: bool
    why: str = ""


def needs_look(state: State, policy: Policy) -> bool:
    """Whether a launch needs a GPU reading: GPUs are named, and the operator did not waive the check."""
    return bool(policy.gpus) and state.saved.gpu_check


def remember(state: State, seen: Seen) -> tuple[tuple[Gpu, ...], ...]:
    """The last few readings, with the one of this look."""
    return (*state.readings, seen.gpus)[-SAMPLES:] if seen.gpus is not None else ()


def room(state: State, policy: Policy) -> Room:
    """Whether the server's GPUs have the memory that it needs, and have had it for some samples."""
    if not needs_look(state, policy):
        return Room(known=True, free=True)
    if not state.readings:
        return Room(known=False, free=False, why=_unread(state.seen, policy))
    if why := next(filter(None, (_unknown(name, state.readings) for name in policy.gpus)), ""):
        return Room(known=False, free=False, why=why)
    for name in policy.gpus:
        if why := _lacking(name, state.readings, policy.need_mib):
            return Room(known=True, free=False, why=why)
    return Room(known=True, free=True)


def _unread(seen: Seen, policy: Policy) -> str:
    """Why there is no reading, and what to do."""
    if (cause := seen.gpus_unread) is None:
        return f"no reading of GPU {', '.join(policy.gpus)}"
    return f"{cause.text}; {cause.remedy}" if cause.remedy else cause.text


def _of(name: str, readings: tuple[tuple[Gpu, ...], ...]) -> list[Gpu]:
    """The GPU in each reading that shows it, by its UUID or index."""
    return [gpu for reading in readings for gpu in reading if name in (gpu.uuid, str(gpu.index))]


def _unknown(name: str, readings: tuple[tuple[Gpu, ...], ...]) -> str:
    """Why nothing is known of GPU `name`, as a sentence; empty when something is."""
    if not (last := _of(name, readings[-1:])):
        return f"GPU {name} is not there"
    if last[-1].fault:
        return f"GPU {name}: {last[-1].fault}"
    told = all(gpu.free_mib is not None for gpu in _of(name, readings))
    return "" if told else f"GPU {name} does not say how much memory is free"


def _lacking(name: str, readings: tuple[tuple[Gpu, ...], ...], need_mib: int) -> str:
    """What GPU `name`, of which all is known, lacks, as a sentence; empty when it lacks nothing."""
    seen = _of(name, readings)
    free = [gpu.free_mib or 0 for gpu in seen]
    if free[-1] < need_mib:
        # Rounded apart: else the two could look the same.
        figures = f"{math.floor(free[-1] / 102.4) / 10:.1f} GiB free, {math.ceil(need_mib / 102.4) / 10:.1f} GiB needed"
        return f"GPU {name}: {figures}: {_held(seen[-1].holders)}"
    if len(free) < SAMPLES or max(free) - min(free) > STEADY_MIB:
        return f"the free memory of GPU {name} is not steady yet"
    return ""


def _held(holders: tuple[Holder, ...]) -> str:
    """Who holds the memory, largest first."""
    largest = sorted(holders, key=lambda holder: holder.mib or 0, reverse=True)
    more = f"; and {len(largest) - NAMED} more" if len(largest) > NAMED else ""
    told = "; ".join(map(_holds, largest[:NAMED]))
    return f"{told}{more}" if told else "the driver names nobody who holds the rest"


def _holds(holder: Holder) -> str:
    amount = "an unknown amount" if holder.mib is None else f"{holder.mib / 1024:.1f} GiB"
    since = f", since {holder.since}" if holder.since else ""
    return f"{amount} held by {holder.owner or holder.kind}, pid {holder.pid}{since}"
