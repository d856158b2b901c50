"""What was before a unit was held: UNIT.json in /var/lib/gpuagent-holds, and UNIT.prior if a file was replaced.

Written before anything is done, never over an older one, removed after all is undone. The folder is root's alone.
install.sh undoes holds from the same files when nothing of this program is left, so their names and `made_folder` stay.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from agent.hold_file import FILE_BYTES
from agent.privileged.hold_files import HoldError, named

FOLDER = Path("/var/lib/gpuagent-holds")
RELOAD_DUE = ".reload-due"
RECORD_BYTES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One unit's."""

    unit: str
    of: tuple[str, ...]  # for whose sake it is held: itself, or the units that it triggers
    made_folder: bool  # its folder for drop-ins was not there before
    prior: bool  # a file of our name was there, and is kept beside this
    enabled: str  # UnitFileState before; nothing of it is changed
    active: str  # ActiveState before
    at: str  # when, UTC


class HoldRecords:
    """The records of every hold. OSError."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder

    def read(self, unit: str) -> Record | None:
        """None: it is not held. HoldError: it is, and what was before is not known any more."""
        try:
            return _parsed(self._bytes(f"{unit}.json"))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            why = f"{self._folder / unit}.json is broken: see what it says, and remove it"
            raise HoldError("record_broken", why) from error

    def every(self) -> Iterator[Record]:
        """All that are whole."""
        for path in sorted(self._folder.glob("*.json")):
            with suppress(HoldError):
                if (record := self.read(path.name.removesuffix(".json"))) is not None:
                    yield record

    def begin(self, record: Record, prior: tuple[bytes, os.stat_result] | None) -> None:
        """Keep what is now, before it is changed."""
        if prior is not None:
            content, found = prior
            self._write(f"{record.unit}.prior", content, found.st_mode & 0o777, found.st_mtime_ns)
        self._save(record)

    def serve(self, record: Record, of: frozenset[str]) -> None:
        """It is held for the sake of these from now on."""
        if frozenset(record.of) != of:
            self._save(replace(record, of=tuple(sorted(of))))

    def prior(self, unit: str) -> tuple[bytes, int, int]:
        """The file that was there before: its bytes, its mode and its time in ns."""
        found = os.stat(self._folder / f"{unit}.prior", follow_symlinks=False)
        return self._bytes(f"{unit}.prior"), found.st_mode & 0o777, found.st_mtime_ns

    def end(self, unit: str) -> None:
        """All is as it was."""
        (self._folder / f"{unit}.json").unlink(missing_ok=True)
        (self._folder / f"{unit}.prior").unlink(missing_ok=True)
        self._sync()

    # -- systemd has still to read its files ---------------------------------------------------------

    @property
    def reload_due(self) -> bool:
        """Whether files were changed, and a reload was not seen to its end."""
        return (self._folder / RELOAD_DUE).exists()

    def due(self) -> None:
        """They are about to be changed."""
        self._write(RELOAD_DUE, b"", 0o644)

    def reloaded(self) -> None:
        """It was."""
        (self._folder / RELOAD_DUE).unlink(missing_ok=True)

    # -- files ---------------------------------------------------------------------------------------

    def _save(self, record: Record) -> None:
        self._write(f"{record.unit}.json", json.dumps({"version": 1, **asdict(record)}, indent=1).encode(), 0o644)

    def _bytes(self, name: str) -> bytes:
        with open(os.open(self._folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            return file.read(max(RECORD_BYTES, FILE_BYTES))

    def _write(self, name: str, content: bytes, mode: int, mtime_ns: int | None = None) -> None:
        """On the disk for good, whole or not at all."""
        part = self._folder / ".part"
        part.unlink(missing_ok=True)
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with named(self._folder / name), open(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(fd, mode)
            if mtime_ns is not None:
                os.utime(fd, ns=(mtime_ns, mtime_ns))
            os.fsync(fd)
        part.rename(self._folder / name)
        self._sync()

    def _sync(self) -> None:
        fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _parsed(content: bytes) -> Record:
    said: dict[str, Any] = json.loads(content)
    of, texts = said["of"], [said[key] for key in ("unit", "enabled", "active", "at")]
    if not all(isinstance(each, str) for each in [*of, *texts]) or not isinstance(of, list):
        raise ValueError("a text is none")
    if not all(isinstance(said[key], bool) for key in ("made_folder", "prior")):
        raise ValueError("made_folder and prior are true or false")
    known = {key: said[key] for key in Record.__slots__ if key != "of"}
    return Record(of=tuple(of), **known)
