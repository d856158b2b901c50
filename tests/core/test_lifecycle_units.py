"""Written lives: servers that outlive the agent, and that an administrator starts and stops with systemctl."""

from __future__ import annotations

import pytest

from agent.core.model import (
    After,
    Ask,
    Booted,
    Exit,
    Launch,
    Looked,
    Process,
    Save,
    Saved,
    Seen,
    Stage,
    Terminate,
    Want,
)
from agent.core.moves import ADMIN_STARTED, ADMIN_STOPPED
from tests.core.script import WORKER, Script, cause
from tests.core.two import MAINS, Two, serving_a

OTHER = Process(500, 9)
BY_SYSTEMCTL = {"tree": (OTHER,), "main": OTHER, "invocation": "0123abcd-0", "ordered": False, "needs": None}
STOPPED = Exit(signal=15, stopped=True)
RAN = Saved(want=Want.UP, invocation="old-1", running=True, attempt=1)


def booted(life: Script, saved: Saved, *, how: Exit, **seen: object) -> None:
    """The agent starts, and finds what its log and the record of its end say of a server."""
    life.disk = saved
    look = Seen(**{"began": life.now - 0.01, "tree": (), **seen})  # type: ignore[arg-type]
    life.give(Booted(at=life.now, saved=saved, run="r", seen=look, ended=cause(), exit=how))


# -- systemctl stop ----------------------------------------------------------------------------------


def test_a_stop_by_an_administrator_is_an_operators_stop_and_no_failure() -> None:
    life = Script().start().serve()
    asks = life.state.saved.asks
    life.exited(STOPPED)
    assert (life.stage, life.state.why, life.state.cause) == (Stage.STOPPING, ADMIN_STOPPED, None)
    life.store()
    assert (life.disk.want, life.disk.running, life.disk.asks) == (Want.DOWN, False, asks + 1)
    life.look()
    assert (life.stage, life.state.why, life.state.saved.failures) == (Stage.DOWN, ADMIN_STOPPED, ())
    life.look(100)
    assert life.stage is Stage.DOWN


@pytest.mark.parametrize("stage", [Stage.STARTING, Stage.UNHEALTHY])
def test_a_stop_by_an_administrator_counts_in_every_stage_in_which_it_runs(stage: Stage) -> None:
    life = Script().start()
    if stage is Stage.UNHEALTHY:
        life.serve()
        life.after(1000)
        for _ in range(3):
            life.probe(life.state.health.SICK if life.state.health else None)  # type: ignore[arg-type]
    assert life.stage is stage
    life.exited(STOPPED)
    life.look()
    assert (life.stage, life.state.wanted) == (Stage.DOWN, False)


def test_what_we_have_asked_ourselves_stays_ours() -> None:
    life = Script().start().serve()
    life.asked(Ask.RESTART)
    life.exited(STOPPED)
    assert life.state.exit == Exit(signal=15, asked=True)
    life.look()
    assert (life.stage, life.state.wanted) == (Stage.WAITING, True)


def test_a_start_that_is_asked_for_while_an_administrators_stop_goes_on_counts_also_after_a_crash() -> None:
    life = Script().start().serve()
    life.exited(STOPPED)
    life.store()
    life.asked(Ask.START)
    assert life.answer() is None
    again = Script()
    booted(again, life.disk, how=STOPPED)
    assert (again.stage, again.state.wanted) == (Stage.WAITING, True)


def test_evidence_that_comes_after_the_looks_have_missed_it_still_counts() -> None:
    life = Script().start().serve()
    for _ in range(9):
        if life.stage is Stage.READY:
            life.look(tree=(WORKER,))
    assert (life.stage, life.state.after) == (Stage.STOPPING, After.RETRY)
    life.exited(STOPPED)
    life.look()
    assert (life.stage, life.state.wanted) == (Stage.DOWN, False)


def test_a_stop_while_the_agent_was_away_is_told_and_nothing_is_launched() -> None:
    life = Script()
    booted(life, RAN, how=STOPPED)
    assert (life.stage, life.state.why) == (Stage.DOWN, f"{ADMIN_STOPPED} while the agent was away")
    life.store()
    assert (life.disk.want, life.disk.running) == (Want.DOWN, False)
    life.look()
    assert life.stage is Stage.DOWN


def test_a_stop_while_the_agent_was_away_that_left_something_behind_is_cleaned_up() -> None:
    life = Script()
    booted(life, RAN, how=STOPPED, tree=(WORKER,))
    assert (life.stage, life.state.wanted) == (Stage.STOPPING, False)
    life.look(tree=(WORKER,))
    assert Terminate(whole=True) in life.effects
    life.look()
    assert life.stage is Stage.DOWN


def test_how_it_ended_while_the_agent_was_away_is_told() -> None:
    life = Script()
    booted(life, RAN, how=Exit(signal=11))
    assert life.state.exit == Exit(signal=11)
    life.look()
    assert (life.stage, life.state.why) == (Stage.BACKING_OFF, "crash: ended by SIGSEGV; attempt 2 in 2 s")


# -- systemctl start ---------------------------------------------------------------------------------


