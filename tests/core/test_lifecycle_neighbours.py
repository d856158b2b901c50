"""Several servers that share a GPU or a port, and seeds of the simulation that found something."""

from __future__ import annotations

from dataclasses import replace

from agent.core.host import advance
from agent.core.model import (
    Ask,
    Asked,
    Booted,
    Kill,
    Launch,
    Launched,
    Looked,
    Policy,
    Retry,
    Save,
    Saved,
    Seen,
    Stage,
    State,
    Stored,
)
from tests.core.script import MAIN, UP, WORKER, Script, cause, gpu, need

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
        states, taken = advance(self.states, name, event, self.policies, ())
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
