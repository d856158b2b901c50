"""What is remembered of each attempt: a Start, and what a step of the machine means for it. Pure.

Seconds are counted from `began`, which is on the monotonic clock of that boot: a host whose wall clock is set right in
the middle of a start still gets true durations, and so does an agent that was started again meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from agent.core import outage
from agent.core.model import NEVER, After, Booted, Cause, Exit, Stage, State, Step
from agent.core.outage import Outage

KEPT = 500
"""Starts that are remembered of each server."""
MARKS = 10
"""Parts of a step's progress whose times are remembered: a bar is seldom as fast at its end as at its beginning."""


class Outcome(StrEnum):
    """How an attempt ended."""

    STOPPED = "stopped"  # an operator or the agent's own end told it to
    FAILED_START = "failed-start"  # never served: not launched, ended by itself, or ended by us for a cause
    CRASHED = "crashed"  # had served; then it ended by itself, or had to be ended for a cause
    LOST = "lost"  # ended while no agent was there to see how


AWAY = ("agent_away", "it ended while no agent ran; how was not seen")
SHUT_DOWN = ("host_shutdown", "the host was shut down")
REBOOTED = ("host_rebooted", "the host went down; how the server ended was not seen")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What is the same for every start of one server, until its definition changes."""

    server: str
    digest: str  # of the definition
    boot_id: str | None
    seen: float = 0.0  # Unix seconds; until when an agent is known to have been there before this run of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One attempt, from its launch on. `outcome` is None while it lives.

    `watched`: False when the agent was away before it was ready: its times are then upper bounds.
    `missed`: Unix seconds; since when it is missed, as long as it is (see `outage`).
    """

    server: str
    invocation: str
    attempt: int
    digest: str
    boot_id: str | None
    launched: float  # Unix seconds; when the launch was begun or, of one that nobody recorded, when it was found
    began: float  # the same moment, monotonic
    steps: tuple[tuple[Step, float], ...] = ((Step.LAUNCHED, 0.0),)  # seconds after launch, in the order first seen
    marks: tuple[tuple[Step, int, float], ...] = ()  # step, tenths of its progress reached, seconds after launch
    ready_s: float | None = None
    ended_s: float | None = None  # of the first process; None for a lost one: not known
    outcome: Outcome | None = None
    cause_slug: str | None = None
    cause_text: str | None = None
    cause_quoted: bool = False  # the text is a line of the server's log
    exit: Exit | None = None
    watched: bool = True
    outage: Outage | None = None  # in which it was launched
    missed: float | None = None


def follow(
    start: Start | None, before: State, after: State, *, at: float, unix_s: float, origin: Origin
) -> Start | None:
    """What a step of the machine at `at` (Unix: `unix_s`) means for the newest start of the server.

    Another invocation means a new Start; the one that was handed in is then over (see `lost` if it was alive).
    """
    if runs(after) and after.saved.invocation is not None:
        if start is None or start.invocation != after.saved.invocation:
            start = replace(_begun(after, at, unix_s, origin), outage=_outage_before(start, after, origin))
        elif not runs(before):
            start = _found_again(start)
        return _grown(start, after, unix_s - at)
    if start is None:
        return None
    return _kept_missing(_after_its_end(start, before, after, at, unix_s, origin), after)


def _after_its_end(start: Start, before: State, after: State, at: float, unix_s: float, origin: Origin) -> Start:
    """Nothing runs: it has ended now, has been lost, or more is known of its end."""
    if start.outcome is None:
        if runs(before) and before.saved.invocation == start.invocation:
            return replace(_ended(start, after, at), missed=_missed(start, after, at, unix_s))
        mine = after.saved.invocation == start.invocation
        said, how = (after.cause, after.exit) if mine else (None, None)
        return start if after.seen.tree is None else lost(start, origin, said, how)
    if start.exit is None and after.exit is not None and after.saved.invocation == start.invocation:
        return start if start.outcome is Outcome.LOST else replace(start, exit=after.exit)
    return start


def runs(state: State) -> bool:
    """Whether an attempt is alive, or about to be."""
    return state.launching or state.main is not None


def lost(start: Start, origin: Origin, said: Cause | None = None, how: Exit | None = None) -> Start:
    """The start of a server that is not there any more, and nobody saw it end. It is missed, if it is wanted.

    `said`: what its log gives as the cause; `how`: evidence of its end. The log of a server that went down with the
    host says nothing of that.
    """
    gone = _lost(start, origin, said, how)
    return replace(gone, missed=None if gone.outcome is Outcome.STOPPED else _last_seen(gone, origin))


def _last_seen(start: Start, origin: Origin) -> float:
    """Until when it is known to have been there, in Unix seconds."""
    if start.ended_s is not None:
        return start.launched + start.ended_s
    return max(start.launched + (start.ready_s or 0.0), origin.seen)


def _lost(start: Start, origin: Origin, said: Cause | None, how: Exit | None) -> Start:
    if how is not None and how != Exit() and start.boot_id == origin.boot_id:
        return _known_end(start, said, how)
    slug, text = AWAY if start.boot_id == origin.boot_id else REBOOTED
    if said is None or start.boot_id != origin.boot_id:
        return replace(start, outcome=Outcome.LOST, cause_slug=slug, cause_text=text, cause_quoted=False)
    return replace(start, outcome=Outcome.LOST, cause_slug=said.slug, cause_text=said.text, cause_quoted=said.quoted)


def replaced(start: Start, booted: Booted, origin: Origin) -> Start:
    """The newest start as an agent finds it that starts: over, if another attempt runs by now in its place."""
    seen = booted.seen
    same = seen.main is None or seen.invocation in (None, start.invocation)
    if start.outcome is not None or same or booted.saved.invocation != start.invocation:
        return start
    return lost(start, origin, booted.ended, booted.exit)


