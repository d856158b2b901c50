"""What administrators do with systemctl in the simulation, where servers are units: the agent has not asked for it."""

from __future__ import annotations

import itertools
from dataclasses import replace

from agent.core.model import Exit, Exited
from tests.core.eyes import Eyes
from tests.core.hands import Hands
from tests.core.world import CAUSES

STOP_S = 3.0
"""After so long systemd kills what a stop has left."""
TELL = 0.8
"""How often the agent is told at once that its unit was started; else the next look shows it."""


class Admins(Hands, Eyes):
    """Starts and stops units beside the agent."""

    starts = itertools.count(1)

    def systemctl_start(self, name: str) -> None:
        """Nothing, if its first process lives; else beside what is left of the last one, as systemd does it."""
        attempt, left = self.host.attempts.get(name), self.host.live(name)
        if attempt is not None and attempt.leader is not None:
            return
        self.transcript.append(f"{self.host.now:9.2f}  -- systemctl start {name} --")
        for near in self.host.decided.values():  # what was decided before is not to blame for it
            near[:] = [other for other in near if other != name]
        new = self.host.spawn(name, f"admin-{self.host.now:.3f}", outside=True)
        new.children += left
        self._plan_death(name, new)
        if self.booted and self.rng.random() < TELL:
            self.look_now(name)

    def systemctl_stop(self, name: str) -> None:
        """SIGTERM to the first process, then SIGKILL to all."""
        attempt = self.host.attempts.get(name)
        if attempt is None or attempt.leader is None or attempt.stopping:
            return
        self.transcript.append(f"{self.host.now:9.2f}  -- systemctl stop {name} --")
        attempt.stopping = True
        self._sigterm(name, attempt.leader)
        self.after(
            STOP_S,
            lambda: (
                [self._sigkill(name, proc) for proc in attempt.procs] if self.host.attempts[name] is attempt else None
            ),
        )

    def systemctl_restart(self, name: str) -> None:
        """A stop, and then a start."""
        self.systemctl_stop(name)
        self.after(2 * STOP_S, lambda: self.systemctl_start(name))

    def stop_all_units(self) -> None:
        """Systemd stops them because the host goes down, while the agent still runs."""
        for name in self.host.config:
            attempt = self.host.attempts.get(name)
            if not self.booted or attempt is None or attempt.leader is None:
                continue
            want = self.states[name].saved.want
            how = Exit(signal=15, shutdown=not attempt.asked)
            self.host.end_proc(name, attempt.leader)
            invocation = attempt.invocation
            self.deliver(name, Exited(at=self.host.now, invocation=invocation, exit=how, cause=CAUSES[1]))
            if self.states[name].saved.want is not want:
                raise AssertionError(f"{name}: a shutdown of the host has changed what is wanted")

    def evidence(self, name: str, invocation: str | None) -> Exit:
        """As ports.Server.last_exit has it."""
        known = self.host.evidence.get(name)
        return known[1] if known is not None and known[0] == invocation else Exit()

    def _told(self, name: str, how: Exit) -> Exit:
        """As the agent is told of an end: what it has asked for itself is not the administrator's."""
        attempt = self.host.attempts[name]
        if attempt is None or not self.host.outlive:
            return how
        record = replace(how, stopped=attempt.stopping)
        if self.rng.random() >= self.weather.lost_exit:
            self.host.evidence[name] = (attempt.invocation, record)
        return replace(record, stopped=attempt.stopping and not attempt.asked)
