"""The room on the disks that one server writes to, as it was last seen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from agent.core import storage
from agent.core.model import Fill, Space, Stage, State
from agent.keeping import wait
from agent.ports import Storage

LOOK_S = 5.0
CLOSE_LOOK_S = 1.0
SOON_S = 120.0
"""What lasts less long is looked at more often: a fast disk takes some GiB in a second."""


log = structlog.get_logger()


class StorageReading:
    """`latest`: nothing while nobody wants the server. `told()` is called when it is worth a look at once."""

    def __init__(self, disks: Storage, state: Callable[[], State], told: Callable[[], None]) -> None:
        self.latest: tuple[Space, ...] = ()
        self._disks = disks
        self._state = state
        self._told = told
        self._now = asyncio.Event()
        self._told_of: tuple[Space, ...] = ()
        self._logged: frozenset[str] = frozenset()

    def now(self) -> None:
        """The stage has changed."""
        self._now.set()

    @property
    def marks(self) -> Mapping[str, str]:
        """What a person should know of them -> why."""
        return storage.marks(self._state().volumes)

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            self._now.clear()
            if self._state().stage is Stage.DOWN:
                self.latest = self._told_of = ()
                await wait(self._now, None)
                continue
            self.latest = await self._disks.look(asyncio.get_running_loop().time())
            if self._close() or storage.moved(self._told_of, self.latest):
                self._told_of = self.latest
                self._told()
            await asyncio.sleep(CLOSE_LOOK_S)
            self._log()
            if not self._close():  # as it was told since
                await asyncio.sleep(LOOK_S - CLOSE_LOOK_S)

    def _log(self) -> None:
        """What has begun or ended since; not each new figure."""
        marks = self.marks
        for mark in marks.keys() - self._logged:
            log.warning("the disks of a server", mark=mark, why=marks[mark])
        for mark in self._logged - marks.keys():
            log.info("the disks of a server: no longer", mark=mark)
        self._logged = frozenset(marks)

    def _close(self) -> bool:
        """Whether there is little room, or will be soon."""
        return any(
            not volume.unread and (volume.fill is not Fill.OK or (volume.lasts_s or SOON_S) < SOON_S)
            for volume in self._state().volumes
        )
