"""How a unit's first process ended, in systemd's own words."""

from __future__ import annotations

import signal

from agent.core.model import Exit
from agent.edges import memory_kills
from agent.edges.memory_kills import MemoryKills
from agent.edges.systemd import Unit

CLD_EXITED = 1
OOM = "oom-kill"


def exit_of(unit: Unit, *, asked: bool, stopped: bool, kills: MemoryKills | None) -> Exit:
    """`asked`: by us, `stopped`: by somebody else; `kills`: the kernel's counts before the end, where known."""
    if unit.code == CLD_EXITED:
        return Exit(code=unit.status, oom=unit.result == OOM, stopped=stopped)
    return Exit(signal=unit.status, oom=_for_memory(unit, asked or stopped, kills), stopped=stopped)


def _for_memory(unit: Unit, told: bool, kills: MemoryKills | None) -> bool | None:
    """Whether the kernel killed it for memory; None: something on this host was, since the last look at it."""
    if unit.result == OOM:
        return True
    if unit.status != signal.SIGKILL or told:
        return False
    return memory_kills.killed_since(kills) if kills is not None else None
