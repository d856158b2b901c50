"""Planted: what administrators do with systemctl, and servers that outlive the agent."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from agent.core import levels, moves, orders
from agent.core.model import After, Booted, Exit, Exited, Policy, Saved, Stage, State, Stored, Transition, Want
from tests.core.planted import bug, everywhere, in_cells

RUNS = (Stage.STARTING, Stage.READY, Stage.UNHEALTHY)


@bug
def an_administrators_stop_is_a_failure(stack: ExitStack) -> None:
    def fails(rule: Any) -> Any:
        return lambda s, e, p: rule(s, replace(e, exit=replace(e.exit, stopped=False)), p)

    in_cells(stack, Exited, fails, RUNS)


@bug
def an_administrators_stop_is_forgotten(stack: ExitStack) -> None:
    def forgetful(saved: Saved, asks: int, want: Want) -> Saved:
        return saved if want is Want.DOWN else replace(saved, want=want, asks=asks + 1)

    everywhere(stack, moves.obey, forgetful)


@bug
def the_record_of_an_end_is_not_read(stack: ExitStack) -> None:
    in_cells(stack, Booted, lambda rule: lambda s, e, p: rule(s, replace(e, exit=Exit()), p), (Stage.DOWN,))


@bug
def a_shutdown_of_the_host_is_an_administrators_stop(stack: ExitStack) -> None:
    def confused(rule: Any) -> Any:
        return lambda s, e, p: rule(s, replace(e, exit=replace(e.exit, stopped=e.exit.stopped or e.exit.shutdown,
                                                               shutdown=False)), p)  # fmt: skip

    in_cells(stack, Exited, confused, RUNS)


@bug
def a_server_that_an_administrator_starts_is_ended(stack: ExitStack) -> None:
    everywhere(stack, levels.started_outside, lambda state: False)


@bug
def what_an_administrator_started_is_adopted_again_whatever_is_asked(stack: ExitStack) -> None:
    def eager(state: State) -> bool:
        return not state.seen.ordered and state.seen.main is not None and levels.fresh(state) and not state.closing

    everywhere(stack, levels.started_outside, eager)


@bug
def an_administrators_start_is_adopted_beside_a_server_that_is_wanted(stack: ExitStack) -> None:
    honest = levels.take_over

    def generous(state: State, at: float, policy: Policy) -> Transition:
        return honest(replace(state, seen=replace(state.seen, wanted_neighbours=frozenset())), at, policy)

    everywhere(stack, levels.take_over, generous)


@bug
def what_an_administrator_starts_is_adopted_and_not_wanted(stack: ExitStack) -> None:
    def unmoved(saved: Saved, asks: int, want: Want) -> Saved:
        return saved if want is Want.UP else replace(saved, want=want, asks=asks + 1)

    everywhere(stack, moves.obey, unmoved)


@bug
def an_administrators_restart_is_swept_away_with_what_was_left(stack: ExitStack) -> None:
    honest = levels.started_outside
    everywhere(stack, honest, lambda state: state.stage is not Stage.STOPPING and honest(state))


@bug
def what_an_administrator_has_begun_is_taken_for_saved(stack: ExitStack) -> None:
    honest = orders.commit

    def trusting(state: State, event: Stored, policy: Policy) -> Any:
        return honest(replace(state, kept_want=state.saved.want), event, policy)

    everywhere(stack, honest, trusting)


@bug
def an_administrators_stop_is_followed_by_a_launch(stack: ExitStack) -> None:
    honest = moves.stopped_outside

    def hasty(state: State, at: float, policy: Policy, how: Exit) -> Transition:
        done = honest(state, at, policy, how)
        saved = replace(done.state.saved, want=state.saved.want)
        return Transition(replace(done.state, saved=saved, after=After.AGAIN), done.effects)

    everywhere(stack, honest, hasty)
