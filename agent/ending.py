"""How an agent ends: with its servers, or without them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from agent.core.model import Stage, State
from agent.keeping_off import KeepingOff
from agent.roster import Roster

SLACK_S = 30.0
"""Beyond the servers' own patience, before an ending agent gives up on them."""
HEAR_S = 0.3
"""Systemd's word that the host goes down may come after its SIGTERM."""
LEAVE_S = 2.0
"""For what is decided and not carried out yet: a save takes milliseconds."""

log = structlog.get_logger()


async def see_them_end(roster: Roster, quiescent: asyncio.Event, states: Callable[[], Mapping[str, State]]) -> bool:
    """Wait until each server is gone, whole tree; what survives is named, not waited for: False."""
    try:
        async with asyncio.timeout(roster.patience_s + SLACK_S):
            await quiescent.wait()
            await roster.drained()
    except TimeoutError:
        left = {name: state.why for name, state in states().items() if state.stage is not Stage.DOWN}
        log.error("ending without everything being carried out", servers=left)
        return False
    return True


async def leave_them(roster: Roster, keeping_off: KeepingOff) -> bool:
    """Carry out what is decided, and let the servers run. True: none was to end.

    A launch or a signal that takes long is not waited for: the next run of the agent goes on from what it finds.
    """
    try:
        async with asyncio.timeout(LEAVE_S):
            await roster.drained()
            await keeping_off.drained()
    except TimeoutError:
        log.warning("ending without everything being carried out")
    await asyncio.sleep(HEAR_S)
    return True
