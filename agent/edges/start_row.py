"""A Start as a row of the history, and back, strictly. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from agent.core.chronicle import Outcome, Start
from agent.core.model import Exit, Step
from agent.core.outage import Outage

TEXT_LENGTH = 500
"""Of a cause: a line of a log may be a megabyte."""

COLUMNS = {
    "server": "server TEXT NOT NULL",
    "invocation": "invocation TEXT NOT NULL",
    "attempt": "attempt INTEGER NOT NULL",
    "digest": "digest TEXT NOT NULL",
    "boot_id": "boot_id TEXT",
    "launched": "launched REAL NOT NULL",
    "began": "began REAL NOT NULL",
    "steps": "steps TEXT NOT NULL",
    "marks": "marks TEXT NOT NULL",
    "ready_s": "ready_s REAL",
    "ended_s": "ended_s REAL",
    "outcome": "outcome TEXT",
    "cause_slug": "cause_slug TEXT",
    "cause_text": "cause_text TEXT",
    "cause_quoted": "cause_quoted INTEGER NOT NULL",
    "exit": "exit TEXT",
    "watched": "watched INTEGER NOT NULL",
    "outage": "outage TEXT",
    "missed": "missed REAL",
}
"""Name -> definition, in the order of a row. Lists, the exit and the outage are JSON."""
ADDED = ("outage", "missed")
"""Columns that the first version of the table did not have."""


def to_row(start: Start) -> tuple[str | int | float | None, ...]:
    """In the order of COLUMNS."""
    how = start.exit
    return (
        start.server,
        start.invocation,
        start.attempt,
        start.digest,
        start.boot_id,
        start.launched,
        start.began,
        json.dumps(start.steps),
        json.dumps(start.marks),
        start.ready_s,
        start.ended_s,
        start.outcome,
        start.cause_slug,
        None if start.cause_text is None else _storable(start.cause_text),
        start.cause_quoted,
        json.dumps([how.code, how.signal, how.oom, how.asked, how.stopped]) if how else None,
        start.watched,
        json.dumps([start.outage.since, start.outage.tries, start.outage.lasted_s]) if start.outage else None,
        start.missed,
    )


def _to_exit(cell: str) -> Exit:
    """Rows of before there were units have four elements."""
    code, signal, oom, asked, *more = json.loads(cell)
    return Exit(code=code, signal=signal, oom=oom, asked=bool(asked), stopped=more == [True])


def _to_outage(cell: str) -> Outage:
    since, tries, lasted_s = json.loads(cell)
    return Outage(since=float(since), tries=int(tries), lasted_s=None if lasted_s is None else _seconds(lasted_s))


def from_row(row: Sequence[Any]) -> Start | None:
    """None: it is not understood. A step that only another version knows is left out."""
    cells = dict(zip(COLUMNS, row, strict=True))
    try:
        steps = [(Step(step), _seconds(at_s)) for step, at_s in json.loads(cells["steps"]) if step in set(Step)]
        marks = [(Step(s), int(n), _seconds(at_s)) for s, n, at_s in json.loads(cells["marks"]) if s in set(Step)]
        how = _to_exit(cells["exit"]) if cells["exit"] is not None else None
        return Start(
            server=str(cells["server"]),
            invocation=str(cells["invocation"]),
            attempt=int(cells["attempt"]),
            digest=str(cells["digest"]),
            boot_id=cells["boot_id"],
            launched=float(cells["launched"]),
            began=float(cells["began"]),
            steps=tuple(steps),
            marks=tuple(marks),
            ready_s=None if cells["ready_s"] is None else _seconds(cells["ready_s"]),
            ended_s=None if cells["ended_s"] is None else _seconds(cells["ended_s"]),
            outcome=None if cells["outcome"] is None else Outcome(cells["outcome"]),
            cause_slug=cells["cause_slug"],
            cause_text=cells["cause_text"],
            cause_quoted=bool(cells["cause_quoted"]),
            exit=how,
            watched=bool(cells["watched"]),
            outage=None if cells["outage"] is None else _to_outage(cells["outage"]),
            missed=None if cells["missed"] is None else float(cells["missed"]),
        )
    except (TypeError, ValueError, RecursionError):  # RecursionError: JSON nested a thousand deep
        return None


def _seconds(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError("not a time")
    return number


def _storable(text: str) -> str:
    """Short, and UTF-8: what came from the outside may hold half of a surrogate pair."""
    return text[:TEXT_LENGTH].encode("utf-8", "replace").decode()
