"""What systemd, the files and the control groups say of a unit that is to be kept off, put together. Reads, no more."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from agent.core.model import Rival
from agent.edges import processes
from agent.edges.cgroup import ROOT, Cgroup
from agent.hold_file import CONDITION, FILE_BYTES, FOLDER, NAME, path_of, text_of

Properties = Mapping[str, Any]
"""A unit's, with their plain values."""

OFF = ("inactive", "failed")
_EMPTIED = re.compile(r"^[ \t]*Condition\w+[ \t]*=[ \t]*$", re.MULTILINE)
"""An assignment that makes systemd forget all conditions before it, whatever their kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What systemd has said of one rival."""

    unit: str
    load: str
    active: str  # of the one that is not off, if there is any
    said: tuple[Properties, ...] = ()  # of itself; of a template: of each instance that there is
    triggers: tuple[str, ...] = ()  # active sockets, timers and paths
    others: tuple[str, ...] = ()  # other active units that bring it up


class RivalLooks:
    """Judges what was asked. The folders are others in tests alone."""

    def __init__(self, folder: Path = FOLDER, groups: Path = ROOT) -> None:
        self._folder = folder
        self._groups = groups

    def judge(self, asked: Asked) -> Rival:
        """Blocks for some milliseconds. OSError."""
        path = path_of(asked.unit, self._folder)
        file = _file(path)
        fault = self._fault(asked, path, file)
        return Rival(
            unit=asked.unit,
            load=asked.load,
            active=asked.active,
            held=file is not None and not fault,
            pids=tuple(sorted({pid for said in asked.said for pid in self._pids(said)})),
            revivers=(*asked.triggers, *asked.others),
            fault=fault,
        )

    def _fault(self, asked: Asked, path: Path, file: bytes | None) -> str:
        """Why its hold is not in force; "": it is, or none was written."""
        if file is None:
            known = any(_has(said, path) for said in asked.said)
            return f"its file was taken away: {path}" if known else ""
        if file != text_of(asked.unit, self._folder).encode():
            return f"its file is not as it was written: {path}"
        faults = (_not_in_force(said, path) for said in asked.said if said["LoadState"] == "loaded")
        if why := next(filter(None, faults), ""):
            return why
        return f"it can be brought up by {', '.join(asked.triggers)}, which is active" if asked.triggers else ""

    def _pids(self, said: Properties) -> Iterable[int]:
        """Live processes of its control group, which may hold some when the unit has ended."""
        group = said.get("ControlGroup") or group_of(str(said.get("Slice", "")), str(said["Id"]))
        for pid in Cgroup(self._groups / group.strip("/")).pids() if group else ():
            one = processes.stat(pid)
            if (one is None and processes.hidden(pid)) or (one is not None and not one.gone):
                yield pid


def _not_in_force(said: Properties, path: Path) -> str:
    """Why systemd does not see the condition; "": it does."""
    if _has(said, path):
        return ""
    drop_ins = [str(each) for each in said.get("DropInPaths", [])]
    if str(path) not in drop_ins:
        other = next((each for each in drop_ins if PurePath(each).name == NAME), None)
        return f"another file stands in its place: {other}" if other else f"systemd has not read it yet: {path}"
    later = drop_ins[drop_ins.index(str(path)) + 1 :]
    guilty = next(
        (each for each in later if _EMPTIED.search((_file(Path(each)) or b"").decode(errors="replace"))), None
    )
    return f"a later drop-in empties its conditions: {guilty or ', '.join(later) or 'which, is not known'}"


def _has(said: Properties, path: Path) -> bool:
    """Whether our condition is among those that systemd asks at a start."""
    ours = [CONDITION, False, True, str(path)]  # not one of several that may hold; negated
    return any(list(each)[:4] == ours for each in said.get("Conditions", []))


def _file(path: Path) -> bytes | None:
    """None: it is not there, or not ours to read."""
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES)
    except OSError:
        return None


def group_of(slice_unit: str, unit: str) -> str:
    """Where a unit's control group is, as a path below the root; "": of a unit that has none."""
    if not slice_unit:
        return ""
    parts = slice_unit.removesuffix(".slice").split("-")
    above = [f"{'-'.join(parts[: count + 1])}.slice" for count in range(len(parts))] if parts != ["", ""] else []
    return "/".join([*above, unit])
