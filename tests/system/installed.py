"""What a test of real systemd begins with: a Debian on which gpuagent is installed, switched off."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.system.image import ROOT
from tests.system.machine import SOURCE, Machine

INSTALL_S = 300.0
OFFLINE = ("env", "PIP_NO_INDEX=1", "PIP_FIND_LINKS=/wheels")
CONTAINER = """[Service]
ProtectKernelTunables=no
ProtectControlGroups=no
"""
"""For all services: under systemd 252 these two lay a /proc over the container's, which shows the boot of the host."""


class Installed(NamedTuple):
    """A Debian with gpuagent installed, switched off: what a machine begins with."""

    suite: str
    layers: list[Path]
    clone: Path
    said: str
    """What `make install` printed."""


def copy_clone(folder: Path) -> Path:
    """The work tree as git would give it, readable by every user of a machine."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    for name in listed.stdout.decode().rstrip("\0").split("\0"):
        if (ROOT / name).is_file():  # one that is deleted, and not committed, is listed too
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True, timeout=60)
    return folder


def install(suite: str, root: Path, clone: Path, folder: Path) -> Installed:
    """`make install` in a fresh machine, whose files stay in `folder`."""
    machine = Machine(folder, [root], clone)
    try:
        machine.boot().write("/etc/systemd/system/service.d/container.conf", CONTAINER)
        said = machine.run(*OFFLINE, "make", "-C", SOURCE, "install", deadline_s=INSTALL_S)
        machine.power_off()
    finally:
        machine.close()
    return Installed(suite, [folder / "upper", root], clone, said)
