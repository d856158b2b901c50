"""The hands of the simulated agent: effects, one at a time for each server, and what they do to processes."""

from __future__ import annotations

from abc import abstractmethod

from agent.core.model import (
    Effect,
    Event,
    Exit,
    Exited,
    Kill,
    Launch,
    Launched,
    Refused,
    Save,
    Saved,
    Stored,
    Terminate,
)
from tests.core.clock import Clock
from tests.core.world import REFUSAL, Attempt, Proc


class Hands(Clock):
    """Carries out effects."""

    def work(self, name: str) -> None:
        """Begin with the next effect, if none is under way."""
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
            self.work(name)

    def _carry_out(self, name: str, effect: Effect) -> None:
        if self.rng.random() < self.weather.crash:
            self.crash()
            return
        if not isinstance(effect, Save) and self.rng.random() < self.weather.refuse:
            left = isinstance(effect, Launch) and self.rng.random() < 0.2 and not self._is_there(name)
            if isinstance(effect, Launch) and left:
                self.host.spawn(name, effect.invocation, leader=False)
            self._done(name, Refused(at=self.host.now, effect=effect, cause=REFUSAL))
            return
        match effect:
            case Save(saved):
                news = self._save(name, saved)
                if saved.over and self.rng.random() < self.weather.crash * 5:  # between the two saves of a switch
                    self.crash()
                    return
                self._done(name, news)
            case Launch(invocation):
                self._launch(name, invocation)
            case Terminate(whole):
                attempt = self._asked(name)
                for proc in self.host.live(name):
                    if whole or (attempt and proc is attempt.leader):
                        self._sigterm(name, proc)
                self._done(name)
            case Kill():
                self._asked(name)
                for proc in self.host.live(name):
                    self._sigkill(name, proc)
                self._done(name)

    def _save(self, name: str, saved: Saved) -> Stored:
        if self.weather.no_disk:
            return Stored(at=self.host.now, saved=saved, why="no space left on device")
        self.host.disk[name], self.host.saved_in = saved, self.host.boot_no
        return Stored(at=self.host.now, saved=saved)

    def _asked(self, name: str) -> Attempt | None:
        if (attempt := self.host.attempts.get(name)) is not None:
            attempt.asked = True
        return attempt

    def _is_there(self, name: str) -> bool:
        """Whether an administrator's server stands in the way of a launch: decided before it was started."""
        attempt = self.host.attempts.get(name)
        return attempt is not None and not attempt.ordered and bool(attempt.procs)

    @abstractmethod
    def _told(self, name: str, how: Exit) -> Exit:
        """How an end is told."""

    def _launch(self, name: str, invocation: str) -> None:
        if self._is_there(name):
            self._done(name, Refused(at=self.host.now, effect=Launch(invocation), cause=REFUSAL))
            return
        attempt = self.host.spawn(name, invocation)
        assert attempt.leader is not None
        main = attempt.leader.id
        self._plan_death(name, attempt)
        reply = Launched(at=self.host.now, invocation=invocation, main=main)
        wait_s = self.pick_s(0.0, 0.05, 8.0)
        self.later(wait_s, lambda: self._done(name, Launched(at=self.host.now, invocation=reply.invocation, main=main)))

    # -- processes -----------------------------------------------------------------------------------

    def _plan_death(self, name: str, attempt: Attempt) -> None:
        leader, chance = attempt.leader, self.rng.random()
        if name == self.host.doomed:
            self.after(2.0, lambda: self._die(name, attempt, leader, Exit(code=2)) if leader else None)
            return
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
        how = self._told(name, how)
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
