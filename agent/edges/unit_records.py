"""What the privileged code has written of one server's unit: its last launch, its last end. Root alone writes there."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from agent.core.model import Exit, Process

FOLDER = Path("/run/gpuagent-server")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Launched:
    """A launch of this boot, as written just before the exec."""

    invocation: str
    unit_invocation: str  # systemd's number of the same start
    main: Process
    ordered: bool  # by the agent; False: an administrator's `systemctl start`


@dataclass(frozen=True, slots=True)
class Ended:
    """How a launch ended, and when. Its `exit.stopped` says that systemd was told to stop the unit while it lived."""

    invocation: str
    unit_invocation: str
    exit: Exit


class UnitRecords:
    """Reads small files of a memory filesystem: never blocks. What is missing, or no record, is None."""

    def __init__(self, name: str, folder: Path = FOLDER) -> None:
        self._launch = folder / f"{name}.launch.json"
        self._exit = folder / f"{name}.exit.json"

    def launched(self) -> Launched | None:
        """The last launch; None, too, for one of another boot: its pid is somebody else's."""
        return _read(self._launch, _launched)

    def ended(self) -> Ended | None:
        """The last end."""
        return _read(self._exit, _ended)


def _read(path: Path, parse: Callable[[Mapping[str, Any]], T | None]) -> T | None:
    try:
        return parse(json.loads(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _launched(record: Mapping[str, Any]) -> Launched | None:
    if record["boot_id"] != BOOT_ID.read_text().strip():
        return None
    main = Process(int(record["pid"]), int(record["started"]))
    return Launched(str(record["invocation"]), str(record["unit_invocation"]), main, bool(record["ordered"]))


def _ended(record: Mapping[str, Any]) -> Ended:
    how = _exit(str(record["code"]), str(record["status"]), str(record["result"]), bool(record["asked"]))
    how = replace(how, at=float(record["at"]))
    return Ended(str(record["invocation"]), str(record["unit_invocation"]), how)


def _exit(code: str, status: str, result: str, stopped: bool) -> Exit:
    """Of systemd: $EXIT_CODE (exited, killed, dumped), $EXIT_STATUS (a number or a signal's name), $SERVICE_RESULT."""
    oom = result == "oom-kill"
    if code == "exited" and status.isdigit():
        return Exit(code=int(status), oom=oom, stopped=stopped)
    return Exit(signal=_signal(status), oom=oom, stopped=stopped)


def _signal(word: str) -> int | None:
    if word.isdigit():
        return int(word)
    named = {each.name: each.value for each in signal.Signals}
    return named.get(word if word.startswith("SIG") else f"SIG{word}")
