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
from agent.core.model import STAGE_CODE, Cause, Exit, Need, Stage, State, Volume
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
    {
        "agent_away",
        "gpus_unread",
        "host_rebooted",
        "host_shutdown",
        "port_taken",
        "stalled",
        "start_limit",
        "unhealthy",
        "unkillable",
    }
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
        "needs": _needs(state, wall),
        "cause": _cause(state.cause),
        "exit": _exit(state.exit),
        "storage": [_storage(volume) for volume in state.volumes],
        "tail": list(face.tail),
    }


def _public(document: Document, state: State) -> Document:
    """The document without a word of the log and of the command: what anybody who reaches the TCP port may read."""
    shown = {**document, "needs": [_general(need) for need in document["needs"]], "storage": [], "tail": []}
    cause = state.cause
    if cause is not None and cause.slug not in OPEN:
        shown["cause"] = {**document["cause"], "text": _title(cause.slug), "remedy": _remedy(cause.slug)}
        if state.blocked:
            shown["why"] = _title(cause.slug)
    if state.stage is Stage.WAITING and state.seen.needs:
        shown["why"] = f"waiting for {', '.join(need.name for need in state.seen.needs)}"
    return shown


def _needs(state: State, wall: Callable[[float], float]) -> list[Document]:
    """What is not met, as of the last look."""
    unmet = list(state.seen.needs or () if state.checked else ())
    if state.stage is Stage.WAITING and state.saved.gpu_check and state.seen.gpus_unread is not None:
        unmet.append(Need(name="gpus", cause=state.seen.gpus_unread, heals=True))
    return [
        {
            "name": need.name,
            "slug": need.cause.slug,
            "subject": need.subject,
            "text": need.cause.text,
            "remedy": need.cause.remedy,
            "heals": need.heals,
            "since": rfc3339(wall(state.since if need.since is None else need.since)),
        }
        for need in unmet
    ]


def _general(need: Document) -> Document:
    """The need without a word of the definition."""
    slug = need["slug"]
    return need if slug in OPEN else {**need, "subject": "", "text": _title(slug), "remedy": _remedy(slug)}


def _storage(volume: Volume) -> Document:
    """Rounded: what has not changed to the eye is no news."""
    space = volume.space
    return {
        "path": space.path,
        "free_mib": _rough(space.free_mib, 3),
        "free_inodes": _rough(space.free_inodes, 3),
        "lasts_s": _rough(volume.lasts_s, 2),
        "state": "unknown" if volume.unread else volume.fill,
    }


def _rough(figure: float | None, digits: int) -> float | None:
    return None if figure is None else float(f"{figure:.{digits}g}")


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
        "outage": _outage(start),
    }
    if start.cause_slug is None or start.cause_slug in OPEN:
        return (content := dump(full)), content
    return dump(full), dump({**full, "cause": {"slug": start.cause_slug, "text": _title(start.cause_slug)}})


def _outage(start: Start) -> Document | None:
    if (outage := start.outage) is None:
        return None
    return {"since": rfc3339(outage.since), "lasted_s": _round(outage.lasted_s), "attempts": outage.tries}


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
    agent: Document,
    host: Document,
    servers: Sequence[Document] | Sequence[str],
    gpus: Document,
    holds: Sequence[Document],
    degraded: list[str],
) -> Document:
    """The document of GET /status; with the names of servers, the one of an event `status`."""
    return {
        "agent": agent,
        "host": host,
        "servers": servers,
        "gpus": gpus,
        "holds": list(holds),
        "degraded": degraded,
    }


def dump(document: Mapping[str, Any]) -> bytes:
    """JSON as the API sends it."""
    return json.dumps(document, separators=(",", ":")).encode()


def rfc3339(unix_s: float) -> str:
    """Unix seconds -> RFC 3339, UTC, milliseconds."""
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
