"""Planted: saves, holds, launches."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from agent.core import gpus, host, levels, machine, moves, orders, rules
from agent.core.model import (
    After,
    Answer,
    Asked,
    Launch,
    Looked,
    Policy,
    Save,
    Stage,
    State,
    Tick,
    Transition,
)
from tests.core.planted import bug, everywhere, in_cells

# -- law 2: save before act ------------------------------------------------------------------------


@bug
def what_is_to_be_saved_goes_last(stack: ExitStack) -> None:
    first = machine._save_first

    def last(done: Transition) -> Transition:
        saved = first(done)
        effects = sorted(saved.effects, key=lambda effect: isinstance(effect, Save))
        return replace(saved, effects=tuple(effects))

    everywhere(stack, first, last)


@bug
def nothing_is_saved(stack: ExitStack) -> None:
    first = machine._save_first
    everywhere(stack, first, lambda done: replace(done, state=first(done).state))


@bug
def an_operator_is_answered_before_the_save(stack: ExitStack) -> None:
    def hasty(rule: Any) -> Any:
        def ask(state: State, event: Asked, policy: Policy) -> Transition:
            done = rule(state, event, policy)
            return done if done.effects else replace(done, effects=(Answer(event.id),))

        return ask

    in_cells(stack, Asked, hasty)


@bug
def a_want_that_could_not_be_saved_is_granted(stack: ExitStack) -> None:
    honest = orders.commit
    everywhere(stack, honest, lambda s, e, p: honest(s, replace(e, why=None), p))


@bug
def a_failed_save_is_never_tried_again(stack: ExitStack) -> None:
    honest = rules._take
    everywhere(stack, honest, lambda s, e, p: replace(honest(s, e, p), sent=s.sent))


# -- laws 3 and 5: launches ------------------------------------------------------------------------


@bug
def an_unknown_tree_is_an_empty_one(stack: ExitStack) -> None:
    honest = levels.room
    everywhere(stack, honest, lambda s, at, p: honest(_guess(s), at, p))


def _guess(state: State) -> State:
    return replace(state, seen=replace(state.seen, tree=state.seen.tree or ()))


@bug
def unknown_needs_are_met(stack: ExitStack) -> None:
    honest = levels.room
    everywhere(stack, honest, lambda s, at, p: honest(_hope(s), at, p))


def _hope(state: State) -> State:
    return replace(state, seen=replace(state.seen, needs=state.seen.needs or ()))


@bug
def no_running_server_is_adopted(stack: ExitStack) -> None:
    everywhere(stack, moves.adopt, lambda s, at, p, why: moves.clean_up(replace(s, main=None), at, p, why, After.AGAIN))


@bug
def no_running_server_is_adopted_while_its_needs_are_unknown(stack: ExitStack) -> None:
    honest = levels.room
    everywhere(stack, honest, lambda s, at, p: None if s.wanted and s.seen.needs is None else honest(s, at, p))


@bug
def a_slow_launch_is_made_twice(stack: ExitStack) -> None:
    def late(rule: Any) -> Any:
        def tick(state: State, event: Tick, policy: Policy) -> Transition:
            done = rule(state, event, policy)
            again = state.launching and done.state.deadline != state.deadline
            return replace(done, effects=(Launch(state.saved.invocation or ""),)) if again else done

        return tick

    in_cells(stack, Tick, late, (Stage.STARTING,))


@bug
def an_unconfirmed_launch_is_waited_for_briefly_and_made_anew(stack: ExitStack) -> None:
    def late(rule: Any) -> Any:
        def look(state: State, event: Looked, policy: Policy) -> Transition:
            done = rule(state, event, policy)
            lost = done.state.launching and event.seen.tree == () and event.at > state.since + 0.5
            return replace(done, effects=(Launch(state.saved.invocation or ""),)) if lost else done

        return look

    in_cells(stack, Looked, late, (Stage.STARTING,))


@bug
def an_old_look_is_believed(stack: ExitStack) -> None:
    everywhere(stack, levels.fresh, lambda s: True)


@bug
def a_look_from_before_the_launch_was_confirmed_shows_that_nothing_runs(stack: ExitStack) -> None:
    everywhere(stack, levels.fresh, lambda s: s.seen.began > s.since)


@bug
def neighbours_are_ignored(stack: ExitStack) -> None:
    everywhere(stack, host.neighbours, lambda seen, states, overlaps: seen)


@bug
def neighbours_are_not_told_of_a_launch(stack: ExitStack) -> None:
    everywhere(stack, host._touched, lambda who, event, before, now, policies: [])


@bug
def memory_need_not_be_steady(stack: ExitStack) -> None:
    everywhere(stack, gpus.SAMPLES, 1)


@bug
def the_same_reading_counts_again(stack: ExitStack) -> None:
    everywhere(stack, gpus.remember, lambda s, seen: (seen.gpus,) * 3 if seen.gpus is not None else ())


@bug
def a_missing_reading_is_room(stack: ExitStack) -> None:
    honest = gpus.room
    everywhere(stack, honest, lambda s, p: honest(s, p) if s.readings else gpus.Room(known=True, free=True))
