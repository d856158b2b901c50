"""Stands in for agent/privileged/launch.py as a unit's main process: same arguments, same record, same exec, no root.

What to do lies in NAME.plan.json beside its records. Its `wait` names a file that must be there before the record is
written, `hold` one before the exec, `fail` the last line of a launch that fails; `record` false: none is written.
"""

import json
import os
import sys
import time
from pathlib import Path


def main(verb: str, name: str) -> None:
    folder = Path(os.environ["RECORDS"])
    plan = json.loads((folder / f"{name}.plan.json").read_text())
    log = os.open(plan["log"], os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o640)
    wait_for(plan["wait"])
    if plan["record"]:
        record(folder, name, plan)
    wait_for(plan["hold"])
    if plan["fail"]:
        os.write(log, f"starting\n{plan['fail']}\n".encode())
        sys.exit(78)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.execv(plan["command"][0], plan["command"])


def wait_for(path: str) -> None:
    while path and not os.path.exists(path):
        time.sleep(0.005)


def record(folder: Path, name: str, plan: dict[str, object]) -> None:
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    keys = ("invocation", "unit_invocation", "ordered", "boot_id")
    said = {key: plan[key] for key in keys} | {"pid": os.getpid(), "started": int(stat[19]), "digest": "d", "at": 0}
    new = folder / f"{name}.launch.json.new"
    new.write_text(json.dumps(said))
    new.rename(folder / f"{name}.launch.json")


if __name__ == "__main__":
    main(*sys.argv[1:])
