"""What the agent costs while nothing happens, and what a command costs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.bench.figures import Aim, Figure
from tests.bench.house import NAME, House, children, installed

IDLE_S = 25.0
SETTLE_S = 3.0
SHARES = 5  # into which the idle time is cut
COMMANDS = 200  # so that the p99 is not the maximum
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def idle(house: House) -> list[Figure]:
    """CPU and memory of all processes of the agent, its server's not among them."""
    house.await_ready()
    time.sleep(SETTLE_S)
    began, before = time.monotonic(), _cpu_s(house)
    sizes = []
    for _ in range(SHARES):
        time.sleep(IDLE_S / SHARES)
        sizes.append(sum(_pss_mb(pid) for pid in _processes(house)))
    share = 100 * (_cpu_s(house) - before) / (time.monotonic() - began)
    count = len(_processes(house))
    return [
        Figure(f"idle CPU while ready, over {IDLE_S:g} s", "% of a core", [share], (Aim(1.0, 0.3),)),
        Figure("memory (PSS) of all processes of the agent", "MB", sizes, (Aim(1.0, 75),), f"{count} process(es)"),
    ]


def command(house: House) -> Figure:
    """`gpuagent stage`, from its start to its end."""
    words = [str(Path(sys.executable).with_name("gpuagent")), "--socket", str(house.socket), "stage", NAME]
    samples = []
    for _ in range(COMMANDS):
        began = time.monotonic()
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=installed())
        samples.append((time.monotonic() - began) * 1000)
    return Figure("gpuagent stage, wall", "ms", samples, (Aim(0.99, 120),))


def _processes(house: House) -> list[int]:
    """The agent and its children, without its server and the server's."""
    server = house.server()["pid"]
    found, fresh = [], [house.pid]
    while fresh:
        pid = fresh.pop()
        if pid != server:
            found.append(pid)
            fresh += children(pid)
    return found


def _cpu_s(house: House) -> float:
    """Used until now; of processes that have ended between two calls, what their parent waited for."""
    ticks = 0
    for pid in _processes(house):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:13]))
    return ticks / TICKS_PER_S


def _pss_mb(pid: int) -> float:
    """Proportional share: what it shares with others counts by its part."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0
