"""From a unit's start to the exec of the server: watched by what is written down, and by the process itself."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path

from agent.core.model import Process
from agent.edges import processes, unit_tree
from agent.edges.bounded import BoundedThread
from agent.edges.unit_records import Launched, UnitRecords
from agent.errors import EdgeError

POLL_S = 0.01
ASK_S = 5.0  # one look at a process: more means that /proc is stuck
FAILED = "gpuagent-launch: "
LAST_BYTES = 4096


async def begun(
    records: UnitRecords, invocation: str, earlier: frozenset[str], thread: BoundedThread
) -> Launched | None:
    """The launch, once its process is the server, or has ended; None: it ended before it wrote anything.

    Waits without end. `earlier`: systemd's numbers of starts whose end may still be written.
    """
    while True:
        ended = records.ended()  # before the launch's record, which is written first
        launched = records.launched()
        if launched is not None and launched.invocation == invocation:
            if not await thread.run("see the launch", ASK_S, partial(_is_launcher, launched.main)):
                return launched
        elif ended is not None and ended.unit_invocation not in earlier:
            return None
        await asyncio.sleep(POLL_S)


def _is_launcher(main: Process, _: threading.Event) -> bool:
    """Whether it is there and has not become the server: one that fails to is waited for until it is gone."""
    now = processes.stat(main.pid)
    if now is None or now.process != main or now.gone:
        return False
    return now.exiting or unit_tree.is_launcher(main.pid)


def failure(log: Path) -> EdgeError | None:
    """What the launch itself has said of its failure, as the last line of its log; None: it said nothing."""
    line = _last_line(log)
    if not line.startswith(FAILED):
        return None
    slug, _, text = line.removeprefix(FAILED).partition(": ")
    return EdgeError("launch", "start", text, slug)


def unexplained(unit: str, log: Path) -> EdgeError:
    """It ended without a word in its log, or before it had one."""
    if log.exists():
        return EdgeError("launch", "start", f"{unit} ended at once; see: journalctl -u {unit}", "launch_failed")
    return EdgeError("launch", "start", f"no log could be opened for it; see: journalctl -u {unit}", "log_unwritable")


def _last_line(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - LAST_BYTES))
            lines = file.read(LAST_BYTES).splitlines()
    except OSError:
        return ""
    return next((line.decode(errors="replace").strip() for line in reversed(lines) if line.strip()), "")
