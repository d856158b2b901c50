"""An agent that ended and came back, and a definition that changed: what goes on, and what is told."""

from __future__ import annotations

from dataclasses import replace

from agent.core.machine import check, step
from agent.core.model import (
    Booted,
    Health,
    Kill,
    Launch,
    Reconfigured,
    Retry,
    Saved,
    Seen,
    Stage,
    Step,
    Terminate,
    Want,
)
from agent.core.words import say
from tests.core.script import MAIN, UP, WORKER, Script, cause

RAN = replace(UP, invocation="old-1", attempt=1, running=True)
SERVED = replace(RAN, served=True)
THERE = Seen(began=99.9, tree=(MAIN, WORKER), main=MAIN, invocation="old-1")
GONE = Seen(began=99.9, tree=())


def booted(saved: Saved, seen: Seen, **known: object) -> Script:
    """The agent has just started, with what it could find out."""
    life = Script()
    life.disk = saved
    life.give(Booted(at=life.now, saved=saved, seen=seen, run="new", **known))  # type: ignore[arg-type]
    return life


def test_a_server_that_served_and_answers_is_ready_at_once_and_never_called_starting() -> None:
    life = booted(SERVED, THERE, health=Health.OK, launched=10.0, ready=20.0)
    assert (life.stage, life.state.ready_since, life.invocation) == (Stage.READY, 20.0, "old-1")
    assert not life.did(Terminate)


def test_a_server_that_served_and_does_not_answer_is_unhealthy_not_starting() -> None:
    life = booted(SERVED, THERE, health=Health.TIMEOUT)
    assert life.stage is Stage.UNHEALTHY
    life.probe(Health.OK)
    assert life.stage is Stage.READY


def test_what_is_saved_of_an_earlier_attempt_says_nothing_of_the_one_that_runs() -> None:
    life = booted(SERVED, replace(THERE, invocation="old-2"), health=Health.REFUSED)  # its launch could not be saved
    assert (life.stage, life.invocation, life.state.saved.served) == (Stage.STARTING, "old-2", False)
    life.running()
    life.after(1000)
    assert not life.did(Terminate)


def test_a_server_that_was_loading_goes_on_loading_with_the_times_that_are_known() -> None:
    steps = ((Step.LAUNCHED, 40.0), (Step.LOADING_WEIGHTS, 42.0))
    life = booted(RAN, THERE, health=Health.REFUSED, launched=40.0, steps=steps)
    assert (life.stage, life.state.confirmed, life.state.steps) == (Stage.STARTING, 40.0, steps)
    life.running()
    life.probe(Health.OK)
    assert life.stage is Stage.READY
    assert life.state.saved.attempt == 1


def test_what_ended_while_the_agent_was_away_is_a_failure_with_the_cause_that_its_log_gives() -> None:
    life = booted(SERVED, GONE, ended=cause("cuda_oom", Retry.FEW))
    assert (life.stage, life.state.cause) == (Stage.STOPPING, cause("cuda_oom", Retry.FEW))
    life.look()
    assert (life.stage, life.state.saved.failures) == (Stage.BACKING_OFF, ("cuda_oom ended unseen",))
    life.ring()
    life.relaunch()
    assert life.state.saved.attempt == 2


def test_a_hopeless_end_while_the_agent_was_away_is_not_tried_again() -> None:
    life = booted(RAN, GONE, ended=cause("bad_flag", Retry.NO))
    life.look()
    assert life.stage is Stage.FAILED


def test_a_launch_that_never_came_about_is_no_failure() -> None:
    life = booted(RAN, GONE, ended=None)
    assert (life.stage, life.state.cause, life.state.saved.running) == (Stage.WAITING, None, False)
    life.look()
    assert life.did(Launch)


def test_a_server_that_cannot_be_looked_for_is_not_said_to_have_ended() -> None:
    life = booted(RAN, Seen(began=99.9, tree=None), ended=None)
    assert (life.stage, life.state.cause) == (Stage.WAITING, None)
    life.look(tree=(MAIN,), main=MAIN, invocation="old-1")
    assert life.stage is Stage.STARTING
    assert not life.did(Launch)


