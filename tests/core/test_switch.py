"""Two servers that share a GPU or a port: a switch from one to the other, and back."""

from __future__ import annotations

from collections.abc import Mapping

from agent.core.host import advance
from agent.core.machine import check
from agent.core.model import (
    Answer,
    Ask,
    Asked,
    Booted,
    Effect,
    Event,
    Exit,
    Exited,
    Health,
    Launch,
    Launched,
    Looked,
    Policy,
    Probed,
    Process,
    Retry,
    Save,
    Saved,
    Seen,
    Stage,
    State,
    Stored,
    Terminate,
    Transition,
    Want,
)
from tests.core.script import cause

POLICIES = {name: Policy(name=name, overlaps=frozenset({"a", "b"}) - {name}) for name in ("a", "b")}
MAINS = {"a": Process(100, 1), "b": Process(200, 1)}


class Host:
    """Servers "a" and "b". Saves end well at once, unless `disk_full`; every process obeys."""

    def __init__(self, saved: Mapping[str, Saved] | None = None) -> None:
        self.now = 100.0
        self.states: Mapping[str, State] = {name: State() for name in POLICIES}
        self.disk = dict.fromkeys(POLICIES, Saved()) | dict(saved or {})
        self.running: dict[str, str] = {}
        self.effects: list[tuple[str, Effect]] = []
        self.answers: list[str | None] = []
        self.disk_full = False
        for name in POLICIES:
            self.give(name, Booted(at=self.now, saved=self.disk[name], seen=self.seen(name), run="r"))

    def seen(self, name: str) -> Seen:
        """What a look shows now."""
        main = MAINS[name] if name in self.running else None
        tree = (main,) if main else ()
        return Seen(began=self.now, tree=tree, main=main, needs=(), invocation=self.running.get(name))

    def give(self, name: str, event: Event) -> None:
        """One event, and all that follows from its effects without a look."""
        self.states, taken = advance(self.states, name, event, POLICIES)
        for one in taken:
            check(one.before, one.event, Transition(one.state, one.effects), POLICIES[one.name])
        for one in taken:
            for effect in one.effects:
                self.effects.append((one.name, effect))
                self.act(one.name, effect)

    def act(self, name: str, effect: Effect) -> None:
        """The world obeys."""
        match effect:
            case Save(saved):
                if not self.disk_full:
                    self.disk[name] = saved
                why = "disk full" if self.disk_full else None
                self.give(name, Stored(at=self.now, saved=saved, why=why))
            case Launch(invocation):
                assert not self.running, f"{name} beside {self.running}"
                self.running[name] = invocation
                self.give(name, Launched(at=self.now, invocation=invocation, main=MAINS[name]))
            case Terminate() if name in self.running:
                invocation = self.running.pop(name)
                self.give(name, Exited(at=self.now, invocation=invocation, exit=Exit(code=0), cause=cause()))
            case Answer(number, refused) if number:
                self.answers.append(refused)

    def look(self) -> None:
        """A look at each server."""
        self.now += 1
        for name in POLICIES:
            self.give(name, Looked(at=self.now, seen=self.seen(name)))

    def settle(self) -> None:
        """Looks, and good answers of who runs."""
        for _ in range(6):
            self.look()
            for name, invocation in list(self.running.items()):
                self.give(name, Probed(at=self.now, invocation=invocation, health=Health.OK))

    def ask(self, name: str, ask: Ask, *, back: bool = False) -> str | None:
        """An operator asks; the answer."""
        self.give(name, Asked(at=self.now, ask=ask, id=1, back=back))
        return self.answers[-1]

    def stages(self) -> tuple[Stage, Stage]:
        """Of a and b."""
        return self.states["a"].stage, self.states["b"].stage


def serving_a() -> Host:
    """a serves, b is down."""
    host = Host()
    assert host.ask("a", Ask.START) is None
    host.settle()
    assert host.stages() == (Stage.READY, Stage.DOWN)
    return host


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


def test_a_crash_between_the_two_saves_of_a_switch_loses_nothing() -> None:
    both = {"a": Saved(want=Want.UP, asks=1), "b": Saved(want=Want.UP, asks=1, over=frozenset({"a"}))}
    host = Host(both)
    host.settle()
    assert host.stages() == (Stage.DOWN, Stage.READY)


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


def test_a_switch_that_cannot_be_saved_is_refused_and_the_old_one_serves_on() -> None:
    host = serving_a()
    host.disk_full = True
    assert host.ask("b", Ask.SWITCH) is not None
    host.settle()
    assert host.stages() == (Stage.READY, Stage.DOWN)
