"""Bugs planted in the core, in memory: what the simulation and the laws must catch. A check of the checkers.

A bug is a context: inside it, the code under test is another program, with one thing wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, cast

from agent.core import deadlines, gpus, host, levels, machine, moves, orders, rules, sessions
from agent.core.levels import SETTLE
from agent.core.machine import TABLE, Rule
from agent.core.model import (
    After,
    Answer,
    Asked,
    Closed,
    Event,
    Exited,
    Health,
    Hold,
    Kill,
    Launch,
    Looked,
    Policy,
    Probed,
    Retry,
    Save,
    Stage,
    State,
    Stored,
    Terminate,
    Tick,
    Transition,
)

Bug = Callable[[ExitStack], None]
BUGS: dict[str, Bug] = {}


def bug(plant: Bug) -> Bug:
    """Its name, in words, is the name of the function."""
    BUGS[plant.__name__.replace("_", " ")] = plant
    return plant


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The core with that bug."""
    with ExitStack() as stack:
        BUGS[name](stack)
        yield


# -- how to plant ----------------------------------------------------------------------------------


def everywhere(stack: ExitStack, old: object, new: object) -> None:
    """Wherever the core holds a function or a number by its name."""
    found = 0
    for name, module in list(sys.modules.items()):
        if not name.startswith("agent.core"):
            continue
        for key, value in list(vars(module).items()):
            if value is old:
                setattr(module, key, new)
                stack.callback(setattr, module, key, old)
                found += 1
    _change_levels(stack, lambda level: new if level is old else level)
    _change_rules(stack, lambda cell, rule: replace(rule, run=new) if rule.run is old else rule)
    assert found, f"nothing to plant: {old}"


def _change_levels(stack: ExitStack, change: Callable[[Any], Any]) -> None:
    _change(stack, cast("dict[Any, Any]", SETTLE), lambda key, level: change(level))


def _change_rules(stack: ExitStack, change: Callable[[Any, Rule], Rule]) -> None:
    _change(stack, cast("dict[Any, Any]", TABLE), change)


def _change(stack: ExitStack, mapping: dict[Any, Any], change: Callable[[Any, Any], Any]) -> None:
    for key, value in list(mapping.items()):
        if (new := change(key, value)) is not value:
            mapping[key] = new
            stack.callback(mapping.__setitem__, key, value)


def in_cells(stack: ExitStack, event: type[Event], run: Callable[[Any], Any], stages: Any = Stage) -> None:
    """The cells of one event: `run(old handler)` gives the new one."""
    _change_rules(
        stack, lambda cell, rule: replace(rule, run=run(rule.run)) if cell[1] is event and cell[0] in stages else rule
    )


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
    everywhere(stack, honest, lambda s, e: replace(honest(s, e), sent=s.sent))


# -- law 4: holds ----------------------------------------------------------------------------------


@bug
def a_rival_is_turned_off_before_that_is_written_down(stack: ExitStack) -> None:
    everywhere(stack, moves.turn_off, lambda s: tuple(Hold(unit) for unit in sorted(s.seen.rivals)))


@bug
def rivals_are_not_looked_at(stack: ExitStack) -> None:
    honest = rules._take
    everywhere(stack, honest, lambda s, e: _without_rivals(honest(s, e)))


def _without_rivals(state: State) -> State:
    return replace(state, seen=replace(state.seen, rivals=frozenset()))


@bug
def a_rival_is_never_turned_off(stack: ExitStack) -> None:
    everywhere(stack, moves.turn_off, lambda s: ())


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
    everywhere(stack, host._touched, lambda who, before, now, policies: [])


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
            return moves.stop(state, event.at, policy, "missed", After.RETRY, levels.GONE)

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
    _change_levels(stack, lambda level: lambda s, at, p: None)


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
