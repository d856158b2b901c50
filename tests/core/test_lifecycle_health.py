"""Written lives of one server: how a start is doing, health, late news, a server that does not want to end."""

from __future__ import annotations

import pytest

from agent.core.levels import GONE_S
from agent.core.model import (
    Ask,
    Exit,
    Health,
    Kill,
    Life,
    LogRead,
    Policy,
    Retry,
    Stage,
    Step,
    Terminate,
)
from tests.core.script import MAIN, WORKER, Process, Script, cause

# -- how a start is doing --------------------------------------------------------------------------


def test_there_is_no_start_limit_by_default() -> None:
    life = Script(Policy(quiet_s=120, stall_s=900)).start()
    for _ in range(200):
        life.ring()
    assert (life.stage, life.state.quiet, life.state.stalled) == (Stage.STARTING, True, True)


def test_a_start_limit_of_the_operator_is_honoured() -> None:
    life = Script(Policy(start_limit_s=300)).start()
    launched_at = life.now
    while life.stage is Stage.STARTING:
        life.ring()
    assert (life.now - launched_at, life.did(Terminate)) == (300, True)
    assert life.state.cause is not None
    assert life.state.cause.slug == "start_limit"


def test_a_log_line_before_the_launch_is_confirmed_does_not_bring_the_limit_forward() -> None:
    life = Script(Policy(start_limit_s=300))
    life.boot()
    life.asked(Ask.START)
    life.look()
    life.give(LogRead(at=life.now, invocation=life.invocation, step=Step.INITIALIZING))
    assert life.state.deadline is not None
    assert life.state.deadline > life.now
    life.launched()
    assert [step for step, _ in life.state.steps] == [Step.LAUNCHED, Step.INITIALIZING]


def test_quiet_is_said_and_a_line_takes_it_back() -> None:
    life = Script(Policy(quiet_s=120)).start()
    life.ring()
    assert life.state.quiet
    life.give(LogRead(at=life.now, invocation=life.invocation, step=Step.LOADING_WEIGHTS, progress=0.5))
    assert (life.state.quiet, life.state.step, life.state.progress) == (False, Step.LOADING_WEIGHTS, 0.5)


def test_signs_of_life_put_off_stalled_but_not_while_initializing() -> None:
    busy = Script(Policy(stall_s=300)).start()
    for _ in range(20):
        busy.running(60.0)
    assert (busy.state.quiet, busy.state.stalled) == (True, False)
    hung = Script(Policy(stall_init_s=300)).start()
    hung.give(LogRead(at=hung.now, invocation=hung.invocation, step=Step.INITIALIZING))
    for _ in range(20):
        hung.running(60.0)
    assert hung.state.stalled


def test_a_stall_ends_the_server_only_by_choice() -> None:
    life = Script(Policy(on_stall="restart", quiet_s=120, stall_s=300)).start()
    while life.stage is Stage.STARTING:
        life.ring()
    assert life.state.cause is not None
    assert (life.stage, life.state.cause.slug) == (Stage.STOPPING, "stalled")


def test_a_step_that_comes_again_is_no_restart() -> None:
    life = Script().start()
    for step in (Step.LOADING_WEIGHTS, Step.CAPTURING_GRAPHS, Step.LOADING_WEIGHTS):
        life.give(LogRead(at=life.now, invocation=life.invocation, step=step))
    assert life.state.step is Step.CAPTURING_GRAPHS


# -- health ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("health", [Health.FOREIGN, Health.REFUSED, Health.TIMEOUT, Health.SICK, Health.LOADING])
def test_only_a_good_answer_of_our_own_makes_ready(health: Health) -> None:
    life = Script().start()
    for _ in range(50):
        life.probe(health)
    assert life.stage is Stage.STARTING


def test_busy_is_not_dead() -> None:
    life = Script(Policy(busy_s=120, unhealthy_s=60)).start().serve()
    for _ in range(10):
        life.running(5.0)
        life.probe(Health.TIMEOUT)
    assert life.stage is Stage.READY
    for _ in range(30):
        life.running(5.0)
        life.probe(Health.TIMEOUT)
    assert life.stage is Stage.UNHEALTHY
    life.ring()
    assert (life.stage, life.did(Terminate)) == (Stage.UNHEALTHY, False)
    life.probe(Health.OK)
    assert life.stage is Stage.READY


def test_a_server_that_hangs_is_ended_when_patience_ends() -> None:
    life = Script(Policy(unhealthy_s=60)).start().serve()
    still = Life(cpu_s=5.0)
    life.running(life=still)
    life.after(20)
    for _ in range(3):
        life.running(5.0, life=still)
        life.probe(Health.TIMEOUT)
    assert life.stage is Stage.UNHEALTHY
    for _ in range(10):
        life.running(5.0, life=still)
    life.ring()
    assert (life.stage, life.did(Terminate)) == (Stage.STOPPING, True)


def test_a_sick_server_whose_signs_of_life_nobody_has_looked_at_lately_is_left_alone() -> None:
    life = Script(Policy(unhealthy_s=60)).start().serve()
    life.after(20)
    for _ in range(3):
        life.probe(Health.TIMEOUT)
    assert life.stage is Stage.UNHEALTHY
    life.ring()
    assert (life.stage, life.did(Terminate)) == (Stage.UNHEALTHY, False)


