"""Planted: switches and returns, restarts of the agent, other configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from agent.core import host, levels, machine, moves, orders, rules, sessions
from agent.core.model import (
    After,
    Ask,
    Asked,
    Booted,
    Event,
    Health,
    Policy,
    Reconfigured,
    Save,
    Saved,
    Stage,
    State,
    Transition,
)
from tests.core.planted import bug, everywhere, in_cells

RUNS = (Stage.STARTING, Stage.READY, Stage.UNHEALTHY)

# -- switches --------------------------------------------------------------------------------------


@bug
def two_servers_displace_each_other(stack: ExitStack) -> None:
    everywhere(stack, host._outdone, lambda name, other, states: False)


@bug
def nobody_gives_way(stack: ExitStack) -> None:
    everywhere(stack, host._follows, lambda at, states, policies: [])


@bug
def who_gives_way_is_not_saved(stack: ExitStack) -> None:
    first = machine._save_first

    def save(done: Transition) -> Transition:
        saved = first(done)
        effects = [Save(replace(e.saved, over=frozenset())) if isinstance(e, Save) else e for e in saved.effects]
        return replace(saved, effects=tuple(effects))

    everywhere(stack, first, save)


@bug
def a_server_gives_way_before_the_switch_is_saved(stack: ExitStack) -> None:
    honest = host._follows

    def hasty(at: float, states: Mapping[str, State], policies: Mapping[str, Policy]) -> Iterator[tuple[str, Event]]:
        now = {name: replace(s, saved=s.proposed) if s.proposed is not None else s for name, s in states.items()}
        for name, event in honest(at, now, policies):
            if states[name].pending is None:
                yield name, event

    everywhere(stack, honest, hasty)


def _ask_as(stack: ExitStack, change: Any) -> None:
    in_cells(stack, Asked, lambda rule: lambda s, e, p: rule(s, change(e), p))


@bug
def back_is_ignored(stack: ExitStack) -> None:
    _ask_as(stack, lambda event: replace(event, back=False))


@bug
def two_servers_return_to_each_other_without_end(stack: ExitStack) -> None:
    _ask_as(stack, lambda event: replace(event, back=event.back or bool(event.reason)))


@bug
def a_return_comes_unasked(stack: ExitStack) -> None:
    _ask_as(stack, lambda event: replace(event, back=event.ask is Ask.SWITCH and not event.reason))


@bug
def the_port_of_who_gives_way_is_taken_for_a_strangers(stack: ExitStack) -> None:
    everywhere(stack, rules._free_of_theirs, lambda seen, crowded: seen)


# -- restarts of the agent -------------------------------------------------------------------------


def _boots(stack: ExitStack, change: Any) -> None:
    in_cells(stack, Booted, lambda rule: lambda s, e, p: rule(s, change(e), p), (Stage.DOWN,))


@bug
def what_ended_while_no_agent_ran_is_not_told(stack: ExitStack) -> None:
    _boots(stack, lambda event: replace(event, ended=None))


@bug
def a_launch_that_never_came_about_is_a_failure(stack: ExitStack) -> None:
    _boots(stack, lambda event: replace(event, ended=event.ended or moves.GONE))


@bug
def a_restart_that_was_under_way_is_taken_for_a_failure(stack: ExitStack) -> None:
    honest = sessions._boot_without

    def boot(state: State, event: Booted, policy: Policy) -> Transition:
        saved = replace(state.saved, attempt=max(1, state.saved.attempt))
        return honest(replace(state, saved=saved), event, policy)

    everywhere(stack, honest, boot)


@bug
def a_served_server_is_adopted_as_starting(stack: ExitStack) -> None:
    _boots(stack, lambda event: replace(event, health=None, saved=replace(event.saved, served=False)))


@bug
def a_server_that_answers_is_called_unhealthy_after_a_restart(stack: ExitStack) -> None:
    def slow(event: Booted) -> Booted:
        return replace(event, health=Health.TIMEOUT if event.health is Health.OK else event.health)

    _boots(stack, slow)


@bug
def left_overs_of_what_ended_while_no_agent_ran_are_no_failure(stack: ExitStack) -> None:
    _boots(stack, lambda e: replace(e, saved=replace(e.saved, running=False)) if e.seen.tree and not e.seen.main else e)


@bug
def what_was_given_up_is_forgotten(stack: ExitStack) -> None:
    _boots(stack, lambda event: replace(event, saved=replace(event.saved, gave_up=None)))


@bug
def what_was_given_up_stays_given_up_whatever_is_asked(stack: ExitStack) -> None:
    honest = orders.intended

    def intended(state: State) -> Saved:
        return replace(honest(state), gave_up=state.saved.gave_up)

    everywhere(stack, honest, intended)


@bug
def another_boot_of_the_host_is_not_noticed(stack: ExitStack) -> None:
    _boots(stack, lambda event: replace(event, rebooted=False))


# -- other configurations --------------------------------------------------------------------------


@bug
def another_configuration_restarts_what_runs(stack: ExitStack) -> None:
    def restart(state: State, event: Reconfigured, policy: Policy) -> Transition:
        return moves.stop(state, event.at, policy, "the configuration has changed", After.AGAIN)

    in_cells(stack, Reconfigured, lambda rule: restart, RUNS)


@bug
def what_failed_by_an_older_definition_is_given_up(stack: ExitStack) -> None:
    honest = levels._over
    everywhere(stack, honest, lambda s, at, p: honest(replace(s, changed=False), at, p))


@bug
def a_pause_overlooks_a_server_that_runs(stack: ExitStack) -> None:
    everywhere(stack, levels.paused, levels.leave)


@bug
def who_shares_something_only_now_is_not_noticed(stack: ExitStack) -> None:
    everywhere(stack, host.sharers, lambda name, policies: frozenset())
