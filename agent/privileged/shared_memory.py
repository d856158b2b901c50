"""What a dead launch has left in /dev/shm: taken away where it is provably that launch's own, and only then.

Proved by: it was not there when the launch began; it belongs to the server's user, as whom nobody can log in and no
process lives any more; no process of any user has it open or mapped. Everything else is left, and told.
"""

from __future__ import annotations

import json
import os
import pwd
import select
import signal
import stat
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path("/dev/shm")  # noqa: S108 - where shared memory lies; no name in it is believed
CLEAN_S = 2.0
"""Milliseconds in health. The unit is not over before, and a server that is to come up again waits for that."""
FILES = 10_000  # of one user: more are too many to be told apart
NAMES = 100_000  # of all: half a second for whoever looks through them, and anybody may make more
TOLD = 20  # names in the record
NO_LOGIN = ("nologin", "false")
BLOCK, MIB = 512, 1 << 20

Record = dict[str, Any]


class UnprovedError(Exception):
    """Nothing is taken away, and why."""


@dataclass(slots=True)
class Found:
    """What was done."""

    removed: int = 0
    freed: int = 0  # bytes
    left: list[tuple[str, str]] = field(default_factory=list)  # name, why

    def record(self, why: str = "") -> Record:
        """As it is written down. Names in ASCII: they may hold anything."""
        left = [{"name": ascii(name)[1:-1], "why": reason} for name, reason in self.left]
        return {
            "removed": self.removed,
            "mib": round(self.freed / MIB, 1),
            "left": left[:TOLD],
            "left_count": len(left),
            "why": why,
        }


# -- when a launch begins --------------------------------------------------------------------------------


def remember(uid: int, folder: Path = FOLDER) -> Record | None:
    """What is that user's now, so that it is not taken for the launch's own later. None: that cannot be told."""
    try:
        above = _open(folder)
    except (OSError, UnprovedError):
        return None
    try:
        known = [state.st_ino for _, state in _of_user(above, uid)]
        return {"uid": uid, "device": os.fstat(above).st_dev, "known": known} if len(known) < FILES else None
    except (OSError, UnprovedError):
        return None
    finally:
        os.close(above)


# -- when it has ended -----------------------------------------------------------------------------------


def clean(
    before: Mapping[str, Any], folder: Path = FOLDER, proc: Path = Path("/proc"), limit_s: float = CLEAN_S
) -> Record:
    """Take away what the launch has left, which began with `before`; never longer than `limit_s`.

    In a child, since a look at a process that hangs in the kernel may hang as well: such a child is left behind.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, json.dumps(_cleaned(before, folder, proc, limit_s)).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(write)
    try:
        told = _answer(read, limit_s + 0.5)
    finally:
        os.close(read)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _reap(child, told_s=0.5)
    return told


def _answer(read: int, limit_s: float) -> Record:
    """What the child has said; it fits a pipe."""
    said, until = b"", time.monotonic() + limit_s
    while select.select([read], [], [], max(0.0, until - time.monotonic()))[0]:
        part = os.read(read, 1 << 16)
        if not part:
            break
        said += part
    try:
        record: Record = json.loads(said)
    except ValueError:
        return Found().record(f"no answer within {limit_s:g} s")
    return record


def _reap(child: int, told_s: float) -> None:
    """Systemd reaps one that still hangs."""
    until = time.monotonic() + told_s
    while os.waitpid(child, os.WNOHANG) == (0, 0) and time.monotonic() < until:
        time.sleep(0.005)


def _cleaned(before: Mapping[str, Any], folder: Path, proc: Path, limit_s: float) -> Record:
    found, until = Found(), time.monotonic() + limit_s
    try:
        above = _open(folder)
        if os.fstat(above).st_dev != before["device"]:
            raise UnprovedError(f"{folder} is another file system than at the launch")
        uid, known = int(before["uid"]), frozenset(before["known"])
        new = {name: state for name, state in _of_user(above, uid) if state.st_ino not in known}
        mine = {name: state.st_ino for name, state in new.items() if not _told(found, name, state)}
        if mine:
            _take_away(found, above, mine, uid, proc, until)
    except (OSError, UnprovedError) as error:
        return found.record(str(error))
    return found.record()


def _told(found: Found, name: str, state: os.stat_result) -> bool:
    """Whether it is none that is ever taken away; that is told."""
    if not stat.S_ISREG(state.st_mode):
        kind = "a symlink" if stat.S_ISLNK(state.st_mode) else "a folder" if stat.S_ISDIR(state.st_mode) else "no file"
        found.left.append((name, f"is {kind}"))
    elif state.st_nlink != 1:
        found.left.append((name, "has another name, too"))
    else:
        return False
    return True


def _take_away(found: Found, above: int, mine: Mapping[str, int], uid: int, proc: Path, until: float) -> None:
    try:
        _check_login(uid)
        used = _in_use(mine, os.fstat(above).st_dev, uid, proc, until)
    except UnprovedError as error:
        found.left += [(name, str(error)) for name in mine]
        return
    for name, inode in mine.items():
        if name in used:
            found.left.append((name, "is in use"))
            continue
        if time.monotonic() > until:
            found.left.append((name, "there was no time"))
            continue
        state = os.stat(name, dir_fd=above, follow_symlinks=False)
        if state.st_ino == inode:  # nobody but root can have put another one there: the folder is sticky
            os.unlink(name, dir_fd=above)
            found.removed += 1
            found.freed += state.st_blocks * BLOCK


def _check_login(uid: int) -> None:
    """Of a person's account, what was made meanwhile may be the person's. UnprovedError."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError as error:
        raise UnprovedError(f"uid {uid} has no account") from error
    if not entry.pw_shell.endswith(NO_LOGIN):
        raise UnprovedError(f"user {entry.pw_name} may log in ({entry.pw_shell}), and so have made it")


