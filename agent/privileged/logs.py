"""The servers' logs: opened by root, below folders that are root's alone, and written by the server from then on."""

from __future__ import annotations

import os
import pwd
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

FOLDER = Path("/var/log/gpuagent")
READER = "gpuagent"  # the agent's user, who also takes out of a log what is beyond its bound
ATTEMPT = re.compile(r"[0-9a-f]{8}-[0-9]+\.log")
INVOCATION = re.compile(r"[0-9a-f]{8}-[0-9]+")
KEEP_ATTEMPTS, KEEP_MIB = 20, 1024  # as agent.config.model has them
MIB = 1 << 20
BLOCK = 512


def take_over(name: str, invocation: str, folder: Path = FOLDER, reader: str = READER) -> None:
    """Standard output and errors go to a new log from here on. OSError."""
    fd = open_log(name, invocation, folder, reader)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)


def open_log(name: str, invocation: str, folder: Path = FOLDER, reader: str = READER) -> int:
    """A new file, append only. OSError: it is there already, a symlink is on its way, or the disk is full."""
    if not INVOCATION.fullmatch(invocation):
        raise OSError(f"{invocation[:40]!r} is no invocation")
    above = open_folder(folder, name)
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(f"{invocation}.log", flags, 0o640, dir_fd=above)
    finally:
        os.close(above)
    entry = pwd.getpwnam(reader)
    os.fchown(fd, entry.pw_uid, entry.pw_gid)
    os.fchmod(fd, 0o640)
    return fd


def open_folder(folder: Path, name: str) -> int:
    """The server's folder, made if need be. OSError: not root's alone, so that a name in it may be somebody else's."""
    above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _owned(above, folder)
        with suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=above)
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    finally:
        os.close(above)
    try:
        _owned(inner, folder / name)
    except OSError:
        os.close(inner)
        raise
    return inner


def _owned(fd: int, path: Path) -> None:
    state = os.fstat(fd)
    if state.st_uid != 0 or state.st_mode & 0o022:
        raise OSError(f"{path} is not root's alone; run: chown root:root {path} && chmod go-w {path}")


def forget(name: str, present: str, said: object, folder: Path = FOLDER) -> None:
    """Remove the logs of earlier attempts beyond their number and size, the oldest first. `said`: [servers.NAME.log]"""
    bounds = said if isinstance(said, Mapping) else {}
    keep, keep_bytes = _bound(bounds, "keep_attempts", KEEP_ATTEMPTS), _bound(bounds, "keep_mib", KEEP_MIB) * MIB
    above = open_folder(folder, name)
    try:
        taken = 0
        for number, (_, each, size) in enumerate(sorted(_earlier(above, present), reverse=True)):
            taken += size
            if number >= keep or taken > keep_bytes:
                with suppress(FileNotFoundError):  # somebody else's cron removes them, too
                    os.unlink(each, dir_fd=above)
    finally:
        os.close(above)


def _bound(said: Mapping[str, Any], key: str, default: int) -> int:
    value = said.get(key, default)
    return value if isinstance(value, int) and value >= 0 else default


def _earlier(above: int, present: str) -> list[tuple[int, str, int]]:
    """When each was last written, its name, the bytes that it takes."""
    found = []
    for each in os.listdir(above):
        with suppress(FileNotFoundError):
            state = os.stat(each, dir_fd=above, follow_symlinks=False)
            if ATTEMPT.fullmatch(each) and each != f"{present}.log" and stat.S_ISREG(state.st_mode):
                found.append((state.st_mtime_ns, each, state.st_blocks * BLOCK))
    return found
