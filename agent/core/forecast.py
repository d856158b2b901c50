"""How a start is doing: signs of life -> progressing, quiet or stalled; earlier starts -> its expected end. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.core.chronicle import Start
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


# -- the expected end ------------------------------------------------------------------------------

RECENT = 10
"""Good starts that are compared with, the newest: a host changes, and old starts tell of another one."""
SLOWER = 1.5
"""Taking this many times the usual is worth saying ..."""
SLOWER_S = 0.5  # ... if it is more than the noise of a start of a second
OVERDUE_S = 1.0
PACE_S = 0.2
"""Damps the pace of what is so short that a hiccup would double it: a log is read every 50 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What earlier starts say of the present one."""

    eta_s: float | None  # until it is ready; None: overdue, so that nobody knows
    usual_s: float  # from the launch until ready
    slower: bool  # than usual, by so much already that it is worth saying


@dataclass(frozen=True, slots=True)
class _Course:
    """An earlier good start: when each step began, and how long it lasted. Seconds."""

    begins: Mapping[Step, float]
    lasts: Mapping[Step, float]
    marks: Mapping[tuple[Step, int], float]
    ready_s: float


def expect(past: Iterable[Start], now: Start, elapsed_s: float) -> Expected | None:
    """When the start `now` will be ready, `elapsed_s` after its launch. None: there is nothing to compare with.

    `past`: newest first. Each step that is still to come takes the median of what it took before, and 0 counts where
    it did not come. The present one goes on at its own pace, as far as its progress shows one.
    """
    courses = [course for start in comparable(past, now) if (course := _course(start)) is not None]
    known = {step for course in courses for step in course.begins}
    reached = [(step, at_s) for step, at_s in now.steps if step in known and math.isfinite(at_s)]
    if not reached or not math.isfinite(elapsed_s):
        return None
    step, began_s = reached[-1]
    near = [course for course in courses if step in course.begins]
    to_come = {each for course in near for each in course.begins} - {each for each, _ in now.steps}
    rest_s = sum(_median([_after(course, step, each) for course in near]) for each in to_come)
    usual_s = _median([course.ready_s for course in courses])
    ends_s, paced_s = _step_ends(now, step, began_s, near)
    late_s = max(elapsed_s, ends_s) + rest_s - usual_s
    left_s = paced_s - elapsed_s
    overdue = -left_s > max(OVERDUE_S, (paced_s - began_s) / 2, usual_s / 10)
    return Expected(
        eta_s=None if overdue else max(0.0, left_s) + rest_s,
        usual_s=usual_s,
        slower=late_s > max((SLOWER - 1) * usual_s, SLOWER_S),
    )


def comparable(past: Iterable[Start], now: Start) -> list[Start]:
    """The newest good starts that say most: of the same definition before others, watched ones before adopted ones."""
    good = [start for start in past if start.ready_s is not None and start.invocation != now.invocation]
    same = [start for start in good if start.digest == now.digest]
    choices = [[start for start in same if start.watched], same, [start for start in good if start.watched], good]
    return next((starts[:RECENT] for starts in choices if starts), [])


def _course(start: Start) -> _Course | None:
    """A start as far as its times can be believed."""
    ready_s = start.ready_s
    if ready_s is None or not (math.isfinite(ready_s) and ready_s > 0):
        return None
    steps = sorted((each for each in start.steps if 0 <= each[1] <= ready_s), key=lambda each: each[1])
    if not steps:
        return None
    ends = [*(at_s for _, at_s in steps[1:]), ready_s]
    return _Course(
        begins=dict(steps),
        lasts={step: end - at_s for (step, at_s), end in zip(steps, ends, strict=True)},
        marks={(step, tenths): at_s for step, tenths, at_s in start.marks if 0 <= at_s <= ready_s},
        ready_s=ready_s,
    )


def _after(course: _Course, step: Step, later: Step) -> float:
    """How long `later` lasted, if it came after `step`."""
    begins = course.begins
    return course.lasts[later] if later in begins and begins[later] >= begins[step] else 0.0


def _step_ends(now: Start, step: Step, began_s: float, near: Sequence[_Course]) -> tuple[float, float]:
    """When the present step ends, in seconds after the launch: if it goes on as usual, and at its own pace."""
    marks = [(tenths, at_s) for marked, tenths, at_s in now.marks if marked is step and math.isfinite(at_s)]
    for tenths, at_s in reversed(marks):
        known = [course for course in near if (step, tenths) in course.marks]
        if not known:
            continue
        left_s = _median([course.begins[step] + course.lasts[step] - course.marks[step, tenths] for course in known])
        pace = _pace(marks, step, began_s, known)
        return at_s + max(0.0, left_s), at_s + max(0.0, left_s) * pace
    ends_s = began_s + _median([course.lasts[step] for course in near])
    return ends_s, ends_s


def _pace(marks: Sequence[tuple[int, float]], step: Step, began_s: float, known: Sequence[_Course]) -> float:
    """How many times the usual the parts of this step take: their median, so that one that hung says nothing of others.

    One part alone is not believed when it says slower: the usual pace counts as one part, too.
    """
    paces, before, before_s = [1.0], 0, began_s
    for tenths, at_s in marks:
        usual = [
            course.marks[step, tenths] - course.marks.get((step, before), course.begins[step])
            for course in known
            if (step, tenths) in course.marks
        ]
        if usual:
            paces.append((max(0.0, at_s - before_s) + PACE_S) / (max(0.0, _median(usual)) + PACE_S))
        before, before_s = tenths, at_s
    return sorted(paces)[(len(paces) - 1) // 2]


def _median(values: Sequence[float]) -> float:
    """Of at least one value."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
