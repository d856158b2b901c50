"""Moves: each enters one stage. Used by the rules (events) and the levels (what a stage waits for)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent.core import forecast
from agent.core.model import (
    NEVER,
    After,
    Cause,
    Effect,
    Exit,
    Launch,
    Look,
    Policy,
    Retry,
    Saved,
    Stage,
    State,
    Step,
    Terminate,
    Transition,
    Want,
)

GONE = Cause(
    slug="unknown",
    text="its first process is gone, and nobody saw it end",
    remedy="read the log",
    retry=Retry.YES,
)


def enter(
    state: State, at: float, stage: Stage, why: str, *effects: Effect, wait_s: float | None = None, **rest: Any
) -> Transition:
    """Go to a stage; `wait_s` is its deadline from now, None for a stage that rests."""
    deadline = None if wait_s is None else at + wait_s
    return Transition(replace(state, stage=stage, since=at, deadline=deadline, why=why, **rest), effects)


def begin(state: State, at: float, policy: Policy, reason: str = "") -> Transition:
    """Start an attempt: look at what it needs, at once. `reason` goes before the sentence that says so."""
    return enter(
        _forget_attempt(state),
        at,
        Stage.WAITING,
        f"{reason}checking what it needs",
        Look(),
        wait_s=policy.clear_s,
        cause=None,
        exit=None,
        before=state.cause or state.before,
        blocked=False,
        saved=replace(state.saved, gave_up=None),
    )


def count_anew(state: State) -> State:
    """What has failed so far counts no more."""
    return replace(state, saved=replace(state.saved, attempt=0, failures=()))


def _forget_attempt(state: State) -> State:
    """Nothing of an earlier attempt is shown with the next."""
    return replace(
        state,
        main=None,
        confirmed=NEVER,
        missing=None,
        ready_since=None,
        answered=NEVER,
        health=None,
        misses=0,
        steps=(),
        progress=None,
        quiet=False,
        stalled=False,
        heard=NEVER,
        lived=NEVER,
        life=None,
        life_at=NEVER,
        readings=(),
    )


def launch(state: State, at: float, policy: Policy) -> Transition:
    """Everything is there: launch. The invocation is saved first, so that a crash between the two forgets neither."""
    invocation = f"{state.run}-{state.launches + 1}"
    saved = replace(state.saved, invocation=invocation, attempt=state.saved.attempt + 1, running=True, served=False)
    before = f", attempt {saved.attempt}; before: {state.before.slug}" if state.before and saved.attempt > 1 else ""
    return enter(
        state,
        at,
        Stage.STARTING,
        f"launching{before}",
        Launch(invocation),
        wait_s=policy.launch_s,
        saved=saved,
        launches=state.launches + 1,
        launching=True,
        changed=False,
    )


def adopt(state: State, at: float, policy: Policy, why: str) -> Transition:
    """A server of ours runs already: go on with it instead of launching another."""
    state = _forget_attempt(state)
    invocation = state.seen.invocation or state.saved.invocation
    state = replace(
        state,
        main=state.seen.main,
        confirmed=at,
        steps=((Step.LAUNCHED, at),),
        saved=replace(
            state.saved,
            invocation=invocation,
            running=True,
            served=state.saved.served and invocation == state.saved.invocation,  # else that was an earlier one
            gave_up=None,
        ),
    )
    wait_s = forecast.next_word(state, at, policy) - at
    return enter(state, at, Stage.STARTING, why, Look(), wait_s=wait_s, cause=None, exit=None, blocked=False)


def ready(state: State, at: float, why: str) -> Transition:
    """It answers."""
    return enter(
        state,
        at,
        Stage.READY,
        why,
        saved=replace(state.saved, served=True),
        ready_since=at if state.ready_since is None else state.ready_since,
        answered=at,
        misses=0,
        quiet=False,
        stalled=False,
        progress=None,
    )


def stop(state: State, at: float, policy: Policy, why: str, after: After, cause: Cause | None = None) -> Transition:
    """Tell a running server to end."""
    return enter(
        state,
        at,
        Stage.STOPPING,
        why,
        Terminate(),
        Look(),
        wait_s=policy.terms_s[0],
        after=after,
        cause=cause,
        signals=1,
        swept=False,
        killed=False,
    )


def clean_up(state: State, at: float, policy: Policy, why: str, after: After, cause: Cause | None = None) -> Transition:
    """The first process is gone or never came: make sure that nothing is left of its tree."""
    return enter(
        state,
        at,
        Stage.STOPPING,
        why,
        Look(),
        wait_s=policy.sweep_s,
        after=after,
        cause=cause,
        main=None,
        signals=len(policy.terms_s),
        swept=False,
        killed=False,
    )


ADMIN_STARTED = "an administrator started its unit (systemctl start)"
ADMIN_STOPPED = "an administrator stopped its unit (systemctl stop)"
SHUT_DOWN = "the host goes down"


def obey(saved: Saved, asks: int, want: Want) -> Saved:
    """What an administrator's start or stop of the unit makes of what is saved: as an operator's would.

    `asks`: the most that a server that shares something with it has been asked.
    """
    saved = replace(saved, want=want, asks=max(saved.asks, asks) + 1, gpu_check=True)
    saved = replace(saved, attempt=0, failures=(), gave_up=None)
    return saved if want is Want.UP else replace(saved, over=frozenset(), back=None)


def stopped_outside(state: State, at: float, policy: Policy, how: Exit) -> Transition:
    """Systemd was told by somebody else to stop it: no failure. An administrator's word counts; a shutdown is none."""
    if how.shutdown:
        state, why = replace(state, closing=True), SHUT_DOWN
    else:
        state, why = replace(state, saved=obey(state.saved, state.seen.asks, Want.DOWN)), ADMIN_STOPPED
    # Taken account of: were it still said to run, the next run of the agent would take its end for news.
    state = replace(state, saved=replace(state.saved, running=False, served=False))
    return clean_up(replace(state, exit=how), at, policy, why, After.DOWN)


