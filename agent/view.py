"""What is shown of a State: the documents of the API, as plain data. The shapes are those of api/schema.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.board import ServerPage
from agent.core.chronicle import Start
from agent.core.forecast import Expected
from agent.core.model import STAGE_CODE, Cause, Exit, Stage, State
from agent.core.words import say
from agent.families.cause import CATALOG

Document = dict[str, Any]

DEAD = frozenset({Stage.STOPPING, Stage.BACKING_OFF})
"""Stages that, with a cause, mean that the attempt which somebody may be waiting for has died."""


@dataclass(frozen=True, slots=True)
class StartPages:
    """The documents of a server's starts, newest first: over the socket, and over TCP."""

    full: tuple[bytes, ...] = ()
    public: tuple[bytes, ...] = ()


OPEN = frozenset(
    {"agent_away", "host_rebooted", "host_shutdown", "port_taken", "stalled", "start_limit", "unhealthy", "unkillable"}
)
"""Causes whose text is ours, and names no file, argument or line: shown to anybody as it is."""


@dataclass(frozen=True, slots=True)
class Face:
    """What is shown of one server beside its State."""

    url: str
    log: Path | None
    tail: tuple[str, ...]
    starts: StartPages
    expected: Expected | None  # what earlier starts say of the present one


@dataclass(frozen=True, slots=True)
class Shown:
    """One server as it is shown: its page, and its documents over the socket and over TCP."""

    page: ServerPage
    full: Document
    public: Document


def show(name: str, state: State, face: Face, wall: Callable[[float], float]) -> Shown:
    """What is shown of one server. `wall`: monotonic -> Unix seconds."""
    full = _document(name, state, face, wall)
    public = _public(full, state)
    page = ServerPage(
        name=name,
        stage=state.stage,
        wanted=state.wanted and not state.closing,
        dead=state.stage is Stage.FAILED or (state.cause is not None and state.stage in DEAD),
        stalled=state.stalled,
        ending=state.closing,
        log=face.log,
        full=dump(full),
        public=dump(public),
        starts=face.starts.full,
        public_starts=face.starts.public,
    )
    return Shown(page, full, public)


def _document(name: str, state: State, face: Face, wall: Callable[[float], float]) -> Document:
    return {
        "name": name,
        "stage": state.stage,
        "stage_code": STAGE_CODE[state.stage],
        "step": state.step,
        "progress": state.progress,
        "eta_s": _eta_s(face.expected),
        "quiet": state.quiet,
        "stalled": state.stalled,
        "why": say(state, face.expected),
        "since": rfc3339(wall(state.since)),
        "want": state.saved.want or "down",
        "pid": state.main.pid if state.main else None,
        "invocation": state.saved.invocation,
        "attempt": state.saved.attempt,
        "url": face.url,
        "cause": _cause(state.cause),
        "exit": _exit(state.exit),
        "tail": list(face.tail),
    }


def _public(document: Document, state: State) -> Document:
    """The document without a word of the log and of the command: what anybody who reaches the TCP port may read."""
    shown = {**document, "tail": []}
    cause = state.cause
    if cause is not None and cause.slug not in OPEN:
        shown["cause"] = {**document["cause"], "text": _title(cause.slug), "remedy": _remedy(cause.slug)}
        if state.blocked:
            shown["why"] = _title(cause.slug)
    if state.stage is Stage.WAITING and state.seen.needs:
        shown["why"] = f"waiting for {', '.join(need.name for need in state.seen.needs)}"
    return shown


def _eta_s(expected: Expected | None) -> float | None:
    """Rounded: what has not changed to the eye is no news."""
    return None if expected is None or expected.eta_s is None else round(expected.eta_s, 1)


def show_start(start: Start, same_definition: bool) -> tuple[bytes, bytes]:
    """The document of an earlier start, or of the present one: over the socket, and over TCP."""
    full = {
        "invocation": start.invocation,
        "attempt": start.attempt,
        "launched": rfc3339(start.launched),
        "same_definition": same_definition,
        "watched": start.watched,
        "steps": [{"step": step, "at_s": round(at_s, 3)} for step, at_s in start.steps],
        "ready_s": _round(start.ready_s),
        "ended_s": _round(start.ended_s),
        "outcome": start.outcome,
        "cause": {"slug": start.cause_slug, "text": start.cause_text} if start.cause_slug else None,
        "exit": _exit(start.exit),
    }
    if start.cause_slug is None or start.cause_slug in OPEN:
        return (content := dump(full)), content
    return dump(full), dump({**full, "cause": {"slug": start.cause_slug, "text": _title(start.cause_slug)}})


def _title(slug: str) -> str:
    """What a cause means, in general words."""
    return CATALOG[slug].text if slug in CATALOG else CATALOG["unknown"].text


def _remedy(slug: str) -> str:
    """What to do about a cause, in general words."""
    return CATALOG[slug].remedy if slug in CATALOG else CATALOG["unknown"].remedy


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _cause(cause: Cause | None) -> Document | None:
    if cause is None:
        return None
    return {
        "slug": cause.slug,
        "line": cause.line,
        "text": cause.text,
        "remedy": cause.remedy,
        "retry": cause.retry,
    }


def _exit(how: Exit | None) -> Document | None:
    if how is None:
        return None
    return {"code": how.code, "signal": how.signal, "oom": how.oom, "asked": how.asked, "stopped": how.stopped}


def status(
    agent: Document, host: Document, servers: Sequence[Document] | Sequence[str], degraded: list[str]
) -> Document:
    """The document of GET /status; with the names of servers, the one of an event `status`.

    GPUs and holds are empty until they are read and kept.
    """
    return {
        "agent": agent,
        "host": host,
        "servers": servers,
        "gpus": {"state": "not-read", "devices": []},
        "holds": [],
        "degraded": degraded,
    }


def dump(document: Mapping[str, Any]) -> bytes:
    """JSON as the API sends it."""
    return json.dumps(document, separators=(",", ":")).encode()


def rfc3339(unix_s: float) -> str:
    """Unix seconds -> RFC 3339, UTC, milliseconds."""
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
