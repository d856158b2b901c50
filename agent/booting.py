"""What an agent finds of a server when it starts, with all that is known of it from before."""

from __future__ import annotations

import asyncio

from agent.core.model import Booted, Exit, Saved
from agent.records import Records
from agent.roster import Member


async def look_back(name: str, member: Member, saved: Saved, records: Records, *, run: str, rebooted: bool) -> Booted:
    """One look, one probe of a server that runs, and the last words of one that ended while no agent ran.

    `run` names this run of the agent; `rebooted`: the host has booted since the last save.
    """
    watch = member.watch
    seen = await watch.look()
    ran = saved.running and not rebooted
    another = seen.main is not None and seen.invocation not in (None, saved.invocation)  # started since
    how = watch.last_exit(saved.invocation) if ran and (seen.main is None or another) else Exit()
    ended = await watch.last_words(saved.invocation, how) if ran and (seen.tree == () or another) else None
    health = await watch.ask_health(seen) if seen.main is not None else None
    if seen.main is None and saved.invocation is not None:
        watch.recall(saved.invocation)  # what it said last is asked for, also when it is down
    start = records.known(name, seen.invocation or saved.invocation)
    return Booted(
        saved=saved,
        seen=seen,
        run=run,
        health=health,
        launched=start.began if start else None,
        ready=start.began + start.ready_s if start and start.ready_s is not None else None,
        steps=tuple((step, start.began + after_s) for step, after_s in start.steps) if start else (),
        ended=ended,
        exit=how,
        same=start.digest == member.defined.digest if start else None,
        rebooted=rebooted,
        at=asyncio.get_running_loop().time(),
    )
