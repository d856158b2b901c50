"""Written lives of one server: the ordinary ones and their failures."""

from __future__ import annotations

from agent.core.model import (
    Ask,
    Exit,
    Health,
    Launch,
    Look,
    Policy,
    Retry,
    Save,
    Stage,
    Terminate,
    Want,
)
from tests.core.script import UP, WORKER, Script, cause, gpu, need

# -- start, stop, restart --------------------------------------------------------------------------


def test_a_start_goes_by_way_of_looks_to_ready() -> None:
    life = Script()
    life.boot()
    assert life.stage is Stage.DOWN
    life.ask(Ask.START)
    assert (life.stage, life.did(Look)) == (Stage.DOWN, False)  # nothing is done before the save
    assert life.store()[0] == Look()
    assert (life.stage, life.answer()) == (Stage.WAITING, None)
    effects = life.look()
    assert [type(effect) for effect in effects] == [Save, Launch]
    assert life.stage is Stage.STARTING
    life.launched()
    life.running()
    life.probe(Health.LOADING)
    assert life.stage is Stage.STARTING
    life.probe(Health.OK)
    assert (life.stage, life.state.deadline) == (Stage.READY, None)


def test_a_stop_ends_only_when_a_look_shows_no_process() -> None:
    life = Script().start().serve()
    assert Terminate() in life.asked(Ask.STOP)
    assert (life.stage, life.answer()) == (Stage.STOPPING, None)
    life.exited(Exit(signal=15))
    life.look(tree=None)
    assert life.stage is Stage.STOPPING
    life.look()
    assert (life.stage, life.state.why) == (Stage.DOWN, "stopped: ended by SIGTERM")
    assert life.state.exit is not None
    assert life.state.exit.asked


def test_a_restart_starts_again_without_a_pause() -> None:
    life = Script().start().serve()
    first = life.invocation
    life.asked(Ask.RESTART)
    life.exited(Exit(code=0))
    life.look()
    assert life.stage is Stage.WAITING
    life.relaunch().serve()
    assert life.invocation != first
    assert life.state.saved.attempt == 1


def test_a_start_of_a_running_server_changes_nothing_and_is_answered() -> None:
    life = Script().start().serve()
    life.asked(Ask.START)
    assert (life.stage, life.answer(), life.did(Terminate)) == (Stage.READY, None, False)


def test_a_start_during_a_stop_begins_anew_once_everything_is_gone() -> None:
    life = Script().start().serve()
    life.asked(Ask.STOP)
    life.asked(Ask.START)
    life.exited(Exit(code=0))
    life.look()
    assert life.stage is Stage.WAITING


def test_a_stop_while_waiting_for_a_need_rests_at_once() -> None:
    life = Script()
    life.boot()
    life.asked(Ask.START)
    life.look(needs=(need("mount", heals=True),))
    life.asked(Ask.STOP)
    assert (life.stage, life.state.saved.want) == (Stage.DOWN, Want.DOWN)


# -- failures: by cause ----------------------------------------------------------------------------


def test_an_exit_with_0_while_ready_is_a_failure() -> None:
    life = Script().start().serve().fail(cause("exit_0"), Exit(code=0))
    assert (life.stage, life.state.exit, life.pause_s) == (Stage.BACKING_OFF, Exit(code=0), 2.0)
    life.ring()
    assert life.stage is Stage.WAITING


def test_a_cause_that_another_attempt_cannot_mend_fails_at_once() -> None:
    life = Script().start().fail(cause("bad_flag", Retry.NO))
    assert (life.stage, life.state.deadline) == (Stage.FAILED, None)
    assert "another attempt would end the same way" in life.state.why
    assert life.state.cause == cause("bad_flag", Retry.NO)


def test_the_same_failure_three_times_in_a_row_is_enough() -> None:
    life = Script(Policy(attempts=9)).start()
    for _ in range(2):
        life.fail(cause("crash"))
        life.ring()
        life.relaunch()
    life.fail(cause("crash"))
    assert (life.stage, life.state.why) == (
        Stage.FAILED,
        "crash: exited with 1; the same failure 3 times in a row",
    )


def test_failures_that_differ_go_on_with_growing_pauses_until_the_attempts_are_spent() -> None:
    life, pauses = Script(Policy(attempts=6)).start(), []
    for attempt in range(5):
        life.fail(cause(f"crash{attempt}"))
        pauses.append(life.pause_s)
        life.ring()
        life.relaunch()
    life.fail(cause("last"))
    assert pauses == [2.0, 5.0, 15.0, 60.0, 300.0]
    assert "gave up after 6 attempts" in life.state.why


def test_a_cause_worth_few_attempts_gets_few() -> None:
    life = Script(Policy(few_attempts=2)).start().fail(cause("oom", Retry.FEW))
    life.ring()
    life.relaunch().fail(cause("xid", Retry.FEW))
    assert (life.stage, life.state.saved.attempt) == (Stage.FAILED, 2)


def test_waiting_for_somebody_else_costs_no_attempt_however_often() -> None:
    life = Script(Policy(attempts=2)).start()
    for _ in range(10):
        life.fail(cause("gpu_taken", Retry.WAIT))
        assert life.stage is Stage.BACKING_OFF
        life.ring()
        life.relaunch()
    assert life.state.saved.attempt == 1


def test_serving_for_long_makes_earlier_failures_history() -> None:
    life = Script(Policy(attempts=2, steady_s=600)).start().fail(cause())
    life.ring()
    life.relaunch().serve()
    life.after(700).probe(Health.OK)
    life.fail(cause())
    assert (life.stage, life.state.saved.attempt, life.pause_s) == (Stage.BACKING_OFF, 1, 2.0)


