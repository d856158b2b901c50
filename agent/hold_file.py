"""What a hold is: one file, whose condition is its own absence. The same for root, who writes it, and for who looks.

Standard library only: root runs it.
"""

from __future__ import annotations

from pathlib import Path

NAME = "zz-gpuagent-hold.conf"
FOLDER = Path("/etc/systemd/system")
CONDITION = "ConditionPathExists"
FILE_BYTES = 65_536
"""Of a file of that name that was there before, at most."""


def path_of(unit: str, folder: Path = FOLDER) -> Path:
    """The file that keeps the unit off; of a template: all its instances."""
    return folder / f"{unit}.d" / NAME


def text_of(unit: str, folder: Path = FOLDER) -> str:
    """What stands in it."""
    return (
        "# Written by gpuagent: as long as this file exists, the unit does not start.\n"
        f"# Take it away with: gpuagent release '{unit}'\n"
        f"[Unit]\n{CONDITION}=!{path_of(unit, folder)}\n"
    )
