"""Levels: what a stage waits for. Looked at after every event, until nothing changes.

A condition that was true already when a stage was entered brings no event, and a lost signal brings none either;
so no stage waits for an event alone. Each rule returns None when it has nothing to change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from agent.core import gpus
from agent.core.model import (
    After,
    Cause,
    Exit,
    Look,
    Need,
    Policy,
    Stage,
    State,
    Terminate,
    Transition,
    Want,
    in_the_way,
)
from agent.core.moves import (
    ADMIN_STARTED,
    ADMIN_STOPPED,
    GONE,
    SHUT_DOWN,
    adopt,
    begin,
    block,
    clean_up,
    count_anew,
    die,
    ended,
    fail,
    launch,
    obey,
    rest,
    retry,
    stop,
)
from agent.core.serving import out_of_room, relieve

Level = Callable[[State, float, Policy], Transition | None]

GONE_S = 2.5
"""How long looks must miss the first process before its exit counts as lost: the exit itself brings the evidence.

Of a unit that is the record of its end, written after two starts of Python: within 2 s on a busy host.
"""


def fresh(state: State) -> bool:
    """Whether the last look began after the present stage did, and after the launch was confirmed."""
    return state.seen.began > max(state.since, state.confirmed)


def started_outside(state: State) -> bool:
    """Whether a fresh look shows a first process that somebody else has started, and that is news.

    Once taken over its invocation is the saved one, and from then on it is a server like any other: so an
    administrator's start counts once, whatever look shows it first, and in whichever run of the agent.
    """
    seen = state.seen
    known = seen.invocation in (None, state.saved.invocation) or seen.main in (None, state.main)
    return not seen.ordered and not known and fresh(state) and not state.closing


def take_over(state: State, at: float, policy: Policy) -> Transition:
    """Somebody else has started it: that counts as an operator's start, and is refused where that would be."""
    seen, saved = state.seen, state.saved
    if seen.wanted_neighbours and not state.wanted:
        others = ", ".join(sorted(seen.wanted_neighbours))
        state = replace(state, main=seen.main, confirmed=at, exit=None)
        state = replace(state, saved=replace(saved, invocation=seen.invocation, running=True, served=False))
        why = f"{ADMIN_STARTED}, but {others} is wanted and shares a GPU or the port"
        return stop(state, at, policy, why, After.DOWN)
    saved = saved if state.wanted else obey(saved, seen.asks, Want.UP)
    state = replace(state, saved=replace(saved, attempt=1, failures=(), gave_up=None, served=False), before=None)
    pid = seen.main.pid if seen.main else None
    return adopt(state, at, policy, f"{ADMIN_STARTED}, pid {pid}")


def unwanted(state: State, at: float, policy: Policy) -> Transition | None:
    """DOWN: begin when wanted; end a server of ours that nobody wants."""
    if started_outside(state):
        return take_over(state, at, policy)
    if state.wanted and not state.closing:
        return begin(state, at, policy)
    if state.changed and state.seen.tree == ():
        return Transition(replace(state, changed=False))
    if not state.seen.tree or not fresh(state):
        return None
    if state.seen.main is None:
        return clean_up(state, at, policy, "found processes of an earlier attempt", After.DOWN)
    return stop(replace(state, main=state.seen.main), at, policy, "found a server that nobody wants", After.DOWN)


def room(state: State, at: float, policy: Policy) -> Transition | None:
    """WAITING and CLEARING: launch when nothing of ours runs, every need is met and the GPUs have room."""
    if not state.wanted:
        return leave(state, at, policy)
    if not fresh(state) or state.seen.tree is None:
        return None
    if state.seen.tree:
        return _found(state, at, policy, After.AGAIN, None)
    if state.changed:  # nothing runs, so the newer definition is in force from here on: what does it need?
        return Transition(replace(state, changed=False, seen=replace(state.seen, needs=None)), (Look(),))
    if state.seen.needs is None:
        return None if not in_the_way(state.seen) else _stay(state, at, Stage.CLEARING, _who(state), policy)
    if any(not need.heals for need in state.seen.needs):
        return block(state, at)
    if state.seen.needs:
        return _stay(state, at, Stage.WAITING, _named(state.seen.needs), policy)
    return _clear(state, at, policy)


def _found(state: State, at: float, policy: Policy, after: After, cause: Cause | None) -> Transition:
    """Ours runs already: go on with it, or clear away what is left of it."""
    if state.seen.main is None:
        return clean_up(state, at, policy, "found processes of an earlier attempt", after, cause)
    if started_outside(state):
        return take_over(state, at, policy)
    return adopt(state, at, policy, f"adopted the running server, pid {state.seen.main.pid}")


def _clear(state: State, at: float, policy: Policy) -> Transition | None:
    """All needs are met: wait for rivals, neighbours and memory, then launch."""
    verdict = gpus.room(state, policy)
    if not verdict.known:
        return _stay(state, at, Stage.WAITING, verdict.why, policy)
    if in_the_way(state.seen):
        return _stay(state, at, Stage.CLEARING, _who(state), policy)
    if not verdict.free:
        return _stay(state, at, Stage.CLEARING, verdict.why, policy)
    return launch(state, at, policy)


