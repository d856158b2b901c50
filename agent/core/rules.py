"""Rules: one for each live cell of the table, what an event means in a stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agent.core import forecast, gpus
from agent.core.model import (
    After,
    Answer,
    Ask,
    Asked,
    Booted,
    Closed,
    Effect,
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
    Stage,
    State,
    Step,
    Stored,
    Transition,
    Want,
)
from agent.core.moves import adopt, begin, clean_up, die, enter, ready, rest, stop, turn_off

Handler = Callable[[State, Any, Policy], Transition]

BUSY_S = 15.0
"""A sign of life this young means "works": looks come every few seconds, and one may be late."""


def ignore(state: State, event: object, policy: Policy) -> Transition:
    """The event means nothing here."""
    return Transition(state)


def of_this_attempt(rule: Handler) -> Handler:
    """News of an earlier attempt mean nothing."""
    return lambda s, e, p: rule(s, e, p) if e.invocation == s.saved.invocation else Transition(s)


# -- the agent -------------------------------------------------------------------------------------


def boot(state: State, event: Booted, policy: Policy) -> Transition:
    """The agent started: go on from what is there."""
    saved = event.saved
    if saved.want is None and policy.autostart:
        saved = replace(saved, want=Want.UP)
    why = "the agent started"
    state = State(
        since=event.at, saved=saved, sent=event.saved, kept=event.saved.holds, seen=event.seen, run=event.run, why=why
    )
    if not event.seen.tree:
        return Transition(state)  # the level of DOWN goes on from here
    if event.seen.main is None:
        return clean_up(state, event.at, policy, "found processes of an earlier attempt", After.AGAIN)
    if not state.wanted:
        stopped = replace(state, main=event.seen.main, confirmed=event.at)
        return stop(stopped, event.at, policy, "found a server that nobody wants", After.DOWN)
    return adopt(state, event.at, policy, f"adopted the running server, pid {event.seen.main.pid}")


def close_idle(state: State, event: Closed, policy: Policy) -> Transition:
    """The agent ends, and nothing of ours runs."""
    return rest(replace(state, closing=True), event.at, "the agent ends")


def close_running(state: State, event: Closed, policy: Policy) -> Transition:
    """The agent ends, and its server with it: what is wanted stays as it is."""
    return stop(replace(state, closing=True), event.at, policy, "the agent ends, and its server with it", After.DOWN)


def close_stopping(state: State, event: Closed, policy: Policy) -> Transition:
    """The agent ends while the server is ending."""
    return Transition(replace(state, closing=True, after=After.DOWN))


# -- the operator ----------------------------------------------------------------------------------


def ask(state: State, event: Asked, policy: Policy) -> Transition:
    """A change is asked for: save what it makes of the want. It takes effect, and is answered, once that is saved."""
    if refused := _refusal(state, event):
        return Transition(state, (Answer(event.id, refused),))
    want = Want.DOWN if event.ask is Ask.STOP else Want.UP
    gpu_check = event.gpu_check or event.ask is not Ask.START
    proposed = Saved(want=want, asks=state.saved.asks + 1, gpu_check=gpu_check)
    return Transition(replace(state, pending=event, proposed=proposed))


def _refusal(state: State, event: Asked) -> str:
    """Why the change cannot be had now; empty when it can."""
    if state.closing:
        return "the agent is ending"
    if state.pending is not None:
        return f"{state.pending.ask} is under way; ask again when it is answered"
    if event.ask is not Ask.STOP and not state.wanted and state.seen.wanted_neighbours:
        others = ", ".join(sorted(state.seen.wanted_neighbours))
        return f"{others} is wanted and shares a GPU or the port; stop it first"
    return ""


def intended(state: State) -> Saved:
    """What should be on the disk: what holds, and the change that is asked for, which starts the count anew."""
    new = state.proposed
    if new is None:
        return state.saved
    return replace(state.saved, want=new.want, asks=new.asks, gpu_check=new.gpu_check, attempt=0, failures=())


def commit(state: State, event: Stored, policy: Policy) -> tuple[State, Ask | None, tuple[Effect, ...]]:
    """A save ended: what it means for the change that waited for it. No Ask: there is none to carry out."""
    state = replace(state, saving=state.saving - 1, degraded=event.why is not None)
    if event.why is None:
        state = replace(state, kept=event.saved.holds)
    asked, proposed = state.pending, state.proposed
    if asked is None or proposed is None or event.saved.asks != proposed.asks:
        return state, None, ()
    merged = intended(state)
    state = replace(state, pending=None, proposed=None)
    if event.why is not None and proposed.want is Want.UP and not state.wanted:
        state = replace(state, saved=replace(state.saved, asks=proposed.asks))  # no later change is taken for this one
        return state, None, (Answer(asked.id, f"the want could not be saved: {event.why}"),)
    return replace(state, saved=merged), asked.ask, (Answer(asked.id),)


def stored_idle(state: State, event: Stored, policy: Policy) -> Transition:
    """Nothing of ours runs: a start begins at once, also out of a pause or a failure."""
    state, asked, effects = commit(state, event, policy)
    if asked is None or state.closing:
        return Transition(state, effects)
    moved = rest(state, event.at, "stopped") if asked is Ask.STOP else begin(state, event.at, policy)
    return Transition(moved.state, (*moved.effects, *effects))


def stored_waiting(state: State, event: Stored, policy: Policy) -> Transition:
    """A start is on its way already: it goes on. Rivals that are written down now may be turned off."""
    known = state.kept
    state, asked, effects = commit(state, event, policy)
    if asked is not Ask.STOP:
        holds = turn_off(replace(state, kept=state.kept - known))
        return Transition(state, (*holds, *effects))
    return Transition(rest(state, event.at, "stopped").state, effects)


def stored_running(state: State, event: Stored, policy: Policy) -> Transition:
    """A server of ours runs: a start changes nothing."""
    state, asked, effects = commit(state, event, policy)
    if asked is None or asked is Ask.START:
        if asked is Ask.START:  # this attempt still counts
            state = replace(state, saved=replace(state.saved, attempt=1))
        return Transition(state, effects)
    after = After.DOWN if asked is Ask.STOP else After.AGAIN
    moved = stop(state, event.at, policy, f"the operator asked for a {asked}", after)
    return Transition(moved.state, (*moved.effects, *effects))


def stored_stopping(state: State, event: Stored, policy: Policy) -> Transition:
    """It is ending already: the change says what follows."""
    state, asked, effects = commit(state, event, policy)
    if asked is None:
        return Transition(state, effects)
    after = After.DOWN if asked is Ask.STOP or state.closing else After.AGAIN
    return Transition(replace(state, after=after, cause=None), effects)


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
    return die(replace(state, launching=False), event.at, policy, event.exit, event.cause)


def exited_stopping(state: State, event: Exited, policy: Policy) -> Transition:
    """It ended as it was told to. What it says of itself while it is told to end is no cause."""
    how = replace(event.exit, asked=True) if state.signals and state.main else event.exit
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


def _take(state: State, event: Looked) -> State:
    """The newest look counts; a save that failed is tried again with it. An older look that comes late is dropped."""
    if event.seen.began < state.seen.began:
        return state
    again = state.degraded and not state.saving  # one at a time: a slow disk must not pile them up
    return replace(state, seen=event.seen, sent=Saved(asks=-1) if again else state.sent)


def look(state: State, event: Looked, policy: Policy) -> Transition:
    """A look in a stage whose level rule does the rest."""
    return Transition(_take(state, event))


def look_for_room(state: State, event: Looked, policy: Policy) -> Transition:
    """WAITING, CLEARING: GPU readings add up until they are steady.

    The same look again is no further reading, and none counts from while a neighbour used the GPUs.
    """
    newer = event.seen.began > state.seen.began
    state = _take(state, event)
    if event.seen.neighbours:
        return Transition(replace(state, readings=()))
    return Transition(replace(state, readings=gpus.remember(state, event.seen)) if newer else state)


def look_starting(state: State, event: Looked, policy: Policy) -> Transition:
    """STARTING: signs of life put off the word "stalled"."""
    state = forecast.take_signs(_take(state, event), event.seen)
    return Transition(state if state.launching else speak_later(state, event.at, policy))


def look_serving(state: State, event: Looked, policy: Policy) -> Transition:
    """READY, UNHEALTHY: signs of life tell busy from hung."""
    return Transition(forecast.take_signs(_take(state, event), event.seen))


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