def test_a_restart_that_was_under_way_is_no_failure() -> None:
    """The restart was lost: its server counted as one that had ended by itself, of something hopeless."""
    life = booted(replace(RAN, attempt=0), GONE, ended=cause("bad_flag", Retry.NO))
    assert (life.stage, life.state.cause) == (Stage.WAITING, None)


def test_left_overs_of_what_ended_while_the_agent_was_away_are_swept_and_the_end_is_told() -> None:
    life = booted(SERVED, Seen(began=99.9, tree=(WORKER,)))
    assert life.state.cause is not None
    assert (life.stage, life.state.cause.slug) == (Stage.STOPPING, "unknown")
    life.look()
    assert (life.stage, life.state.saved.failures) == (Stage.BACKING_OFF, ("unknown ended unseen",))


def test_a_server_whose_port_cannot_be_probed_since_the_agent_started_is_left_alone() -> None:
    """It was ended as unhealthy, and nobody had ever asked it."""
    life = booted(SERVED, THERE, health=None)
    assert life.stage is Stage.UNHEALTHY
    for _ in range(5):
        life.running(0.1)
        life.ring()
    assert (life.stage, life.did(Terminate)) == (Stage.UNHEALTHY, False)


def test_a_definition_that_changed_while_the_agent_was_away_is_said_of_what_runs() -> None:
    life = booted(SERVED, THERE, health=Health.OK, same=False)
    assert life.stage is Stage.READY
    assert "takes effect at restart" in say(life.state)


def test_it_is_said_also_when_the_first_look_missed_the_server() -> None:
    """Seed 8160: it failed, and was given up, though its newer definition had never been tried."""
    life = booted(SERVED, Seen(began=99.9, tree=None), same=False)
    life.look(tree=(MAIN,), main=MAIN, invocation="old-1")
    assert "takes effect at restart" in say(life.state)
    life.fail(cause("bad_flag", Retry.NO))
    assert life.stage is Stage.WAITING


def test_a_server_that_nobody_wants_any_more_is_forgotten_without_a_word_of_failure() -> None:
    life = booted(Saved(want=Want.DOWN, running=True), GONE, ended=cause())
    assert (life.stage, life.state.cause, life.state.saved.running) == (Stage.DOWN, None, False)


def test_a_changed_definition_is_said_of_a_running_server_until_it_ends() -> None:
    life = Script().start().serve()
    life.give(Reconfigured(at=life.now))
    assert (life.stage, life.effects) == (Stage.READY, ())
    assert "takes effect at restart" in say(life.state)
    life.exited()
    life.look()
    assert "takes effect" not in say(life.state)


def test_a_failed_server_is_tried_again_by_its_changed_definition() -> None:
    life = Script().start()
    life.fail(cause("bad_flag", Retry.NO))
    assert life.stage is Stage.FAILED
    life.give(Reconfigured(at=life.now))
    life.look()
    assert life.did(Launch)
    assert life.state.saved.failures == ()


def test_a_changed_definition_starts_nothing_that_is_not_wanted() -> None:
    life = Script()
    life.boot()
    before = life.state
    done = step(before, Reconfigured(at=life.now), life.policy)
    check(before, Reconfigured(at=life.now), done, life.policy)
    assert done.state.stage is Stage.DOWN


def test_a_dead_process_is_waited_for_while_the_kernel_frees_its_memory_and_never_signalled_or_called_left_over() -> (
    None
):
    life = Script().start().serve()
    life.exited()
    for _ in range(20):
        life.look(tree=(MAIN,), ending=(MAIN.pid,))
        assert (life.stage, life.effects) == (Stage.STOPPING, ())
        assert "the kernel frees" in life.state.why
        life.ring()
        assert not life.did(Kill)
    life.look()
    assert life.stage is Stage.BACKING_OFF


def test_what_lives_on_beside_a_dead_process_is_still_told_to_end() -> None:
    life = Script().start().serve()
    life.exited()
    life.look(tree=(MAIN, WORKER), ending=(MAIN.pid,))
    assert life.did(Terminate)
    assert str(WORKER.pid) in life.state.why
