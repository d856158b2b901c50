"""What watches one server: its processes, its port, its log. It tells the loop what it sees, and decides nothing.

A Watch holds no State: it asks for the present one only to choose how often to look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

from agent.core.model import Cause, Event, Exit, Exited, Health, LogRead, Looked, Need, Probed, Seen, Stage, State
from agent.errors import EdgeError
from agent.families import Family
from agent.families.cause import find_cause
from agent.families.reader import News
from agent.gpu_watch import GpuLook, GpuWatch
from agent.keeping import Keeping, wait
from agent.log_reading import LAST_WORDS_BYTES, SLICE_BYTES, LogReading
from agent.pace import PROBED, Pace
from agent.ports import Checks, Keeper, Log, Probe, Server, Storage, Tree
from agent.storage_reading import StorageReading

LOOK_S: Mapping[Stage, float] = {
    Stage.WAITING: 1.0,
    Stage.CLEARING: 0.1,  # memory is back 0.13 to 0.2 s after the last process ended
    Stage.STARTING: 2.0,
    Stage.STOPPING: 0.1,
}
"""Seconds between two looks. Deaths are told by a signal; looks heal what signals lose."""
LOOK_ELSE_S = 5.0

READ_S: Mapping[Stage, float] = {Stage.STARTING: 0.05}
READ_ELSE_S = 2.0  # nobody waits for a step then, a death reads the rest at once, and each look costs 0.6 ms
TELL_S = 0.2
"""Between two times that mere lines are told."""
BOOT_PROBE_S = 2.0
"""A server that runs when the agent starts: slower than this is not called ready at once."""
CAUGHT_UP_BYTES = 1024 * 1024
"""Read at most before it is said to be ready."""


@dataclass(frozen=True, slots=True)
class Outside:
    """One server's edges."""

    server: Server
    checks: Checks
    probe: Probe
    family: Family
    keeper: Keeper
    storage: Storage
    open_log: Callable[[Path], Log]
    log_path: Callable[[str], Path]  # of an invocation
    redact: Callable[[str], str]
    relieve: Callable[[], Awaitable[None]] | None = None  # start what makes room on the disks; None: it cannot be


