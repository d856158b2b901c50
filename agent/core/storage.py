"""Readings of the disks that a server writes to -> enough, warn, low; how long they last; what follows. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from agent.core.model import Cause, Fill, Need, Policy, Retry, Seen, Space, State, Volume

SHM = "/dev/shm"  # noqa: S108 - shared memory: a name, and nothing is made there
"""Its room is said, and never acted upon: a healthy server may have filled it on purpose."""
SLUG = "disk_low"
MIB, GIB = 1.0, 1024.0
WARN_MIB, LOW_MIB = 10 * GIB, 2 * GIB
WARN_PART, LOW_PART = 0.10, 0.02
"""Of a file system that is so small that the amounts above would be most of it."""
WARN_INODES, LOW_INODES = 10_000, 1_000
WARN_INODES_PART, LOW_INODES_PART = 0.05, 0.01
AGAIN = 1.1
"""So much more than the limit ends a warning: it must not come and go with each file."""
POINT_S, POINTS = 10.0, 19
"""The present rate is that of the last three minutes."""
MOVED_PART = 0.01
"""Of all the room: a change that is worth a look at once. What moves less, the next look takes along."""
LONG_S = 30 * 86_400.0
"""What lasts longer is not said to end."""


# -- over time -----------------------------------------------------------------------------------------


def follow(volumes: tuple[Volume, ...], readings: tuple[Space, ...] | None, policy: Policy) -> tuple[Volume, ...]:
    """What is known after these readings; None: there are none yet. The same again change nothing."""
    if readings is None:
        return volumes
    known = {volume.space.path: volume for volume in volumes}
    return tuple(_after(known.get(space.path), space, policy) for space in readings)


def moved(before: tuple[Space, ...], now: tuple[Space, ...]) -> bool:
    """Whether these readings are worth a look at once, after those: at rest a look for each would double them all."""
    known = {space.path: space for space in before}
    return known.keys() != {space.path for space in now} or any(_moved(known[space.path], space) for space in now)


def _moved(before: Space, now: Space) -> bool:
    measures = (
        (before.free_mib, now.free_mib, now.total_mib),
        (before.free_inodes, now.free_inodes, now.total_inodes),
    )
    for then, left, total in measures:
        if (then is None) != (left is None):
            return True
        if then is not None and left is not None and abs(then - left) > MOVED_PART * (total or 0):
            return True
    return False


def _after(before: Volume | None, now: Space, policy: Policy) -> Volume:
    if now.free_mib is None:
        return replace(before or Volume(space=now), unread=now.why or "not known")
    if before is not None and before.space == now:
        return before
    past = _past(before, now)
    warn, low = limits_mib(now, policy)
    bytes_fill = _fill(before.bytes_fill if before else Fill.OK, now.free_mib, warn, low)
    inodes_fill = _inodes_fill(before.inodes_fill if before else Fill.OK, now)
    return Volume(space=now, bytes_fill=bytes_fill, inodes_fill=inodes_fill, lasts_s=_lasts_s(past, now), past=past)


def _past(before: Volume | None, now: Space) -> tuple[Space, ...]:
    """The earlier readings, one each ten seconds. Of another file system in its place they say nothing."""
    if before is None or before.space.free_mib is None or before.space.total_mib != now.total_mib:
        return ()
    past = before.past
    if not past or before.space.at - past[-1].at >= POINT_S:
        past = (*past, before.space)
    return past[-POINTS:]


def _fill(before: Fill, free: float, warn: float, low: float) -> Fill:
    """`low` ends where no warning would begin, so that what is started again has some way to go."""
    if free < low or (before is Fill.LOW and free < warn):
        return Fill.LOW
    return Fill.WARN if free < warn or (before is not Fill.OK and free < AGAIN * warn) else Fill.OK


def _inodes_fill(before: Fill, now: Space) -> Fill:
    if not now.total_inodes or now.free_inodes is None:  # a file system that makes them as it needs them
        return Fill.OK
    warn = min(WARN_INODES, WARN_INODES_PART * now.total_inodes)
    return _fill(before, now.free_inodes, warn, min(LOW_INODES, LOW_INODES_PART * now.total_inodes))


def limits_mib(space: Space, policy: Policy) -> tuple[float, float]:
    """Below which there is a warning, and below which it is low. What the operator says is of disks, not of memory."""
    total = space.total_mib or 0.0
    warn, low = min(WARN_MIB, WARN_PART * total), min(LOW_MIB, LOW_PART * total)
    if space.path != SHM:
        low = float(policy.disk_low_mib) if policy.disk_low_mib is not None else low
        warn = float(policy.disk_warn_mib) if policy.disk_warn_mib is not None else warn
    return max(warn, low), low


def _lasts_s(past: tuple[Space, ...], now: Space) -> float | None:
    """Until the bytes or the inodes are used up, whichever is first."""
    if not past or now.at - past[0].at < POINT_S:
        return None
    span_s, first = now.at - past[0].at, past[0]
    measures = ((first.free_mib, now.free_mib), (first.free_inodes, now.free_inodes))
    ends = [_ends_s(then, left, span_s) for then, left in measures if then is not None and left is not None]
    soonest = min((end for end in ends if end is not None), default=LONG_S)
    return soonest if soonest < LONG_S else None


def _ends_s(then: float, left: float, span_s: float) -> float | None:
    return left * span_s / (then - left) if then > left else None


# -- what follows --------------------------------------------------------------------------------------


def with_needs(seen: Seen, state: State, volumes: tuple[Volume, ...], policy: Policy) -> Seen:
    """The look, with the need of room where that is too little, and the operator wants nothing to run then.

    While nothing is known of the room, nothing is known of what it needs.
    """
    if seen.needs is None or policy.on_disk_low != "stop":
        return seen
    if not volumes:
        return replace(seen, needs=None)
    others = tuple(need for need in seen.needs if need.cause.slug != SLUG)
    low = [_need(volume, state.cause, policy) for volume in too_full(volumes, policy)]
    needs = (*others, *low[:1])
    return seen if needs == seen.needs else replace(seen, needs=needs)


def too_full(volumes: tuple[Volume, ...], policy: Policy) -> list[Volume]:
    """Those for which the server ends, or is not launched."""
    if policy.on_disk_low != "stop":
        return []
    return low(volumes)


def low(volumes: tuple[Volume, ...]) -> list[Volume]:
    """Those with too little room. What fills /dev/shm is a server's, and no cache."""
    return [volume for volume in volumes if volume.fill is Fill.LOW and volume.space.path != SHM]


