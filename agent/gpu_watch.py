"""The GPUs as they were last read: one reader for the host, as often as its servers need it, none while nobody asks.

It decides nothing. A look takes the first reading that began after it did: an older one proves nothing of now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from agent.core.gpu_seen import REMEDY, GpuDevice, GpuReading, GpuState, HolderKind, ProcessOwner, all_uses
from agent.core.model import Cause, Gpu, Holder, Process, Retry
from agent.keeping import wait
from agent.ports import Gpus, Holders

IDLE_S = 1.0
CLOSE_S = 0.1
"""While a server begins or ends: memory is back 0.13 to 0.2 s after the last process ended."""
BETWEEN_S = 0.05
"""At least between two readings, however many look."""
LATELY_S = 60.0
"""Where no server names a GPU, the reader ends so long after somebody has asked to see them."""
PATIENCE_S = 1.0
"""A look waits for a reading so long at most: a driver that hangs must not keep it from the rest."""

UNREAD: Mapping[GpuState, str] = {
    GpuState.OPENING: "GPU driver opening",
    GpuState.NO_LIBRARY: "GPU driver's library missing",
    GpuState.NO_DRIVER: "GPU driver not loaded",
    GpuState.NO_DEVICES: "no GPU found",
    GpuState.NO_PERMISSION: "no permission to look at the GPUs",
    GpuState.GPU_LOST: "GPU lost",
    GpuState.VERSION_MISMATCH: "GPU driver and its library differ",
    GpuState.HUNG: "GPU driver hung",
    GpuState.ERROR: "GPU driver failed",
}
LATE = "GPU driver not answering yet"
NOBODY = "nothing here reads GPUs"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class GpuEyes:
    """`open` makes a reader, which is closed when nobody asks any more; `holders` tells whose the processes are."""

    open: Callable[[], Gpus]
    holders: Holders


@dataclass(frozen=True, slots=True)
class GpuLook:
    """What one look of a server's found: the GPUs, or why there are none."""

    gpus: tuple[Gpu, ...] | None = None
    unread: Cause | None = None


class GpuWatch:
    """The one place where GPUs are read. Of the loop's thread alone."""

    def __init__(self, eyes: GpuEyes | None = None) -> None:
        """None: there is nothing that could read them."""
        self.latest: GpuReading | None = None  # None: nobody has needed one lately
        self._eyes = eyes
        self._reader: Gpus | None = None
        self._asked_at: float | None = None
        self._now = asyncio.Event()
        self._told = asyncio.Event()  # set, and replaced, with each reading
        self._pace_s: Callable[[], float | None] = lambda: None
        self._own: Callable[[], Mapping[Process, str]] = dict
        self._changed: Callable[[], None] = lambda: None

    def attend(
        self,
        pace_s: Callable[[], float | None],
        own: Callable[[], Mapping[Process, str]],
        changed: Callable[[], None],
    ) -> None:
        """Whom it reads for. `pace_s`: between two readings; None: no server needs any. `own`: processes of servers.

        `changed` is called when the state of the driver has; figures change all the time.
        """
        self._pace_s, self._own, self._changed = pace_s, own, changed

    def ask(self) -> None:
        """Somebody wants to see the GPUs, whether a server names them or not."""
        if self._asked_at is None:
            self._now.set()
        self._asked_at = self._time()

    async def look(self, began: float) -> GpuLook:
        """The GPUs as a reading shows them that began at `began` or later; within `PATIENCE_S`."""
        if self._eyes is None:
            return GpuLook(unread=_cause(NOBODY, ""))
        end = self._time() + PATIENCE_S
        while self.latest is None or self.latest.began < began:
            if (left_s := end - self._time()) <= 0:
                return GpuLook(unread=self._late())
            self._now.set()
            await wait(self._told, left_s)
        if self.latest.state is GpuState.OK:
            return GpuLook(gpus=gpus_of(self.latest))
        return GpuLook(unread=unread(self.latest))

    def _late(self) -> Cause:
        """The fault that is known stays the one to tell while it may be over."""
        if (last := self.latest) is not None and last.state is not GpuState.OK:
            return unread(last)
        return _cause(LATE, REMEDY[GpuState.OPENING])

    # -- the task --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read until cancelled."""
        if (eyes := self._eyes) is None:
            return
        try:
            while True:
                self._now.clear()
                if (pause_s := self._pause_s()) is None:
                    await self._rest(eyes)
                    await wait(self._now, IDLE_S)
                    continue
                self._reader = self._reader or eyes.open()
                self._take(eyes.holders.resolve(await self._reader.read(), self._own()))
                await asyncio.sleep(BETWEEN_S)
                await wait(self._now, pause_s - BETWEEN_S)
        finally:
            await self._close(eyes)

    def _pause_s(self) -> float | None:
        if (pause_s := self._pace_s()) is not None:
            return pause_s
        lately = self._asked_at is not None and self._time() - self._asked_at < LATELY_S
        if not lately:
            self._asked_at = None
        return IDLE_S if lately else None

    def _take(self, reading: GpuReading) -> None:
        before, self.latest = self.latest, reading
        told, self._told = self._told, asyncio.Event()
        told.set()
        if before is not None and (before.state, before.why) == (reading.state, reading.why):
            return
        if before is None or before.state is not reading.state:
            well = reading.state is GpuState.OK
            say = log.info if well else log.warning
            say("the GPUs are read" if well else "the GPUs cannot be read", state=reading.state, why=reading.why)
        self._changed()

    async def _rest(self, eyes: GpuEyes) -> None:
        """Nobody asks. A reader that hangs stays known, so that there is never another beside it."""
        if self._reader is not None and self._reader.stuck is None:
            await self._close(eyes)
        if self.latest is not None:
            self.latest = None
            self._changed()

    async def _close(self, eyes: GpuEyes) -> None:
        eyes.holders.close()
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()

    @staticmethod
    def _time() -> float:
        return asyncio.get_running_loop().time()


