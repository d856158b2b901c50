"""What the look at the GPUs costs: 8 of them with 64 processes, once a second, on the stand-in for the driver."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from pathlib import Path

from agent.core.gpu_seen import GpuReading
from agent.edges.gpu_holders import GpuHolders
from agent.edges.nvml import Nvml
from tests.bench.figures import Aim, Figure
from tests.fakes.nvml.driver import Driver, Gpu, build

GPUS = 8
PROCESSES = 64
SECONDS = 60
SETTLE = 3  # first readings, which start the reader and meet each process for the first time
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def reading(folder: Path) -> list[Figure]:
    """The agent's part and the reader's, together, without the interpreter's start; and how long one reading takes."""
    holders = [subprocess.Popen(["sleep", "infinity"]) for _ in range(PROCESSES)]
    try:
        driver = Driver(folder, build(folder / "library"))
        share = PROCESSES // GPUS
        pids = [one.pid for one in holders]
        driver.gpus = [
            Gpu(f"GPU-{i}", "70000", [(pid, 75000, "compute") for pid in pids[i * share : (i + 1) * share]])
            for i in range(GPUS)
        ]
        driver.say()
        return asyncio.run(_measured(driver))
    finally:
        for one in holders:
            one.kill()
        for one in holders:
            one.wait()


async def _measured(driver: Driver) -> list[Figure]:
    nvml, whose = Nvml(driver.environment), GpuHolders()
    try:
        for _ in range(SETTLE):
            await _one(nvml, whose)
        (child,) = _children()
        ours, theirs = time.process_time(), _cpu_s(child)
        took_ms = []
        for _ in range(SECONDS):
            await asyncio.sleep(1)
            began = time.monotonic()
            await _one(nvml, whose)
            took_ms.append((time.monotonic() - began) * 1000)
        ours, theirs = time.process_time() - ours, _cpu_s(child) - theirs
    finally:
        whose.close()
        await nvml.close()
    share = 100 * (ours + theirs) / SECONDS
    what = f"{GPUS} GPUs, {PROCESSES} processes"
    note = f"agent {100 * ours / SECONDS:.2f}, reader {100 * theirs / SECONDS:.2f}"
    return [
        Figure(f"look at the GPUs once a second: {what}", "% of a core", [share], (Aim(1.0, 0.2),), note),
        Figure(f"one reading: {what}", "ms", took_ms),
    ]


async def _one(nvml: Nvml, whose: GpuHolders) -> GpuReading:
    said = whose.resolve(await nvml.read())
    if len(said.owners) != PROCESSES:
        raise RuntimeError(f"not a whole reading: {said.state} {said.why}")
    return said


def _children() -> list[int]:
    """The reader: the one child that is no `sleep`."""
    words = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in words if Path(f"/proc/{pid}/comm").read_text() != "sleep\n"]


def _cpu_s(pid: int) -> float:
    """In nanoseconds steps: those of /proc/PID/stat are too coarse."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