def die(state: State, at: float, policy: Policy, how: Exit | None, cause: Cause) -> Transition:
    """An attempt ended by itself."""
    why = f"{ended(how)}; making sure that nothing is left"
    return clean_up(replace(state, exit=how), at, policy, why, After.RETRY, cause)


SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
"""Those that servers die of; numbers that Linux has on every machine with a GPU."""


def ended(how: Exit | None) -> str:
    """How the first process ended, in words."""
    if how is None:
        return "not launched"
    if how.signal is not None:
        name = SIGNALS.get(how.signal, f"signal {how.signal}")
        return f"ended by {name}" + (" (out of memory)" if how.oom else "")
    return "ended unseen" if how.code is None else f"exited with {how.code}"


def rest(state: State, at: float, why: str) -> Transition:
    """Nothing runs and nothing is wanted."""
    state = replace(_forget_attempt(state), before=None, blocked=False)
    saved = state.saved
    if saved.gave_up is None:  # else the agent ends, and what it gave up stays given up
        saved = replace(saved, attempt=0, failures=())
    if not state.wanted:  # who gave way to it need not give way any more
        saved = replace(saved, over=frozenset(), back=None)
    return enter(state, at, Stage.DOWN, why, saved=saved, cause=None)


def fail(state: State, at: float, why: str, cause: Cause, *, blocked: bool = False) -> Transition:
    """Give up, until an operator asks or, `blocked`, the need is met."""
    saved = replace(state.saved, gave_up=None if blocked else cause.slug)
    return enter(state, at, Stage.FAILED, why, cause=cause, blocked=blocked, saved=saved)


def block(state: State, at: float) -> Transition:
    """Give up before a launch, on the first need that waiting does not mend."""
    need = next(need for need in state.seen.needs or () if not need.heals)
    return fail(state, at, need.cause.text, need.cause, blocked=True)


def retry(state: State, at: float, policy: Policy) -> Transition:
    """An attempt failed and nothing is left of it: judge by its cause whether and when to try again."""
    cause = state.cause
    if cause is None:
        return begin(state, at, policy)
    if state.ready_since is not None and state.answered - state.ready_since >= policy.steady_s:
        state = replace(state, saved=replace(state.saved, attempt=1, failures=()))
    key = f"{cause.slug} {ended(state.exit)}"
    same = (*(f for f in state.saved.failures if f == key), key)
    state = replace(state, saved=replace(state.saved, failures=same))
    if why := _hopeless(state, policy, cause):
        return fail(state, at, f"{cause.slug}: {ended(state.exit)}; {why}", cause)
    done = state.saved.attempt
    if cause.retry is Retry.WAIT:  # somebody else is in the way: no fault of this server
        state = replace(state, saved=replace(state.saved, attempt=max(0, done - 1), failures=()))
    pause_s = policy.pauses_s[min(max(done, 1), len(policy.pauses_s)) - 1]
    why = f"{cause.slug}: {ended(state.exit)}; attempt {state.saved.attempt + 1} in {pause_s:g} s"
    return enter(state, at, Stage.BACKING_OFF, why, wait_s=pause_s)


def _hopeless(state: State, policy: Policy, cause: Cause) -> str:
    """Why no further attempt is worth it; empty when one is."""
    attempts = min(policy.few_attempts, policy.attempts) if cause.retry is Retry.FEW else policy.attempts
    if cause.retry is Retry.NO:
        return "another attempt would end the same way"
    if cause.retry is Retry.WAIT:
        return ""
    if len(state.saved.failures) >= policy.same_failures:
        return f"the same failure {len(state.saved.failures)} times in a row"
    return f"gave up after {state.saved.attempt} attempts" if state.saved.attempt >= attempts else ""
