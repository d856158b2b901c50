"""Who else may matter where units are kept off: found in the control groups, and only told.

User units with the name of a rival, which the system's own systemd knows nothing of; and containers under systemd's
cgroup driver: the kernel's rules for their devices are lost at a reload of systemd, and with them their GPUs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from agent.edges.cgroup import ROOT
from agent.protected import template_of

_CONTAINER = re.compile(r"(?:docker|cri-containerd|crio|cri-o|libpod)-[0-9a-f]{12,64}\.scope")
_USER = re.compile(r"user@(\d+)\.service")
WHERE = ("system.slice", "machine.slice", "kubepods.slice")
SHOWN = 3


def warnings(units: frozenset[str], root: Path = ROOT) -> list[str]:
    """For a person. Looks at each control group of these slices: milliseconds."""
    return [*_user_units(units, root), *_containers(root)]


def _user_units(units: frozenset[str], root: Path) -> Iterator[str]:
    for folder, inner, _ in os.walk(root / "user.slice"):
        found = _USER.search(folder)
        for name in sorted(inner) if found else ():
            if (name in units or template_of(name) in units) and _is_populated(Path(folder, name)):
                uid = found[1] if found else ""
                stop = f"sudo -u '#{uid}' XDG_RUNTIME_DIR=/run/user/{uid} systemctl --user stop {name}"
                yield f"{name} runs as a unit of user {uid}, which is not kept off; stop it with: {stop}"


def _containers(root: Path) -> Iterator[str]:
    found = sorted(
        name for part in WHERE for _, inner, _ in os.walk(root / part) for name in inner if _CONTAINER.fullmatch(name)
    )
    if found:
        some = ", ".join(f"{name[:24]}..." for name in found[:SHOWN])
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        yield (
            f"containers run under systemd's cgroup driver ({some}{more}): each new hold and each release has systemd "
            "reload, and those that use a GPU may lose it then; the cgroupfs driver or CDI keeps it"
        )


def _is_populated(group: Path) -> bool:
    try:
        return "populated 1" in (group / "cgroup.events").read_text()
    except OSError:  # gone
        return False