def test_a_stranger_on_the_port_is_no_reason_to_end_the_server() -> None:
    life = Script(Policy(unhealthy_s=60)).start().serve()
    for _ in range(3):
        life.probe(Health.FOREIGN)
    for _ in range(5):
        life.running(0.1)
        life.ring()
    assert (life.stage, life.did(Terminate)) == (Stage.UNHEALTHY, False)


# -- late news -------------------------------------------------------------------------------------


def test_news_of_an_earlier_attempt_mean_nothing() -> None:
    life = Script().start()
    first = life.invocation
    life.fail(cause())
    life.ring()
    life.relaunch()
    for _ in range(2):
        life.exited(invocation=first)
        life.probe(Health.OK, invocation=first)
        life.give(LogRead(at=life.now, invocation=first, step=Step.TUNING))
        assert (life.stage, life.state.step) == (Stage.STARTING, Step.LAUNCHED)
    life.serve()
    life.exited(invocation=first)
    assert life.stage is Stage.READY


def test_a_lost_exit_is_healed_by_looks_that_do_not_show_the_process() -> None:
    life = Script().start().serve()
    life.look(needs=None)
    assert life.stage is Stage.READY  # one look may be wrong by a moment: the exit itself is on its way
    life.look(GONE_S, needs=None)
    assert (life.stage, life.state.exit) == (Stage.STOPPING, Exit())
    life.look()
    assert life.stage is Stage.BACKING_OFF


def test_an_older_look_that_comes_late_is_dropped() -> None:
    life = Script().start().serve()
    life.running()
    seen = life.state.seen
    life.look(began=seen.began - 5.0)
    assert life.state.seen == seen


def test_an_exit_that_overtakes_the_reply_of_the_launch_is_believed() -> None:
    life = Script()
    life.boot()
    life.asked(Ask.START)
    life.look()
    life.exited()
    life.launched()
    assert (life.stage, life.state.main) == (Stage.STOPPING, None)
    life.look()
    assert life.stage is Stage.BACKING_OFF


# -- stopping --------------------------------------------------------------------------------------


def test_what_outlives_the_first_process_is_swept_before_a_relaunch() -> None:
    life = Script(Policy(sweep_s=5)).start().serve()
    life.exited()
    assert life.look(tree=(WORKER,)) == (Terminate(whole=True),)
    life.look(tree=(WORKER,))
    life.ring()
    assert life.did(Kill)
    life.look(tree=(WORKER,))
    assert life.stage is Stage.STOPPING
    life.look()
    assert life.stage is Stage.BACKING_OFF


def test_a_swallowed_sigterm_is_followed_by_a_second_and_then_by_sigkill() -> None:
    life = Script(Policy(terms_s=(30.0, 10.0), kill_s=5.0)).start().serve()
    told = [effect for effect in life.asked(Ask.STOP) if isinstance(effect, Terminate)]
    for wait_s in (30.0, 10.0):
        assert life.pause_s == wait_s
        life.running(0.0)
        life.now -= 0.01
        told += [effect for effect in life.ring() if isinstance(effect, Terminate)]
    assert told == [Terminate(), Terminate()]
    assert (life.did(Kill), life.state.why) == (True, "did not end in time: killing it")


def test_a_process_that_outlives_sigkill_is_named_and_its_own_cause_is_kept() -> None:
    life = Script().start().serve()
    life.exited(why=cause("oom", Retry.FEW))
    stuck = {"tree": (WORKER,), "unkillable": (WORKER.pid,)}
    for _ in range(3):
        life.look(**stuck)
        life.ring()
    assert (life.stage, life.state.why) == (Stage.STOPPING, "pid 101 hangs in the kernel and outlives SIGKILL")
    assert not life.did(Kill)
    life.look()
    assert life.stage is Stage.BACKING_OFF
    assert life.state.cause == cause("oom", Retry.FEW)


def test_a_stop_during_a_slow_launch_waits_for_a_look_from_after_it() -> None:
    life = Script()
    life.boot()
    life.asked(Ask.START)
    life.look()
    life.asked(Ask.STOP)
    life.look()  # the process is not there yet
    assert life.stage is Stage.STOPPING
    life.after(1).launched()
    assert life.stage is Stage.STOPPING
    life.running()
    life.exited(Exit(signal=15))
    life.look()
    assert life.stage is Stage.DOWN


def test_a_kill_that_was_refused_is_tried_again() -> None:
    life = Script().start().serve()
    life.asked(Ask.STOP)
    life.running()
    life.ring()
    assert life.did(Kill)
    life.refuse(Kill())
    life.running()
    life.ring()
    assert life.did(Kill)


def test_what_comes_up_by_itself_while_nobody_wants_it_is_ended() -> None:
    life = Script()
    life.boot()
    life.running()
    assert (life.stage, life.did(Terminate)) == (Stage.STOPPING, True)
    left = Script()
    left.boot(tree=(WORKER,))
    left.look(tree=(WORKER,))
    assert left.effects == (Terminate(whole=True),)


def test_a_process_with_the_number_of_ours_is_not_ours() -> None:
    life = Script().start().serve()
    for _ in range(2):
        life.look(GONE_S, tree=(Process(MAIN.pid, 999),), needs=None)
    assert life.stage is Stage.STOPPING
