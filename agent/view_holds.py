"""What is shown of the host's holds: GET /rivals, GET /holds, and the part of GET /status."""

from __future__ import annotations

from collections.abc import Sequence

from agent.core.hold_words import say
from agent.core.holds import Care, HoldState
from agent.view import Document, rfc3339


def holds(state: HoldState) -> list[Document]:
    """Each unit that stands in holds."""
    return [_hold(state, unit) for unit in sorted(state.want.held)]


def rivals(state: HoldState, warnings: Sequence[str]) -> Document:
    """Each unit that is listed, held or exempt, as it was last seen."""
    return {"rivals": [_rival(state, unit) for unit in sorted(state.watched)], "warnings": list(warnings)}


def _hold(state: HoldState, unit: str) -> Document:
    rival = state.seen.get(unit)
    return {
        "unit": unit,
        "in_force": rival is not None and rival.held,
        "since": _since(state, unit),
        "why": say(state, unit),
        "repairs": state.care.get(unit, Care()).repairs,
    }


def _rival(state: HoldState, unit: str) -> Document:
    rival = state.seen.get(unit)
    return {
        "unit": unit,
        "load": rival.load if rival else None,
        "active": rival.active if rival else None,
        "off": rival is not None and rival.off,
        "held": unit in state.want.held and unit not in state.want.exempt,
        "exempt": unit in state.want.exempt,
        "listed": unit in state.listed,
        "pids": list(rival.pids) if rival else [],
        "revivers": list(rival.revivers) if rival else [],
        "why": say(state, unit),
        "since": _since(state, unit),
    }


def _since(state: HoldState, unit: str) -> str | None:
    since = state.want.held.get(unit)
    return None if since is None else rfc3339(since)
