#!/usr/bin/python3
"""A stand-in systemctl for units that are described in a file: what the code that runs as root calls, and no more.

FOLDER/units.json: {name: {"active": ..., "names": [...], "triggers": [...], "load": ..., "job": bool}}. A daemon-reload
reads the drop-ins of FOLDER/system; before it, what is in force is as it was. FOLDER/calls has what it was called with.
"""

from __future__ import annotations

import fnmatch
import json
import shlex
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
UNITS = FOLDER / "units.json"
LOADED = FOLDER / "loaded.json"  # unit -> its drop-ins, as of the last reload


def drop_ins(name: str) -> list[str]:
    stem, at, rest = name.partition("@")
    folders = [f"{name}.d", *([f"{stem}@.{rest.rpartition('.')[2]}.d"] if at else [])]
    return sorted(str(path) for folder in folders for path in (FOLDER / "system" / folder).glob("*.conf"))


def show(units: dict[str, Any], words: list[str]) -> None:
    loaded = json.loads(LOADED.read_text())
    names = words[words.index("--") + 1 :]
    blocks = []
    for name in names:
        assert "@." not in name, "systemctl cannot show a template"
        unit = units.get(name, {})
        said = {
            "Id": name,
            "Names": unit.get("names", [name]),
            "LoadState": unit.get("load", "loaded" if unit else "not-found"),
            "ActiveState": unit.get("active", "inactive"),
            "UnitFileState": unit.get("enabled", ""),
            "Triggers": unit.get("triggers", []),
            "TriggeredBy": [each for each, other in units.items() if name in other.get("triggers", [])],
            "DropInPaths": loaded.get(name, []) if unit else [],
            "NeedDaemonReload": "no",
            "Job": "7" if unit.get("job") else "",
        }
        lines = [f"{key}={shlex.join(value) if isinstance(value, list) else value}" for key, value in said.items()]
        blocks.append("\n".join(lines) + "\n")
    print("\n".join(blocks), end="")


def main() -> None:
    words = sys.argv[1:]
    with (FOLDER / "calls").open("a") as calls:
        calls.write(" ".join(words[1:]) + "\n")
    if (FOLDER / "broken").exists() and words[1] == (FOLDER / "broken").read_text():
        sys.exit(f"Failed to {words[1]}: broken")
    units = json.loads(UNITS.read_text())
    if words[1] == "show":
        show(units, words)
    elif words[1] == "list-units":
        pattern = words[-1].replace("\\\\", "[\\]")
        print("".join(f"{name} loaded active\n" for name in units if fnmatch.fnmatchcase(name, pattern)), end="")
    elif words[1] == "daemon-reload":
        LOADED.write_text(json.dumps({name: drop_ins(name) for name in units}))
    elif words[1] == "stop":
        for name in words[words.index("--") + 1 :]:
            units[name] |= {"active": "inactive", "job": False}
        UNITS.write_text(json.dumps(units))


if __name__ == "__main__":
    main()