def test_answering_for_a_moment_does_not_make_failures_history() -> None:
    life = Script(Policy(attempts=2, steady_s=600)).start().fail(cause())
    life.ring()
    life.relaunch().serve()
    life.after(30).probe(Health.OK)
    life.after(700)  # unhealthy for long is not serving
    life.fail(cause("other"))
    assert life.stage is Stage.FAILED


def test_an_operator_may_start_out_of_a_failure_and_out_of_a_pause() -> None:
    life = Script().start().fail(cause("bad_flag", Retry.NO))
    life.asked(Ask.START)
    assert (life.stage, life.state.saved.attempt) == (Stage.WAITING, 0)
    life.relaunch().fail(cause())
    assert life.stage is Stage.BACKING_OFF
    life.asked(Ask.START)
    assert life.stage is Stage.WAITING


def test_a_refused_launch_is_a_failed_attempt_with_the_cause_of_the_refusal() -> None:
    life = Script()
    life.boot()
    life.asked(Ask.START)
    life.look()
    life.refuse(Launch(life.invocation), cause("exec_missing", Retry.NO))
    life.look()
    assert life.stage is Stage.FAILED
    assert life.state.cause is not None
    assert (life.state.cause.slug, life.state.exit) == ("exec_missing", None)


# -- needs -----------------------------------------------------------------------------------------


def test_a_need_that_waiting_does_not_mend_fails_and_goes_on_by_itself_when_met() -> None:
    life = Script()
    life.boot()
    life.asked(Ask.START)
    life.look(needs=(need("executable", heals=False),))
    assert (life.stage, life.state.why) == (Stage.FAILED, "it said executable")
    life.look(needs=None)
    assert life.stage is Stage.FAILED
    life.look(needs=(need("model", heals=False),))
    assert life.state.why == "it said model"
    life.look()
    assert life.stage is Stage.WAITING
    life.relaunch()


def test_needs_that_heal_are_waited_for_and_named() -> None:
    life = Script()
    life.boot()
    life.asked(Ask.START)
    life.look(needs=(need("mount", heals=True), need("port", heals=True)))
    assert (life.stage, life.state.why) == (Stage.WAITING, "it said mount; it said port")
    life.ring()
    assert life.effects == (Look(),)
    life.relaunch()


def test_left_overs_swept_while_failed_for_a_need_leave_it_to_go_on_by_itself() -> None:
    life = Script()
    life.boot()
    life.asked(Ask.START)
    life.look(needs=(need("model", heals=False),))
    life.look(tree=(WORKER,))
    life.look(tree=(WORKER,))
    assert Terminate(whole=True) in life.effects
    life.look()
    assert (life.stage, life.state.blocked) == (Stage.FAILED, True)
    life.look()
    assert life.stage is Stage.WAITING


# -- unknown ---------------------------------------------------------------------------------------


def test_unknown_never_launches() -> None:
    life = Script()
    life.boot(UP, tree=None)
    for seen in ({"tree": None}, {"needs": None}, {"tree": None, "needs": None}):
        life.look(**seen)
        assert (life.stage, life.did(Launch)) == (Stage.WAITING, False)
    life.relaunch()


def test_unknown_never_kills() -> None:
    life = Script(Policy(unhealthy_s=60)).start().serve()
    for _ in range(3):
        life.probe(Health.SICK)
    assert life.stage is Stage.UNHEALTHY
    life.running(tree=None, main=None, life=None)
    life.ring()
    assert (life.stage, life.effects) == (Stage.UNHEALTHY, (Look(),))
    life.exited()
    for _ in range(5):
        life.look(tree=None)
        life.ring()
        assert life.effects == (Look(),)


def test_a_definition_with_gpus_and_no_reading_waits_until_the_operator_waives_it() -> None:
    life = Script(Policy(gpus=("0",), need_mib=10))
    life.boot()
    life.asked(Ask.START)
    life.look()
    assert (life.stage, life.state.why) == (Stage.WAITING, "no reading of GPU 0")
    life.asked(Ask.START, gpu_check=False)
    assert life.did(Launch)


def test_a_gpu_that_is_lost_while_its_memory_is_waited_for_is_waited_for_and_nothing_is_launched() -> None:
    life = Script(Policy(gpus=("0",), need_mib=60_000))
    life.boot()
    life.asked(Ask.START)
    life.look(gpus=(gpu(10_000),))
    assert life.stage is Stage.CLEARING
    life.look(gpus=())
    assert (life.stage, life.state.why) == (Stage.WAITING, "GPU 0 is not there")
    life.look(gpus_unread=cause("GPU driver hung"))
    assert (life.stage, life.state.why) == (Stage.WAITING, "it said GPU driver hung; mend it")
    for _ in range(3):
        life.look(gpus=(gpu(70_000),))
    assert life.stage is Stage.STARTING


def test_memory_must_be_free_and_steady_for_some_readings() -> None:
    life = Script(Policy(gpus=("0",), need_mib=60_000))
    life.boot()
    life.asked(Ask.START)
    stages = []
    for free_mib in (10_000, 61_000, 65_000, 70_000, 70_010, 70_020):
        life.look(gpus=(gpu(free_mib),))
        stages.append(life.stage)
    assert stages == [Stage.CLEARING] * 5 + [Stage.STARTING]


def test_the_same_look_given_again_is_no_further_reading() -> None:
    life = Script(Policy(gpus=("0",), need_mib=60_000))
    life.boot()
    life.asked(Ask.START)
    life.look(gpus=(gpu(70_000),))
    for _ in range(5):
        life.look(0.0, began=life.state.seen.began, gpus=(gpu(70_000),))
    assert life.stage is Stage.CLEARING
