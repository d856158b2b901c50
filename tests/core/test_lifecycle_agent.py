"""Written lives: what the agent's own end, a crash, the disk and rivals mean for one server."""

from __future__ import annotations

from dataclasses import replace

from agent.core.model import (
    Answer,
    Ask,
    Exit,
    Health,
    Launch,
    Look,
    Policy,
    Save,
    Saved,
    Stage,
    Stored,
    Terminate,
    Want,
)
from tests.core.script import MAIN, UP, WORKER, Script, cause, need

# -- the disk --------------------------------------------------------------------------------------


def test_an_operator_is_answered_after_the_save() -> None:
    life = Script()
    life.boot()
    effects = life.ask(Ask.START)
    assert [type(effect) for effect in effects] == [Save]
    life.store()
    assert (life.answer(), life.disk.want) == (None, Want.UP)


def test_a_failed_save_refuses_a_new_want() -> None:
    life = Script()
    life.boot()
    life.ask(Ask.START)
    effects = life.store(why="disk full")
    assert "disk full" in str(life.answer())
    assert (life.stage, life.state.degraded, life.state.wanted) == (Stage.DOWN, True, False)
    assert any(isinstance(effect, Save) and effect.saved.want is None for effect in effects)


def test_a_failed_save_lets_a_stop_and_a_relaunch_go_on_and_a_later_save_heals() -> None:
    life = Script().start().serve()
    life.ask(Ask.RESTART)
    life.store(why="disk full")
    assert (life.answer(), life.did(Terminate)) == (None, True)
    life.exited(Exit(code=0))
    life.look()
    life.relaunch().serve()
    life.ask(Ask.STOP)
    life.store(why="disk full")
    assert (life.answer(), life.stage, life.state.degraded) == (None, Stage.STOPPING, True)
    life.state = replace(life.state, saving=0)  # each save above has been answered
    life.exited(Exit(code=0))
    life.look()
    assert life.stage is Stage.DOWN
    life.store()
    assert (life.state.degraded, life.disk.want) == (False, Want.DOWN)


def test_a_failing_disk_is_tried_by_one_save_at_a_time() -> None:
    life = Script()
    life.boot()
    life.ask(Ask.START)
    life.store(why="disk full")
    saves = [effect for _ in range(20) for effect in life.look() if isinstance(effect, Save)]
    assert saves == []  # the one that went with the refusal is still under way
    life.give(Stored(at=life.now, saved=life.state.sent, why="disk full"))
    saves = [effect for _ in range(20) for effect in life.look() if isinstance(effect, Save)]
    assert len(saves) == 1


def test_a_second_change_while_one_is_being_saved_is_refused() -> None:
    life = Script()
    life.boot()
    first = life.ask(Ask.START)
    life.ask(Ask.STOP)
    assert life.answer() == "start is under way; ask again when it is answered"
    life.effects = first
    life.store()
    assert (life.answer(), life.stage) == (None, Stage.WAITING)


def test_a_save_of_a_refused_change_that_comes_late_does_not_grant_the_next_change() -> None:
    life = Script()
    life.boot()
    late = next(effect for effect in life.ask(Ask.START) if isinstance(effect, Save)).saved
    life.store(why="disk full")
    life.ask(Ask.START)
    life.give(Stored(at=life.now, saved=late))
    assert (life.stage, life.state.pending is None) == (Stage.DOWN, False)


def test_a_start_that_is_saved_counts_its_attempts_anew_also_after_a_crash() -> None:
    life = Script()
    life.boot(Saved(want=Want.DOWN, attempt=5, failures=("oom exited with 1",) * 2))
    life.ask(Ask.START)
    life.store()
    assert (life.disk.attempt, life.disk.failures) == (0, ())


def test_a_change_that_is_asked_for_before_the_agent_has_booted_is_refused_and_saves_nothing() -> None:
    """Seed 627: the want was saved over what the disk had, and the boot came too late."""
    life = Script()
    assert [type(effect) for effect in life.ask(Ask.START)] == [Answer]
    assert life.answer() == "the agent is starting; ask again"
    life.boot(UP, tree=(MAIN,), main=MAIN)
    assert life.stage is Stage.STARTING


def test_news_that_come_late_or_mean_nothing_here_change_nothing() -> None:
    """Arrows of the table that the simulation hardly ever takes."""
    life = Script().start()
    life.refuse(Terminate())
    assert life.stage is Stage.STARTING
    life.serve().after(20)
    for _ in range(3):
        life.probe(Health.SICK)
    life.exited(invocation="another-1")
    assert life.stage is Stage.UNHEALTHY


def test_left_overs_that_show_up_while_clearing_are_swept() -> None:
    life = Script()
    life.boot(UP)
    for _ in range(2):
        life.look(neighbours=frozenset({"b"}))
    life.look(tree=(WORKER,))
    assert life.stage is Stage.STOPPING


# -- the agent's start and end ---------------------------------------------------------------------


def test_a_running_server_is_adopted_at_boot_and_never_signalled() -> None:
    life = Script()
    saved = replace(UP, invocation="old-1", attempt=1, running=True)
    life.boot(saved, tree=(MAIN, WORKER), main=MAIN, invocation="old-1")
    assert (life.stage, life.effects, life.state.main) == (Stage.STARTING, (Look(),), MAIN)
    life.running()
    life.probe(Health.OK)
    assert (life.stage, life.state.saved.attempt) == (Stage.READY, 1)


