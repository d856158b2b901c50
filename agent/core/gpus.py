"""GPU readings: whose memory is it, and is there room for the server. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.model import Gpu, Policy, Seen, State

SAMPLES = 3
"""Readings that must agree: a neighbour that is still draining makes a server mis-measure its own memory."""
STEADY_MIB = 64
"""How far they may differ: drivers and display servers move a few MiB all the time."""


@dataclass(frozen=True, slots=True)
class Room:
    """A verdict on the GPUs of one server. `why` is empty when there is room."""

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
        return Room(known=False, free=False, why=f"no reading of GPU {', '.join(policy.gpus)}")
    for name in policy.gpus:
        if why := _lacking(name, state.readings, policy.need_mib):
            return Room(known=True, free=False, why=why)
    return Room(known=True, free=True)


def _lacking(name: str, readings: tuple[tuple[Gpu, ...], ...], need_mib: int) -> str:
    """What GPU `name` lacks, as a sentence; empty when it lacks nothing."""
    seen = [gpu for reading in readings for gpu in reading if name in (gpu.uuid, str(gpu.index))]
    if not seen or seen[-1] not in readings[-1]:
        return f"GPU {name} is not there"
    free = [gpu.free_mib for gpu in seen if gpu.free_mib is not None]
    if len(free) < len(seen):
        return f"GPU {name} does not say how much memory is free"
    if free[-1] < need_mib:
        return f"GPU {name} has {free[-1]} MiB free, {need_mib} MiB are needed{_holders(seen[-1])}"
    if len(free) < SAMPLES or max(free) - min(free) > STEADY_MIB:
        return f"the free memory of GPU {name} is not steady yet"
    return ""


def _holders(gpu: Gpu) -> str:
    """Who holds the memory, largest first."""
    largest = sorted(gpu.holders, key=lambda holder: holder.mib or 0, reverse=True)
    told = [f"pid {h.pid} ({h.owner or h.kind}) holds {'?' if h.mib is None else h.mib} MiB" for h in largest[:3]]
    return ": " + "; ".join(told) if told else ""
