"""What is mounted where, as this process sees it: /proc/self/mountinfo, and the file systems' own UUIDs.

Standard library only: it is run as the server's user.
"""

from __future__ import annotations

import fcntl
import os
import re
import uuid
from dataclasses import dataclass
from pathlib import Path

from agent.core.seen import Need
from agent.privileged.files import unmet

MOUNTINFO = "/proc/self/mountinfo"
BY_UUID = "/dev/disk/by-uuid"
GET_UUID = 0x80111500  # FS_IOC_GETFSUUID of linux/fs.h, Linux 6.9: struct fsuuid2 { u8 len; u8 uuid[16]; }
IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo."""

    number: int
    device: int  # as st_dev has it
    point: str
    kind: str
    source: str


def mounts(table: str | Path = MOUNTINFO) -> dict[int, Mount]:
    """All of them, by their number, in the table's order: what lies on top of another comes later."""
    found = {}
    text = os.fsdecode(Path(table).read_bytes())  # not as text, which parts lines where a name may have a \r
    for line in text.rstrip("\n").split("\n"):
        fields = line.split(" ")
        kind, source = fields[fields.index("-", 6) + 1 :][:2]
        major, _, minor = fields[2].partition(":")
        device = os.makedev(int(major), int(minor))
        found[int(fields[0])] = Mount(int(fields[0]), device, _plain(fields[4]), kind, _plain(source))
    return found


def _plain(text: str) -> str:
    """Spaces and the like are written as octal numbers there."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def mount_of(path: str) -> Mount | None:
    """The mount that `path` lies on: by its number, as of several at one place only one is seen. OSError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # an automount is mounted by this
    except PermissionError:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        told = Path(f"/proc/self/fdinfo/{fd}").read_text()
    finally:
        os.close(fd)
    number = next(int(line.split()[1]) for line in told.splitlines() if line.startswith("mnt_id:"))
    return mounts().get(number)


def mounted(path: str, wanted: str | None) -> Need | None:
    """Something is mounted at `path` itself, and is the file system with the UUID `wanted`, where one is said.

    A folder that merely is there proves nothing: it is what the mount would hide. The device does not count.
    """
    try:
        mount = mount_of(path)
    except OSError as error:
        return _missing(path, f"Mount {path}: {error.strerror}")
    if mount is None or mount.point != os.path.realpath(path) or mount.kind == "autofs":
        return _missing(path, f"Nothing is mounted at {path}")
    if wanted is None or wanted.lower() in (found := uuids(path, mount)):
        return None
    other = f"holds {', '.join(sorted(found))}" if found else "does not tell its UUID"
    text = f"{path} is not the file system with the UUID {wanted}: it {other}"
    remedy = f"Mount the right one at {path} (blkid shows the UUIDs), or correct needs.filesystems."
    return unmet("mount", "mount_missing", text, remedy, subject=path, heals=True)


def _missing(path: str, text: str) -> Need:
    remedy = f"Mount it (mount {path}, or see: systemctl --failed); the start goes on by itself."
    return unmet("mount", "mount_missing", text, remedy, subject=path, heals=True)


def uuids(path: str, mount: Mount) -> frozenset[str]:
    """Those that the mounted file system goes by, in small letters: its own word, and udev's of its device."""
    return _own(path) | _of_device(mount)


def _own(path: str) -> frozenset[str]:
    answer = bytearray(17)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return frozenset()
    try:
        fcntl.ioctl(fd, GET_UUID, answer)
    except OSError:  # an older kernel, or a file system without
        return frozenset()
    finally:
        os.close(fd)
    return frozenset({str(uuid.UUID(bytes=bytes(answer[1:])))} if answer[0] == 16 else ())


def _of_device(mount: Mount) -> frozenset[str]:
    devices = {mount.device}
    try:
        if mount.source.startswith("/") and mount.kind.partition(".")[0] != "fuse":  # there anybody may say any
            devices.add(os.stat(mount.source).st_rdev)  # btrfs: a mount's device number is nobody's
    except OSError:
        pass
    found = set()
    try:
        for link in os.scandir(BY_UUID):
            if os.path.exists(link.path) and os.stat(link.path).st_rdev in devices:
                found.add(link.name.lower())
    except OSError:  # no udev here
        pass
    return frozenset(found)


# -- what does not outlast a boot ------------------------------------------------------------------------


def volatile(path: str, roots: tuple[str, ...], said: tuple[str, ...]) -> str | None:
    """Which of `roots` a path really lies in; None: in none, or on a disk that is mounted there, or on a mount that
    the definition says it needs (`said`): whoever mounts it fills it."""
    real = os.path.realpath(path)
    root = next((each for each in roots if within(real, each)), None)
    if root is None or any(within(real, os.path.realpath(each)) for each in said):
        return None
    try:
        mount = mount_of(real)
    except OSError:
        return root
    on_disk = mount is not None and mount.point != root and within(mount.point, root) and mount.kind not in IN_MEMORY
    return None if on_disk else root


def within(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies below it; both without symlinks."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
