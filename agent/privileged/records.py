"""The records that root writes of each server's unit, for the agent to read: /run/gpuagent-server/NAME.KIND.json."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path("/run/gpuagent-server")
RECORD_BYTES = 1 << 20


def write(name: str, kind: str, record: Mapping[str, Any], mode: int = 0o644, folder: Path = FOLDER) -> None:
    """Whole or not at all. OSError. The folder is root's alone, so that no name in it is anybody else's."""
    part = folder / f".{name}.{kind}.part"
    part.unlink(missing_ok=True)
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with open(fd, "w") as file:
        os.fchmod(fd, mode)  # whatever the umask
        json.dump(record, file)
    part.rename(folder / f"{name}.{kind}.json")


def read(name: str, kind: str, folder: Path = FOLDER) -> dict[str, Any] | None:
    """None: there is none that is whole."""
    try:
        fd = os.open(folder / f"{name}.{kind}.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            record = json.loads(file.read(RECORD_BYTES))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def take(name: str, kind: str, folder: Path = FOLDER) -> dict[str, Any] | None:
    """Read it, and let nobody read it again."""
    record = read(name, kind, folder)
    (folder / f"{name}.{kind}.json").unlink(missing_ok=True)
    return record
