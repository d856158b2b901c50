"""Words for a terminal: safe, short, the same everywhere."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC, DCS and their like: titles, links, clipboards
    r"|\x1b[ -/]*[0-~]",  # the short ones
    re.DOTALL,
)
# Control characters but the tab; and those that turn the direction of text, with which a line can lie.
_CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(line: str) -> str:
    """One line of foreign text without anything that a terminal would obey.

    Of what a carriage return overwrote (progress bars) only the last remains, as on a terminal.
    """
    line = line.rstrip("\r\n").rpartition("\r")[2]
    return _CONTROLS.sub("", _ESCAPES.sub("", line)).replace("\t", "    ")


def duration(seconds: float) -> str:
    """For a person: 7 s, 3 min 5 s, 2 h 14 min, 3 d 4 h."""
    minutes, whole = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole} s" if minutes else f"{whole} s"


def age(since: str | None, now: datetime) -> str:
    """How long ago an RFC 3339 time was; an empty text when it is unknown."""
    if since is None:
        return ""
    return duration((now - datetime.fromisoformat(since)).total_seconds())


def utc_now() -> datetime:
    """The time, with its zone."""
    return datetime.now(UTC)
