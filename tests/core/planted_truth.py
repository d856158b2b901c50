"""Planted: healthy servers, truth, waits that must end, attempts."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any, cast

from agent.core import deadlines, levels, moves, orders, rules, sessions
from agent.core.model import (
    After,
    Closed,
    Exited,
    Health,
    Kill,
    Policy,
    Probed,
    Retry,
    Stage,
    State,
    Stored,
    Terminate,
    Tick,
    Transition,
)
from tests.core.planted import bug, change_levels, everywhere, in_cells

# -- law 6: a healthy server is left alone ---------------------------------------------------------


@bug
def a_late_exit_of_an_earlier_attempt_is_believed(stack: ExitStack) -> None:
    in_cells(stack, Exited, lambda rule: rules.exited, (Stage.STARTING, Stage.READY, Stage.UNHEALTHY))


@bug
def a_busy_server_is_killed(stack: ExitStack) -> None:
    everywhere(stack, rules.busy, lambda s, at: False)


@bug
def a_missed_probe_ends_the_server(stack: ExitStack) -> None:
    def hasty(rule: Any) -> Any:
        def probe(state: State, event: Probed, policy: Policy) -> Transition:
            if event.health is Health.OK or event.invocation != state.saved.invocation:
                return cast(Transition, rule(state, event, policy))
            return moves.stop(state, event.at, policy, "missed", After.RETRY, moves.GONE)

        return probe

    in_cells(stack, Probed, hasty, (Stage.READY,))


@bug
def a_start_that_stalls_is_ended_unasked(stack: ExitStack) -> None:
    def strict(rule: Any) -> Any:
        return lambda s, e, p: rule(s, e, replace(p, on_stall="restart"))

    in_cells(stack, Tick, strict, (Stage.STARTING,))


# -- truth -----------------------------------------------------------------------------------------


@bug
def an_answer_from_somebody_else_makes_ready(stack: ExitStack) -> None:
    honest = rules.probe_starting

    def fooled(state: State, event: Probed, policy: Policy) -> Transition:
        return honest(state, replace(event, health=Health.OK) if event.health is Health.FOREIGN else event, policy)

    in_cells(stack, Probed, lambda rule: rules.of_this_attempt(fooled), (Stage.STARTING,))


@bug
def what_outlives_the_first_process_is_ignored(stack: ExitStack) -> None:
    honest = levels.gone

    def leader_only(state: State, at: float, policy: Policy) -> Transition | None:
        seen = state.seen
        alone = seen.tree is not None and seen.main is None
        return honest(replace(state, seen=replace(seen, tree=())) if alone else state, at, policy)

    everywhere(stack, honest, leader_only)


@bug
def a_stop_does_not_wait_for_the_processes(stack: ExitStack) -> None:
    everywhere(stack, levels.gone, lambda s, at, p: levels._over(s, at, p) if s.main is None else None)


@bug
def a_lost_exit_is_never_healed(stack: ExitStack) -> None:
    everywhere(stack, levels.vanished, lambda s, at, p: None)


@bug
def a_server_that_nobody_wants_is_left_running(stack: ExitStack) -> None:
    honest = levels.unwanted
    everywhere(stack, honest, lambda s, at, p: honest(s, at, p) if s.wanted else None)


# -- every wait ends -------------------------------------------------------------------------------


@bug
def there_are_no_level_rules(stack: ExitStack) -> None:
    change_levels(stack, lambda level: lambda s, at, p: None)


@bug
def a_deadline_is_forgotten(stack: ExitStack) -> None:
    def forgetful(rule: Any) -> Any:
        def tick(state: State, event: Tick, policy: Policy) -> Transition:
            done = rule(state, event, policy)
            return replace(done, state=replace(done.state, deadline=None)) if done.effects else done

        return tick

    in_cells(stack, Tick, forgetful, (Stage.STOPPING,))


@bug
def a_deadline_is_not_put_off(stack: ExitStack) -> None:
    in_cells(stack, Tick, lambda rule: rules.ignore, (Stage.WAITING, Stage.CLEARING))


@bug
def a_deaf_server_is_never_killed(stack: ExitStack) -> None:
    def gentle(rule: Any) -> Any:
        def tick(state: State, event: Tick, policy: Policy) -> Transition:
            done = rule(state, event, policy)
            return replace(done, effects=tuple(Terminate() if e == Kill() else e for e in done.effects))

        return tick

    in_cells(stack, Tick, gentle, (Stage.STOPPING,))


@bug
def a_kill_that_was_refused_is_not_tried_again(stack: ExitStack) -> None:
    everywhere(stack, deadlines.fresh, lambda s: s.stage is not Stage.STOPPING or (levels_fresh(s) and not s.killed))


def levels_fresh(state: State) -> bool:
    """As the core has it."""
    return state.seen.began > max(state.since, state.confirmed)


@bug
def an_unknown_tree_is_killed(stack: ExitStack) -> None:
    def rash(rule: Any) -> Any:
        def tick(state: State, event: Tick, policy: Policy) -> Transition:
            due = state.deadline is not None and event.at >= state.deadline
            if due and state.main is None and state.seen.tree is None:
                return Transition(replace(state, killed=True, deadline=event.at + policy.kill_s), (Kill(),))
            return cast(Transition, rule(state, event, policy))

        return tick

    in_cells(stack, Tick, rash, (Stage.STOPPING,))


@bug
def an_ending_agent_leaves_its_server(stack: ExitStack) -> None:
    in_cells(stack, Closed, lambda rule: sessions.close_idle)


@bug
def a_failure_for_a_need_does_not_heal(stack: ExitStack) -> None:
    honest = levels.unblocked
    everywhere(stack, honest, lambda s, at, p: honest(replace(s, blocked=False), at, p))


# -- attempts --------------------------------------------------------------------------------------


@bug
def attempts_are_never_counted_anew(stack: ExitStack) -> None:
    honest = orders.commit

    def commit(state: State, event: Stored, policy: Policy) -> Any:
        after, asked, effects = honest(state, event, policy)
        old = replace(after.saved, attempt=state.saved.attempt, failures=state.saved.failures)
        return replace(after, saved=old), asked, effects

    everywhere(stack, honest, commit)
    everywhere(stack, moves.rest, _resting)


def _resting(state: State, at: float, why: str) -> Transition:
    return moves.enter(moves._forget_attempt(state), at, Stage.DOWN, why, cause=None, before=None, blocked=False)


@bug
def attempts_are_counted_anew_as_soon_as_it_answers(stack: ExitStack) -> None:
    honest = moves.ready

    def ready(state: State, at: float, why: str) -> Transition:
        return honest(replace(state, saved=replace(state.saved, attempt=0, failures=())), at, why)

    everywhere(stack, honest, ready)


@bug
def waiting_for_somebody_else_costs_attempts(stack: ExitStack) -> None:
    honest = moves.retry

    def retry(state: State, at: float, policy: Policy) -> Transition:
        cause = replace(state.cause, retry=Retry.YES) if state.cause is not None else None
        return honest(replace(state, cause=cause), at, policy)

    everywhere(stack, honest, retry)
