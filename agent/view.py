"""What is shown of a State: the documents of the API, as plain data. The shapes are those of api/schema.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.board import ServerPage
from agent.core.model import STAGE_CODE, Cause, Exit, Stage, State
from agent.core.words import say

Document = dict[str, Any]

DEAD = frozenset({Stage.STOPPING, Stage.BACKING_OFF})
"""Stages that, with a cause, mean that the attempt which somebody may be waiting for has died."""


@dataclass(frozen=True, slots=True)
class Face:
    """What is shown of one server beside its State."""

    url: str
    log: Path | None
    tail: tuple[str, ...]
    title: Callable[[str], str]  # slug of a cause -> what it means, without a word of the log


@dataclass(frozen=True, slots=True)
class Shown:
    """One server as it is shown: its page, and its documents over the socket and over TCP."""

    page: ServerPage
    full: Document
    public: Document


def show(name: str, state: State, face: Face, wall: Callable[[float], float]) -> Shown:
    """What is shown of one server. `wall`: monotonic -> Unix seconds."""
    full = _document(name, state, face, wall)
    public = _public(full, state.cause, face)
    page = ServerPage(
        name=name,
        stage=state.stage,
        wanted=state.wanted and not state.closing,
        dead=state.stage is Stage.FAILED or (state.cause is not None and state.stage in DEAD),
        stalled=state.stalled,
        log=face.log,
        full=dump(full),
        public=dump(public),
    )
    return Shown(page, full, public)


def _document(name: str, state: State, face: Face, wall: Callable[[float], float]) -> Document:
    return {
        "name": name,
        "stage": state.stage,
        "stage_code": STAGE_CODE[state.stage],
        "step": state.step,
        "progress": state.progress,
        "eta_s": None,  # needs earlier starts to compare with
        "quiet": state.quiet,
        "stalled": state.stalled,
        "why": say(state),
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


def _public(document: Document, cause: Cause | None, face: Face) -> Document:
    """The document without a word of the server's log: what anybody who reaches the TCP port may read."""
    shown = {**document, "tail": []}
    if cause is not None and cause.quoted:
        shown["cause"] = {**document["cause"], "text": face.title(cause.slug)}
    return shown


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
    return {"code": how.code, "signal": how.signal, "oom": how.oom, "asked": how.asked}


def status(agent: Document, host: Document, servers: list[Document], degraded: list[str]) -> Document:
    """The document of GET /status. GPUs and holds are empty until they are read and kept."""
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
