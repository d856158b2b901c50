"""`python -m tests.bench`: latency and cost of the agent as distributions, beside the aims. About six minutes.

It asserts nothing: a machine that does something else at the same time is slower, and the load before and after is
shown. Words after the command choose parts: lifecycle starting status idle command lag frozen reader units. Two of
them need root: frozen mounts a disk, units boots containers.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench import lifecycle, reading, resting, serving, units
from tests.bench.figures import Figure, Table
from tests.bench.house import House, demo_command, make_tiny_model

PARTS = ("lifecycle", "starting", "status", "command", "idle", "lag", "frozen", "reader", "units")


def main() -> int:
    """0: measured; what the figures are is for the reader."""
    chosen = sys.argv[1:] or list(PARTS)
    if unknown := set(chosen) - set(PARTS):
        print(f"bench: no part is called {', '.join(sorted(unknown))}; there are: {' '.join(PARTS)}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the agents are ended too
    began, load_before = time.monotonic(), _load()
    with tempfile.TemporaryDirectory(prefix="gpuagent-bench-") as folder:
        figures = _measure(Path(folder), chosen)
    print()
    print("\n".join(Table(figures).rows()))
    missed = sum(bool(figure.missed()) for figure in figures)
    aims = sum(bool(figure.aims) for figure in figures)
    print(f"\n{aims - missed} of {aims} figures with an aim keep to it.", end=" ")
    print(
        f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {load_before} before and {_load()} after,",
        end=" ",
    )
    print(f"{time.monotonic() - began:.0f} s. A p99 of fewer than 100 samples is their maximum.")
    return 0


def _measure(folder: Path, chosen: list[str]) -> list[Figure]:
    model = folder / "tiny.gguf"
    make_tiny_model(model)
    figures: list[Figure] = []

    def add(part: str, measure: Callable[[], list[Figure]]) -> None:
        if part in chosen:
            print(f"measuring: {part} ...", file=sys.stderr, flush=True)
            figures.extend(measure())

    add("lifecycle", lambda: lifecycle.real_server(folder, model))
    add("starting", lambda: lifecycle.starting_server(folder))
    with House(folder / "serving", demo_command(model), "llama_cpp") as house:
        house.await_ready()
        add("status", lambda: serving.status(house))
        add("command", lambda: [resting.command(house)])
        add("idle", lambda: resting.idle(house))
    add("lag", lambda: serving.loop_lag(folder))
    add("frozen", lambda: serving.frozen_lag(folder))
    add("reader", reading.log_reader)
    add("units", lambda: units.daemon(folder / "units"))
    return figures


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


if __name__ == "__main__":
    sys.exit(main())
