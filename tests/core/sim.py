"""Simulated lives of a host: virtual clock, seeded chance, the real core, an honest world.

`python -m tests.core.sim --seeds 50 [--first N]` runs many; `--replay SEED` prints the transcript of one.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Mapping

from agent.core.host import Taken, advance
from agent.core.machine import check
from agent.core.model import (
    Answer,
    Ask,
    Asked,
    Booted,
    Closed,
    Effect,
    Event,
    Exit,
    Exited,
    Hold,
    Kill,
    Launch,
    Launched,
    LogRead,
    Look,
    Looked,
    Probed,
    Refused,
    Save,
    Saved,
    Stage,
    State,
    Step,
    Stored,
    Terminate,
    Tick,
    Transition,
)
from tests.core.oracles import Truth, TruthBrokenError
from tests.core.world import REFUSAL, Attempt, Host, Proc, Weather

LOOK_S = {Stage.WAITING: 1.0, Stage.CLEARING: 0.5, Stage.STARTING: 2.0, Stage.STOPPING: 0.5, Stage.UNHEALTHY: 4.0}
LOOK_ELSE_S = 8.0
PROBE_S = {Stage.STARTING: 2.0, Stage.READY: 6.0, Stage.UNHEALTHY: 2.0}
CHECKED = frozenset({Stage.WAITING, Stage.CLEARING, Stage.FAILED})
CLOSE_S = 200.0
"""After so long an ending agent gives up on its servers and ends."""
QUEUE_MOST = 60
Arrow = tuple[Stage, type[Event], Stage]


class Sim:
    """One host and its agent."""

    def __init__(self, host: Host, weather: Weather) -> None:
        self.host = host
        self.weather = weather
        self.rng = host.rng
        self.truth = Truth(host)
        self.heap: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.ids = itertools.count(1)
        self.states: Mapping[str, State] = {name: State() for name in host.policies}
        self.queues: dict[str, deque[Effect]] = {}
        self.working: set[str] = set()
        self.looking: dict[str, bool] = {}  # True: look again after the present one
        self.turns: dict[str, int] = {}
        self.up = False
        self.closing = False
        self.run_no = 0
        self.steps = 0
        self.arrows: set[Arrow] = set()
        self.transcript: list[str] = []

    # -- time ----------------------------------------------------------------------------------------

    def after(self, wait_s: float, do: Callable[[], None]) -> None:
        """The world does something later."""
        heapq.heappush(self.heap, (self.host.now + wait_s, next(self.order), do))

    def later(self, wait_s: float, do: Callable[[], None]) -> None:
        """This run of the agent does something later, if it lives so long."""
        run_no = self.run_no
        self.after(wait_s, lambda: do() if self.up and self.run_no == run_no else None)

    def run(self, for_s: float) -> None:
        """Let time pass."""
        until = self.host.now + for_s
        while True:
            due = self.heap[0][0] if self.heap else until
            if self.up and self._tick(min(due, until)):
                continue
            if due > until or not self.heap:
                self.host.now = until
                return
            self.host.now, _, do = heapq.heappop(self.heap)
            do()

    def _tick(self, due: float) -> bool:
        deadlines = [(state.deadline, name) for name, state in self.states.items() if state.deadline is not None]
        if not deadlines or min(deadlines)[0] > due:
            return False
        deadline, name = min(deadlines)
        self.host.now = max(self.host.now, deadline)
        self.deliver(name, Tick(at=self.host.now))
        return True

    def pick_s(self, low_s: float, high_s: float, slow_s: float) -> float:
        """How long something takes."""
        slow = self.rng.random() < self.weather.slow
        return self.rng.uniform(high_s, slow_s) if slow else self.rng.uniform(low_s, high_s)

    # -- the agent -----------------------------------------------------------------------------------

    def boot(self) -> None:
        """The agent starts."""
        self.run_no += 1
        self.up, self.closing = True, False
        names = list(self.host.policies)
        self.states = {name: State() for name in names}
        self.queues = {name: deque() for name in names}
        self.working, self.looking, self.turns = set(), {}, dict.fromkeys(names, 0)
        self._say("-- the agent starts --")
        began = self.host.now
        self.later(self.pick_s(0.01, 0.1, 3.0), lambda: self._booted(began))

    def _booted(self, began: float) -> None:
        for name in self.host.policies:
            saved = self.host.disk.get(name, Saved())
            self.truth.booted(name, saved)
            seen = self.host.seen(name, began, self.weather.blind, checked=False)
            self.deliver(name, Booted(at=self.host.now, saved=saved, seen=seen, run=f"r{self.run_no}"))
            if not self.up:
                return
            self._act(name, Look())
            self._probe(name)
            self._read_log(name)

    def crash(self) -> None:
        """The agent is killed: what is queued is lost, what runs goes on."""
        self._say("-- the agent is killed --")
        self._end()

    def _end(self) -> None:
        self.up = False
        self.run_no += 1
        self.truth.crashed()
        self.after(self.rng.choice((0.5, 5.0, 30.0)), self.boot)

    def close(self) -> None:
        """The agent is told to end, and its servers with it."""
        if not self.up or self.closing:
            return
        self.closing = True
        for name in self.host.policies:
            if self.up:
                self.deliver(name, Closed(at=self.host.now))
        self.later(CLOSE_S, self.crash)

    def deliver(self, name: str, event: Event) -> None:
        """One turn of the loop."""
        if not self.up:
            return
        self.states, taken = advance(self.states, name, event, self.host.policies)
        for one in taken:
            self._tell(one)
            check(one.before, one.event, Transition(one.state, one.effects), self.host.policies[one.name])
            self.truth.stepped(one)
            self.arrows.add((one.before.stage, type(one.event), one.state.stage))
            self.steps += 1
        for one in taken:
            for effect in one.effects:
                self._act(one.name, effect)
        if self.rng.random() < self.weather.crash / 20:
            self.crash()
        idle = not self.working and not any(self.queues.values())
        if self.up and self.closing and idle and all(s.stage is Stage.DOWN for s in self.states.values()):
            self._say("-- the agent ends --")
            self._end()

    def _act(self, name: str, effect: Effect) -> None:
        if isinstance(effect, Answer):
            return
        if isinstance(effect, Look):
            if name in self.looking:
                self.looking[name] = True
            else:
                self._look(name)
            return
        self.queues[name].append(effect)
        if len(self.queues[name]) > QUEUE_MOST:
            raise TruthBrokenError(f"{name}: {QUEUE_MOST} effects wait")
        self._work(name)

    # -- effects, one at a time for each server, in their order ---------------------------------------

    def _work(self, name: str) -> None:
        if name in self.working or not self.queues[name]:
            return
        self.working.add(name)
        effect = self.queues[name].popleft()
        self.later(self.pick_s(0.002, 0.1, 3.0), lambda: self._carry_out(name, effect))

    def _done(self, name: str, news: Event | None = None) -> None:
        self.working.discard(name)
        if self.rng.random() < self.weather.crash:
            self.crash()
            return
        if news is not None:
            self.deliver(name, news)
        if self.up:
            self._work(name)

    def _carry_out(self, name: str, effect: Effect) -> None:
        if self.rng.random() < self.weather.crash:
            self.crash()
            return
        if not isinstance(effect, Save) and self.rng.random() < self.weather.refuse:
            if isinstance(effect, Launch) and self.rng.random() < 0.2:  # something is left of it
                self.host.spawn(name, effect.invocation, leader=False)
            self._done(name, Refused(at=self.host.now, effect=effect, cause=REFUSAL))
            return
        match effect:
            case Save(saved):
                self._done(name, self._save(name, saved))
            case Launch(invocation):
                self._launch(name, invocation)
            case Terminate(whole):
                attempt = self.host.attempts.get(name)
                for proc in self.host.live(name):
                    if whole or (attempt and proc is attempt.leader):
                        self._sigterm(name, proc)
                self._done(name)
            case Kill():
                for proc in self.host.live(name):
                    self._sigkill(name, proc)
                self._done(name)
            case Hold(unit):
                self._hold(name, unit)

    def _save(self, name: str, saved: Saved) -> Stored:
        if self.weather.no_disk:
            return Stored(at=self.host.now, saved=saved, why="no space left on device")
        self.host.disk[name] = saved
        return Stored(at=self.host.now, saved=saved)

    def _launch(self, name: str, invocation: str) -> None:
        attempt = self.host.spawn(name, invocation)
        assert attempt.leader is not None
        main = attempt.leader.id
        self._plan_death(name, attempt)
        reply = Launched(at=self.host.now, invocation=invocation, main=main)
        wait_s = self.pick_s(0.0, 0.05, 8.0)
        self.later(wait_s, lambda: self._done(name, Launched(at=self.host.now, invocation=reply.invocation, main=main)))

    def _hold(self, name: str, unit: str) -> None:
        if unit not in self.host.disk.get(name, Saved()).holds:
            raise TruthBrokenError(f"law 4: {unit} is turned off, and is not in holds on the disk")
        self.after(self.rng.uniform(0.05, 3.0), lambda: self.host.units.update({unit: None}))
        self._done(name)

    # -- processes -----------------------------------------------------------------------------------

    def _plan_death(self, name: str, attempt: Attempt) -> None:
        leader, chance = attempt.leader, self.rng.random()
        if self.host.curse is not None:
            wait_s = 20.0
        elif leader is None or chance < self.host.kind:
            return
        elif chance < self.host.kind + (1 - self.host.kind) * 0.4:
            wait_s = self.rng.choice((0.0, 0.005, 0.3, 2.0))
        else:
            wait_s = self.rng.expovariate(1 / 200)
        host, how = self.host, attempt.code
        self.after(wait_s, lambda: self._die(name, attempt, leader, how) if host.kind < 1 else None)

    def _die(self, name: str, attempt: Attempt, proc: Proc, how: Exit) -> None:
        if self.host.attempts.get(name) is not attempt or proc not in attempt.procs:
            return
        if not self.host.end_proc(name, proc):
            return
        for child in list(attempt.children):
            if self.rng.random() < 0.7:  # the others outlive their leader
                self.after(self.rng.uniform(0, 2), lambda child=child: self._die(name, attempt, child, how))
        if self.rng.random() >= self.weather.lost_exit:
            late = self.rng.random() < self.weather.late_exit
            wait_s = self.rng.uniform(2, 40) if late else self.rng.uniform(0, 0.05)
            cause, invocation = attempt.cause, attempt.invocation
            self.later(wait_s, lambda: self.deliver(
                name, Exited(at=self.host.now, invocation=invocation, exit=how, cause=cause)
            ))  # fmt: skip

    def _sigterm(self, name: str, proc: Proc) -> None:
        attempt = self.host.attempts[name]
        if proc.deaf or proc.stuck or attempt is None:
            return
        if proc.swallows:
            proc.swallows -= 1
            return
        how = self.rng.choice((Exit(signal=15), Exit(code=0)))
        self.after(self.pick_s(0.05, 3.0, 12.0), lambda: self._die(name, attempt, proc, how))

    def _sigkill(self, name: str, proc: Proc) -> None:
        attempt = self.host.attempts[name]
        if attempt is None or proc.stuck:
            return
        proc.stuck = proc.stuck_s > 0
        wait_s = proc.stuck_s or self.rng.uniform(0.01, 0.2)
        self.after(wait_s, lambda: self._die(name, attempt, proc, Exit(signal=9)))

    # -- watching ------------------------------------------------------------------------------------

    def _look(self, name: str) -> None:
        """One look after the other; somebody else's look may come in between, and late."""
        began, self.looking[name] = self.host.now, False
        self.turns[name] += 1
        total_s = self.pick_s(0.02, 0.2, 4.0)
        self.later(total_s * self.rng.random(), lambda: self._sample(name, began, began + total_s, stray=False))
        if self.rng.random() < self.weather.stray:
            late_s = self.rng.uniform(0.1, 8.0)
            self.later(late_s * self.rng.random(), lambda: self._sample(name, began, began + late_s, stray=True))

    def _sample(self, name: str, began: float, done: float, *, stray: bool) -> None:
        checked = self.states[name].stage in CHECKED
        seen = self.host.seen(name, began, self.weather.blind, checked=checked)
        self.later(done - self.host.now, lambda: self._looked(name, Looked(at=self.host.now, seen=seen), stray))

    def _looked(self, name: str, event: Looked, stray: bool) -> None:
        self.deliver(name, event)
        if stray or not self.up:
            return
        again = self.looking.pop(name)
        if again:
            self._look(name)
            return
        turn, pause_s = self.turns[name], LOOK_S.get(self.states[name].stage, LOOK_ELSE_S)
        self.later(pause_s, lambda: self._look(name) if self.turns[name] == turn else None)

    def _probe(self, name: str) -> None:
        state = self.states[name]
        if state.stage not in PROBE_S or state.launching or state.saved.invocation is None:
            self.later(1.0, lambda: self._probe(name))
            return
        invocation, took_s = state.saved.invocation, self.pick_s(0.002, 0.1, 5.0)
        self.later(took_s * self.rng.random(), lambda: self._ask_port(name, invocation, took_s))

    def _ask_port(self, name: str, invocation: str, took_s: float) -> None:
        health = self.host.health(name, invocation)
        self.later(took_s / 2, lambda: self.deliver(
            name, Probed(at=self.host.now, invocation=invocation, health=health)
        ))  # fmt: skip
        self.later(took_s / 2 + PROBE_S.get(self.states[name].stage, 1.0), lambda: self._probe(name))

    def _read_log(self, name: str) -> None:
        """Steps of a start, some of them more than once; a hung one says nothing."""
        attempt, wait_s = self.host.attempts.get(name), self.rng.uniform(1, 8)
        self.later(wait_s, lambda: self._read_log(name))
        if attempt is None or attempt.leader is None or self.host.now - attempt.born > 60:
            return
        if attempt.hung_from is not None and self.host.now >= attempt.hung_from:
            return
        step = self.rng.choice((None, *Step))
        self.deliver(name, LogRead(at=self.host.now, invocation=attempt.invocation, step=step, progress=0.5))

    # -- operators -----------------------------------------------------------------------------------

    def ask(self, name: str, ask: Ask, *, gpu_check: bool = True) -> None:
        """An operator asks, if the agent is there."""
        if self.up and not self.closing:
            self.deliver(name, Asked(at=self.host.now, ask=ask, id=next(self.ids), gpu_check=gpu_check))

    # -- the transcript ------------------------------------------------------------------------------

    def _tell(self, one: Taken) -> None:
        moved = one.before.stage is not one.state.stage
        if not moved and not one.effects and type(one.event) in (Looked, Probed, LogRead, Tick):
            return
        to = f"{one.before.stage} -> {one.state.stage}" if moved else f"{one.state.stage}"
        did = " ".join(_short(effect) for effect in one.effects)
        self._say(f"{one.name}: {type(one.event).__name__}: {to}: {one.state.why}  [{did}]")

    def _say(self, what: str) -> None:
        self.transcript.append(f"{self.host.now:9.2f}  {what}")


def _short(effect: Effect) -> str:
    if isinstance(effect, Save):
        return f"Save({effect.saved.want}, {effect.saved.invocation}, asks {effect.saved.asks})"
    return repr(effect)


def rolled(seed: int) -> random.Random:
    """Chance that depends on the seed alone."""
    return random.Random(seed)


if __name__ == "__main__":
    from tests.core.trial import main

    main()
