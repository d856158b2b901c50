"""The figures that a log tells of its server."""

from __future__ import annotations

import re

_MOST = 64
_COUNTED = re.compile(r"\d{1,3}(?:,\d{3})+")  # 214,368
_LARGEST = ("_s", "weights_gib", "checkpoint_gib")
Facts = dict[str, float | str]


def note(facts: Facts, name: str, of: str | None, value: str) -> None:
    """The last value holds. But what belongs to a device (`of`) is summed up: it may come in several parts.

    Of durations (`..._s`) and of the weights the largest holds: the slowest rank's, the model's and not its drafter's.
    """
    key = f"{name}.{of}" if of else name
    if key not in facts and len(facts) >= _MOST:
        return
    value = value.replace(",", "") if _COUNTED.fullmatch(value) else value
    try:
        fact = float(value) if "." in value else int(value)
    except ValueError:
        facts[key] = value
        return
    known = facts.get(key)
    if isinstance(known, str) or known is None:
        facts[key] = fact
    elif of:
        facts[key] = round(known + fact, 2)
    else:
        facts[key] = max(known, fact) if name.endswith(_LARGEST) else fact
