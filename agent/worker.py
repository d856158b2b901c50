"""The hands of one server: carries out its effects, in their order, one at a time, and tells what came of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import structlog

from agent.core.model import (
    Cause,
    Effect,
    Event,
    Kill,
    Launch,
    Launched,
    Refused,
    Relieve,
    Retry,
    Save,
    Saved,
    Stored,
    Terminate,
)
from agent.errors import EdgeError
from agent.families.cause import CATALOG
from agent.ports import Store
from agent.watch import Outside

log = structlog.get_logger()


class Worker:
    """`outside` is asked at each effect: it changes when the definition does. `tell` hands an event to the loop."""

    def __init__(self, name: str, outside: Callable[[], Outside], store: Store, tell: Callable[[Event], None]) -> None:
        self.unsaved: str | None = None  # why the last save failed
        self._name = name
        self._outside = outside
        self._store = store
        self._tell = tell
        self._queue: asyncio.Queue[Effect] = asyncio.Queue()

    def put(self, effect: Effect) -> None:
        """To be carried out after those that were put before."""
        self._queue.put_nowait(effect)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            effect = await self._queue.get()
            if (news := await self._carry_out(effect)) is not None:
                self._tell(news)
            self._queue.task_done()

    async def drained(self) -> None:
        """Until everything that was put is carried out."""
        await self._queue.join()

    async def _carry_out(self, effect: Effect) -> Event | None:
        outside = self._outside()
        try:
            match effect:
                case Save(saved):
                    return await self._save(saved)
                case Launch(invocation):
                    main = await outside.server.launch(invocation, outside.log_path(invocation))
                    return Launched(invocation=invocation, main=main, at=_now())
                case Terminate(whole):
                    await outside.server.terminate(whole)
                case Kill():
                    await outside.server.kill()
                case Relieve():
                    await _relieve(outside)
        except EdgeError as error:
            log.warning("refused", server=self._name, effect=str(effect), why=str(error))
            cause = refusal(error)
            return Refused(effect=effect, cause=replace(cause, text=outside.redact(cause.text)), at=_now())
        return None

    async def _save(self, saved: Saved) -> Stored:
        """Save. The mark stands in /status until a later save of the same server succeeds."""
        try:
            await self._store.save(self._name, saved)
        except EdgeError as error:
            if error.why != self.unsaved:  # each look tries again
                log.error("the state could not be saved", server=self._name, why=str(error))
            self.unsaved = error.why
            return Stored(saved=saved, why=error.why, at=_now())
        self.unsaved = None
        return Stored(saved=saved, at=_now())


async def _relieve(outside: Outside) -> None:
    if outside.relieve is None:
        raise EdgeError("disk", "start what makes room", "this agent runs without systemd")
    log.warning("a disk is too full: starting what makes room")
    await outside.relieve()


def refusal(error: EdgeError) -> Cause:
    """An edge's error as the cause of a failure."""
    known = CATALOG.get(error.slug) or CATALOG["launch_failed"]
    slug = error.slug if error.slug in CATALOG else "launch_failed"
    text = f"{error.what}: {error.why}"
    return Cause(slug=slug, text=text, remedy=known.remedy, retry=known.retry or Retry.FEW)


def _now() -> float:
    return asyncio.get_running_loop().time()
