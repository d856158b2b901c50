"""Planted: units that are kept off."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, cast

from agent.core import hold_words, holding
from agent.core.holds import (
    Answer,
    Care,
    CarriedOut,
    HoldEvent,
    Holds,
    HoldsBooted,
    HoldsStored,
    HoldState,
    Listed,
    UnitAsked,
)
from tests.core.planted import bug, everywhere


def in_rule(stack: ExitStack, event: type[HoldEvent], run: Callable[[Any], Any]) -> None:
    """The rule of one event: `run(old)` gives the new one."""
    rules = cast("dict[Any, Any]", holding.RULES)
    old = rules[event]
    rules[event] = run(old)
    stack.callback(rules.__setitem__, event, old)


@bug
def a_unit_is_turned_off_before_that_is_written_down(stack: ExitStack) -> None:
    honest = holding.to_hold
    everywhere(stack, honest, lambda s: honest(replace(s, disk=s.want)))


@bug
def a_hold_ends_when_its_unit_is_not_listed_any_more(stack: ExitStack) -> None:
    def rule(honest: Any) -> Any:
        def listed(state: HoldState, event: Listed) -> Any:
            held = {unit: since for unit, since in state.want.held.items() if unit in event.units}
            return honest(replace(state, want=replace(state.want, held=held)), event)

        return listed

    in_rule(stack, Listed, rule)


@bug
def a_release_is_carried_out_before_it_is_saved(stack: ExitStack) -> None:
    everywhere(stack, holding.to_release, lambda s: s.want.exempt & s.want.held.keys())


@bug
def a_release_is_forgotten_when_the_agent_crashes_before_it_is_carried_out(stack: ExitStack) -> None:
    def rule(honest: Any) -> Any:
        def asked(state: HoldState, event: UnitAsked) -> Any:
            now, effects = honest(state, event)
            if event.keep_off or now.pending is None:
                return now, effects
            held = {unit: since for unit, since in now.want.held.items() if unit != event.unit}
            return replace(now, want=replace(now.want, held=held)), effects

        return asked

    in_rule(stack, UnitAsked, rule)


@bug
def what_was_released_is_forgotten_when_the_agent_starts(stack: ExitStack) -> None:
    def rule(honest: Any) -> Any:
        def booted(state: HoldState, event: HoldsBooted) -> Any:
            return honest(state, replace(event, saved=replace(event.saved, exempt=frozenset())))

        return booted

    in_rule(stack, HoldsBooted, rule)


@bug
def holds_are_forgotten_when_the_agent_starts(stack: ExitStack) -> None:
    def rule(honest: Any) -> Any:
        return lambda s, e: honest(s, replace(e, saved=Holds()))

    in_rule(stack, HoldsBooted, rule)


@bug
def an_operator_is_told_of_a_hold_before_it_is_saved(stack: ExitStack) -> None:
    def rule(honest: Any) -> Any:
        def asked(state: HoldState, event: UnitAsked) -> Any:
            now, effects = honest(state, event)
            if now.pending is None:
                return now, effects
            return replace(now, pending=None), (*effects, Answer(event.id))

        return asked

    in_rule(stack, UnitAsked, rule)


@bug
def a_hold_that_could_not_be_saved_is_granted(stack: ExitStack) -> None:
    def rule(honest: Any) -> Any:
        def stored(state: HoldState, event: HoldsStored) -> Any:
            return honest(state, replace(event, why=None))

        return stored

    in_rule(stack, HoldsStored, rule)


@bug
def holds_that_could_not_be_saved_are_never_saved(stack: ExitStack) -> None:
    everywhere(stack, holding.SAVE_AGAIN_S, 1e9)


@bug
def installation_alone_turns_units_off(stack: ExitStack) -> None:
    honest = holding.write_down
    everywhere(stack, honest, lambda s, wall: honest(replace(s, want=replace(s.want, begun=True)), wall))


@bug
def servers_are_launched_beside_their_rivals(stack: ExitStack) -> None:
    everywhere(stack, hold_words.not_off, lambda s: () if s.booted else None)


@bug
def a_unit_that_nobody_has_looked_at_is_taken_for_off(stack: ExitStack) -> None:
    honest = hold_words.not_off
    everywhere(stack, honest, lambda s: honest(replace(s, listed=s.listed & s.seen.keys())))


@bug
def a_look_that_failed_changes_nothing(stack: ExitStack) -> None:
    everywhere(stack, hold_words.not_off, _of_units_that_run)


def _of_units_that_run(state: HoldState) -> tuple[str, ...] | None:
    """Whatever holds them off."""
    waited = state.listed - state.released
    return tuple(u for u in sorted(waited) if u not in state.seen or state.seen[u].active != "inactive")


@bug
def the_fight_for_a_unit_has_no_bound(stack: ExitStack) -> None:
    everywhere(stack, holding.MOST_TRIES, 1_000_000)


@bug
def a_unit_that_comes_up_again_is_left_on(stack: ExitStack) -> None:
    honest = holding.to_hold
    everywhere(stack, honest, lambda s: honest(s) - {unit for unit, one in s.care.items() if one.settled})


@bug
def a_refusal_is_final(stack: ExitStack) -> None:
    honest = holding.to_hold
    everywhere(stack, honest, lambda s: honest(s) - {unit for unit, one in s.care.items() if one.refusals})


@bug
def a_refusal_counts_as_a_try(stack: ExitStack) -> None:
    def rule(honest: Any) -> Any:
        def carried_out(state: HoldState, event: CarriedOut) -> Any:
            now, effects = honest(state, event)
            tries = {unit: state.care.get(unit, Care()).tries for unit in now.care}
            return replace(now, care={unit: replace(c, tries=tries[unit]) for unit, c in now.care.items()}), effects

        return carried_out

    in_rule(stack, CarriedOut, rule)
