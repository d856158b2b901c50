"""The files by which root keeps units off, below folders that are root's alone and reached by no symlink.

Each change is on the disk for good before the next: a power cut leaves the old bytes or the new ones.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agent.hold_file import FILE_BYTES, FOLDER, NAME, path_of, text_of

PART = f".{NAME}.part"  # systemd reads nothing that is hidden
MODE = 0o644
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class HoldError(Exception):
    """Why a unit is not held or released. `slug` as the helper's replies have it."""

    def __init__(self, slug: str, why: str) -> None:
        super().__init__(why)
        self.slug = slug


class HoldFiles:
    """The drop-ins of units. OSError, HoldError("unsafe_path"): somebody else could lead us elsewhere."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder

    def path(self, unit: str) -> Path:
        """Where the unit's file is, or would be."""
        return path_of(unit, self._folder)

    def has_folder(self, unit: str) -> bool:
        """Whether the folder for its drop-ins is there."""
        with self._opened(unit) as folder:
            return folder is not None

    def read(self, unit: str) -> tuple[bytes, os.stat_result] | None:
        """What stands there under our name, ours or not; None: nothing."""
        with self._opened(unit) as folder:
            return None if folder is None else self._read(unit, folder)

    def is_whole(self, unit: str) -> bool:
        """Whether our file is there as we write it."""
        found = self.read(unit)
        return found is not None and found[0] == self._text(unit) and stat.S_IMODE(found[1].st_mode) == MODE

    def is_ours(self, content: bytes, unit: str) -> bool:
        """Whether that is what we write, whoever did."""
        return content == self._text(unit)

    def write(self, unit: str) -> None:
        """Make our file, with its folder."""
        with self._made(unit) as folder:
            self._read(unit, folder)  # what lies there must be such that it may be replaced
            _put(folder, self._text(unit), MODE, None)

    def remove(self, unit: str, its_folder: bool) -> None:
        """Take the file away; `its_folder`: its folder too, unless something else is in it by now."""
        with self._opened(unit) as folder:
            if folder is None:
                return
            if self._read(unit, folder) is not None:
                os.unlink(NAME, dir_fd=folder)
            with suppress(FileNotFoundError):
                os.unlink(PART, dir_fd=folder)
            os.fsync(folder)
        if its_folder:
            self._remove_folder(unit)

    def restore(self, unit: str, content: bytes, mode: int, mtime_ns: int) -> None:
        """Put back what was there before."""
        with self._made(unit) as folder:
            self._read(unit, folder)
            _put(folder, content, mode, mtime_ns)

    def _text(self, unit: str) -> bytes:
        return text_of(unit, self._folder).encode()

    def _remove_folder(self, unit: str) -> None:
        with _owned(self._folder) as base, suppress(OSError):  # not empty: somebody else's file is in it
            os.rmdir(f"{unit}.d", dir_fd=base)
            os.fsync(base)

    @contextmanager
    def _opened(self, unit: str) -> Iterator[int | None]:
        path = self.path(unit).parent
        with _owned(self._folder) as base:
            folder = _inner(base, path)
        try:
            with named(path):
                yield folder
        finally:
            if folder is not None:
                os.close(folder)

    @contextmanager
    def _made(self, unit: str) -> Iterator[int]:
        """Its folder, made if it is not there."""
        path = self.path(unit).parent
        with _owned(self._folder) as base:
            with named(path), suppress(FileExistsError):
                os.mkdir(path.name, 0o755, dir_fd=base)
                os.fsync(base)
            folder = _inner(base, path)
        if folder is None:
            raise FileNotFoundError(2, "has gone this moment", str(path))
        try:
            with named(path):
                yield folder
        finally:
            os.close(folder)

    def _read(self, unit: str, folder: int) -> tuple[bytes, os.stat_result] | None:
        path = self.path(unit)
        try:
            found = os.stat(NAME, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_size > FILE_BYTES:
            what = "is a symlink" if stat.S_ISLNK(found.st_mode) else "is no small file of one name"
            raise HoldError("unsafe_path", f"{path} {what}; see what it is there for, and remove it")
        _check_owner(path, found)
        with open(os.open(NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder), "rb") as file:
            return file.read(FILE_BYTES), found


@contextmanager
def named(path: Path) -> Iterator[None]:
    """An OSError in it says the whole path: a call within an open folder knows a last name, one on a file none."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _put(folder: int, content: bytes, mode: int, mtime_ns: int | None) -> None:
    """Whole or not at all. What an earlier run was cut off in is overwritten."""
    with suppress(FileNotFoundError):
        os.unlink(PART, dir_fd=folder)
    fd = os.open(PART, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder)
    with open(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fchmod(fd, mode)  # whatever the umask
        if mtime_ns is not None:
            os.utime(fd, ns=(mtime_ns, mtime_ns))
        os.fsync(fd)
    os.rename(PART, NAME, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


@contextmanager
def _owned(path: Path) -> Iterator[int]:
    """A folder that is there, each step to it root's alone."""
    folder, so_far = os.open("/", OPEN_FOLDER), Path("/")
    try:
        for part in path.parts[1:]:
            so_far /= part
            inner = _inner(folder, so_far)
            if inner is None:
                raise FileNotFoundError(2, "is not there", str(so_far))
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _inner(folder: int, path: Path) -> int | None:
    """The folder of `path`'s last name; None: there is none."""
    try:
        found = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISDIR(found.st_mode):
        what = "a symlink" if stat.S_ISLNK(found.st_mode) else "no folder"
        raise HoldError("unsafe_path", f"{path} is {what}; put a folder of root's in its place")
    _check_owner(path, found)  # nobody but root can change it afterwards
    return os.open(path.name, OPEN_FOLDER, dir_fd=folder)


def _check_owner(path: Path, found: os.stat_result) -> None:
    sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    if found.st_uid != 0:
        raise HoldError("unsafe_path", f"{path} belongs to uid {found.st_uid}; run: chown root:root {path}")
    if found.st_mode & 0o022 and not sticky:
        raise HoldError("unsafe_path", f"{path} can be written by others than root; run: chmod go-w {path}")
