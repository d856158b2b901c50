"""A configuration, a helper process and its socket, in a folder of the test's."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent.launch_spec import digest
from agent.privileged import policy

CONFIG = '[servers.demo]\ncommand = ["/bin/sleep", "60"]\n[servers.base]\ntemplate = true\ncommand = ["/bin/true"]\n'
SYSTEMCTL = """#!/bin/sh
echo "$*" >> {folder}/calls
env >> {folder}/systemctl-environment
[ -e {folder}/broken ] && {{ echo "no such unit" >&2; exit 5; }}
[ "$2" = show ] && cat {folder}/state
exit 0
"""
SERVE = """
import socket, sys
from pathlib import Path
from agent.privileged.helper import Verbs, serve
from agent.privileged.units import Units
folder, uid, idle_s = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
units = Units(str(folder / "systemctl"), folder / "groups")
serve(socket.socket(fileno=0), Verbs(units, folder / "gpuagent.toml", folder / "records"), frozenset({uid}), idle_s)
"""
DEADLINE_S = 20.0


class HelperProcess:
    """A running one."""

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self.folder, self.process = folder, process
        self.group = folder / "groups" / "gpuagent-server@demo.service"

    def connect(self) -> socket.socket:
        caller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        caller.settimeout(DEADLINE_S)
        caller.connect(str(self.folder / "helper.sock"))
        return caller

    def ask(self, **request: Any) -> dict[str, Any]:
        with self.connect() as caller:
            return exchange(caller, json.dumps(request).encode())

    def start(self, **other: Any) -> dict[str, Any]:
        of = digest(policy.load(self.folder / "gpuagent.toml").spec("demo"))
        return self.ask(**{"verb": "start", "name": "demo", "digest": of, "invocation": "0123abcd-1", **other})

    def calls(self) -> list[str]:
        """What systemctl was called with."""
        calls = self.folder / "calls"
        return calls.read_text().splitlines() if calls.exists() else []

    def occupy(self, *pids: int) -> None:
        """Put processes in the server's control group."""
        self.group.mkdir(parents=True, exist_ok=True)
        (self.group / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))


def exchange(caller: socket.socket, packet: bytes) -> dict[str, Any]:
    """One request, one reply."""
    caller.send(packet)
    reply: dict[str, Any] = json.loads(caller.recv(1 << 16))
    return reply


@contextmanager
def running(folder: Path, uid: int = 0, idle_s: float = 60) -> Iterator[HelperProcess]:
    """A helper that hears `uid`. Its audit lines are in folder/audit."""
    (folder / "gpuagent.toml").write_text(CONFIG)
    (folder / "records").mkdir()
    (folder / "groups").mkdir()
    (folder / "state").write_text("inactive\n")
    (folder / "systemctl").write_text(SYSTEMCTL.format(folder=folder))
    (folder / "systemctl").chmod(0o755)
    command = [sys.executable, "-c", SERVE, str(folder), str(uid), str(idle_s)]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, (folder / "audit").open("w") as audit:
        listener.bind(str(folder / "helper.sock"))
        listener.listen(1024)  # as much as systemd gives
        process = subprocess.Popen(command, stdin=listener.fileno(), stderr=audit, text=True)
    try:
        yield HelperProcess(folder, process)
    finally:
        process.kill()
        process.wait(DEADLINE_S)