@pytest.mark.parametrize("look_first", [True, False])
def test_a_start_by_an_administrator_is_adopted_and_wanted(look_first: bool) -> None:
    life = Script()
    life.boot(Saved(want=Want.DOWN, invocation="old-1"))
    if look_first:
        life.look()
    life.look(**BY_SYSTEMCTL)
    assert (life.stage, life.state.main) == (Stage.STARTING, OTHER)
    assert life.state.why == f"{ADMIN_STARTED}, pid 500"
    assert isinstance(life.effects[0], Save)
    assert not life.did(Launch)
    assert not life.did(Terminate)
    life.store()
    assert (life.disk.want, life.disk.invocation) == (Want.UP, "0123abcd-0")


def test_a_start_by_an_administrator_between_an_operators_stop_and_its_save_gives_way_to_the_stop() -> None:
    life = Script()
    life.boot(Saved(want=Want.DOWN))
    save = life.ask(Ask.STOP)
    life.look(**BY_SYSTEMCTL)
    assert life.stage is Stage.STARTING
    life.effects = save
    life.store()
    assert (life.stage, life.did(Terminate), life.state.wanted) == (Stage.STOPPING, True, False)


def test_a_start_is_not_granted_on_an_administrators_start_that_could_not_be_saved() -> None:
    """Seed 31: the operator was told that it is wanted, while the disk had it down."""
    life = Script()
    life.boot(Saved(want=Want.DOWN))
    life.look(**BY_SYSTEMCTL)
    life.store(why="disk full")
    life.ask(Ask.START)
    life.store(why="disk full")
    assert "disk full" in str(life.answer())
    assert (life.stage, life.state.wanted) == (Stage.STARTING, True)


def test_an_operators_stop_of_what_an_administrator_started_ends_it_also_after_a_crash() -> None:
    life = Script()
    life.boot()
    life.look(**BY_SYSTEMCTL)
    life.store()
    life.asked(Ask.STOP)
    life.look(**BY_SYSTEMCTL)
    assert life.stage is Stage.STOPPING
    again = Script()
    again.boot(life.disk, **BY_SYSTEMCTL)
    assert (again.stage, again.did(Terminate)) == (Stage.STOPPING, True)


def test_a_restart_by_an_administrator_is_adopted_while_the_old_tree_is_being_cleared_away() -> None:
    life = Script().start().serve()
    life.exited(STOPPED)
    life.look(**BY_SYSTEMCTL)
    assert (life.stage, life.state.main, life.state.wanted) == (Stage.STARTING, OTHER, True)
    assert not life.did(Terminate)


def test_a_look_from_before_the_end_does_not_bring_an_administrators_server_back() -> None:
    life = Script()
    life.boot()
    life.look(**BY_SYSTEMCTL)
    began = life.now
    life.after(1)
    life.exited(STOPPED)
    life.look(began=began, **BY_SYSTEMCTL)
    assert life.stage is Stage.STOPPING


@pytest.mark.parametrize("how", ["failed", "backing-off", "waiting"])
def test_a_start_by_an_administrator_goes_before_a_pause_a_failure_and_a_wait(how: str) -> None:
    life = Script()
    if how == "waiting":
        life.boot()
        life.asked(Ask.START)
    else:
        life.start().fail(cause("flag", cause().retry.NO) if how == "failed" else cause())
    assert life.stage == how
    life.look(**BY_SYSTEMCTL)
    assert (life.stage, life.state.main, life.state.cause) == (Stage.STARTING, OTHER, None)
    assert (life.state.saved.gave_up, life.state.saved.attempt) == (None, 1)


def test_a_server_that_an_administrator_started_while_the_agent_was_away_is_adopted() -> None:
    life = Script()
    life.boot(Saved(want=Want.DOWN, invocation="old-1"), **BY_SYSTEMCTL)
    assert life.effects == ()
    life.look(**BY_SYSTEMCTL)
    assert (life.stage, life.state.wanted) == (Stage.STARTING, True)
    life = Script()
    life.boot(RAN, **BY_SYSTEMCTL)
    assert (life.stage, life.state.saved.invocation) == (Stage.STARTING, "0123abcd-0")


def test_an_administrators_start_beside_a_server_that_is_wanted_is_ended_and_that_is_said() -> None:
    host = serving_a()
    host.running["b"] = "0123abcd-0"
    seen = Seen(began=host.now + 1, tree=(MAINS["b"],), main=MAINS["b"], invocation="0123abcd-0", ordered=False)
    host.now += 2
    host.give("b", Looked(at=host.now, seen=seen))
    assert host.states["b"].why == f"{ADMIN_STARTED}, but a is wanted and shares a GPU or the port"
    host.settle()
    assert host.stages() == (Stage.READY, Stage.DOWN)
    assert host.disk["b"].want is None


def test_of_two_that_an_administrator_started_while_the_agent_was_away_the_second_is_ended() -> None:
    host = Two()
    for name in ("a", "b"):
        host.running[name] = f"{name}-0"
    host.now += 1
    for name in ("a", "b"):
        seen = Seen(began=host.now, tree=(MAINS[name],), main=MAINS[name], invocation=f"{name}-0", ordered=False)
        host.give(name, Looked(at=host.now + 0.1, seen=seen))
    host.settle()
    assert host.stages() == (Stage.READY, Stage.DOWN)


# -- the host goes down --------------------------------------------------------------------------------


def test_a_server_that_is_stopped_because_the_host_goes_down_stays_wanted_and_is_not_launched_again() -> None:
    life = Script().start().serve()
    life.exited(Exit(signal=15, shutdown=True))
    life.look()
    assert (life.stage, life.state.why, life.state.wanted) == (Stage.DOWN, "the host goes down", True)
    life.look(100)
    assert life.stage is Stage.DOWN
