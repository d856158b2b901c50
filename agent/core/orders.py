"""Rules for what an operator asks: it takes effect, and is answered, once it is saved."""

from __future__ import annotations

from dataclasses import replace

from agent.core.model import (
    UNSAVED,
    After,
    Answer,
    Ask,
    Asked,
    Effect,
    Policy,
    Saved,
    State,
    Stored,
    Transition,
    Want,
)
from agent.core.moves import begin, rest, stop


def ask(state: State, event: Asked, policy: Policy) -> Transition:
    """A change is asked for: save what it makes of the want. It takes effect, and is answered, once that is saved."""
    if refused := _refusal(state, event):
        return Transition(state, (Answer(event.id, refused),))
    asks = max(state.saved.asks, state.seen.asks) + 1  # which of two switches is the later one, is told by it
    proposed = replace(state.saved, asks=asks, gpu_check=_gpu_check(state, event))
    match event.ask:
        case Ask.STOP:
            proposed = replace(proposed, want=Want.DOWN, over=frozenset(), back=None)
        case Ask.SWITCH:
            over = state.seen.wanted_neighbours
            proposed = replace(proposed, want=Want.UP, over=over, back=min(over) if event.back and over else None)
        case _:  # of a server that is wanted it changes nothing: who gives way to it still does
            proposed = replace(proposed, want=Want.UP)
    return Transition(replace(state, pending=event, proposed=proposed))


def _gpu_check(state: State, event: Asked) -> bool:
    """A start says it anew; an operator's stop forgets it. Who gives way may come back, and as it was."""
    if event.ask is Ask.START:
        return event.gpu_check
    return state.saved.gpu_check or (event.ask is Ask.STOP and not event.reason)


def _refusal(state: State, event: Asked) -> str:
    """Why the change cannot be had now; empty when it can."""
    if not state.run:  # before Booted nothing is known, and a save would forget what the disk has
        return "the agent is starting; ask again"
    if state.closing:
        return "the agent is ending"
    if state.pending is not None:
        return f"{state.pending.ask} is under way; ask again when it is answered"
    asks_for_room = event.ask in (Ask.START, Ask.RESTART) and not state.wanted
    if asks_for_room and state.seen.wanted_neighbours:
        others = ", ".join(sorted(state.seen.wanted_neighbours))
        return f"{others} is wanted and shares a GPU or the port: switch to this one, or stop it first"
    return ""


def intended(state: State) -> Saved:
    """What should be on the disk: what holds, and the change that is asked for, which starts the count anew."""
    new = state.proposed
    if new is None:
        return state.saved
    return replace(
        state.saved,
        want=new.want,
        asks=new.asks,
        gpu_check=new.gpu_check,
        over=new.over,
        back=new.back,
        attempt=0,
        failures=(),
        gave_up=None,
    )


def commit(state: State, event: Stored, policy: Policy) -> tuple[State, Asked | None, tuple[Effect, ...]]:
    """A save ended: what it means for the change that waited for it. None: there is no change to carry out."""
    state = replace(state, saving=state.saving - 1, degraded=event.why is not None)
    if event.why is None:
        state = replace(state, kept_want=event.saved.want)
    asked, proposed = state.pending, state.proposed
    if asked is None or proposed is None or event.saved.asks != proposed.asks:
        return state, None, ()
    merged = intended(state)
    state = replace(state, pending=None, proposed=None)
    already = state.wanted and state.kept_want is Want.UP and proposed.over <= state.saved.over
    if event.why is not None and proposed.want is Want.UP and not already:
        state = replace(state, saved=replace(state.saved, asks=proposed.asks))  # no later change is taken for this one
        return state, None, (Answer(asked.id, f"the want {UNSAVED}: {event.why}"),)
    return replace(state, saved=merged), asked, (Answer(asked.id),)


def _why(asked: Asked) -> str:
    """Why a server is stopped."""
    return asked.reason or f"the operator asked for a {asked.ask}"


def stored_idle(state: State, event: Stored, policy: Policy) -> Transition:
    """Nothing of ours runs: a start begins at once, also out of a pause or a failure."""
    state, asked, effects = commit(state, event, policy)
    if asked is None or state.closing:
        return Transition(state, effects)
    if asked.ask is Ask.STOP:
        moved = rest(state, event.at, asked.reason or "stopped")
    else:
        moved = begin(state, event.at, policy, f"{asked.reason}: " if asked.reason else "")
    return Transition(moved.state, (*moved.effects, *effects))


def stored_waiting(state: State, event: Stored, policy: Policy) -> Transition:
    """A start is on its way already: it goes on."""
    state, asked, effects = commit(state, event, policy)
    if asked is None or asked.ask is not Ask.STOP:
        return Transition(state, effects)
    return Transition(rest(state, event.at, asked.reason or "stopped").state, effects)


def stored_running(state: State, event: Stored, policy: Policy) -> Transition:
    """A server of ours runs: a start changes nothing."""
    state, asked, effects = commit(state, event, policy)
    if asked is None:
        return Transition(state, effects)
    if asked.ask in (Ask.START, Ask.SWITCH):  # this attempt still counts
        return Transition(replace(state, saved=replace(state.saved, attempt=1)), effects)
    after = After.DOWN if asked.ask is Ask.STOP else After.AGAIN
    moved = stop(state, event.at, policy, _why(asked), after)
    return Transition(moved.state, (*moved.effects, *effects))


def stored_stopping(state: State, event: Stored, policy: Policy) -> Transition:
    """It is ending already: the change says what follows."""
    state, asked, effects = commit(state, event, policy)
    if asked is None:
        return Transition(state, effects)
    after = After.DOWN if asked.ask is Ask.STOP or state.closing else After.AGAIN
    return Transition(replace(state, after=after, cause=None), effects)