def _who(state: State) -> str:
    """Who must be gone first."""
    if state.seen.rivals is None:
        return "waiting for a look at the units that are to be kept off"
    busy = [*state.seen.rivals, *(f"server {name}" for name in sorted(state.seen.neighbours))]
    return f"waiting for {', '.join(busy)} to be gone"


def _stay(state: State, at: float, stage: Stage, why: str, policy: Policy) -> Transition | None:
    """Wait in this stage, saying what for; None when that is said already."""
    if state.stage is stage:
        return None if state.why == why else Transition(replace(state, why=why))
    return Transition(replace(state, stage=stage, since=at, why=why, deadline=at + policy.clear_s))


def paused(state: State, at: float, policy: Policy) -> Transition | None:
    """BACKING_OFF: a pause is no reason to overlook a server that runs."""
    if not state.wanted or state.closing:
        return leave(state, at, policy)
    return _found(state, at, policy, After.AGAIN, state.cause) if state.seen.tree and fresh(state) else None


def _named(needs: tuple[Need, ...]) -> str:
    """What is waited for."""
    return "; ".join(need.cause.text for need in needs)


def leave(state: State, at: float, policy: Policy) -> Transition | None:
    """A stage in which nothing of ours runs, and the server is not wanted any more."""
    if state.wanted and not state.closing:
        return None
    return rest(state, at, _ending(state) if state.closing else "stopped")


def _ending(state: State) -> str:
    """Why nothing is begun any more."""
    return SHUT_DOWN if state.exit is not None and state.exit.shutdown else "the agent ends"


def unblocked(state: State, at: float, policy: Policy) -> Transition | None:
    """FAILED: go on by itself once the need that it failed for is met; end what should not run."""
    if not state.wanted or state.closing:
        return leave(state, at, policy)
    if not fresh(state):
        return None
    if state.seen.tree:
        return _found(state, at, policy, After.FAILED, state.cause)
    if not state.blocked or state.seen.needs is None:
        return None
    firm = [need.cause for need in state.seen.needs if not need.heals]
    if not firm:
        return begin(count_anew(state), at, policy)
    return None if firm[0] == state.cause else block(state, at)


def vanished(state: State, at: float, policy: Policy) -> Transition | None:
    """STARTING, READY, UNHEALTHY: the exit of the first process was lost, but looks do not show it any more."""
    seen = state.seen
    if state.main is None or seen.tree is None or seen.began <= state.confirmed:
        return None
    if state.main in seen.tree:
        return None if state.missing is None else Transition(replace(state, missing=None))
    if state.missing is None:
        return Transition(replace(state, missing=seen.began))
    return die(state, at, policy, Exit(), GONE) if seen.began - state.missing >= GONE_S else None


def runs_on(state: State, at: float, policy: Policy) -> Transition | None:
    """STARTING, READY, UNHEALTHY: it is there, and there is room for what it writes."""
    return vanished(state, at, policy) or relieve(state, at, policy) or out_of_room(state, at, policy)


def gone(state: State, at: float, policy: Policy) -> Transition | None:
    """STOPPING: over when a look that began since shows no process; what outlived the first process is told to end."""
    if state.launching or not fresh(state) or state.seen.tree is None:
        return None
    if not state.seen.tree:
        return _over(state, at, policy)
    if started_outside(state):
        return take_over(state, at, policy)
    if state.swept or state.main in state.seen.tree:
        return None
    left = [str(process.pid) for process in state.seen.tree if process.pid not in state.seen.ending]
    if not left:
        why = f"pid {state.seen.ending[0]} has ended, and the kernel frees what it held"
        return None if state.why == why else Transition(replace(state, why=why))
    why = f"ending what the first process left behind: pid {', '.join(left[:5])}"
    swept = replace(state, main=None, swept=True, why=why, deadline=at + policy.sweep_s)
    return Transition(swept, (Terminate(whole=True),))


def _over(state: State, at: float, policy: Policy) -> Transition:
    """Every process is gone."""
    changed, state = state.changed, replace(state, changed=False)
    state = replace(state, saved=replace(state.saved, running=False, served=False))
    if state.closing:
        return rest(state, at, _ending(state))
    if not state.wanted:
        stopped = state.exit is not None and state.exit.stopped
        how = f"stopped: {ended(state.exit)}" if state.exit else "stopped"
        return rest(state, at, ADMIN_STOPPED if stopped else how)
    if changed and state.after is not After.AGAIN:
        return begin(count_anew(state), at, policy, "its definition has changed: ")
    if state.after is After.RETRY:
        return retry(state, at, policy)
    if state.after is After.FAILED and state.cause is not None:
        why = f"{state.cause.slug}: failed before; what was left of it is gone"
        why = state.cause.text if state.blocked else why
        return fail(state, at, why, state.cause, blocked=state.blocked)
    return begin(state, at, policy)


SETTLE: Mapping[Stage, Level] = {
    Stage.DOWN: unwanted,
    Stage.WAITING: room,
    Stage.CLEARING: room,
    Stage.STARTING: runs_on,
    Stage.READY: runs_on,
    Stage.UNHEALTHY: runs_on,
    Stage.STOPPING: gone,
    Stage.BACKING_OFF: paused,
    Stage.FAILED: unblocked,
}
