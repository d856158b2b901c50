"""The starts of every server: what is remembered, shown and compared with. Nothing here can hold up the loop.

What is new is kept in memory at once and written behind it. When that fails, it is said, and tried again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import structlog

from agent.core import outage
from agent.core.chronicle import KEPT, Origin, Start, follow, lost, rejoin, replaced, shut_down
from agent.core.forecast import Expected, expect
from agent.core.host import Taken
from agent.core.model import Booted, Stage, State
from agent.errors import EdgeError
from agent.ports import History
from agent.view import StartPages, show_start

RETRY_S = 5.0
SEEN_S = 10.0
"""Between two times that it is written down that an agent is here: so exactly the length of a power cut is known."""
FINISH_S = 5.0
"""For the last words, when the agent ends."""

log = structlog.get_logger()


@dataclass(slots=True)
class _Server:
    """The starts of one server, newest first, each with its documents."""

    origin: Origin
    starts: deque[Start]
    pages: deque[tuple[bytes, bytes]]
    shown: StartPages


class Records:
    """What is remembered of the starts, of each server that is defined."""

    def __init__(self, history: History, boot_id: str | None) -> None:
        self._history = history
        self._boot_id = boot_id
        self._seen: float | None = None  # Unix seconds; when an agent was last here before us; None: not read yet
        self._servers: dict[str, _Server] = {}
        self._unread: set[str] = set()  # servers whose history could not be read yet
        self._unwritten: dict[tuple[str, str], Start] = {}  # the latest of each start, oldest first
        self._news = asyncio.Event()
        self._fault: str | None = None

    def define(self, name: str, digest: str) -> None:
        """The server has this definition from now on: what is launched next has its digest."""
        origin = Origin(server=name, digest=digest, boot_id=self._boot_id, seen=self._seen or 0.0)
        if (known := self._servers.get(name)) is None:
            self._servers[name] = _Server(origin, deque(maxlen=KEPT), deque(maxlen=KEPT), StartPages())
            self._unread.add(name)
            self._news.set()
        else:
            known.origin = origin
            self._show_all(known)

    @property
    def faults(self) -> list[str]:
        """What does not work, for a person."""
        return [*([self._fault] if self._fault else []), *(f"history: {fault}" for fault in self._history.faults)]

    # -- the loop's side ------------------------------------------------------------------------------

    def take(self, step: Taken, unix_s: float) -> None:
        """A step of the machine was taken, at `unix_s` (Unix seconds)."""
        server = self._servers[step.name]
        start = server.starts[0] if server.starts else None
        if start is not None and isinstance(step.event, Booted):
            over = replaced(start, step.event, server.origin)
            if over is not start:
                self._replace(server, start := over)
        new = follow(start, step.before, step.state, at=step.event.at, unix_s=unix_s, origin=server.origin)
        if new is None or new is start:
            return
        if start is None or new.invocation != start.invocation:
            if start is not None and start.outcome is None:
                self._replace(server, lost(start, server.origin))
            server.starts.appendleft(new)
            server.pages.appendleft((b"", b""))  # by _replace
        elif new.ready_s is not None and start.ready_s is None and new.outage is not None:
            log.info(outage.words(new.outage) or "back; since when it was away is not known", server=step.name)
        self._replace(server, new)

    def shut_down(self, unix_s: float) -> None:
        """The agent ends at `unix_s` because the host goes down, and what runs will not outlive it."""
        for server in self._servers.values():
            if server.starts and server.starts[0].outcome is None:
                self._replace(server, shut_down(server.starts[0], unix_s))

    def known(self, name: str, invocation: str | None) -> Start | None:
        """What is remembered of the last start, if it is this attempt: an adopted server goes on with it.

        Its times count from `began`, which is on the loop's own clock as long as the host has not booted since.
        """
        starts = self._servers[name].starts
        return starts[0] if starts and starts[0].invocation == invocation else None

    def expected(self, name: str, state: State, at: float) -> Expected | None:
        """What earlier starts say of the present one; None: it is not starting, or there were none."""
        server = self._servers[name]
        if state.stage is not Stage.STARTING or not server.starts or server.starts[0].outcome is not None:
            return None
        return expect(list(server.starts)[1:], server.starts[0], max(0.0, at - server.starts[0].began))

    def shown(self, name: str) -> StartPages:
        """The documents of the starts."""
        return self._servers[name].shown

    def _replace(self, server: _Server, start: Start) -> None:
        """The newest start is this now. Marks alone are not worth a write: the next step takes them along."""
        known, server.starts[0] = server.starts[0], start
        if known is start or replace(known, marks=()) != replace(start, marks=()):
            self._unwritten[start.server, start.invocation] = start
            self._news.set()
        page = show_start(start, start.digest == server.origin.digest)
        if page != server.pages[0]:
            server.pages[0] = page
            self._show(server)

    def _show_all(self, server: _Server) -> None:
        digest = server.origin.digest
        server.pages.clear()
        server.pages.extend(show_start(start, start.digest == digest) for start in server.starts)
        self._show(server)

    def _show(self, server: _Server) -> None:
        server.shown = StartPages(tuple(full for full, _ in server.pages), tuple(public for _, public in server.pages))

    # -- the disk's side ------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read what is not read yet. A fault is said, and it is tried again later."""
        try:
            if self._seen is None:
                self._seen = await self._history.last_seen() or 0.0
                for server in self._servers.values():
                    server.origin = replace(server.origin, seen=self._seen)
            for name in sorted(self._unread):
                self._join(self._servers[name], await self._history.starts(name, KEPT))
                self._unread.discard(name)
        except EdgeError as error:
            self._fail(f"history-not-read: {error.why}")

    def _join(self, server: _Server, known: list[Start]) -> None:
        """Put what was read behind what is new. Of a start that is in both, the older one knows its beginning."""
        new = {start.invocation: start for start in server.starts}
        for start in known:
            if start.invocation in new:
                joined = rejoin(start, new[start.invocation])
                server.starts[list(new).index(start.invocation)] = joined
                self._unwritten[joined.server, joined.invocation] = joined
        earlier = [start for start in known if start.invocation not in new]
        # Of those that seem to live, only the newest may still do so.
        for place, start in enumerate(earlier):
            if start.outcome is None and (place or new):
                earlier[place] = gone = lost(start, server.origin)
                self._unwritten[gone.server, gone.invocation] = gone
        server.starts.extend(earlier[: KEPT - len(server.starts)])  # a full deque would let go of the newest
        self._show_all(server)
        self._news.set()

    async def run(self, tell: Callable[[], None]) -> None:
        """Write what is new, until cancelled. `tell` is called when there is a new fault, or none any more."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_forever(tell))
            tasks.create_task(self._stay())

    async def _stay(self) -> None:
        """Write down, now and then, that an agent is here. What was written before us must have been read by then."""
        while True:
            if self._seen is not None:
                with suppress(EdgeError):  # a disk that fails is told when something is to be remembered
                    await self._history.still_here()
            await asyncio.sleep(SEEN_S)

    async def _write_forever(self, tell: Callable[[], None]) -> None:
        told = self.faults
        while True:
            await self._news.wait()
            self._news.clear()
            while (self._unwritten or self._unread) and not await self._write():
                if told != self.faults:
                    tell()
                told = self.faults
                await asyncio.sleep(RETRY_S)
            if told != self.faults:
                tell()
            told = self.faults

    async def _write(self) -> bool:
        """Write all there is. False: it did not work this time."""
        if self._unread:
            await self.load()
        if self._unread:
            return False
        while self._unwritten:
            key, start = next(iter(self._unwritten.items()))
            try:
                await self._history.put(start)
            except EdgeError as error:
                self._fail(f"history-not-written: {error.why}")
                return False
            if self._unwritten[key] is start:
                del self._unwritten[key]
        self._fault = None
        return True

    async def finish(self) -> None:
        """Write the last words; what does not work now is lost."""
        try:
            async with asyncio.timeout(FINISH_S):
                await self._write()
                await self._history.still_here()
                await self._history.close()
        except (TimeoutError, EdgeError) as error:
            log.warning("the history was not ended well", why=str(error))

    def _fail(self, fault: str) -> None:
        if fault != self._fault:
            log.warning(fault)
        self._fault = fault
