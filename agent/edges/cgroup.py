"""One control group (version 2) and what lies below it: its processes, its signs of life, its numbers."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
SILENT = frozenset({errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP})
"""A group that is gone, or going; a threaded one, whose processes stand in the one above."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What the group counts of itself, its dead included; None: a controller that is not there."""

    cpu_s: float | None
    memory_bytes: int | None  # with the pages of files
    read_bytes: int | None


class Cgroup:
    """The group in that folder, which need not exist."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def pids(self) -> tuple[int, ...]:
        """Of every process in it or below; zombies too. None where it does not exist. OSError: it cannot be read."""
        found: set[int] = set()
        for folder in self._folders():
            try:
                words = (folder / "cgroup.procs").read_bytes().split()
            except OSError as error:
                if error.errno in SILENT:
                    continue
                raise
            found.update(map(int, words))
        return tuple(sorted(found - {0}))  # 0: a process of another pid namespace

    def ids(self) -> frozenset[int]:
        """The kernel's numbers of it and of each below: those of their folders. They change with each start."""
        return frozenset(number for folder in self._folders() if (number := _inode(folder)) is not None)

    def counts(self) -> Counts:
        """As of now."""
        usage = self._number("cpu.stat", b"usage_usec")
        return Counts(usage / 1e6 if usage is not None else None, self._plain("memory.current"), self._read_bytes())

    def _read_bytes(self) -> int | None:
        """Of all devices: lines of `8:0 rbytes=1 wbytes=2 ...`."""
        try:
            words = (self._folder / "io.stat").read_bytes().split()
        except OSError:
            return None
        return sum(int(word.removeprefix(b"rbytes=")) for word in words if word.startswith(b"rbytes="))

    def _number(self, file: str, key: bytes) -> int | None:
        try:
            lines = (self._folder / file).read_bytes().splitlines()
        except OSError:
            return None
        return next((int(line.split()[1]) for line in lines if line.startswith(key + b" ")), None)

    def _plain(self, file: str) -> int | None:
        try:
            return int((self._folder / file).read_bytes())
        except OSError:
            return None

    def _folders(self) -> Iterator[Path]:
        level = [self._folder] if self._folder.is_dir() else []
        while level:
            yield from level
            level = [Path(entry) for folder in level for entry in _below(folder)]


def _below(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:  # gone meanwhile
        return []


def _inode(folder: Path) -> int | None:
    try:
        return folder.stat().st_ino
    except OSError:
        return None


def name_of(number: int, root: Path = ROOT) -> str | None:
    """The group of that number, as its path below the root. Looks at each: some hundreds, milliseconds."""
    for folder, _, _ in os.walk(root):
        if _inode(Path(folder)) == number:
            return str(Path(folder).relative_to(root))
    return None
