"""Written lives: what the agent's own end, crash and disk, and other servers, mean for one server."""

from __future__ import annotations

from dataclasses import replace

from agent.core.host import advance
from agent.core.model import (
    Answer,
    Ask,
    Asked,
    Booted,
    Exit,
    Health,
    Hold,
    Kill,
    Launch,
    Launched,
    Look,
    Looked,
    Policy,
    Retry,
    Save,
    Saved,
    Seen,
    Stage,
    State,
    Stored,
    Terminate,
    Want,
)
from tests.core.script import MAIN, UP, WORKER, Script, cause, gpu, need

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


# -- rivals ----------------------------------------------------------------------------------------


def test_a_rival_is_turned_off_only_after_it_is_on_the_disk_as_a_hold() -> None:
    life = Script(Policy(rivals=frozenset({"comfyui"})))
    life.boot()
    life.asked(Ask.START)
    effects = life.look(rivals=frozenset({"comfyui"}))
    assert (life.stage, [type(effect) for effect in effects]) == (Stage.CLEARING, [Save])
    life.store()
    assert life.effects == (Hold("comfyui"),)
    life.look(rivals=frozenset({"comfyui"}))
    assert life.state.why == "waiting for unit comfyui to be gone"
    life.ring()
    assert life.effects == (Hold("comfyui"), Look())
    life.relaunch()


def test_a_rival_is_not_turned_off_while_nothing_can_be_saved() -> None:
    life = Script(Policy(rivals=frozenset({"comfyui"})))
    life.boot(UP)
    life.look(rivals=frozenset({"comfyui"}))
    life.store(why="disk full")
    for _ in range(5):
        assert not life.did(Hold)
        life.look(rivals=frozenset({"comfyui"}))
        if life.did(Save):
            life.store(why="disk full")
        life.ring()
    assert (life.stage, life.did(Hold)) == (Stage.CLEARING, False)


def test_a_rival_that_is_held_already_and_came_back_is_turned_off_at_once() -> None:
    life = Script(Policy(rivals=frozenset({"comfyui"})))
    life.boot(replace(UP, holds=frozenset({"comfyui"})))
    assert Hold("comfyui") in life.look(rivals=frozenset({"comfyui"}))


# -- several servers -------------------------------------------------------------------------------


class Pair:
    """Two servers, a and b, and c that shares nothing with them."""

    def __init__(self, gpus: tuple[str, ...] = (), saved: Saved = Saved()) -> None:  # noqa: B008  # frozen
        near = {"a": frozenset({"b"}), "b": frozenset({"a"}), "c": frozenset[str]()}
        self.policies = {n: Policy(name=n, overlaps=o, gpus=gpus, need_mib=60_000) for n, o in near.items()}
        self.states = {name: State() for name in near}
        self.now = 1.0
        self.seen = Seen(tree=(), needs=(), gpus=(gpu(70_000),) if gpus else None)
        for name in near:
            self.give(name, Booted(at=self.now, saved=saved, seen=replace(self.seen, began=0.5), run="r"))

    def give(self, name: str, event: Asked | Booted | Looked | Stored | Launched) -> list[object]:
        """One event; every effect that it led to."""
        states, taken = advance(self.states, name, event, self.policies)
        self.states = dict(states)
        return [effect for one in taken for effect in one.effects]

    def ask(self, name: str, ask: Ask) -> list[object]:
        """Asked, and saved."""
        effects = self.give(name, Asked(at=self.now, ask=ask))
        saves = [effect for effect in effects if isinstance(effect, Save)]
        return self.give(name, Stored(at=self.now, saved=saves[0].saved)) if saves else effects

    def look(self, name: str, wait_s: float = 1.0, **seen: object) -> list[object]:
        """A look some time later."""
        self.now += wait_s
        look = replace(self.seen, began=self.now, **seen)  # type: ignore[arg-type]  # the fields of Seen
        self.now += 0.01
        return self.give(name, Looked(at=self.now, seen=look))

    def stage(self, name: str) -> Stage:
        """Where it is."""
        return self.states[name].stage


def test_a_start_is_refused_while_a_server_that_shares_something_is_wanted() -> None:
    pair = Pair()
    pair.ask("a", Ask.START)
    assert "a is wanted and shares a GPU or the port" in str(pair.ask("b", Ask.START))
    assert pair.stage("b") is Stage.DOWN


