"""Simulated lives of a host: virtual clock, seeded chance, the real core, an honest world.

`python -m tests.core.sim --seeds 50 [--first N]` runs many; `--replay SEED` prints the transcript of one.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping

from agent.core.host import Taken, advance, present, tell_of_rivals
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
    Health,
    LogRead,
    Look,
    Looked,
    Probed,
    Reconfigured,
    Save,
    Saved,
    Seen,
    Stage,
    State,
    Tick,
    Transition,
)
from tests.core.admins import Admins
from tests.core.asked import TruthBrokenError
from tests.core.keeping import Keeping
from tests.core.world import Definition, Host, Weather

CLOSE_S = 200.0
"""After so long an ending agent gives up on its servers and ends."""
LEAVE_S = 2.0
"""After so long an agent that leaves its servers running ends."""
QUEUE_MOST = 60
Arrow = tuple[Stage, type[Event], Stage]


class Sim(Keeping, Admins):
    """One host and its agent."""

    def __init__(self, host: Host, weather: Weather) -> None:
        super().__init__(host, weather)
        self.ids = itertools.count(1)
        self.next: dict[str, Definition] = {}  # of a server that runs by an older one
        self.closing = False
        self.steps = 0
        self.arrows: set[Arrow] = set()

    # -- the agent starts and ends ---------------------------------------------------------------------

    def boot(self) -> None:
        """The agent starts."""
        self.run_no += 1
        self.up, self.closing, self.booted = True, False, False
        for name, definition in self.host.config.items():
            self.host.put_in_force(name, definition)
        self.next.clear()
        names = list(self.host.config)
        self.states = {name: State() for name in names}
        self.queues = {name: deque() for name in names}
        self.working, self.looking, self.turns, self.watches = set(), {}, {}, {}
        for attempt in self.host.attempts.values():
            if attempt is not None:
                attempt.asked = False
        self._say("-- the agent starts --")
        self.boot_holds()
        began = self.host.now
        self.later(self.pick_s(0.01, 0.1, 3.0), lambda: self._boot(began))

    def _boot(self, began: float) -> None:
        """As loop.Loop._boot does it."""
        self.booted = True
        rebooted = self.host.saved_in != self.host.boot_no
        events = {name: self._booted(name, began, rebooted=rebooted) for name in self.host.config}
        for name, event in events.items():
            self.truth.booted(name, self.host.disk.get(name, Saved()), event)
        for name, event in events.items():
            self.deliver(name, event)
            if not self.up:
                return
        for name in self.host.config:
            self.watch(name)

    def _booted(self, name: str, began: float, *, rebooted: bool) -> Booted:
        """As loop.Loop._booted does it."""
        host, known = self.host, self.host.disk.get(name, Saved())
        seen = host.seen(name, began, self.weather.blind, checked=False)
        attempt = host.attempts.get(name)
        launched = attempt is not None and attempt.invocation == known.invocation
        gone = known.running and seen.tree == () and not rebooted
        start = host.history.get((name, seen.invocation or known.invocation or ""))
        return Booted(
            at=host.now,
            saved=known,
            seen=seen,
            run=f"r{self.run_no}",
            health=self._health(name, seen),
            launched=start[1] if start else None,
            ready=start[2] if start else None,
            ended=attempt.cause if gone and launched and attempt is not None else None,
            exit=self.evidence(name, known.invocation) if known.running and not rebooted else Exit(),
            rebooted=rebooted,
            same=start[0] == host.force[name].digest if start else None,
        )

    def _health(self, name: str, seen: Seen) -> Health | None:
        """One probe; a slow one is given up."""
        if seen.main is None or self.rng.random() < self.weather.blind / 2:
            return None
        slow = self.rng.random() < self.weather.slow / 2
        return Health.TIMEOUT if slow else self.host.health(name, seen.invocation or "")

    def crash(self) -> None:
        """The agent is killed: what is queued is lost, what runs goes on."""
        self._say("-- the agent is killed --")
        self._end()

    def reboot(self) -> None:
        """The host goes down, and its agent with it."""
        self._say("-- the host goes down --")
        if self.host.outlive and self.booted and self.rng.random() < 0.5:
            self.stop_all_units()
        self.host.reboot()
        self.truth.rebooted()
        if self.up:
            self._end()

    def _end(self) -> None:
        self.up = self.booted = False
        self.run_no += 1
        self.truth.crashed()
        self.fight.crashed()
        self.after(self.rng.choice((0.5, 5.0, 30.0)), self.boot)

    def close(self) -> None:
        """The agent is told to end, and its servers with it; or it leaves them as they are."""
        if not self.booted or self.closing:
            return
        self.closing = True
        if self.host.outlive:
            self.later(self.rng.choice((0.01, LEAVE_S)), self.crash)
            return
        for name in self.host.config:
            if self.up:
                self.deliver(name, Closed(at=self.host.now))
        self.later(CLOSE_S, self.crash)

    # -- another configuration -------------------------------------------------------------------------

    def redefine(self, config: Mapping[str, Definition]) -> None:
        """As loop.Loop.redefine does it; while no agent runs, the next one reads it."""
        if self.closing or (self.up and not self.booted):
            return
        self._say("-- another configuration --")
        old, self.host.config = self.host.config, dict(config)
        self.truth.redefined(old)
        self.list_units() if self.booted else None
        for name, definition in config.items():
            if not self.booted:
                return
            self._change(name, definition)

    def _change(self, name: str, definition: Definition) -> None:
        in_force = self.host.force[name]
        if name not in self.next and in_force.beside(definition.policy.overlaps) == definition:
            self.host.put_in_force(name, definition)
            return
        if present(self.states[name]):
            self.next[name] = definition
            self.host.put_in_force(name, in_force.beside(in_force.policy.overlaps | definition.policy.overlaps))
        else:
            self._put_in_force(name, definition)
        self.deliver(name, Reconfigured(at=self.host.now))

    def _put_in_force(self, name: str, definition: Definition) -> None:
        """With new eyes: what the old ones are looking at just now is not told any more."""
        self.next.pop(name, None)
        self.host.put_in_force(name, definition)
        self.watch(name)

    # -- the turn --------------------------------------------------------------------------------------

    def deliver(self, name: str, event: Event) -> None:
        """One turn of the loop."""
        if not self.up:
            return
        self._turn(*advance(self.states, name, event, self.host.policies, self.rivals))

    def tell_servers(self) -> None:
        """As loop.Loop does it."""
        if self.up:
            self._turn(*tell_of_rivals(self.states, self.host.now, self.host.policies, self.rivals))

    def _turn(self, states: Mapping[str, State], taken: list[Taken]) -> None:
        self.states = states
        for one in taken:
            self._tell(one)
            check(one.before, one.event, Transition(one.state, one.effects), self.host.policies[one.name])
            self.truth.stepped(one)
            self.arrows.add((one.before.stage, type(one.event), one.state.stage))
            self.steps += 1
        for one in taken:
            self._record(one)
        for one in taken:
            for effect in one.effects:
                self._act(one.name, effect)
        self.want_holds()
        if taken and self.rng.random() < self.weather.crash / 20:
            self.crash()
        idle = not self.working and not any(self.queues.values())
        if self.up and self.closing and idle and all(s.stage is Stage.DOWN for s in self.states.values()):
            self._say("-- the agent ends --")
            self._end()

    def _record(self, one: Taken) -> None:
        """What history keeps of a start, and a definition that waited for the end of what ran by an older one."""
        state, invocation = one.state, one.state.saved.invocation
        if (state.launching or state.main is not None) and invocation is not None:
            new = (self.host.force[one.name].digest, self.host.now, None)
            digest, launched, ready = self.host.history.get((one.name, invocation), new)
            ready = state.ready_since if ready is None else ready
            self.host.history[one.name, invocation] = (digest, launched, ready)
        if one.name in self.next and not present(state):
            self._put_in_force(one.name, self.next[one.name])

    def _act(self, name: str, effect: Effect) -> None:
        if isinstance(effect, Answer):
            return
        if isinstance(effect, Look):
            self.look_now(name)
            return
        self.queues[name].append(effect)
        if len(self.queues[name]) > QUEUE_MOST:
            raise TruthBrokenError(f"{name}: {QUEUE_MOST} effects wait")
        self.work(name)

    # -- operators -----------------------------------------------------------------------------------

    def ask(self, name: str, ask: Ask, *, gpu_check: bool = True, back: bool = False) -> None:
        """An operator asks, if the agent is there."""
        if self.booted and not self.closing:
            number = next(self.ids)
            self.deliver(name, Asked(at=self.host.now, ask=ask, id=number, gpu_check=gpu_check, back=back))

    # -- the transcript ------------------------------------------------------------------------------

    def _tell(self, one: Taken) -> None:
        moved = one.before.stage is not one.state.stage
        if not moved and not one.effects and type(one.event) in (Looked, Probed, LogRead, Tick):
            return
        to = f"{one.before.stage} -> {one.state.stage}" if moved else f"{one.state.stage}"
        did = " ".join(_short(effect) for effect in one.effects)
        ask = f"({one.event.ask} {one.event.reason})" if isinstance(one.event, Asked) else ""
        self._say(f"{one.name}: {type(one.event).__name__}{ask}: {to}: {one.state.why}  [{did}]")

    def _say(self, what: str) -> None:
        self.transcript.append(f"{self.host.now:9.2f}  {what}")


def _short(effect: Effect) -> str:
    if isinstance(effect, Save):
        said = {key: getattr(effect.saved, key) for key in ("over", "back", "gave_up") if getattr(effect.saved, key)}
        return f"Save({effect.saved.want}, {effect.saved.invocation}, asks {effect.saved.asks}, {said or ''})"
    return repr(effect)


if __name__ == "__main__":
    from tests.core.trial import main

    main()
