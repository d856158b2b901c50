"""Rules for Tick: a deadline has come. What a stage does when nothing else has happened."""

from __future__ import annotations

from dataclasses import replace

from agent.core import forecast
from agent.core.levels import fresh
from agent.core.model import (
    NEVER,
    After,
    Cause,
    Health,
    Kill,
    Look,
    Policy,
    Retry,
    State,
    Terminate,
    Tick,
    Transition,
)
from agent.core.moves import begin, stop
from agent.core.rules import BUSY_S, Handler, busy, speak_later


def due(rule: Handler) -> Handler:
    """A Tick before the deadline means nothing."""
    return lambda s, e, p: rule(s, e, p) if s.deadline is not None and e.at >= s.deadline else Transition(s)


def late_room(state: State, event: Tick, policy: Policy) -> Transition:
    """WAITING, CLEARING: waiting costs no attempt. Look again."""
    return Transition(replace(state, deadline=event.at + policy.clear_s), (Look(),))


def late_start(state: State, event: Tick, policy: Policy) -> Transition:
    """STARTING: past the operator's limit, without a sign for long, or merely silent: said; acted on only by choice."""
    if state.launching:  # the launch has a deadline of its own, and its reply always comes
        return Transition(replace(state, deadline=event.at + policy.launch_s))
    limit = forecast.limit_at(state, policy)
    if limit is not None and event.at >= limit:
        why = f"not ready after {policy.start_limit_s:g} s, the limit that its definition sets"
        cause = Cause(slug="start_limit", text=why, remedy="raise start_limit_s, or remove it", retry=Retry.FEW)
        return stop(state, event.at, policy, why, After.RETRY, cause)
    state = speak_later(state, event.at, policy)
    if not state.stalled or policy.on_stall != "restart":
        return Transition(state)
    why = "no sign of progress"
    cause = Cause(slug="stalled", text=why, remedy="read the log; see what it waits for", retry=Retry.FEW)
    return stop(state, event.at, policy, why, After.RETRY, cause)


def late_health(state: State, event: Tick, policy: Policy) -> Transition:
    """UNHEALTHY: patience ended, unless it works or cannot be looked at. Unknown never kills.

    Nor does FOREIGN: a new attempt would find the same stranger on its port, or be as hard to prove ours.
    """
    probed = state.health not in (None, Health.FOREIGN)
    probed = probed and not (state.changed and state.answered == NEVER)  # perhaps asked where only the new one would be
    known = state.seen.tree is not None and event.at - state.life_at <= BUSY_S and probed
    if not known or busy(state, event.at):
        return Transition(replace(state, deadline=event.at + policy.unhealthy_s), (Look(),))
    why = f"stayed unhealthy for {event.at - state.since:.0f} s ({state.health})"
    cause = Cause(slug="unhealthy", text=why, remedy="read the log; it was alive but gave no answer", retry=Retry.YES)
    return stop(state, event.at, policy, why, After.RETRY, cause)


def late_stop(state: State, event: Tick, policy: Policy) -> Transition:
    """STOPPING: patience ended: the next SIGTERM, then SIGKILL to all, then name what survives."""
    seen = state.seen
    known = bool(seen.tree) and fresh(state)
    if state.launching or (not known and (state.main is None or state.killed)):
        return Transition(replace(state, deadline=event.at + policy.kill_s), (Look(),))  # unknown never kills
    if known and {process.pid for process in seen.tree or ()} <= set(seen.ending):  # dead: no signal hastens it
        return Transition(replace(state, deadline=event.at + policy.kill_s), (Look(),))
    if state.main is not None and state.signals < len(policy.terms_s):
        again = replace(state, signals=state.signals + 1, deadline=event.at + policy.terms_s[state.signals])
        return Transition(again, (Terminate(), Look()))
    killable = {process.pid for process in seen.tree or ()} - set(seen.unkillable)
    if not state.killed or killable:
        why = "did not end in time: killing it"
        return Transition(replace(state, killed=True, why=why, deadline=event.at + policy.kill_s), (Kill(), Look()))
    return _name_unkillable(state, event, policy)


def _name_unkillable(state: State, event: Tick, policy: Policy) -> Transition:
    """Processes that outlive SIGKILL hang in the kernel: said, not tried again."""
    pids = ", ".join(str(pid) for pid in state.seen.unkillable)
    why = f"pid {pids} hangs in the kernel and outlives SIGKILL"
    remedy = "see what it waits for in /proc/PID/stack; a reboot frees it"
    cause = Cause(slug="unkillable", text=why, remedy=remedy, retry=Retry.NO)
    return Transition(replace(state, why=why, cause=state.cause or cause, deadline=event.at + policy.kill_s), (Look(),))


def wake(state: State, event: Tick, policy: Policy) -> Transition:
    """BACKING_OFF: the pause is over."""
    return begin(state, event.at, policy)
