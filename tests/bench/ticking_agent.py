"""`gpuagent run` whose loop is asked to tick every 5 ms, and how late each tick came.

`python -m tests.bench.ticking_agent SAMPLES --config FILE`: at the end SAMPLES has a line a tick: the moment it was due
(monotonic seconds) and how late it was (ms). The agent is the product's own; the only guest is one task in its loop.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from agent import daemon
from agent.embedded import Embedded

TICK_S = 0.005


async def _tick(samples: list[tuple[float, float]]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + TICK_S
        await asyncio.sleep(TICK_S)
        samples.append((due, (loop.time() - due) * 1000))


def main() -> int:
    """The agent's exit code."""
    path, config = Path(sys.argv[1]), Path(sys.argv[3])
    samples: list[tuple[float, float]] = []
    run = asyncio.run

    async def beside(main_task: Coroutine[Any, Any, Any]) -> Any:
        ticking = asyncio.create_task(_tick(samples))
        try:
            return await main_task
        finally:
            ticking.cancel()

    def run_with_ticks(coroutine: Coroutine[Any, Any, Any], **options: Any) -> Any:
        is_loop = threading.current_thread() is threading.main_thread()  # the API's thread has a loop of its own
        return run(beside(coroutine) if is_loop else coroutine, **options)

    setattr(asyncio, "run", run_with_ticks)  # noqa: B010 - an assignment would have to have its very type
    try:
        return daemon.run(config, None, Embedded)
    finally:
        path.write_text("".join(f"{due:.6f} {late_ms:.3f}\n" for due, late_ms in samples))


if __name__ == "__main__":
    sys.exit(main())
