"""Two servers that share a GPU or a port, told by hand: a world that obeys at once."""

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
)
from tests.core.script import cause, need

POLICIES = {name: Policy(name=name, overlaps=frozenset({"a", "b"}) - {name}) for name in ("a", "b")}
MAINS = {"a": Process(100, 1), "b": Process(200, 1)}


class Two:
    """Servers "a" and "b". Saves end well at once, unless `disk_full`; every process obeys."""

    def __init__(self, saved: Mapping[str, Saved] | None = None, *, slow: bool = False) -> None:
        self.now = 100.0
        self.states: Mapping[str, State] = {name: State() for name in POLICIES}
        self.disk = dict.fromkeys(POLICIES, Saved()) | dict(saved or {})
        self.running: dict[str, str] = {}
        self.effects: list[tuple[str, Effect]] = []
        self.answers: list[str | None] = []
        self.disk_full = False
        self.policies = dict(POLICIES)
        self.port = False  # the two have one port
        self.stranger = False  # ... which somebody else takes as soon as it is free
        self.sent: list[Save] | None = [] if slow else None  # saves that are still under way, if they take their time
        for name in POLICIES:
            self.give(name, Booted(at=self.now, saved=self.disk[name], seen=self.seen(name), run="r"))

    def seen(self, name: str, began: float | None = None) -> Seen:
        """What a look shows now."""
        main = MAINS[name] if name in self.running else None
        taken = self.port and (bool(self.running.keys() - {name}) or (self.stranger and not self.running))
        return Seen(
            began=self.now if began is None else began,
            tree=(main,) if main else (),
            main=main,
            needs=(need("port", heals=False),) if taken else (),
            invocation=self.running.get(name),
        )

    def give(self, name: str, event: Event) -> None:
        """One event, and all that follows from its effects without a look."""
        self.states, taken = advance(self.states, name, event, self.policies, ())
        for one in taken:
            check(one.before, one.event, Transition(one.state, one.effects), self.policies[one.name])
        for one in taken:
            for effect in one.effects:
                self.effects.append((one.name, effect))
                self.act(one.name, effect)

    def act(self, name: str, effect: Effect) -> None:
        """The world obeys."""
        match effect:
            case Save() if self.sent is not None:
                self.sent.append(effect)
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


def serving_a() -> Two:
    """a serves, b is down."""
    host = Two()
    assert host.ask("a", Ask.START) is None
    host.settle()
    assert host.stages() == (Stage.READY, Stage.DOWN)
    return host


def doomed(host: Two, name: str) -> None:
    """The server dies of something that no attempt mends."""
    invocation = host.running.pop(name)
    why = cause("bad_flag", Retry.NO)
    host.give(name, Exited(at=host.now, invocation=invocation, exit=Exit(code=1), cause=why))
