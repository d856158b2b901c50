"""A whole log, read offline: outcome, steps, facts and root cause. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from agent.families import find_by_log
from agent.families.cause import log_cause
from agent.families.family import Family
from agent.families.lines import cleaned, decoded
from agent.families.reader import Reader

_HEAD_BYTES = 65_536  # of a log, to tell the family by


def explain(data: bytes | Iterable[bytes], family: Family | None = None) -> dict[str, Any]:
    """What a log says, for JSON.

    {family, outcome, steps: [{step, line, at}], facts: {name: number or text}, cause: {slug, line, text, remedy}}.
    `outcome` is ready, crash, loading, stopped or hang; `at` the line's own time stamp or None; `cause` None unless it
    crashed, and even then if the log does not tell why. `family`: told from the log if None.
    """
    head, rest = _head(iter([data]) if isinstance(data, bytes) else iter(data))
    if family is None:
        lines = cleaned(head).replace(b"\r", b"\n").split(b"\n")
        family = find_by_log("\n".join(map(decoded, lines)))
    reader = Reader(family)
    reader.feed(head)
    for piece in rest:
        reader.feed(piece)
    reader.close()
    cause = log_cause(reader)
    return {
        "family": family.name,
        "outcome": "crash" if cause else "hang" if reader.hangs else reader.outcome or "loading",
        "steps": [{"step": str(seen.step), "line": seen.line, "at": seen.at} for seen in reader.steps],
        "facts": dict(reader.facts),
        "cause": cause and {"slug": cause.slug, "line": cause.line, "text": cause.text, "remedy": cause.remedy},
    }


def _head(pieces: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Enough of the log to tell its family by, and what comes behind."""
    head = bytearray()
    for piece in pieces:
        head += piece
        if len(head) >= _HEAD_BYTES:
            break
    return bytes(head), pieces