# -- a reading in the words of the core ----------------------------------------------------------------


def gpus_of(reading: GpuReading) -> tuple[Gpu, ...]:
    """What the core needs of it."""
    owners = {owner.pid: owner for owner in reading.owners}
    return tuple(_gpu(device, owners) for device in reading.devices)


def unread(reading: GpuReading) -> Cause:
    """Why it tells nothing of what is free."""
    return _cause(f"{UNREAD[reading.state]}: {reading.why}" if reading.why else UNREAD[reading.state], reading.remedy)


def _cause(text: str, remedy: str) -> Cause:
    return Cause(slug="gpus_unread", text=text, remedy=remedy, retry=Retry.WAIT)


def _gpu(device: GpuDevice, owners: Mapping[int, ProcessOwner]) -> Gpu:
    memory, well = device.memory, device.state is GpuState.OK
    uses = all_uses(device)
    return Gpu(
        uuid=device.uuid,
        index=device.index,
        total_mib=memory.total_mib if memory else None,
        free_mib=memory.free_mib if memory and well else None,
        holders=tuple(_holder(use.pid, use.mib, owners.get(use.pid)) for use in uses),
        fault="" if well else f"{device.state.replace('_', ' ')}: {device.why}; {device.remedy}",
    )


def _holder(pid: int, mib: int | None, owner: ProcessOwner | None) -> Holder:
    if owner is None:  # not resolved
        return Holder(pid=pid, mib=mib, kind=HolderKind.STRAY)
    since = "" if owner.since is None else f"{datetime.fromtimestamp(owner.since, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return Holder(pid=pid, mib=mib, kind=owner.kind, owner=_named(owner), since=since)


def _named(owner: ProcessOwner) -> str:
    """Whose it is, for a person."""
    if owner.kind in (HolderKind.OURS, HolderKind.SIBLING):
        return f"server {owner.owner}"
    if owner.kind is HolderKind.STRAY and owner.name:
        return f"{owner.name} of {owner.user}" if owner.user else owner.name
    if owner.kind is HolderKind.GHOST:
        return f"an unknown process ({owner.owner})"
    return owner.owner
