"""The state file: what the operator wants, and what must survive a crash."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from agent.core.holds import Holds
from agent.core.model import Saved
from agent.edges.bounded import LATE, BoundedThread
from agent.edges.saved_json import NAME, from_json, holds_from_json, holds_to_json, to_json
from agent.errors import EdgeError

VERSION = 2
KNOWN = (1, 2)  # those that are read; 1 had no holds of the host
LOCKED = "locked"  # slug of the EdgeError that means that another agent runs
MAX_BYTES = 1 << 20  # a server takes some hundred bytes
SAVE_LIMIT_S = 5.0


class StateFile:
    """Implements `agent.ports.Store`: `{"version": 2, "boot_id": ..., "holds": {...}, "servers": {name: {...}}}`.

    `lock()` first, then `load()`, then `save()`. `rebooted` after `load()`: whether the host has booted since the
    file was written; None: not known. The lock goes with the process, but also with any copy of it that was forked
    and did not exec: start other processes by spawn.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer = BoundedThread("store")
        self._servers: dict[str, Saved] | None = None  # as on the disk; None: not loaded
        self._holds = Holds()  # likewise
        self._faults: list[str] = []
        self._lock_fd: int | None = None
        self._boot_id = _boot_id()
        self.rebooted: bool | None = None

    @property
    def faults(self) -> list[str]:
        """See `agent.ports.Store`."""
        return list(self._faults)

    @property
    def holds(self) -> Holds:
        """See `agent.ports.Store`."""
        return self._holds

    # -- lock ---------------------------------------------------------------------------------------

    def lock(self) -> None:
        """Keep every other agent off this file while this process lives. EdgeError with slug LOCKED: one has it."""
        path = self._path.with_name(self._path.name + ".lock")
        try:
            if not self._path.parent.is_dir():  # on a frozen disk even a needless mkdir waits for the thaw
                self._path.parent.mkdir(parents=True, exist_ok=True)
            fd = _opened(path)
        except OSError as error:
            raise EdgeError("store", f"open {path}", error.strerror or str(error)) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            why = f"another agent holds it (pid {_holder_of(fd) or 'unknown'})"
            os.close(fd)
            raise EdgeError("store", f"lock {path}", why, LOCKED) from None
        except OSError as error:
            os.close(fd)
            raise EdgeError("store", f"lock {path}", error.strerror or str(error)) from error
        self._lock_fd = fd

    def unlock(self) -> None:
        """Let another agent have it."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    # -- load ---------------------------------------------------------------------------------------

    def load(self) -> dict[str, Saved]:
        """See `agent.ports.Store`. EdgeError: there is a file, and it cannot be read: nothing may be assumed."""
        self._servers = {}
        try:
            with self._path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return {}
        except OSError as error:
            self._servers = None
            raise EdgeError("store", f"read {self._path}", error.strerror or str(error)) from error
        try:
            self._servers = self._parse(data)
        except (ValueError, RecursionError) as error:  # RecursionError: nested a thousand deep
            self._set_aside(f"it is not understood ({error}): starting without it")
        else:
            if self._faults:
                self._set_aside("parts of it were left out", keep=True)
        return dict(self._servers)

    def _parse(self, data: bytes) -> dict[str, Saved]:
        if len(data) > MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES} bytes")
        content = json.loads(data)
        if not isinstance(content, dict) or type(content.get("version")) is not int:
            raise ValueError("no version")
        if content["version"] not in KNOWN:
            raise ValueError(f"version {content['version']}, and this agent knows {', '.join(map(str, KNOWN))}")
        servers = content.get("servers")
        if not isinstance(servers, dict):
            raise ValueError("no servers")
        boot_id = content.get("boot_id")
        if isinstance(boot_id, str) and self._boot_id is not None:
            self.rebooted = boot_id != self._boot_id
        if content["version"] > 1:
            self._holds = self._holds_from(content.get("holds"))
        return self._servers_from(servers)

    def _holds_from(self, value: object) -> Holds:
        try:
            holds, unknown = holds_from_json(value)
        except ValueError as error:
            self._faults.append(f"{self._path}: holds: {error}: left out")
            return Holds()
        self._faults += [f"{self._path}: holds: {key[:40]!r} is not known: left out" for key in unknown]
        return holds

    def _servers_from(self, servers: Mapping[str, object]) -> dict[str, Saved]:
        known: dict[str, Saved] = {}
        for name, value in servers.items():
            if NAME.fullmatch(name) is None:
                self._faults.append(f"{self._path}: {name[:40]!r} is no server's name: left out")
                continue
            try:
                known[name], unknown = from_json(value)
            except ValueError as error:
                self._faults.append(f"{self._path}: server {name}: {error}: left out")
                continue
            self._faults += [f"{self._path}: server {name}: {key[:40]!r} is not known: left out" for key in unknown]
        return known

    def _set_aside(self, why: str, keep: bool = False) -> None:
        """Save the bytes from the next save under another name, that of their time: once, however often we start.

        `keep`: the file stays too, for the good parts of it are nowhere else yet.
        """
        try:
            written = datetime.fromtimestamp(self._path.stat().st_mtime, UTC)
            aside = self._path.with_name(f"{self._path.name}.broken-{written:%Y%m%dT%H%M%S.%fZ}")
            if not keep:
                os.replace(self._path, aside)
            elif not aside.exists():
                os.link(self._path, aside)
        except OSError as error:
            self._faults.append(f"{self._path}: {why}; it could not be set aside: {error.strerror}")
        else:
            self._faults.append(f"{self._path}: {why}; set aside as {aside.name}")

    # -- save ---------------------------------------------------------------------------------------

    async def save(self, name: str, saved: Saved) -> None:
        """See `agent.ports.Store`. EdgeError also after 5 s: a frozen disk costs one thread, and no save until then."""
        await self._save(lambda: ({**(self._servers or {}), name: saved}, self._holds))

    async def save_holds(self, holds: Holds) -> None:
        """See `agent.ports.Store`, and `save`."""
        await self._save(lambda: (self._servers or {}, holds))

    async def _save(self, new: Callable[[], tuple[dict[str, Saved], Holds]]) -> None:
        """`new` is called when its turn has come: what was saved before it is in what it makes."""
        if self._servers is None:
            raise RuntimeError("load before save: else the other servers' state would be lost")
        try:
            await self._writer.run("save", SAVE_LIMIT_S, lambda given_up: self._write(*new(), given_up))
        except EdgeError as error:
            if error.slug != LATE:
                raise
            why = f"storage stalled: {self._path.parent} does not answer ({error.why})"
            raise EdgeError("store", "save", why) from error

    def _write(self, servers: dict[str, Saved], holds: Holds, given_up: threading.Event) -> None:
        content = {
            "version": VERSION,
            "boot_id": self._boot_id,
            "holds": holds_to_json(holds),
            "servers": {key: to_json(value) for key, value in sorted(servers.items())},
        }
        data = json.dumps(content, indent=1).encode() + b"\n"
        if len(data) > MAX_BYTES:  # the next start would refuse it
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        new = self._path.with_name(f".{self._path.name}.new")
        try:
            _write_through(new, data)
            if given_up.is_set():  # the operator has been told that it failed: it must not come true later
                return
            os.replace(new, self._path)
            self._servers, self._holds = servers, holds
        finally:
            new.unlink(missing_ok=True)
        _sync_folder(self._path.parent)


def _write_through(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
    try:
        while data:
            data = data[os.write(fd, data) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _opened(path: Path) -> int:
    """The file to be locked: nothing is written to it, so that a frozen or read-only disk keeps no agent off."""
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags | os.O_RDONLY)
    except FileNotFoundError:
        return os.open(path, flags | os.O_RDONLY | os.O_CREAT, 0o640)


def _holder_of(fd: int) -> int | None:
    """The process that has locked it, as the kernel tells: `1: FLOCK ADVISORY WRITE 4123 fe:00:1234 0 EOF`."""
    inode = os.fstat(fd).st_ino
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    locks = (line.split() for line in lines)
    pids = (int(words[4]) for words in locks if words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(inode))
    return next((pid for pid in pids if pid > 0), None)