def shut_down(start: Start, unix_s: float | None = None) -> Start:
    """The start of a server that lives, as an agent leaves it that ends because the host goes down, at `unix_s`."""
    slug, text = SHUT_DOWN
    how = Outcome.STOPPED
    return replace(start, outcome=how, cause_slug=slug, cause_text=text, cause_quoted=False, missed=unix_s)


def _outage_before(last: Start | None, state: State, origin: Origin) -> Outage | None:
    """The outage in which a start is launched. `last`: the start before it."""
    if last is None or not state.wanted:
        return None
    if last.outcome is None:  # nobody has told yet that it is gone
        last = lost(last, origin)
    return outage.before(last.missed, last.outage, last.ready_s is not None)


def _missed(start: Start, state: State, at: float, unix_s: float) -> float | None:
    """Since when a start that has ended now is missed; one that never served is, if one before it was."""
    chosen = state.after in (After.DOWN, After.AGAIN) and not state.closing
    if chosen or (start.ready_s is None and start.outage is None):
        return None
    sick = state.misses and state.answered > NEVER  # it had ceased to serve before
    return unix_s - (at - state.answered) if sick else unix_s


def _kept_missing(start: Start, state: State) -> Start:
    """What is wanted no more is not missed."""
    if start.missed is None or state.wanted:
        return start
    return replace(start, missed=None)


def _known_end(start: Start, said: Cause | None, how: Exit) -> Start:
    """It ended while no agent ran, and there is evidence of how. Whether it ever served may not be known."""
    ended = replace(start, exit=how, outcome=Outcome.CRASHED if start.ready_s is not None else Outcome.LOST)
    if how.at is not None:
        ended = replace(ended, ended_s=max(0.0, how.at - start.launched))
    if how.stopped:
        return replace(ended, outcome=Outcome.STOPPED, cause_slug=None, cause_text=None, cause_quoted=False)
    slug, text = (said.slug, said.text) if said is not None else AWAY
    return replace(ended, cause_slug=slug, cause_text=text, cause_quoted=said is not None and said.quoted)


def rejoin(known: Start, present: Start) -> Start:
    """The start that history holds, with what has been seen of it since: for a history that was read too late."""
    steps = {step for step, _ in known.steps}
    shift_s = present.began - known.began
    later = tuple((step, at_s + shift_s) for step, at_s in present.steps if step not in steps)
    ready_s = None if present.ready_s is None else present.ready_s + shift_s
    return replace(
        present,
        launched=known.launched,
        began=known.began,
        digest=known.digest,
        steps=known.steps + later,
        outage=known.outage,
        marks=known.marks,
        ready_s=ready_s if known.ready_s is None else known.ready_s,
        ended_s=None if present.ended_s is None else present.ended_s + shift_s,
        watched=known.watched and known.ready_s is not None,
    )


def _begun(state: State, at: float, unix_s: float, origin: Origin) -> Start:
    """A new attempt. One that runs already was launched at a time that nobody wrote down."""
    return Start(
        server=origin.server,
        invocation=state.saved.invocation or "",
        attempt=state.saved.attempt,
        digest=origin.digest,
        boot_id=origin.boot_id,
        launched=unix_s,
        began=at,
        watched=state.launching,
    )


def _found_again(start: Start) -> Start:
    """A living server that another run of the agent launched: its start goes on."""
    return replace(
        start,
        outcome=None,
        ended_s=None,
        exit=None,
        cause_slug=None,
        cause_text=None,
        cause_quoted=False,
        watched=start.watched and start.ready_s is not None,
        missed=None,
    )


def _grown(start: Start, state: State, unix_s: float) -> Start:
    """What is new while it lives. The same object when nothing is. `unix_s`: the zero of `at` in Unix seconds."""
    if start.ready_s is None and state.ready_since is not None:
        ended = outage.over(start.outage, unix_s + state.ready_since)
        start = replace(start, ready_s=_after(start, state.ready_since), outage=ended)
    if state.stage is not Stage.STARTING:
        return start
    known = {step for step, _ in start.steps}
    new = tuple((step, _after(start, at)) for step, at in state.steps if step not in known)
    if new:
        start = replace(start, steps=start.steps + new)
    return _marked(start, state) if state.progress is not None and start.watched else start


def _marked(start: Start, state: State) -> Start:
    """The parts of the present step's progress that are reached for the first time, at this time of the log."""
    step, progress = state.step, state.progress
    if step is None or progress is None or not 0.0 <= progress <= 1.0:
        return start
    reached = max((tenths for marked, tenths, _ in start.marks if marked is step), default=0)
    at_s = _after(start, state.heard)
    new = tuple((step, tenths, at_s) for tenths in range(reached + 1, int(progress * MARKS) + 1))
    return replace(start, marks=start.marks + new) if new else start


def _ended(start: Start, state: State, at: float) -> Start:
    """It is over, and this step shows how."""
    told = state.after in (After.DOWN, After.AGAIN) or state.cause is None
    failed = Outcome.FAILED_START if start.ready_s is None else Outcome.CRASHED
    cause = None if told else state.cause
    if state.exit is not None and state.exit.shutdown:
        return replace(shut_down(start), ended_s=_after(start, at), exit=state.exit)
    return replace(
        start,
        ended_s=_after(start, at),
        outcome=Outcome.STOPPED if told else failed,
        cause_slug=cause.slug if cause else None,
        cause_text=cause.text if cause else None,
        cause_quoted=cause.quoted if cause else False,
        exit=state.exit,
    )


def _after(start: Start, at: float) -> float:
    """Seconds after the launch. The log may speak before the launch is known to have been made."""
    return max(0.0, at - start.began)
