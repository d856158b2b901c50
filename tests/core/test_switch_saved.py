"""Switches, the disk, and what crosses them: a crash, a second command, another configuration."""

from __future__ import annotations

from dataclasses import replace

from agent.core.model import (
    Ask,
    Asked,
    Reconfigured,
    Saved,
    Stage,
    Want,
)
from tests.core.two import POLICIES, Two, serving_a


def test_a_crash_between_the_two_saves_of_a_switch_loses_nothing() -> None:
    both = {"a": Saved(want=Want.UP, asks=1), "b": Saved(want=Want.UP, asks=1, over=frozenset({"a"}))}
    host = Two(both)
    host.settle()
    assert host.stages() == (Stage.DOWN, Stage.READY)


def test_a_switch_that_cannot_be_saved_is_refused_and_the_old_one_serves_on() -> None:
    host = serving_a()
    host.disk_full = True
    assert host.ask("b", Ask.SWITCH) is not None
    host.settle()
    assert host.stages() == (Stage.READY, Stage.DOWN)


def test_of_two_switches_to_each_other_the_later_one_counts_also_after_a_crash() -> None:
    """Each stood in what the disk had of the other, so both gave way and nothing ran."""
    first = {"a": Saved(want=Want.UP, asks=3, over=frozenset({"b"})), "b": Saved(want=Want.UP, asks=1)}
    host = Two(first | {"b": Saved(want=Want.UP, asks=4, over=frozenset({"a"}))})
    host.settle()
    assert host.stages() == (Stage.DOWN, Stage.READY)


def test_a_switch_is_counted_after_whatever_those_that_give_way_were_asked() -> None:
    host = serving_a()
    for _ in range(5):
        host.ask("a", Ask.START)
    host.ask("b", Ask.SWITCH)
    assert host.disk["b"].asks > 6


def test_a_switch_while_the_other_one_is_being_saved_wins_over_it() -> None:
    """Seed 4 of the simulation."""
    host = serving_a()
    host.sent = []
    host.give("b", Asked(at=host.now, ask=Ask.SWITCH, id=1))
    host.give("a", Asked(at=host.now, ask=Ask.SWITCH, id=2))
    sent, host.sent = host.sent, None
    for name, save in zip("ba", sent, strict=True):
        host.act(name, save)
    host.settle()
    assert host.answers[-2:] == [None, None]
    assert host.stages() == (Stage.READY, Stage.DOWN)


def test_a_start_of_the_one_that_was_switched_to_leaves_the_switch_as_it_is() -> None:
    """A start forgot who was to give way: a crash before that was saved had both of them wanted."""
    both = {"a": Saved(want=Want.UP, asks=1), "b": Saved(want=Want.UP, asks=2, over=frozenset({"a"}), back="a")}
    host = Two(both, slow=True)
    assert host.sent is not None
    host.sent.clear()  # a's stop
    host.give("b", Asked(at=host.now, ask=Ask.START, id=1))
    assert [save.saved.over for save in host.sent] == [frozenset({"a"})]
    assert [save.saved.back for save in host.sent] == ["a"]


def test_a_switch_to_one_that_is_wanted_already_is_refused_when_it_cannot_be_saved() -> None:
    host = Two({name: Saved(want=Want.UP, asks=1) for name in "ab"})
    host.disk_full = True
    assert "could not be saved" in str(host.ask("b", Ask.SWITCH))
    assert host.states["a"].wanted


def test_a_stop_that_is_not_on_the_disk_does_not_let_the_neighbour_be_started() -> None:
    """After a crash both of them would be wanted."""
    host = serving_a()
    host.disk_full = True
    assert host.ask("a", Ask.STOP) is None
    host.sent = []  # it is tried again, and takes its time
    host.look()
    assert "a is wanted" in str(host.ask("b", Ask.START))


def test_a_server_that_shares_something_only_by_its_new_definition_is_told_at_once() -> None:
    host = Two()
    policies = {name: replace(policy, overlaps=frozenset()) for name, policy in POLICIES.items()}
    host.policies = policies
    host.ask("a", Ask.START)
    host.settle()
    host.policies = {**policies, "a": POLICIES["a"]}  # b's own is the older one still
    host.give("a", Reconfigured(at=host.now))
    assert "a is wanted" in str(host.ask("b", Ask.START))
