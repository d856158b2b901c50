"""What every part of a simulated host has: the time, chance, and what happens later."""

from __future__ import annotations

import heapq
import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping

from agent.core.model import Effect, Event, State, Tick
from tests.core.oracles import Truth
from tests.core.world import Host, Weather


class Clock(ABC):
    """Simulated time, and the States of the agent that lives in it."""

    def __init__(self, host: Host, weather: Weather) -> None:
        self.host = host
        self.weather = weather
        self.rng = host.rng
        self.truth = Truth(host)
        self.heap: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.states: Mapping[str, State] = {name: State() for name in host.policies}
        self.queues: dict[str, deque[Effect]] = {}
        self.working: set[str] = set()
        self.up = False
        self.booted = False
        self.transcript: list[str] = []
        self.run_no = 0

    @abstractmethod
    def deliver(self, name: str, event: Event) -> None:
        """One turn of the loop."""

    @abstractmethod
    def crash(self) -> None:
        """The agent is killed."""

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
