"""The eyes of the simulated agent: looks, probes, the log."""

from __future__ import annotations

from collections.abc import Callable

from agent.core.model import LogRead, Looked, Probed, Stage, Step
from tests.core.clock import Clock

LOOK_S = {Stage.WAITING: 1.0, Stage.CLEARING: 0.5, Stage.STARTING: 2.0, Stage.STOPPING: 0.5, Stage.UNHEALTHY: 4.0}
LOOK_ELSE_S = 5.0
PROBE_S = {Stage.STARTING: 2.0, Stage.READY: 6.0, Stage.UNHEALTHY: 2.0}
CHECKED = frozenset({Stage.WAITING, Stage.CLEARING, Stage.FAILED})


class Eyes(Clock):
    """Watches servers. A watch that was replaced sees nothing any more, and what it was looking at is not told."""

    looking: dict[str, bool]  # True: look again after the present one
    turns: dict[str, int]  # which look is the newest
    watches: dict[str, int]  # which watch is

    def watch(self, name: str) -> None:
        """Look, probe and read from now on, in place of who did it before."""
        self.watches[name] = self.watches.get(name, 0) + 1
        self.looking.pop(name, None)
        self._look(name)
        self._probe(name)
        self._soon(name, 1.0, self._read_log)

    def look_now(self, name: str) -> None:
        """Look at once, or again after the look that is under way."""
        if name in self.looking:
            self.looking[name] = True
        elif name in self.watches:  # else it begins with a look anyway
            self._look(name)

    def _soon(self, name: str, wait_s: float, do: Callable[[str], None]) -> None:
        """This watch does something later."""
        mine = self.watches[name]
        self.later(wait_s, lambda: do(name) if self.watches[name] == mine else None)

    def _look(self, name: str) -> None:
        """One look after the other; somebody else's look may come in between, and late."""
        began, self.looking[name] = self.host.now, False
        self.turns[name] = self.turns.get(name, 0) + 1
        total_s = self.pick_s(0.02, 0.2, 4.0)
        self._soon(name, total_s * self.rng.random(), lambda _: self._sample(name, began, began + total_s, stray=False))
        if self.rng.random() < self.weather.stray:
            late_s = self.rng.uniform(0.1, 8.0)
            self._soon(
                name, late_s * self.rng.random(), lambda _: self._sample(name, began, began + late_s, stray=True)
            )

    def _sample(self, name: str, began: float, done: float, *, stray: bool) -> None:
        checked = self.states[name].stage in CHECKED
        seen = self.host.seen(name, began, self.weather.blind, checked=checked)
        self._soon(name, done - self.host.now, lambda _: self._looked(name, Looked(at=self.host.now, seen=seen), stray))

    def _looked(self, name: str, event: Looked, stray: bool) -> None:
        mine = self.watches[name]
        self.deliver(name, event)
        if stray or not self.up or self.watches[name] != mine:
            return
        again = self.looking.pop(name)
        if again:
            self._look(name)
            return
        turn, pause_s = self.turns[name], LOOK_S.get(self.states[name].stage, LOOK_ELSE_S)
        self._soon(name, pause_s, lambda _: self._look(name) if self.turns[name] == turn else None)

    def _probe(self, name: str) -> None:
        state = self.states[name]
        if state.stage not in PROBE_S or state.launching or state.saved.invocation is None:
            self._soon(name, 1.0, self._probe)
            return
        invocation, took_s = state.saved.invocation, self.pick_s(0.002, 0.1, 5.0)
        self._soon(name, took_s * self.rng.random(), lambda _: self._ask_port(name, invocation, took_s))

    def _ask_port(self, name: str, invocation: str, took_s: float) -> None:
        health = self.host.health(name, invocation)
        self._soon(name, took_s / 2, lambda _: self.deliver(
            name, Probed(at=self.host.now, invocation=invocation, health=health)
        ))  # fmt: skip
        self._soon(name, took_s / 2 + PROBE_S.get(self.states[name].stage, 1.0), self._probe)

    def _read_log(self, name: str) -> None:
        """Steps of a start, some of them more than once; a hung one says nothing."""
        attempt = self.host.attempts.get(name)
        self._soon(name, self.rng.uniform(1, 8), self._read_log)
        if attempt is None or attempt.leader is None or self.host.now - attempt.born > 60:
            return
        if attempt.hung_from is not None and self.host.now >= attempt.hung_from:
            return
        step = self.rng.choice((None, *Step))
        self.deliver(name, LogRead(at=self.host.now, invocation=attempt.invocation, step=step, progress=0.5))
