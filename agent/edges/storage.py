"""How much room there is on the file systems that a server writes to."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

from agent.core.model import Space
from agent.edges.bounded import LATE, BoundedThread
from agent.errors import EdgeError
from agent.privileged.mounts import mounts
from agent.privileged.space import take_a_write

LIMIT_S = 2.0
"""Microseconds in health, some milliseconds over a network: one that takes longer is as good as frozen."""
MIB = 1 << 20
HOST = Path("/proc/1/mountinfo")


class FileSystems:
    """Implements `agent.ports.Storage`. Each folder has a thread of its own, so that a frozen one costs that alone.

    A folder that is not there yet stands for the one in which it would be made. Of one that we may not enter (a private
    home) the file system is found in the table of mounts. Folders on one file system: the first of them is told.
    """

    def __init__(self, folders: Sequence[Path], host: Path = HOST) -> None:
        self._threads = {folder: BoundedThread("storage") for folder in folders}
        self._host = host
        self._hangs: dict[Path, str] = {}  # why the first look that had no answer failed

    async def look(self, at: float) -> tuple[Space, ...]:
        """See `agent.ports.Storage`."""
        found = await asyncio.gather(*(self._read(folder, at) for folder in self._threads))
        first = {device: space for device, space in reversed(found) if device is not None}
        return tuple(space for device, space in found if device is None or first[device] is space)

    async def _read(self, folder: Path, at: float) -> tuple[int | None, Space]:
        """With its device; None: it is not known."""
        try:
            device, room = await self._threads[folder].run(
                f"look at {folder}", LIMIT_S, lambda _: measure(folder, self._host)
            )
        except EdgeError as error:
            late = f"storage stalled: does not answer since {time.strftime('%H:%M:%S UTC', time.gmtime())}"
            why = self._hangs.setdefault(folder, late if error.slug == LATE else error.why)
            return None, Space(path=str(folder), at=at, why=why)
        self._hangs.pop(folder, None)
        return device, Space(
            path=str(folder),
            at=at,
            total_mib=room.f_blocks * room.f_frsize / MIB,
            free_mib=room.f_bavail * room.f_frsize / MIB,
            total_inodes=room.f_files or None,
            free_inodes=room.f_favail if room.f_files else None,
        )


def measure(folder: Path, host: Path = HOST) -> tuple[int, os.statvfs_result]:
    """The device, and the room on it. Blocks while the file system does. OSError."""
    for place in (folder, *folder.parents):
        try:
            read = os.stat(place).st_dev, os.statvfs(place)
            take_a_write(str(place))  # a frozen one tells its room all the same
            return read
        except FileNotFoundError:
            continue
        except PermissionError:
            break
    return _by_mount(folder, host)


def _by_mount(folder: Path, host: Path) -> tuple[int, os.statvfs_result]:
    """By a place at which we, too, see the file system that pid 1 sees there. What hides it from us is another one."""
    above = {folder, *folder.parents}
    table = [(Path(mount.point), mount.device) for mount in mounts(host).values()]
    found = [(len(where.parts), turn, device) for turn, (where, device) in enumerate(table) if where in above]
    *_, device = max(found, default=(0, 0, 0))  # of two at one place, the later one lies on top
    for mount in mounts().values():
        if mount.device != device:
            continue
        try:
            seen = os.stat(mount.point).st_dev
            if seen == device:
                return seen, os.statvfs(mount.point)
        except (FileNotFoundError, PermissionError):
            continue
    raise PermissionError(0, "it is hidden from the agent: name a folder on that disk that it may see")
