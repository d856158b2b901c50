"""Outages: from the last moment at which a wanted server served to the one at which it serves again. Pure.

A server is missed when it ends and nobody has chosen that: it crashes, or goes down with its host or its agent. It is
missed until it serves or is wanted no more, over any number of attempts, boots and runs of the agent. Times are Unix
seconds, for no other clock goes on while a host is off: one that was set meanwhile makes a length that is not known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """What a start is to put an end to, or has. `tries`: the attempts so far, that start included."""

    since: float
    tries: int = 1
    lasted_s: float | None = None  # None: it is not over, or nobody knows


def before(missed_at: float | None, last: Outage | None, served: bool) -> Outage | None:
    """Of a start that is launched now. Of the start before it: since when that is missed, its outage, if it served."""
    if missed_at is None:
        return None
    if last is None or served:
        return Outage(since=missed_at)
    return replace(last, tries=last.tries + 1)


def words(outage: Outage) -> str:
    """`back after 7 min 12 s, 2 attempts`; empty while it is not over."""
    if outage.lasted_s is None:
        return ""
    return f"back after {_long(outage.lasted_s)}, {outage.tries} attempt{'s' if outage.tries > 1 else ''}"


def _long(seconds: float) -> str:
    minutes, whole = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole} s" if minutes else f"{seconds:.1f} s"


def over(outage: Outage | None, unix_s: float) -> Outage | None:
    """The server serves since `unix_s`."""
    if outage is None or unix_s < outage.since:
        return outage
    return replace(outage, lasted_s=unix_s - outage.since)
