"""Room on file systems, as the server's user may use it; and whether they take a write at all."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from agent.core.seen import Need
from agent.privileged.files import unmet

MIB = 1 << 20
SHM = "/dev/shm"  # noqa: S108 - what NCCL and the engines' processes share
NO_NAME = "x" * 1500
"""Longer than a name of any file system can be (255 bytes; FUSE: 1024)."""


def nearest(path: str) -> Path:
    """The path, or the nearest folder above it that is there: what the server will make lies on it."""
    return next(one for one in (Path(path), *Path(path).parents) if os.path.exists(one))


def little_space(path: str, need_mib: int) -> Need | None:
    """Free for others than root."""
    state = os.statvfs(nearest(path))
    free_mib = state.f_bavail * state.f_frsize // MIB
    if free_mib >= need_mib:
        return None
    text = f"{path} has {free_mib} MiB free, of {need_mib} MiB needed"
    return unmet("space", "space_low", text, f"Free space below {path}.", subject=path, heals=True)


def few_inodes(path: str, need: int) -> Need | None:
    """A file system without a fixed number of them says 0 of 0."""
    state = os.statvfs(nearest(path))
    if state.f_files == 0 or state.f_favail >= need:
        return None
    text = f"{path} has {state.f_favail} inodes free, of {need} needed"
    return unmet("inodes", "space_low", text, f"Remove files that nobody needs below {path}.", subject=path, heals=True)


def shared_memory(size_mib: int, free_mib: int, folder: str = SHM) -> Need | None:
    """Its size is an administrator's to mend; its free space also comes back when others end."""
    if not size_mib and not free_mib:
        return None
    state = os.statvfs(folder)
    has_mib, free = state.f_blocks * state.f_frsize // MIB, state.f_bavail * state.f_frsize // MIB
    if has_mib < size_mib:
        text = f"{folder} has a size of {has_mib} MiB, of {size_mib} MiB needed"
        remedy = f"Enlarge it: mount -o remount,size={size_mib}M {folder}; for every boot, in /etc/fstab."
        return unmet("shm", "shm_small", text, remedy, subject=folder)
    if free >= free_mib:
        return None
    text = f"{folder} has {free} MiB free, of {free_mib} MiB needed"
    remedy = f"End what holds it, or remove what dead processes have left there: ls -l {folder}"
    return unmet("shm", "space_low", text, remedy, subject=folder, heals=True)


def take_a_write(folder: str) -> None:
    """Return once the file system there takes writes: one that is frozen lets whoever writes wait, and reads well.

    Removes a name that cannot be there: the kernel waits for the file system first, and then finds nothing to do.
    """
    with suppress(OSError):  # too long, in health; or read-only, or a folder that may not be entered
        os.unlink(os.path.join(folder, NO_NAME))


def stalled(path: str, since: float) -> Need:
    """A look there, or a write, waits since then, Unix seconds."""
    text = f"Storage stalled: {path} does not answer since {time.strftime('%H:%M:%S UTC', time.gmtime(since))}"
    remedy = "See its disk or its server (dmesg, findmnt). Once it answers, all goes on by itself."
    return unmet("storage", "storage_stalled", text, remedy, subject=path, heals=True)