def test_a_server_that_one_look_at_boot_missed_is_adopted_by_the_next_even_while_needs_are_unknown() -> None:
    life = Script()
    life.boot(replace(UP, invocation="old-1"), tree=None)
    life.running(tree=(MAIN,), invocation="old-1", needs=None)
    assert (life.stage, life.did(Launch), life.state.main) == (Stage.STARTING, False, MAIN)


def test_a_server_launched_just_before_a_crash_is_adopted_by_the_name_in_its_environment() -> None:
    life = Script()
    life.boot(replace(UP, invocation="old-1"), tree=(MAIN,), main=MAIN, invocation="old-2")
    assert life.invocation == "old-2"


def test_left_overs_at_boot_are_swept_before_a_launch() -> None:
    life = Script()
    life.boot(UP, tree=(WORKER,))
    assert (life.stage, life.did(Launch)) == (Stage.STOPPING, False)
    life.look(tree=(WORKER,))
    assert life.effects == (Terminate(whole=True),)
    life.look()
    life.relaunch()


def test_an_unwanted_server_at_boot_is_ended() -> None:
    life = Script()
    life.boot(Saved(want=Want.DOWN), tree=(MAIN,), main=MAIN)
    assert (life.stage, life.did(Terminate)) == (Stage.STOPPING, True)


def test_a_server_whose_want_was_lost_with_the_state_is_adopted_and_wanted() -> None:
    """A file that is broken, gone, or of a newer agent is no reason to end a server that was launched for somebody."""
    life = Script()
    life.boot(tree=(MAIN,), main=MAIN, invocation="old-1")
    assert (life.stage, life.did(Terminate), life.state.wanted) == (Stage.STARTING, False, True)
    assert life.invocation == "old-1"


def test_autostart_makes_wanted_only_what_nobody_has_spoken_of() -> None:
    new, spoken = Script(Policy(autostart=True)), Script(Policy(autostart=True))
    new.boot()
    spoken.boot(Saved(want=Want.DOWN))
    assert (new.stage, spoken.stage) == (Stage.WAITING, Stage.DOWN)


def test_an_ending_agent_ends_its_server_and_keeps_the_want() -> None:
    life = Script().start().serve()
    life.close()
    assert (life.stage, life.did(Terminate)) == (Stage.STOPPING, True)
    life.ask(Ask.START)
    assert life.answer() == "the agent is ending"
    life.exited(Exit(code=0))
    life.look()
    assert (life.stage, life.state.saved.want) == (Stage.DOWN, Want.UP)
    life.look()
    assert life.stage is Stage.DOWN


def test_an_agent_that_ends_during_a_pause_does_not_launch() -> None:
    life = Script().start().fail(cause())
    life.close()
    life.look()
    assert (life.stage, life.did(Launch)) == (Stage.DOWN, False)


def test_a_restart_keeps_the_waiver_of_the_gpu_check_and_a_stop_forgets_it() -> None:
    life = Script(Policy(gpus=("0",), need_mib=10))
    life.boot()
    life.asked(Ask.START, gpu_check=False)
    life.relaunch().serve()
    life.asked(Ask.RESTART)
    life.exited(Exit(code=0))
    life.look()
    life.relaunch().serve()
    life.asked(Ask.STOP)
    assert life.disk.gpu_check
    life.exited(Exit(code=0))
    life.look()
    life.asked(Ask.START)
    life.look()
    assert (life.stage, life.state.why) == (Stage.WAITING, "no reading of GPU 0")


# -- rivals ----------------------------------------------------------------------------------------


VLLM = "unit vllm.service (is active, pid 12; being turned off)"


def test_a_rival_that_is_not_off_is_waited_for_by_name() -> None:
    life = Script()
    life.boot()
    life.asked(Ask.START)
    life.look(rivals=(VLLM,))
    assert (life.stage, life.state.why) == (Stage.CLEARING, f"waiting for {VLLM} to be gone")
    life.ring()
    assert life.effects == (Look(),)
    life.relaunch()


def test_nothing_is_launched_while_nobody_knows_whether_the_rivals_are_off() -> None:
    life = Script()
    life.boot(UP, rivals=None)
    life.look(rivals=None)
    assert life.stage is Stage.CLEARING
    assert life.state.why == "waiting for a look at the units that are to be kept off"
    life.relaunch()


def test_a_port_that_a_rival_may_hold_is_no_failure() -> None:
    life = Script()
    life.boot(UP)
    life.look(rivals=(VLLM,), needs=(need("port", heals=False),))
    assert life.stage is Stage.CLEARING
    life.look(began=life.now + 0.5, needs=(need("port", heals=False),))
    assert life.stage is Stage.CLEARING, "it began when the rival may have held the port"
    life.look(needs=(need("port", heals=False),))
    assert life.stage is Stage.FAILED


def test_a_rival_that_comes_up_beside_a_running_server_does_not_end_it() -> None:
    life = Script().start().serve()
    life.running(rivals=(VLLM,))
    assert life.stage is Stage.READY
