"""Whether the kernel kills for memory: how often it has, on the whole host and in one process's control group.

Its choice on a host that runs out of memory has nothing to do with who asked for the memory. So what it killed
somewhere on the host proves nothing of one process; what it killed in that process's own control group does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")  # version 2 alone: version 1 does not tell whom it killed, or when


@dataclass(frozen=True, slots=True)
class MemoryKills:
    """Up to some moment; `None`: not told."""

    host: int | None  # since boot
    group: PurePosixPath | None  # the process's own control group, if it is not also the agent's
    in_group: int | None


def count(pid: int, proc: Path = PROC, groups: Path = GROUPS) -> MemoryKills:
    """As of now, for one process that lives."""
    group = _own_group(pid, proc)
    return MemoryKills(_on_host(proc), group, _in_group(group, groups))


def killed_since(before: MemoryKills, proc: Path = PROC, groups: Path = GROUPS) -> bool | None:
    """Whether the kernel has killed in that process's group; None: perhaps, for it has killed somewhere on the host."""
    in_group = _in_group(before.group, groups)
    if in_group is not None and before.in_group is not None and in_group > before.in_group:
        return True
    host = _on_host(proc)
    return False if host is not None and host == before.host else None


def _on_host(proc: Path) -> int | None:
    return _number(proc / "vmstat")


def _in_group(group: PurePosixPath | None, groups: Path) -> int | None:
    return _number(groups / group.relative_to("/") / "memory.events") if group is not None else None


def _number(path: Path) -> int | None:
    """Behind the word `oom_kill`, at the start of a line."""
    try:
        with path.open("rb") as file:
            return next((int(line.split()[1]) for line in file if line.startswith(b"oom_kill ")), None)
    except OSError:  # also of a group that went with its last process
        return None


def _own_group(pid: int, proc: Path) -> PurePosixPath | None:
    """None, too, for the root and what lies above the agent's own: others are killed there."""
    theirs, ours = _group(proc / str(pid)), _group(proc / "self")
    if theirs is None or ours is None or ".." in theirs.parts or ours.is_relative_to(theirs):
        return None
    return theirs


def _group(process: Path) -> PurePosixPath | None:
    """As its folder in /proc tells; `..`: outside the namespace that we see."""
    try:
        lines = (process / "cgroup").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    return next((PurePosixPath(line.removeprefix("0::")) for line in lines if line.startswith("0::/")), None)
