"""Rules for the agent's own life: it starts, its configuration is read anew, it ends."""

from __future__ import annotations

from dataclasses import replace

from agent.core.model import (
    After,
    Booted,
    Cause,
    Closed,
    Health,
    Look,
    Policy,
    Reconfigured,
    Retry,
    Stage,
    State,
    Transition,
    Want,
)
from agent.core.moves import (
    ADMIN_STARTED,
    ADMIN_STOPPED,
    GONE,
    adopt,
    begin,
    clean_up,
    count_anew,
    die,
    enter,
    fail,
    obey,
    ready,
    rest,
    stop,
    stopped_outside,
)
from agent.core.rules import speak_later


def boot(state: State, event: Booted, policy: Policy) -> Transition:
    """The agent started: go on from what is there."""
    saved, seen, why = event.saved, event.seen, "the agent started"
    # Whether somebody else has started it since the last save.
    outside = not seen.ordered and seen.main is not None and seen.invocation not in (None, saved.invocation)
    if event.rebooted:  # no process of another boot lives, and its failures are history
        saved = replace(saved, running=False, served=False, attempt=0, failures=(), gave_up=None)
    # One that was launched was wanted: who has lost what was saved (a broken file, an older agent) ends nothing for it.
    if saved.want is None and (policy.autostart or (seen.main is not None and seen.ordered)):
        saved = replace(saved, want=Want.UP)
    if outside and saved.want is Want.UP:  # what is saved is of an earlier attempt
        saved = replace(saved, running=False, served=False, attempt=1, failures=(), gave_up=None)
    state = State(
        since=event.at,
        saved=saved,
        sent=event.saved,
        kept_want=event.saved.want,
        seen=event.seen,
        run=event.run,
        why=why,
        changed=event.seen.tree != () and event.same is False,
    )
    if not event.seen.tree:
        return _boot_without(state, event, policy)
    if event.seen.main is None:
        if saved.running and state.wanted and event.exit.stopped:
            return stopped_outside(state, event.at, policy, event.exit)
        if saved.running and saved.attempt and state.wanted:
            return die(state, event.at, policy, event.exit, GONE)
        return clean_up(state, event.at, policy, "found processes of an earlier attempt", After.AGAIN)
    if not state.wanted and outside:
        return Transition(state)  # judged by the next look, when its neighbours are known
    if not state.wanted:
        stopped = replace(state, main=event.seen.main, confirmed=event.at)
        return stop(stopped, event.at, policy, "found a server that nobody wants", After.DOWN)
    how = ADMIN_STARTED if outside else "adopted the running server"
    return _boot_beside(state, event, policy, f"{how}, pid {event.seen.main.pid}")


def _boot_without(state: State, event: Booted, policy: Policy) -> Transition:
    """No process of ours is seen: one that ran when the last agent ended has ended meanwhile, and that is told."""
    if event.same is False:
        state = count_anew(state)
    saved = state.saved
    if saved.gave_up is not None and state.wanted and event.same:
        return fail(state, event.at, "gave up before the agent was restarted", _given_up(saved.gave_up))
    if not (saved.running and event.seen.tree == ()):
        return Transition(state)  # the level of DOWN goes on from here
    if state.wanted and event.exit.stopped:
        saved = replace(obey(saved, event.seen.asks, Want.DOWN), running=False, served=False)
        return rest(replace(state, saved=saved, exit=event.exit), event.at, f"{ADMIN_STOPPED} while the agent was away")
    # The launch never came about, nobody minds, or it was being ended for an operator: that is asked, and not done.
    if event.ended is None or not state.wanted or not saved.attempt:
        return Transition(replace(state, saved=replace(saved, running=False, served=False)))
    return die(state, event.at, policy, event.exit, event.ended)


def _given_up(slug: str) -> Cause:
    """What is left of the cause for which an earlier run of the agent gave up."""
    remedy = "read its log and its earlier starts; once that is mended, start it again"
    return Cause(slug=slug, text="gave up before the agent was restarted", remedy=remedy, retry=Retry.NO)


def _boot_beside(state: State, event: Booted, policy: Policy, why: str) -> Transition:
    """A wanted server runs: it goes on where it was, and its start with the times that are known of it."""
    adopted = adopt(state, event.at, policy, why)
    now = adopted.state
    now = replace(
        now,
        confirmed=now.confirmed if event.launched is None else event.launched,
        steps=event.steps or now.steps,
        ready_since=event.ready,
        health=event.health,
    )
    if event.health is Health.OK:
        return Transition(ready(now, event.at, f"{why}; it answers").state, adopted.effects)
    if not now.saved.served:
        return Transition(speak_later(now, event.at, policy), adopted.effects)
    moved = enter(now, event.at, Stage.UNHEALTHY, f"{why}; it does not answer", wait_s=policy.unhealthy_s)
    return Transition(moved.state, adopted.effects)


def reconfigured_idle(state: State, event: Reconfigured, policy: Policy) -> Transition:
    """Nothing of ours runs: the new definition counts from now on, and what failed by the old one is tried again."""
    # What it needed was the old one's. While nobody knows whether it runs, the old one holds.
    state = replace(state, seen=replace(state.seen, needs=None), changed=state.seen.tree is None)
    if state.stage is Stage.FAILED and state.wanted:
        return begin(count_anew(state), event.at, policy)
    return Transition(state, (Look(),))


def reconfigured_running(state: State, event: Reconfigured, policy: Policy) -> Transition:
    """A server of ours runs by the old definition: it goes on, and that is said."""
    return Transition(replace(state, changed=True))


def close_idle(state: State, event: Closed, policy: Policy) -> Transition:
    """The agent ends, and nothing of ours runs."""
    return rest(replace(state, closing=True), event.at, "the agent ends")


def close_running(state: State, event: Closed, policy: Policy) -> Transition:
    """The agent ends, and its server with it: what is wanted stays as it is."""
    return stop(replace(state, closing=True), event.at, policy, "the agent ends, and its server with it", After.DOWN)


def close_stopping(state: State, event: Closed, policy: Policy) -> Transition:
    """The agent ends while the server is ending."""
    return Transition(replace(state, closing=True, after=After.DOWN))