class Watch:
    """The eyes on one server. `tell`: hands an event to the loop; `gpus`: None where its definition names none."""

    def __init__(
        self, outside: Outside, state: Callable[[], State], tell: Callable[[Event], None], gpus: GpuWatch | None = None
    ) -> None:
        self.faults: dict[str, str] = {}  # edge -> why it could not look
        self._outside = outside
        self._state = state
        self._tell = tell
        self._gpus = gpus
        self._told_at = -TELL_S  # when the last news of the log was told
        self._untold = 0  # lines since then, as far as known: more than none
        self._unmet: dict[tuple[str, str, str], float] = {}  # need -> since when
        self._keeping = Keeping(outside.keeper, self._present)
        self._room = StorageReading(outside.storage, state, self.look_now)
        self._look_now = asyncio.Event()
        self._stirred = asyncio.Event()
        self._reading: LogReading | None = None
        self._pace = Pace(outside.family.probe_s)
        outside.server.on_exit(self._exited)
        outside.server.on_started(self.look_now)  # who has started it, and that it counts, is told by the look

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._look_forever())
                tasks.create_task(self._probe_forever())
                tasks.create_task(self._read_forever())
                tasks.create_task(self._keeping.run())
                tasks.create_task(self._room.run())
        finally:
            if self._reading is not None:
                self._reading.close()

    def look_now(self) -> None:
        """Look at once; if a look is under way, again after it, so that one begins after this call."""
        self._look_now.set()

    def stir(self) -> None:
        """The stage has changed: whoever sleeps for the old one wakes."""
        self._stirred.set()
        self._stirred = asyncio.Event()
        self._room.now()

    @property
    def marks(self) -> dict[str, str]:
        """What does not work -> why."""
        unkept = {"log-not-bounded": self._keeping.fault} if self._keeping.fault else {}
        return {**{f"{edge}-not-seen": why for edge, why in self.faults.items()}, **unkept, **self._room.marks}

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines of the log, without secrets."""
        return tuple(map(self._outside.redact, self._reading.reader.tail(20))) if self._reading else ()

    @property
    def log(self) -> Path | None:
        """The log file of the present attempt, or of the last one."""
        return self._outside.log_path(self._reading.invocation) if self._reading else None

    # -- at the agent's start ------------------------------------------------------------------------

    async def ask_health(self, seen: Seen) -> Health | None:
        """One probe of a server that runs already; None: it could not be made."""
        try:
            async with asyncio.timeout(BOOT_PROBE_S):
                health, _ = await self._outside.probe.ask(frozenset(process.pid for process in seen.tree or ()))
        except TimeoutError:
            return Health.TIMEOUT
        except EdgeError:
            return None
        return health

    def last_exit(self, invocation: str | None) -> Exit:
        """How an attempt ended that nobody saw ending, as far as there is evidence."""
        return (self._outside.server.last_exit(invocation) if invocation is not None else None) or Exit()

    async def last_words(self, invocation: str | None, how: Exit) -> Cause | None:
        """Why an attempt ended that nobody saw ending. None: it has no log, so it was never launched."""
        if invocation is None:
            return None
        self.recall(invocation)
        for _ in range(2 * LAST_WORDS_BYTES // SLICE_BYTES):
            if not self._read_some():
                break
            await asyncio.sleep(0)
        if (reading := self._reading) is None or not reading.found:
            return None
        reading.end()
        return self._cause(reading, how)

    def recall(self, invocation: str) -> None:
        """Read the end of the log of an attempt that is over."""
        self.follow(invocation)
        self._jump()

    def _jump(self) -> None:
        """Of what is not read yet, only the end: it tells why a server died."""
        if self._reading is None:
            return
        try:
            self._reading.jump_to_last_words()
        except EdgeError as error:
            self.faults["log"] = str(error)

    # -- looks -------------------------------------------------------------------------------------

    async def look(self) -> Seen:
        """One look at the processes and, where a launch may come next, at its needs."""
        began = asyncio.get_running_loop().time()
        tree = await self._look_at_tree()
        ours = frozenset(process.pid for process in tree.all) if tree else frozenset()
        needs = await self._look_at_needs(ours, began) if self._state().checked else None
        gpus = await self._gpus.look(began) if self._gpus and self._state().unlaunched else GpuLook()
        seen = Seen(began=began, needs=needs, gpus=gpus.gpus, gpus_unread=gpus.unread, storage=self._room.latest)
        if tree is None:
            return seen
        return replace(
            seen,
            tree=tree.all,
            main=tree.main,
            invocation=tree.invocation,
            ordered=tree.ordered,
            unkillable=tree.unkillable,
            ending=tree.ending,
            life=tree.life,
        )

    async def _look_at_tree(self) -> Tree | None:
        try:
            tree = await self._outside.server.look()
        except EdgeError as error:
            self.faults["processes"] = str(error)
            return None
        self.faults.pop("processes", None)
        return tree

    async def _look_at_needs(self, ours: frozenset[int], began: float) -> tuple[Need, ...] | None:
        try:
            needs = await self._outside.checks.needs(ours)
        except EdgeError as error:
            self.faults["checks"] = str(error)
            return None
        self.faults.pop("checks", None)
        return self._dated(tuple(replace(need, cause=self._hidden(need.cause)) for need in needs), began)

    def _dated(self, needs: tuple[Need, ...], began: float) -> tuple[Need, ...]:
        """Each with the time since when looks show it unmet, whatever its figures were."""
        key = attrgetter("name", "cause.slug", "subject")
        self._unmet = {key(need): self._unmet.get(key(need), began) for need in needs}
        return tuple(replace(need, since=self._unmet[key(need)]) for need in needs)

    async def _look_forever(self) -> None:
        while True:
            self._look_now.clear()
            self._tell(Looked(seen=await self.look(), at=asyncio.get_running_loop().time()))
            await wait(self._look_now, LOOK_S.get(self._state().stage, LOOK_ELSE_S))

    # -- the port ----------------------------------------------------------------------------------

    async def _probe_forever(self) -> None:
        while True:
            await wait(self._stirred, self._pace.pause_s(self._state(), asyncio.get_running_loop().time()))
            state = self._state()
            if state.stage in PROBED and not state.launching and state.saved.invocation is not None:
                await self._probe(state.saved.invocation)

    async def _probe(self, invocation: str) -> None:
        ours = frozenset(process.pid for process in self._state().seen.tree or ())
        try:
            health, _ = await self._outside.probe.ask(ours)
        except EdgeError as error:
            self.faults["probe"] = str(error)
            return
        self.faults.pop("probe", None)
        self._pace.answered(health, asyncio.get_running_loop().time())
        if health is Health.OK and self._state().stage is Stage.STARTING:
            self._catch_up(CAUGHT_UP_BYTES)
        self._tell(Probed(invocation=invocation, health=health, at=asyncio.get_running_loop().time()))

    # -- the log -----------------------------------------------------------------------------------

    def follow(self, invocation: str) -> None:
        """Read the log of this attempt from now on, from its first byte."""
        if self._reading is not None and self._reading.invocation == invocation:
            return
        if self._reading is not None:
            self._reading.close()
        path = self._outside.log_path(invocation)
        self._reading = LogReading(invocation, self._outside.open_log(path), self._outside.family)
        self._keeping.now()

    def _present(self) -> frozenset[str]:
        """The attempts whose logs must stay."""
        read = self._reading.invocation if self._reading is not None else None
        return frozenset(each for each in (self._state().saved.invocation, read) if each is not None)

    async def _read_forever(self) -> None:
        while True:
            if self._read_some():
                await asyncio.sleep(0)  # a storm of lines must not keep the loop from anything else
            else:
                await wait(self._stirred, READ_S.get(self._state().stage, READ_ELSE_S))

    def _read_some(self) -> bool:
        """Read and tell the next slice; False: there is nothing new, or it cannot be read."""
        if (reading := self._reading) is None:
            return False
        try:
            news = reading.read_some()
        except EdgeError as error:
            self.faults["log"] = str(error)
            return False
        self.faults.pop("log", None)
        self._tell_news(reading.invocation, news or News(lines=self._untold))
        return news is not None

    def _catch_up(self, limit_bytes: int) -> None:
        """Tell what the log says by now: a quick server is ready, or dead, before the next time that it is read."""
        for _ in range(limit_bytes // SLICE_BYTES):
            if not self._read_some():
                break

    def _tell_news(self, invocation: str, news: News) -> None:
        """What is told is published, which costs as much as reading: of mere lines, a storm is told now and then."""
        at = asyncio.get_running_loop().time()
        if news.step is None and news.progress is None:
            if not news.lines:
                return
            if at - self._told_at < TELL_S:
                self._untold = news.lines
                return
        self._told_at, self._untold = at, 0
        self._tell(LogRead(invocation=invocation, step=news.step, progress=news.progress, at=at))

    def _exited(self, invocation: str, how: Exit) -> None:
        """The first process ended: read its last words, and say why."""
        self.follow(invocation)
        if (reading := self._reading) is None:
            return
        self._jump()
        self._catch_up(2 * LAST_WORDS_BYTES)  # what it wrote up to its end, though it wrote while we read
        self._tell_news(invocation, reading.end())
        at = asyncio.get_running_loop().time()
        self._tell(Exited(invocation=invocation, exit=how, cause=self._cause(reading, how), at=at))

    def _cause(self, reading: LogReading, how: Exit) -> Cause:
        cause = self._hidden(find_cause(self._outside.family, reading.reader, how))
        return replace(cause, line=None) if reading.miscounted else cause

    def _hidden(self, cause: Cause) -> Cause:
        """The cause without secrets."""
        return replace(cause, text=self._outside.redact(cause.text))
