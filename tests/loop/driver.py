"""A driver of GPUs, scripted. Fills the Protocols Gpus and Holders of agent/ports.py."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from agent.core.gpu_seen import (
    GpuDevice,
    GpuMemory,
    GpuReading,
    GpuState,
    GpuUse,
    HolderKind,
    MemoryKind,
    ProcessOwner,
)
from agent.core.model import Process
from agent.gpu_watch import GpuEyes

TOTAL_MIB = 80_000


class Driver:
    """One GPU. `eyes`: what a GpuWatch takes."""

    def __init__(self) -> None:
        self.state = GpuState.OK
        self.free_mib: int | None = 70_000
        self.uses: tuple[GpuUse, ...] = ()
        self.owners: dict[int, ProcessOwner] = {}
        self.takes_s = 0.005
        self.read_at: list[float] = []
        self.opened = 0
        self.closed = 0
        self.stuck: int | None = None
        self.own: Mapping[Process, str] = {}
        self.eyes = GpuEyes(self._open, Names(self))

    def _open(self) -> Driver:
        assert self.opened == self.closed, "a second reader"
        self.opened += 1
        return self

    async def read(self) -> GpuReading:
        began = asyncio.get_running_loop().time()
        self.read_at.append(began)
        await asyncio.sleep(self.takes_s)
        if self.state is not GpuState.OK:
            return GpuReading(began=began, state=self.state, why="it says nothing")
        memory = None
        if self.free_mib is not None:
            used_mib = TOTAL_MIB - self.free_mib
            memory = GpuMemory(
                kind=MemoryKind.OWN, total_mib=TOTAL_MIB, used_mib=used_mib, free_mib=self.free_mib, reserved_mib=0
            )
        gpu = GpuDevice(index=0, uuid="GPU-0", name="NVIDIA H200", memory=memory, uses=self.uses)
        return GpuReading(began=began, state=self.state, devices=(gpu,), driver="580.1")

    async def close(self) -> None:
        self.closed += self.closed < self.opened


class Names:
    """ports.Holders on a driver."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def resolve(self, reading: GpuReading, own: Mapping[Process, str] | None = None) -> GpuReading:
        self._driver.own = own or {}
        ours = {process.pid: name for process, name in self._driver.own.items()}
        known = {
            **self._driver.owners,
            **{pid: ProcessOwner(pid=pid, kind=HolderKind.OURS, owner=name) for pid, name in ours.items()},
        }
        return replace(reading, owners=tuple(known[pid] for pid in sorted(reading.pids()) if pid in known))

    def close(self) -> None:
        """Nothing to let go of."""
