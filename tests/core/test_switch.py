"""Two servers that share a GPU or a port: a switch from one to the other, and back."""

from __future__ import annotations

from dataclasses import replace

from agent.core.model import (
    Ask,
    Asked,
    Exit,
    Exited,
    Looked,
    Retry,
    Stage,
    Want,
)
from tests.core.script import cause
from tests.core.two import POLICIES, Two, doomed, serving_a


def test_a_start_beside_a_wanted_neighbour_is_refused_and_names_it() -> None:
    host = serving_a()
    refused = host.ask("b", Ask.START)
    assert refused is not None
    assert "a is wanted" in refused
    assert host.stages() == (Stage.READY, Stage.DOWN)


def test_a_switch_ends_the_one_and_starts_the_other_only_when_it_is_gone() -> None:
    host = serving_a()
    assert host.ask("b", Ask.SWITCH) is None
    assert (host.disk["a"].want, host.disk["b"].want) == (Want.DOWN, Want.UP)
    host.settle()
    assert host.stages() == (Stage.DOWN, Stage.READY)
    assert "switched to b" in host.states["a"].why or host.states["a"].why.startswith("stopped")


def test_the_one_that_gave_way_comes_back_when_the_new_one_fails() -> None:
    host = serving_a()
    assert host.ask("b", Ask.SWITCH, back=True) is None
    host.look()
    host.look()
    assert host.states["b"].stage is Stage.STARTING
    invocation = host.running.pop("b")
    why = cause("bad_flag", Retry.NO)
    host.give("b", Exited(at=host.now, invocation=invocation, exit=Exit(code=1), cause=why))
    host.settle()
    assert host.stages() == (Stage.READY, Stage.DOWN)
    assert host.disk["b"].want is Want.DOWN


def test_without_back_a_failed_switch_stays_failed() -> None:
    host = serving_a()
    host.ask("b", Ask.SWITCH)
    host.look()
    host.look()
    invocation = host.running.pop("b")
    why = cause("bad_flag", Retry.NO)
    host.give("b", Exited(at=host.now, invocation=invocation, exit=Exit(code=1), cause=why))
    host.settle()
    assert host.stages() == (Stage.DOWN, Stage.FAILED)


def test_a_switch_there_and_back_again_leaves_no_debt() -> None:
    host = serving_a()
    host.ask("b", Ask.SWITCH)
    host.settle()
    host.ask("a", Ask.SWITCH)
    host.settle()
    assert host.stages() == (Stage.READY, Stage.DOWN)
    assert host.ask("a", Ask.STOP) is None
    host.settle()
    assert host.ask("b", Ask.START) is None
    host.settle()
    assert host.stages() == (Stage.DOWN, Stage.READY)


def test_the_one_that_came_back_does_not_go_back_again() -> None:
    host = serving_a()
    host.ask("b", Ask.SWITCH, back=True)
    host.look()
    host.look()
    doomed(host, "b")
    for _ in range(3):
        host.look()
    assert host.states["a"].stage is Stage.STARTING
    doomed(host, "a")
    host.settle()
    assert host.stages() == (Stage.FAILED, Stage.DOWN)


def test_the_one_that_comes_back_comes_as_it_was_started() -> None:
    host = Two()
    host.give("a", Asked(at=host.now, ask=Ask.START, gpu_check=False, id=1))
    host.ask("b", Ask.SWITCH, back=True)
    host.look()
    host.look()
    doomed(host, "b")
    host.look()
    assert (host.disk["a"].want, host.disk["a"].gpu_check) == (Want.UP, False)


def test_the_port_of_the_one_that_gives_way_is_no_failure_of_the_other() -> None:
    """The switch failed for the port that the other one held until it was gone, and with --back it was undone."""
    host = serving_a()
    host.port = True
    assert host.ask("b", Ask.SWITCH, back=True) is None
    host.give("b", Looked(at=host.now + 1, seen=host.seen("b", began=host.now + 1)))
    assert (host.states["b"].stage, host.states["b"].why) == (Stage.CLEARING, "waiting for server a to be gone")
    host.settle()
    assert host.stages() == (Stage.DOWN, Stage.READY)


def test_a_port_that_a_stranger_holds_once_the_other_one_is_gone_is_a_failure() -> None:
    host = serving_a()
    host.port = True
    host.stranger = True
    host.ask("b", Ask.SWITCH)
    host.settle()
    assert (host.states["b"].stage, host.states["b"].why) == (Stage.FAILED, "it said port")


def test_a_failed_one_does_not_bring_back_a_server_that_shares_nothing_with_it_any_more() -> None:
    """Its stop by an operator would be undone again and again."""
    host = serving_a()
    host.ask("b", Ask.SWITCH, back=True)
    host.look()
    host.look()
    host.policies = {name: replace(policy, overlaps=frozenset()) for name, policy in POLICIES.items()}
    doomed(host, "b")
    host.settle()
    assert host.stages() == (Stage.DOWN, Stage.FAILED)