def test_of_two_starts_in_one_moment_the_second_is_refused() -> None:
    pair = Pair()
    pair.give("a", Asked(at=pair.now, ask=Ask.START))  # not saved yet
    assert "a is wanted" in str(pair.ask("b", Ask.START))


def test_servers_that_share_nothing_run_side_by_side() -> None:
    pair = Pair()
    for name in ("a", "c"):
        pair.ask(name, Ask.START)
        pair.look(name)
    assert (pair.stage("a"), pair.stage("c")) == (Stage.STARTING, Stage.STARTING)


def test_a_server_waits_until_its_stopping_neighbour_is_gone_and_then_starts_at_once() -> None:
    pair = Pair()
    pair.ask("a", Ask.START)
    pair.look("a")
    invocation = pair.states["a"].saved.invocation or ""
    pair.give("a", Launched(at=pair.now, invocation=invocation, main=MAIN))
    pair.ask("a", Ask.STOP)
    pair.ask("b", Ask.START)
    pair.look("b")
    assert pair.stage("b") is Stage.CLEARING
    assert pair.states["b"].why == "waiting for server a to be gone"
    pair.look("b")
    effects = pair.look("a")
    assert (pair.stage("a"), pair.stage("b")) == (Stage.DOWN, Stage.STARTING)
    assert any(isinstance(effect, Launch) for effect in effects)


def test_a_neighbour_that_was_not_looked_at_yet_may_be_there() -> None:
    pair = Pair()
    pair.states["a"] = State()
    pair.ask("b", Ask.START)
    pair.look("b")
    assert pair.stage("b") is Stage.CLEARING


def test_readings_from_before_a_neighbour_ended_are_no_room() -> None:
    """Seed 95 of the simulation: b launched on three readings from before a came and went."""
    pair = Pair(gpus=("0",), saved=UP)
    for name in "bbaa":
        pair.look(name)
    pair.look("a")
    assert (pair.stage("a"), pair.stage("b")) == (Stage.STARTING, Stage.CLEARING)
    pair.look("b")
    invocation = pair.states["a"].saved.invocation or ""
    pair.give("a", Launched(at=pair.now, invocation=invocation, main=MAIN))
    pair.ask("a", Ask.STOP)
    effects = pair.look("a")  # gone
    assert pair.stage("a") is Stage.DOWN
    assert not any(isinstance(effect, Launch) for effect in effects)
    launches = [[type(e) for e in pair.look("b")].count(Launch) for _ in range(3)]
    assert launches == [0, 1, 0]


# -- seeds of the simulation that found something, written down ------------------------------------


def test_a_start_with_the_gpu_check_takes_back_the_waiver_while_clearing() -> None:
    """Seed 81: CLEARING led to WAITING by a Stored, which the table did not declare."""
    life = Script(Policy(gpus=("0",), need_mib=10))
    life.boot()
    life.asked(Ask.START, gpu_check=False)
    for _ in range(2):
        life.look(neighbours=frozenset({"b"}))
    assert life.stage is Stage.CLEARING
    life.asked(Ask.START)
    assert (life.stage, life.state.why) == (Stage.WAITING, "no reading of GPU 0")


def test_a_late_exit_of_an_earlier_attempt_leaves_ready_ready() -> None:
    """Seeds 9, 14 and 23: the table declared that an exit always leaves READY."""
    life = Script().start().serve()
    life.exited(invocation="another-1")
    assert life.stage is Stage.READY


def test_needs_that_cannot_be_looked_at_do_not_hide_a_running_server() -> None:
    """Seed 18: WAITING looked at nothing while the needs were unknown."""
    life = Script()
    life.boot(UP)
    life.look(needs=(need("mount", heals=True),))
    life.running(invocation="by-hand", needs=None)
    assert (life.stage, life.invocation) == (Stage.STARTING, "by-hand")


def test_an_unkillable_left_over_does_not_end_the_retries_of_a_server_once_it_is_gone() -> None:
    life = Script().start()
    life.exited(why=cause("oom", Retry.FEW))
    for _ in range(4):
        life.look(tree=(WORKER,), unkillable=(WORKER.pid,))
        life.ring()
    life.look()
    assert life.stage is Stage.BACKING_OFF


def test_looks_that_fail_after_a_kill_do_not_name_a_process_that_nobody_has_seen() -> None:
    life = Script().start().serve()
    life.asked(Ask.STOP)
    for _ in range(6):
        life.look(tree=None)
        life.ring()
    assert "hangs in the kernel" not in life.state.why
    assert not life.did(Kill)