def _open(folder: Path) -> int:
    """OSError, UnprovedError: there, others than a file's owner may put another one in its place."""
    above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    state = os.fstat(above)
    if state.st_uid != 0 or (state.st_mode & 0o022 and not state.st_mode & stat.S_ISVTX):
        os.close(above)
        raise UnprovedError(f"{folder} is not root's, or not sticky")
    return above


def _of_user(above: int, uid: int) -> Iterator[tuple[str, os.stat_result]]:
    """That user's names in the folder, at most FILES. UnprovedError: there are too many of others."""
    count = 0
    with os.scandir(above) as entries:
        for number, entry in enumerate(entries):
            if number == NAMES:
                raise UnprovedError(f"there are more than {NAMES} files")
            with suppress(FileNotFoundError):
                state = entry.stat(follow_symlinks=False)
                if state.st_uid == uid and count < FILES:
                    count += 1
                    yield entry.name, state


# -- who uses it -----------------------------------------------------------------------------------------


def _in_use(mine: Mapping[str, int], device: int, uid: int, proc: Path, until: float) -> set[str]:
    """The names of those that a live process has open or mapped. UnprovedError: one of that user lives, or cannot be
    looked at."""
    used: set[str] = set()
    names = {inode: name for name, inode in mine.items()}
    looked_at: set[str] = set()
    one_has_ended = True
    while one_has_ended:  # it may have left a child that was not in the list yet
        one_has_ended = False
        for pid in filter(str.isdigit, os.listdir(proc)):
            if pid in looked_at:
                continue
            looked_at.add(pid)
            if time.monotonic() > until:
                raise UnprovedError("there was no time to look at every process")
            try:
                used |= _used_by(proc / pid, names, device, uid)
            except (FileNotFoundError, ProcessLookupError):
                one_has_ended = True
    return used


def _used_by(process: Path, names: Mapping[int, str], device: int, uid: int) -> set[str]:
    """OSError: it has ended; UnprovedError."""
    try:
        if uid in _uids(process):
            raise UnprovedError(f"pid {process.name} of the same user lives")
        inodes = {*_mapped(process, device), *_opened(process, device, frozenset(names))}
        return {names[inode] for inode in inodes & names.keys()} | (_links(process) & {*names.values()})
    except (PermissionError, ValueError) as error:
        raise UnprovedError(f"pid {process.name} cannot be looked at") from error


def _lines(path: Path) -> list[bytes]:
    """Of a file in /proc, where a name may hold every character but the end of a line. OSError."""
    return [line for line in path.read_bytes().split(b"\n") if line]


def _uids(process: Path) -> tuple[int, ...]:
    """Real, effective, saved, of files; none of a zombie, which holds nothing. UnprovedError: its threads may."""
    said = dict(line.split(b":", 1) for line in _lines(process / "status") if b":" in line)
    if said[b"State"].split()[0] not in (b"Z", b"X"):
        return tuple(map(int, said[b"Uid"].split()))
    if len(os.listdir(process / "task")) > 1:
        raise UnprovedError(f"pid {process.name} has ended but for its threads")
    return ()


def _mapped(process: Path, device: int) -> Iterator[int]:
    """The inodes on that device that it has mapped."""
    for line in _lines(process / "maps"):
        _, _, _, where, inode, *_ = line.split(None, 5)
        major, _, minor = where.partition(b":")
        if os.makedev(int(major, 16), int(minor, 16)) == device:
            yield int(inode)


def _links(process: Path) -> set[str]:
    """What it has open, by the last part of its name as it is now. Nothing is followed: its disk may be frozen."""
    found = set()
    for number in os.listdir(process / "fd"):
        with suppress(FileNotFoundError):
            found.add(os.readlink(process / "fd" / number).rpartition("/")[2].removesuffix(" (deleted)"))
    return found


def _opened(process: Path, device: int, inodes: frozenset[int]) -> Iterator[int]:
    """Those that it has open, by whatever name: some file may be mounted alone. The kernel tells since 5.14."""
    mounts: dict[bytes, bytes] = {}
    wanted = f"{os.major(device)}:{os.minor(device)}".encode()
    for number in os.listdir(process / "fd"):
        with suppress(FileNotFoundError):
            parts = (line.partition(b":") for line in _lines(process / "fdinfo" / number))
            said = {key: value.strip() for key, _, value in parts}
            if int(said.get(b"ino", 0)) not in inodes:
                continue
            mounts = mounts or _mounts(process)
            if mounts.get(said.get(b"mnt_id", b"")) == wanted:
                yield int(said[b"ino"])


def _mounts(process: Path) -> dict[bytes, bytes]:
    """Number of a mount, as the process sees it -> "MAJOR:MINOR"."""
    return {fields[0]: fields[2] for fields in (line.split(b" ", 3) for line in _lines(process / "mountinfo"))}
