"""What the API bears, and whether its clients can delay the loop."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.bench.clients import Clients
from tests.bench.connection import Address
from tests.bench.figures import Aim, Figure
from tests.bench.house import BenchError, House, stand_in_command
from tests.disks import disk

RATE_S = 4.0  # of asking as fast as it is answered
LOAD_S = 12.0
WARM_S = 2.0  # of the load, before it counts
CLIENTS = 1000
LINES_PER_S = 50_000


def status(house: House) -> list[Figure]:
    """How fast /status is answered."""
    figures: list[Figure] = []
    addresses: dict[str, Address] = {"socket": house.socket, "TCP": ("127.0.0.1", house.api_port)}
    for name, address in addresses.items():
        for connections in (1, 50):
            seen = Clients(address, connections, RATE_S).result()
            what = f"/status over {name}, {connections} keep-alive connection{'s' if connections > 1 else ''}"
            note = f"{seen.rate:.0f} requests/s" + (f", {seen.failed} FAILED" if seen.failed else "")
            figures.append(Figure(what, "ms", seen.latencies_ms, (), note))
    return figures


def loop_lag(folder: Path) -> list[Figure]:
    """How late the loop's timers ring: at rest, and under clients and a storm of lines."""
    ticks = folder / "ticks"
    runner = [sys.executable, "-m", "tests.bench.ticking_agent", str(ticks)]
    command = stand_in_command("--lines-per-s", str(LINES_PER_S))
    with House(folder / "lag", command, "llama_cpp", runner) as house:
        house.await_ready()
        clients = Clients(("127.0.0.1", house.api_port), CLIENTS, WARM_S + LOAD_S, every_s=1.0)
        time.sleep(WARM_S + LOAD_S / 2)
        grew = _grown_bytes(house)
        seen = clients.result()
        ended = time.monotonic()
    late = _late(ticks, ended - LOAD_S + 1.0, ended - 1.0)
    note = f"{seen.rate:.0f} requests/s, {grew / 1e6:.1f} MB/s of log" + (
        f", {seen.failed} FAILED" if seen.failed else ""
    )
    return [
        Figure(
            f"loop lag, {CLIENTS} clients at 1 Hz, {LINES_PER_S // 1000}k lines/s", "ms", late, (Aim(0.99, 50),), note
        ),
        Figure("/status under that load", "ms", seen.latencies_ms),
    ]


def frozen_lag(folder: Path) -> list[Figure]:
    """How late they ring while the disk of state, history, logs and the agent's own log is frozen, under a new want."""
    ticks = folder / "frozen-ticks"
    runner = [sys.executable, "-m", "tests.bench.ticking_agent", str(ticks)]
    with disk(folder) as frozen, House(frozen.kept / "house", stand_in_command(), "llama_cpp", runner) as house:
        house.await_ready()
        frozen.freeze()
        began = time.monotonic()
        try:
            with suppress(BenchError):  # the want cannot be saved
                house.change("restart")
            seen = Clients(("127.0.0.1", house.api_port), 10, LOAD_S, every_s=0.1).result()
            ended = time.monotonic()
        finally:
            frozen.thaw()
    note = f"/status answered {seen.rate:.0f} requests/s" + (f", {seen.failed} FAILED" if seen.failed else "")
    return [Figure("loop lag, its disk frozen", "ms", _late(ticks, began, ended), (Aim(0.99, 50),), note)]


def _late(ticks: Path, after: float, before: float) -> list[float]:
    """Of the ticks between two moments, in ms."""
    lines = map(str.split, ticks.read_text().splitlines())
    return [float(late_ms) for due, late_ms in lines if after < float(due) < before]


def _grown_bytes(house: House) -> float:
    """Bytes a second that the server's log grows by now."""
    log = next((house.folder / "log").rglob("*.log"))
    before, began = log.stat().st_size, time.monotonic()
    time.sleep(1.0)
    return (log.stat().st_size - before) / (time.monotonic() - began)
