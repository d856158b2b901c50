"""Rules: one for each live cell of the table, what an event means in a stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agent.core import forecast, gpus, storage
from agent.core.model import (
    After,
    Exited,
    Health,
    Kill,
    Launch,
    Launched,
    LogRead,
    Look,
    Looked,
    Policy,
    Probed,
    Refused,
    Saved,
    Seen,
    Stage,
    State,
    Step,
    Transition,
    in_the_way,
)
from agent.core.moves import die, enter, ready, stopped_outside

Handler = Callable[[State, Any, Policy], Transition]

BUSY_S = 15.0
"""A sign of life this young means "works": looks come every few seconds, and one may be late."""


def ignore(state: State, event: object, policy: Policy) -> Transition:
    """The event means nothing here."""
    return Transition(state)


def of_this_attempt(rule: Handler) -> Handler:
    """News of an earlier attempt mean nothing."""
    return lambda s, e, p: rule(s, e, p) if e.invocation == s.saved.invocation else Transition(s)


# -- the server ------------------------------------------------------------------------------------


def launched(state: State, event: Launched, policy: Policy) -> Transition:
    """The launch is confirmed."""
    state = replace(
        state,
        launching=False,
        main=event.main,
        confirmed=event.at,
        steps=((Step.LAUNCHED, event.at), *state.steps),  # the log may have spoken before the reply
        why=f"launched, pid {event.main.pid}",
    )
    return Transition(speak_later(state, event.at, policy), (Look(),))


def launched_stopping(state: State, event: Launched, policy: Policy) -> Transition:
    """It came up while it was being told to end. Our SIGTERM was behind the launch in the queue."""
    if not state.launching:  # its exit came before the reply
        return Transition(state)
    return Transition(replace(state, launching=False, main=event.main, confirmed=event.at), (Look(),))


def refused(state: State, event: Refused, policy: Policy) -> Transition:
    """STARTING: the launch was refused."""
    if not _is_ours(state, event):
        return Transition(state)
    return die(replace(state, launching=False), event.at, policy, None, event.cause)


def refused_stopping(state: State, event: Refused, policy: Policy) -> Transition:
    """STOPPING: a launch that never came, or a signal that could not be sent: the deadline tries again."""
    if _is_ours(state, event):
        return Transition(replace(state, launching=False, confirmed=event.at), (Look(),))
    if isinstance(event.effect, Kill):
        return Transition(replace(state, killed=False, why=f"could not kill: {event.cause.text}"))
    return Transition(state)


def _is_ours(state: State, event: Refused) -> bool:
    """Whether this attempt's launch was refused."""
    return state.launching and event.effect == Launch(state.saved.invocation or "")


def exited(state: State, event: Exited, policy: Policy) -> Transition:
    """It ended by itself: a failure, whatever the code. A server that was wanted is gone."""
    state = replace(state, launching=False)
    if event.exit.stopped or event.exit.shutdown:
        return stopped_outside(state, event.at, policy, event.exit)
    return die(state, event.at, policy, event.exit, event.cause)


def exited_stopping(state: State, event: Exited, policy: Policy) -> Transition:
    """It ended as it was told to. What it says of itself while it is told to end is no cause."""
    ours = bool(state.signals and state.main)
    if not ours and (event.exit.stopped or event.exit.shutdown) and state.after is After.RETRY:  # late evidence
        return stopped_outside(replace(state, launching=False), event.at, policy, event.exit)
    how = replace(event.exit, asked=True, stopped=False) if ours else event.exit
    return Transition(replace(state, exit=how, main=None, launching=False, confirmed=event.at), (Look(),))


def log_read(state: State, event: LogRead, policy: Policy) -> Transition:
    """STARTING: new lines. A step is new only once: a second rank or a drafter is no restart."""
    known = {step for step, _ in state.steps}
    if event.step is not None and event.step not in known:
        state = replace(state, steps=(*state.steps, (event.step, event.at)), progress=None, why=f"{event.step}")
    if event.progress is not None:
        state = replace(state, progress=event.progress)
    state = replace(state, heard=event.at)
    return Transition(state if state.launching else speak_later(state, event.at, policy))


