"""What was given up stays given up when the agent is restarted, until something has changed."""

from __future__ import annotations

from dataclasses import replace

from agent.core.model import Ask, Booted, Launch, Policy, Reconfigured, Retry, Saved, Seen, Stage, Want
from tests.core.script import UP, WORKER, Script, cause, need

GAVE_UP = replace(UP, invocation="old-1", attempt=3, failures=("oom exited with 1",) * 3, gave_up="oom")


def restarted(saved: Saved = GAVE_UP, tree: tuple[()] | None = (), **known: object) -> Script:
    """The agent has just started; nothing runs."""
    life = Script()
    life.disk = saved
    seen = Seen(began=99.9, tree=tree)
    life.give(Booted(at=life.now, saved=saved, seen=seen, run="new", **known))  # type: ignore[arg-type]
    return life


def test_a_server_that_was_given_up_is_failed_again_after_a_restart_of_the_agent() -> None:
    life = restarted(same=True)
    for _ in range(5):
        life.look()
    assert (life.stage, life.state.why) == (Stage.FAILED, "gave up before the agent was restarted")
    assert life.state.cause is not None
    assert (life.state.cause.slug, life.state.cause.retry) == ("oom", Retry.NO)
    assert life.state.saved == GAVE_UP


def test_giving_up_is_saved_and_asking_takes_it_back_in_the_same_save() -> None:
    life = Script().start()
    life.exited(why=cause("bad_flag", Retry.NO))
    life.look()
    life.store()
    assert (life.stage, life.disk.gave_up) == (Stage.FAILED, "bad_flag")
    life.asked(Ask.START)
    assert (life.stage, life.disk.gave_up, life.disk.want) == (Stage.WAITING, None, Want.UP)


def test_an_agent_that_ends_in_order_keeps_what_it_gave_up() -> None:
    life = Script().start().fail(cause("bad_flag", Retry.NO))
    life.close()
    assert (life.stage, life.state.saved.gave_up, life.state.saved.attempt) == (Stage.DOWN, "bad_flag", 1)


def test_a_changed_definition_is_tried_with_all_its_attempts() -> None:
    life = restarted(same=False)
    assert (life.stage, life.state.saved) == (Stage.WAITING, replace(UP, invocation="old-1"))


def test_a_definition_of_which_nobody_knows_whether_it_changed_is_tried() -> None:
    assert restarted().stage is Stage.WAITING


def test_another_boot_of_the_host_makes_failures_history_and_that_is_saved() -> None:
    life = restarted(replace(GAVE_UP, running=True, served=True), same=True, rebooted=True)
    assert life.stage is Stage.WAITING
    life.store()
    assert life.disk == replace(UP, invocation="old-1")


def test_what_is_not_wanted_any_more_is_down() -> None:
    life = restarted(replace(GAVE_UP, want=Want.DOWN), same=True)
    assert life.stage is Stage.DOWN


def test_a_server_that_was_given_up_and_runs_is_seen_also_when_one_look_missed_it() -> None:
    life = restarted(same=True, tree=None)
    assert life.stage is Stage.FAILED
    life.running(invocation="by-hand")
    assert (life.stage, life.state.saved.gave_up) == (Stage.STARTING, None)


def test_a_failure_for_a_need_is_not_given_up() -> None:
    life = Script()
    life.boot(UP)
    life.look(needs=(need("model", heals=False),))
    assert (life.stage, life.state.saved.gave_up) == (Stage.FAILED, None)


# -- by an older definition ------------------------------------------------------------------------


def test_what_fails_by_an_older_definition_is_tried_anew_by_the_newer_one() -> None:
    life = Script().start()
    life.give(Reconfigured(at=life.now))
    life.fail(cause("bad_flag", Retry.NO))
    assert (life.stage, life.state.saved.failures, life.state.changed) == (Stage.WAITING, (), False)
    life.relaunch().fail(cause("bad_flag", Retry.NO))
    assert life.stage is Stage.FAILED


def test_what_an_older_definition_needed_says_nothing_of_the_newer_one() -> None:
    life = Script(Policy(gpus=("0",), need_mib=10))
    life.boot(UP)
    life.look()
    assert life.state.why == "no reading of GPU 0"
    life.policy = Policy()
    life.give(Reconfigured(at=life.now))
    assert (life.stage, life.did(Launch)) == (Stage.WAITING, False)
    life.relaunch()


def test_nothing_is_launched_by_an_older_definition_because_nobody_could_see_whether_it_ran() -> None:
    """Seed 5328: a look that showed that nothing ran came last, and the launch in the same moment."""
    life = Script()
    life.boot(UP)
    life.look(tree=None)
    life.give(Reconfigured(at=life.now))
    life.look()
    assert (life.stage, life.did(Launch), life.state.changed) == (Stage.WAITING, False, False)
    life.relaunch()


def test_a_server_that_is_down_has_nothing_left_of_an_older_definition_once_it_is_seen_that_it_does_not_run() -> None:
    life = Script()
    life.boot(tree=None)
    life.give(Reconfigured(at=life.now))
    assert life.state.changed
    life.look()
    assert (life.stage, life.state.changed) == (Stage.DOWN, False)


# -- a pause ---------------------------------------------------------------------------------------


def test_a_server_that_runs_is_adopted_out_of_a_pause() -> None:
    life = Script().start().fail(cause())
    life.running(invocation="by-hand")
    assert (life.stage, life.invocation) == (Stage.STARTING, "by-hand")


def test_left_overs_that_show_up_in_a_pause_are_swept() -> None:
    life = Script().start().fail(cause())
    life.look(tree=(WORKER,))
    assert (life.stage, life.state.cause) == (Stage.STOPPING, cause())
    life.look()
    assert life.stage is Stage.WAITING
