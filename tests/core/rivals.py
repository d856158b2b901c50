"""The units of a simulated host that fight over its GPUs, and what operators were told of them.

What befalls them comes from `luck`, so that a life without them stays what it was.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from agent.core.holds import Holds

NAMES = ("comfyui", "vllm")


@dataclass
class Unit:
    """One unit of systemd."""

    on_since: float | None = None  # None: it is off
    ending: bool = False
    enabled: bool = True  # starts with the host
    held: bool = False  # our file is there
    held_at: float = 0.0  # when that changed last
    defeated: bool = False  # ... and a later file defeats it

    @property
    def in_force(self) -> bool:
        """Whether systemd would not start it."""
        return self.held and not self.defeated

    @property
    def on(self) -> bool:
        """Whether it runs."""
        return self.on_since is not None


@dataclass
class Rivalry:
    """What the host has of them, and what came to the disk. A probability is that of one thing going wrong, once."""

    luck: random.Random
    names: tuple[str, ...] = NAMES  # those that an operator who lists any lists
    units: dict[str, Unit] = field(default_factory=lambda: {name: Unit() for name in NAMES})
    disk: Holds = Holds()  # noqa: RUF009 - frozen
    deaf: bool = False  # who holds and releases is down
    blind: float = 0.0  # a look fails
    half: float = 0.0  # a batch is refused, half done
    wanted: bool = False  # a server was wanted once
    named: set[str] = field(default_factory=set)  # an operator has spoken of it
    told: dict[str, bool] = field(default_factory=dict)  # the last word of an operator that was answered: keep it off?
    open: dict[int, tuple[str, bool]] = field(default_factory=dict)  # asked, and not answered
    looked: float | None = None  # when the last look that this run of the agent has heard of began
    done: dict[str, list[float]] = field(default_factory=dict)  # when this run has turned it off, since it was asked

    def start(self, name: str, now: float) -> None:
        """Somebody starts it; systemd does not, while it is held."""
        unit = self.units[name]
        if not unit.on and not unit.in_force:
            unit.on_since = now

    def meddle(self, name: str, now: float, *, held: bool | None = None, defeated: bool | None = None) -> None:
        """Somebody takes our file away, or puts one beside it."""
        unit = self.units[name]
        unit.held, unit.held_at = (unit.held if held is None else held), now
        unit.defeated = unit.defeated if defeated is None else defeated

    def reboot(self, now: float) -> None:
        """Everything ends, and what is enabled and not held starts."""
        for name, unit in self.units.items():
            unit.on_since, unit.ending = None, False
            if unit.enabled:
                self.start(name, now)

    def crashed(self) -> None:
        """Nothing that the agent knew counts any more, and nobody waits for an answer."""
        for name, keep_off in self.open.values():
            if self.told.get(name, keep_off) is not keep_off:
                self.told.pop(name)  # it may be saved, or not
        self.open.clear()
        self.looked = None
        self.done.clear()
