"""Units of a host that fight over its GPUs, scripted. Fills agent.ports.Rivals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from agent.core.model import Rival
from agent.errors import EdgeError


@dataclass
class Unit:
    """One unit."""

    on: bool = True
    held: bool = False
    stop_s: float = 0.5
    comes_back: bool = False  # whatever holds it


class Units:
    """What systemd and the privileged helper would do."""

    def __init__(self, **units: Unit) -> None:
        self.units = {f"{name}.service": unit for name, unit in units.items()}
        self.batches: list[tuple[str, frozenset[str]]] = []
        self.looks = 0
        self.down: str | None = None  # why the helper does nothing
        self.blind: str | None = None  # why nothing can be seen
        self.hangs = False  # looks and batches never end
        self.closed = False
        self.recorded: dict[str, float] = {}  # what root has written down of holds
        self.before: Callable[[str, frozenset[str]], None] = lambda verb, units: None  # called by each batch
        self._tell: Callable[[], None] = lambda: None

    async def look(self, units: frozenset[str]) -> tuple[Rival, ...]:
        await self._wait()
        self.looks += 1
        if self.blind:
            raise EdgeError("rivals", "look", self.blind)
        return tuple(self._rival(name) for name in sorted(units))

    def _rival(self, name: str) -> Rival:
        if (unit := self.units.get(name)) is None:
            return Rival(unit=name, load="not-found", held=False)
        rival = Rival(unit=name, held=unit.held)
        return replace(rival, active="active", pids=(12,)) if unit.on else rival

    async def hold(self, units: frozenset[str]) -> None:
        await self._batch("hold", units)
        for name in units:
            unit = self.units.setdefault(name, Unit(on=False))
            unit.held = True
            asyncio.get_running_loop().call_later(unit.stop_s, self.set, name, unit.comes_back)

    async def release(self, units: frozenset[str]) -> None:
        await self._batch("release", units)
        for name in units & self.units.keys():
            self.units[name].held = False

    async def _batch(self, verb: str, units: frozenset[str]) -> None:
        self.before(verb, units)
        await self._wait()
        if self.down:
            raise EdgeError("helper", verb, self.down)
        self.batches.append((verb, units))

    async def _wait(self) -> None:
        await asyncio.sleep(1e9 if self.hangs else 0.01)

    def set(self, name: str, on: bool) -> None:
        """It comes up, or goes off."""
        self.units[name].on = on
        self._tell()

    def held(self) -> dict[str, float]:
        return self.recorded

    def on_change(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    def warnings(self) -> list[str]:
        return ["a container of somebody else"]

    def close(self) -> None:
        self.closed = True
