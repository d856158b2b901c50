"""Saved as JSON and back, strictly: what does not fit is an error, never a guess. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agent.core.holds import Holds
from agent.core.model import Saved, Want

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
UNIT = re.compile(r"[A-Za-z0-9:_.@\\-]{1,255}")
LAST_UNIX_S = 253_402_300_800.0  # the year 10000, which no date can say
FORGOTTEN = frozenset({"holds"})
"""Of version 1, where holds were said of each server, and nothing was ever turned off."""
KEYS = frozenset(
    {
        "want",
        "asks",
        "gpu_check",
        "attempt",
        "failures",
        "invocation",
        "running",
        "served",
        "over",
        "back",
        "gave_up",
    }
)


def to_json(saved: Saved) -> dict[str, Any]:
    """Plain lists, numbers and strings, in a stable order."""
    return {
        "want": saved.want.value if saved.want is not None else None,
        "asks": saved.asks,
        "gpu_check": saved.gpu_check,
        "attempt": saved.attempt,
        "failures": list(saved.failures),
        "invocation": saved.invocation,
        "running": saved.running,
        "served": saved.served,
        "over": sorted(saved.over),
        "back": saved.back,
        "gave_up": saved.gave_up,
    }


def from_json(value: object) -> tuple[Saved, list[str]]:
    """What was saved, and the keys that nobody knows. A missing key has its default. ValueError: a wrong type."""
    if not isinstance(value, dict):
        raise ValueError("is not an object")
    saved = Saved(
        want=_want(value.get("want")),
        asks=_count(value, "asks"),
        gpu_check=_flag(value, "gpu_check", True),
        attempt=_count(value, "attempt"),
        failures=tuple(_words(value, "failures")),
        invocation=_text(value, "invocation"),
        running=_flag(value, "running", False),
        served=_flag(value, "served", False),
        over=frozenset(_words(value, "over")),
        back=_text(value, "back"),
        gave_up=_text(value, "gave_up"),
    )
    return saved, sorted(set(value) - KEYS - FORGOTTEN)


def holds_to_json(holds: Holds) -> dict[str, Any]:
    """Plain lists, numbers and strings, in a stable order."""
    held = {unit: holds.held[unit] for unit in sorted(holds.held)}
    return {"begun": holds.begun, "held": held, "exempt": sorted(holds.exempt)}


def holds_from_json(value: object) -> tuple[Holds, list[str]]:
    """What was saved, and the keys that nobody knows. ValueError: a wrong type, or what is no unit's name."""
    if not isinstance(value, dict):
        raise ValueError("is not an object")
    held, exempt = value.get("held", {}), _words(value, "exempt")
    if not isinstance(held, dict) or not all(_is_time(since) for since in held.values()):
        raise ValueError("held is not an object of times")
    if strange := [unit for unit in (*held, *exempt) if UNIT.fullmatch(unit) is None]:
        raise ValueError(f"{strange[0][:40]!r} is no unit's name")
    saved = Holds(
        begun=_flag(value, "begun", False),
        held={unit: float(since) for unit, since in held.items()},
        exempt=frozenset(exempt),
    )
    return saved, sorted(set(value) - {"begun", "held", "exempt"})


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LAST_UNIX_S


def _want(value: object) -> Want | None:
    if value is None:
        return None
    if not isinstance(value, str) or value not in set(Want):
        raise ValueError(f"want is {value!r}")
    return Want(value)


def _flag(value: Mapping[str, object], key: str, default: bool) -> bool:
    flag = value.get(key, default)
    if not isinstance(flag, bool):
        raise ValueError(f"{key} is not true or false")
    return flag


def _count(value: Mapping[str, object], key: str) -> int:
    count = value.get(key, 0)
    if type(count) is not int or count < 0:  # a bool is an int to isinstance
        raise ValueError(f"{key} is not a count")
    return count


def _text(value: Mapping[str, object], key: str) -> str | None:
    text = value.get(key)
    if text is not None and not isinstance(text, str):
        raise ValueError(f"{key} is not a text")
    return text


def _words(value: Mapping[str, object], key: str) -> list[str]:
    words = value.get(key, [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{key} is not a list of texts")
    return words
