"""The agent as a daemon, on real systemd in a container: how soon a server that is a unit is launched again, and how
soon one is adopted whose agent was killed.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.figures import Aim, Figure
from tests.system.image import SUITES, image, why_not
from tests.system.installed import copy_clone, install
from tests.system.machine import Machine
from tests.system.servers import Process, agent_of, fake, live, start, start_agent

RESTARTS = 100
KILLS = 20
LOOK_S = 0.002
PATIENCE_S = 60.0
RELAUNCHED = "a unit's own end at a restart -> relaunched", (Aim(0.99, 300),)
ADOPTED = "kill -9 of the agent -> its server adopted", (Aim(1.0, 3000),)
"""Of these, systemd's pause before it starts the agent anew takes a second."""


def daemon(folder: Path) -> list[Figure]:
    """Two figures for each Debian; without samples, and saying why, where containers cannot be had."""
    figures: list[Figure] = []
    reason = why_not()
    clone = folder / "clone" if reason else copy_clone(folder / "clone")
    for suite, version in SUITES.items():
        measured = ([], []) if reason else _measured(suite, folder / suite, clone)
        for (what, aim), samples in zip((RELAUNCHED, ADOPTED), measured, strict=True):
            note = f"not measured: {reason}" if reason else ""
            figures.append(Figure(f"{what}, systemd {version}", "ms", samples, aim, note))
    return figures


def _measured(suite: str, folder: Path, clone: Path) -> tuple[list[float], list[float]]:
    for part in ("installed", "machine"):
        (folder / part).mkdir(parents=True)
    with image(suite) as root:
        installed = install(suite, root, clone, folder / "installed")
        machine = Machine(folder / "machine", installed.layers, clone)
        try:
            start_agent(machine.boot(), fake("demo", 8101))
            start(machine, "demo")
            return [_restart(machine) for _ in range(RESTARTS)], [_kill(machine) for _ in range(KILLS)]
        finally:
            machine.close()


def _restart(machine: Machine) -> float:
    """Milliseconds from the end of its process, asked for by us, to the exec of the next one."""
    (old,) = live(machine, "demo")
    machine.ask("POST", "/servers/demo/restart")
    ended, _ = _until(machine, lambda found: old not in found)
    began, new = _until(machine, lambda found: any(one != old for one in found))
    machine.until(lambda server: server["stage"] == "ready" and server["pid"] == new[0].pid, "the new one", "demo")
    return (began - ended) * 1000


def _kill(machine: Machine) -> float:
    """Milliseconds from the end of the agent until the next one shows its server as ready, the same as before."""
    before, agent = machine.server("demo"), agent_of(machine)
    os.kill(agent.host_pid, signal.SIGKILL)
    killed = time.monotonic()
    machine.until(lambda server: server["stage"] == "ready" and server["pid"] == before["pid"], "adopted", "demo")
    took = time.monotonic() - killed
    assert agent_of(machine).pid != agent.pid
    return took * 1000


def _until(machine: Machine, met: Callable[[list[Process]], bool]) -> tuple[float, list[Process]]:
    """When its processes were first seen so, and they. TimeoutError."""
    deadline = time.monotonic() + PATIENCE_S
    while (now := time.monotonic()) < deadline:
        if met(found := live(machine, "demo")):
            return now, found
        time.sleep(LOOK_S)
    raise TimeoutError(f"the server was never seen so: {machine.server('demo')}\n{machine.journal_end()}")