def speak_later(state: State, at: float, policy: Policy) -> State:
    """STARTING: set the flags and the next time at which something must be said."""
    state = forecast.judge(state, at, policy)
    return replace(state, deadline=forecast.next_word(state, at, policy))


# -- looks -----------------------------------------------------------------------------------------


def _take(state: State, event: Looked, policy: Policy) -> State:
    """The newest look counts; a save that failed is tried again with it. An older look that comes late is dropped."""
    if event.seen.began < state.seen.began:
        return state
    again = state.degraded and not state.saving  # one at a time: a slow disk must not pile them up
    # Who has given way owes nothing more: else two switches, there and back, would undo each other.
    saved = replace(state.saved, over=state.saved.over & event.seen.wanted_neighbours)
    volumes = storage.follow(state.volumes, event.seen.storage, policy)
    crowded = in_the_way(event.seen) or in_the_way(state.seen)  # until just now
    state = replace(state, crowded=event.at if crowded else state.crowded)
    seen = storage.with_needs(_free_of_theirs(event.seen, state.crowded), state, volumes, policy)
    return replace(state, seen=seen, volumes=volumes, saved=saved, sent=Saved(asks=-1) if again else state.sent)


def _free_of_theirs(seen: Seen, crowded: float) -> Seen:
    """The look without a taken port, if who may have held it was there when it began: what is true now is not known."""
    if seen.needs is None or seen.began > crowded:
        return seen
    rest = tuple(need for need in seen.needs if need.name != "port")
    return seen if rest == seen.needs else replace(seen, needs=rest or None)


def look(state: State, event: Looked, policy: Policy) -> Transition:
    """A look in a stage whose level rule does the rest."""
    return Transition(_take(state, event, policy))


def look_for_room(state: State, event: Looked, policy: Policy) -> Transition:
    """WAITING, CLEARING: GPU readings add up until they are steady.

    The same look again is no further reading, and while somebody else may use the GPUs they do not add up.
    """
    newer = event.seen.began > state.seen.began
    state = _take(state, event, policy)
    if in_the_way(state.seen):
        newer, state = True, replace(state, readings=())
    return Transition(replace(state, readings=gpus.remember(state, state.seen)) if newer else state)


def look_starting(state: State, event: Looked, policy: Policy) -> Transition:
    """STARTING: signs of life put off the word "stalled"."""
    state = forecast.take_signs(_take(state, event, policy), event.seen)
    return Transition(state if state.launching else speak_later(state, event.at, policy))


def look_serving(state: State, event: Looked, policy: Policy) -> Transition:
    """READY, UNHEALTHY: signs of life tell busy from hung."""
    return Transition(forecast.take_signs(_take(state, event, policy), event.seen))


# -- health ----------------------------------------------------------------------------------------


def probe_starting(state: State, event: Probed, policy: Policy) -> Transition:
    """Only an answer from a listener that is ours makes it ready."""
    state = replace(state, health=event.health)
    if event.health is Health.OK and not state.launching:
        return ready(state, event.at, "answers")
    return Transition(state)


def probe_ready(state: State, event: Probed, policy: Policy) -> Transition:
    """Misses in a row make it unhealthy; a busy server gets longer."""
    state = replace(state, health=event.health)
    if event.health is Health.OK:
        return Transition(replace(state, misses=0, answered=event.at))
    state = replace(state, misses=state.misses + 1)
    if state.misses < policy.misses or (busy(state, event.at) and event.at - state.answered < policy.busy_s):
        return Transition(state)
    why = f"no good answer {state.misses} times in a row ({event.health})"
    return enter(state, event.at, Stage.UNHEALTHY, why, wait_s=policy.unhealthy_s)


def busy(state: State, at: float) -> bool:
    """Whether it does not answer because it works: nothing came, or "no slot", and there are signs of life."""
    return state.health in (Health.TIMEOUT, Health.LOADING) and at - state.lived <= BUSY_S


def probe_unhealthy(state: State, event: Probed, policy: Policy) -> Transition:
    """It answers again, or it does not."""
    state = replace(state, health=event.health)
    return ready(state, event.at, "answers again") if event.health is Health.OK else Transition(state)
