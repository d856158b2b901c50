"""How a start is doing: signs of life -> progressing, quiet or stalled. Pure."""

from __future__ import annotations

from dataclasses import replace

from agent.core.model import Life, Policy, Seen, State, Step

IDLE_CPU = 0.01
"""Share of one core below which CPU time is no sign of life: idle threads wake up all the time."""
MEMORY_MIB = 8
"""Growth or shrinking of memory that counts as a sign."""


def alive(before: Life, now: Life, over_s: float) -> bool:
    """Whether the tree did anything between two looks that were `over_s` apart."""
    return (
        now.cpu_s - before.cpu_s >= IDLE_CPU * over_s
        or now.read_bytes > before.read_bytes
        or now.faults > before.faults
        or abs(now.memory_mib - before.memory_mib) >= MEMORY_MIB
        or now.gpu_mib != before.gpu_mib
        or now.compilers > 0
    )


def take_signs(state: State, seen: Seen) -> State:
    """The state after a look at the signs of life."""
    if seen.life is None:
        return state
    first = state.life is None or seen.began <= state.life_at
    lived = first or (state.life is not None and alive(state.life, seen.life, seen.began - state.life_at))
    state = replace(state, life=seen.life, life_at=max(seen.began, state.life_at))
    return replace(state, lived=max(state.lived, seen.began)) if lived else state


def judge(state: State, at: float, policy: Policy) -> State:
    """The state with its flags as they are at this time."""
    return replace(state, quiet=at >= quiet_at(state, policy), stalled=at >= stalled_at(state, policy))


def quiet_at(state: State, policy: Policy) -> float:
    """When silence of the log is worth saying."""
    return max(state.heard, state.confirmed) + policy.quiet_s


def stalled_at(state: State, policy: Policy) -> float:
    """When the absence of any sign is worth saying."""
    if state.step is Step.INITIALIZING:  # a hung NCCL spins the CPU: only the log counts there
        return max(state.heard, state.confirmed) + policy.stall_init_s
    return max(state.heard, state.lived, state.confirmed) + policy.stall_s


def limit_at(state: State, policy: Policy) -> float | None:
    """When the operator's own limit of a start ends it; None without one."""
    return None if policy.start_limit_s is None else state.confirmed + policy.start_limit_s


def next_word(state: State, at: float, policy: Policy) -> float:
    """The next time at which a start that shows nothing new must be spoken of."""
    times = [at + policy.quiet_s]
    if not state.quiet:
        times.append(quiet_at(state, policy))
    if not state.stalled:
        times.append(stalled_at(state, policy))
    if (limit := limit_at(state, policy)) is not None:
        times.append(limit)
    return min(times)
