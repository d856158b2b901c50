"""One server's life, told by hand: what happened goes in, what is to be done comes out. Each step is checked."""

from __future__ import annotations

from typing import Any

from agent.core.machine import check, step
from agent.core.model import (
    NEVER,
    Answer,
    Ask,
    Asked,
    Booted,
    Cause,
    Closed,
    Effect,
    Event,
    Exit,
    Exited,
    Gpu,
    Health,
    Launch,
    Launched,
    Life,
    Looked,
    Need,
    Policy,
    Probed,
    Process,
    Refused,
    Retry,
    Save,
    Saved,
    Seen,
    Stage,
    State,
    Stored,
    Tick,
    Want,
)

MAIN = Process(100, 1)
WORKER = Process(101, 2)
UP = Saved(want=Want.UP)


def cause(slug: str = "crash", retry: Retry = Retry.YES) -> Cause:
    """A root cause."""
    return Cause(slug=slug, text=f"it said {slug}", remedy="mend it", retry=retry)


def need(name: str, *, heals: bool) -> Need:
    """A precondition that is not met."""
    return Need(name=name, cause=cause(name, Retry.WAIT if heals else Retry.NO), heals=heals)


def gpu(free_mib: int | None, index: int = 0) -> Gpu:
    """One GPU of 80 GB."""
    return Gpu(uuid=f"GPU-{index}", index=index, total_mib=80_000, free_mib=free_mib)


class Script:
    """Drives `step`. The clock moves only with `after`."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.now = 100.0
        self.state = State()
        self.effects: tuple[Effect, ...] = ()  # of the last event
        self.disk = Saved()
        self.asks = 0

    # -- events --------------------------------------------------------------------------------------

    def give(self, event: Event) -> tuple[Effect, ...]:
        """One event."""
        before = self.state
        done = step(before, event, self.policy)
        check(before, event, done, self.policy)
        self.state, self.effects = done.state, done.effects
        return done.effects

    def after(self, wait_s: float) -> Script:
        """Let time pass, without an alarm."""
        self.now += wait_s
        return self

    def ring(self) -> tuple[Effect, ...]:
        """Let time pass until the deadline, and ring."""
        assert self.state.deadline is not None
        self.now = max(self.now, self.state.deadline)
        return self.give(Tick(at=self.now))

    def boot(self, saved: Saved = Saved(), run: str = "r", **seen: Any) -> tuple[Effect, ...]:  # noqa: B008  # frozen
        """The agent starts."""
        self.disk = saved
        look = Seen(**{"began": self.now - 0.01, "tree": (), "rivals": (), **seen})
        return self.give(Booted(at=self.now, saved=saved, run=run, seen=look))

    def look(self, wait_s: float = 1.0, *, began: float | None = None, **seen: Any) -> tuple[Effect, ...]:
        """A look that begins after `wait_s` and shows, unless said otherwise, no process and no unmet need."""
        self.now += wait_s
        began = self.now if began is None else began
        self.now += 0.01
        whole = {"began": began, "tree": (), "needs": (), "rivals": (), **seen}
        return self.give(Looked(at=self.now, seen=Seen(**whole)))

    def running(self, wait_s: float = 1.0, **seen: Any) -> tuple[Effect, ...]:
        """A look that shows the server."""
        life = Life(cpu_s=self.now)
        whole = {"tree": (MAIN,), "main": MAIN, "invocation": self.invocation, "needs": None, "life": life}
        return self.look(wait_s, **{**whole, **seen})

    def ask(self, ask: Ask, *, gpu_check: bool = True) -> tuple[Effect, ...]:
        """An operator asks; nothing is saved yet."""
        self.asks += 1
        return self.give(Asked(at=self.now, ask=ask, id=self.asks, gpu_check=gpu_check))

    def store(self, why: str | None = None) -> tuple[Effect, ...]:
        """The save that the last event gave ends; `why`: it failed."""
        saves = [effect.saved for effect in self.effects if isinstance(effect, Save)]
        assert len(saves) == 1, self.effects
        if why is None:
            self.disk = saves[0]
        return self.give(Stored(at=self.now, saved=saves[0], why=why))

    def asked(self, ask: Ask, *, gpu_check: bool = True) -> tuple[Effect, ...]:
        """An operator asks, and it is saved; what that led to."""
        assert any(isinstance(effect, Save) for effect in self.ask(ask, gpu_check=gpu_check)), self.effects
        return self.store()

    def launched(self, main: Process = MAIN) -> tuple[Effect, ...]:
        """The launch is confirmed."""
        return self.give(Launched(at=self.now, invocation=self.invocation, main=main))

    def exited(self, how: Exit | None = None, why: Cause | None = None, invocation: str = "") -> tuple[Effect, ...]:
        """The first process ends."""
        how, why = how or Exit(code=1), why or cause()
        return self.give(Exited(at=self.now, invocation=invocation or self.invocation, exit=how, cause=why))

    def probe(self, health: Health, invocation: str = "") -> tuple[Effect, ...]:
        """A look at the port."""
        return self.give(Probed(at=self.now, invocation=invocation or self.invocation, health=health))

    def refuse(self, effect: Effect, why: Cause | None = None) -> tuple[Effect, ...]:
        """An effect could not be carried out."""
        return self.give(Refused(at=self.now, effect=effect, cause=why or cause("launch_failed")))

    def close(self) -> tuple[Effect, ...]:
        """The agent ends."""
        return self.give(Closed(at=self.now))

    # -- longer ways ---------------------------------------------------------------------------------

    def start(self) -> Script:
        """From the boot to STARTING, launched."""
        if self.state.since == 0.0:
            self.boot()
        self.asked(Ask.START)
        return self.relaunch()

    def relaunch(self) -> Script:
        """From WAITING to STARTING, launched."""
        self.look()
        assert self.did(Launch), self.state
        self.launched()
        return self

    def serve(self) -> Script:
        """From STARTING to READY."""
        self.running()
        self.probe(Health.OK)
        assert self.stage is Stage.READY
        return self

    def fail(self, why: Cause, how: Exit | None = None) -> Script:
        """The present attempt dies, and nothing is left of it."""
        self.exited(how, why)
        self.look()
        return self

    # -- what came of it -----------------------------------------------------------------------------

    @property
    def stage(self) -> Stage:
        """Where it is."""
        return self.state.stage

    @property
    def invocation(self) -> str:
        """The present attempt, or the last."""
        return self.state.saved.invocation or ""

    @property
    def pause_s(self) -> float:
        """Until the deadline."""
        return NEVER if self.state.deadline is None else round(self.state.deadline - self.now, 3)

    def did(self, kind: type[Effect]) -> bool:
        """Whether the last event asked for such an effect."""
        return any(isinstance(effect, kind) for effect in self.effects)

    def answer(self) -> str | None:
        """The answer that the last event gave: None is "done"."""
        answers = [effect.refused for effect in self.effects if isinstance(effect, Answer)]
        assert len(answers) == 1, self.effects
        return answers[0]
