"""The agent as a daemon: how soon a server that is a systemd unit is launched again, on real systemd in a container."""

from __future__ import annotations

import time
from pathlib import Path

from tests.bench.figures import Aim, Figure
from tests.system.image import SUITES, image, why_not
from tests.system.installed import copy_clone, install
from tests.system.machine import Machine
from tests.system.servers import fake, live, start, start_agent

RESTARTS = 40
LOOK_S = 0.002
PATIENCE_S = 60.0
AIM = (Aim(0.99, 300),)


def restarts(folder: Path) -> list[Figure]:
    """One figure for each Debian; without samples, and saying why, where containers cannot be had."""
    if reason := why_not():
        return [Figure(_what(suite), "ms", [], AIM, f"not measured: {reason}") for suite in SUITES]
    clone = copy_clone(folder / "clone")
    return [Figure(_what(suite), "ms", _restarts(suite, folder / suite, clone), AIM) for suite in SUITES]


def _what(suite: str) -> str:
    return f"a unit's own end -> relaunched, systemd {SUITES[suite]}"


def _restarts(suite: str, folder: Path, clone: Path) -> list[float]:
    for part in ("installed", "machine"):
        (folder / part).mkdir(parents=True)
    with image(suite) as root:
        installed = install(suite, root, clone, folder / "installed")
        machine = Machine(folder / "machine", installed.layers, clone)
        try:
            start_agent(machine.boot(), fake("demo", 8101))
            start(machine, "demo")
            return [_restart(machine) for _ in range(RESTARTS)]
        finally:
            machine.close()


def _restart(machine: Machine) -> float:
    """Milliseconds from the end of its process, asked for by us, to the next one."""
    (old,) = live(machine, "demo")
    machine.ask("POST", "/servers/demo/restart")
    ended, deadline = 0.0, time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        now, found = time.monotonic(), live(machine, "demo")
        if not ended and old not in found:
            ended = now
        if ended and any(one != old for one in found):
            machine.until_stage("demo", "ready")
            return (now - ended) * 1000
        time.sleep(LOOK_S)
    raise TimeoutError("no second process")