def _need(volume: Volume, cause: Cause | None, policy: Policy) -> Need:
    """It keeps the figures of its beginning: each new one would be news."""
    same = cause is not None and cause.slug == SLUG and cause.text.startswith(f"{volume.space.path}: ")
    said = cause if cause and same else low_cause(volume, policy)
    return Need(name="disk", cause=said, heals=False, subject=volume.space.path)


def low_cause(volume: Volume, policy: Policy) -> Cause:
    """Why a server is ended, or not launched, for want of room."""
    inodes = volume.bytes_fill is not Fill.LOW
    warn, low = limits_mib(volume.space, policy)
    limit = "too few inodes" if inodes else f"less than {_mib(low)}"
    enough = "inodes" if inodes else _mib(warn)
    return Cause(
        slug=SLUG,
        text=f"{volume.space.path}: {said(volume)}: {limit}",
        remedy=f"Free space there (df -h, df -i, du); it goes on by itself once {enough} are free.",
        retry=Retry.WAIT,
    )


# -- in words ------------------------------------------------------------------------------------------


def said(volume: Volume) -> str:
    """How much room there is, and how long it will last."""
    space = volume.space
    words = f"{_mib(space.free_mib or 0.0)} of {_mib(space.total_mib or 0.0)} free"
    if volume.inodes_fill is not Fill.OK:
        words += f", {space.free_inodes} of {space.total_inodes} inodes free"
    if volume.lasts_s is not None:
        words += f", full in {_span(volume.lasts_s)} at the present rate"
    return words


def marks(volumes: tuple[Volume, ...]) -> Mapping[str, str]:
    """What a person should know of them: mark -> why."""
    found: dict[str, list[str]] = {}
    for volume in volumes:
        for mark, why in _marks(volume):
            found.setdefault(mark, []).append(f"{volume.space.path}: {why}")
    return {mark: "; ".join(whys) for mark, whys in found.items()}


def _marks(volume: Volume) -> Iterator[tuple[str, str]]:
    if volume.unread:
        yield "storage-not-seen", volume.unread
    elif volume.fill is not Fill.OK:
        yield f"disk-{volume.fill}", said(volume)


def _mib(mib: float) -> str:
    return f"{mib / GIB:.1f} GiB" if mib >= GIB else f"{mib:.0f} MiB" if mib >= 10 * MIB else f"{mib:.1f} MiB"


def _span(seconds: float) -> str:
    """Roughly: it is a guess, and each new figure would be news."""
    for unit_s, unit in ((86_400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{seconds:.0f} s"
