"""The outside of a loop, scripted: processes, port, preconditions, disk. Fills the Protocols of agent/ports.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from agent.board import Board
from agent.core.chronicle import Start
from agent.core.holds import Holds
from agent.core.model import Ask, Exit, Health, Life, Need, Policy, Process, Saved, Space
from agent.errors import EdgeError
from agent.families import FAMILIES
from agent.gpu_watch import GpuEyes, GpuWatch
from agent.keeping_off import Fight
from agent.loop import Loop
from agent.ports import Rivals, Tree
from agent.records import Records
from agent.roster import Defined
from agent.watch import Outside

READ_BYTES = 1 << 20
PATIENCE_S = 600.0  # virtual


class World:
    """One server's outside."""

    def __init__(self) -> None:
        self.processes: list[Process] = []
        self.invocation: str | None = None
        self.launched: list[str] = []
        self.signals: list[str] = []
        self.health = Health.REFUSED
        self.probes = 0
        self.written = b""
        self.unmet: tuple[Need, ...] = ()
        self.refuse_launch: EdgeError | None = None
        self.kept: list[frozenset[str]] = []  # what was spared, each time that the logs were looked after
        self.refuse_keep: EdgeError | None = None
        self.blind = False  # looks fail
        self.looks = 0
        self.free_mib: float | None = 51_200.0  # on the disk that it writes; None: that does not answer
        self.deaf = False  # SIGTERM does nothing
        self.lossy = False  # exits are not told
        self.leaves: list[Process] = []  # processes that outlive the first one
        self.cpu_s = 0.0
        self._tell: Callable[[str, Exit], None] = lambda invocation, how: None
        self._tell_started: Callable[[], None] = lambda: None
        self.ordered = True  # what runs was started by the agent
        self.evidence: dict[str, Exit] = {}  # of ends that nobody watched
        self._pids = 100

    # -- ports.Server

    async def launch(self, invocation: str, log: Path) -> Process:
        await asyncio.sleep(0.01)
        if self.refuse_launch is not None:
            raise self.refuse_launch
        assert not self.processes, "a second tree"
        self._pids += 1
        main = Process(self._pids, self._pids * 10)
        self.processes, self.invocation, self.written, self.ordered = [main], invocation, b"", True
        self.launched.append(invocation)
        return main

    async def terminate(self, whole: bool) -> None:
        self.signals.append("TERM all" if whole else "TERM")
        if not self.deaf:
            self.end(Exit(code=0), leave_nothing=whole)

    async def kill(self) -> None:
        self.signals.append("KILL")
        self.end(Exit(signal=9), leave_nothing=True)

    async def look(self) -> Tree:
        self.looks += 1
        if self.blind:
            raise EdgeError("processes", "look", "no /proc")
        main = self.processes[0] if self.processes and self.invocation else None
        return Tree(main, tuple(self.processes), (), (), self.invocation, Life(cpu_s=self.cpu_s), self.ordered)

    def on_exit(self, tell: Callable[[str, Exit], None]) -> None:
        self._tell = tell

    def on_started(self, tell: Callable[[], None]) -> None:
        self._tell_started = tell

    def last_exit(self, invocation: str) -> Exit | None:
        return self.evidence.get(invocation)

    def start_outside(self, invocation: str) -> None:
        """Somebody else starts it."""
        self._pids += 1
        self.processes = [Process(self._pids, self._pids * 10), *self.leaves]
        self.invocation, self.ordered, self.written = invocation, False, b""
        self._tell_started()

    def end(self, how: Exit, *, leave_nothing: bool = False) -> None:
        """The first process ends now."""
        invocation, self.invocation = self.invocation, None
        self.processes = [] if leave_nothing else list(self.leaves)
        self.health = Health.REFUSED
        if invocation is not None and not self.lossy:
            self._tell(invocation, how)

    def close(self) -> None:
        """Nothing to let go of."""

    # -- ports.Checks

    async def needs(self, ours: frozenset[int]) -> tuple[Need, ...]:
        if self.blind:
            raise EdgeError("checks", "look", "no answer")
        return self.unmet

    # -- ports.Keeper

    async def keep(self, present: frozenset[str]) -> None:
        self.kept.append(present)
        if self.refuse_keep is not None:
            raise self.refuse_keep

    # -- ports.Probe

    async def ask(self, ours: frozenset[int]) -> tuple[Health, str]:
        self.probes += 1
        if self.health is Health.TIMEOUT:
            await asyncio.sleep(10)
        return self.health, ""


class Port:
    """ports.Probe on a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def ask(self, ours: frozenset[int]) -> tuple[Health, str]:
        return await self._world.ask(ours)

    async def close(self) -> None:
        """Nothing to let go of."""


class Folders:
    """ports.Storage on a world: one disk of 100 GiB."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def look(self, at: float) -> tuple[Space, ...]:
        return (Space(path="/srv", at=at, total_mib=102_400.0, free_mib=self._world.free_mib),)


class Lines:
    """ports.Log on what the world has written."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._at = 0

    def read(self, patience_s: float | None = None) -> bytes:
        data = self._world.written[self._at : self._at + READ_BYTES]
        self._at += len(data)
        return data

    def seek_last(self, count: int) -> int | None:
        if self.behind <= count:
            return 0
        begin, self._at = self._at, self._world.written.index(b"\n", len(self._world.written) - count) + 1
        return self._world.written.count(b"\n", begin, self._at)

    @property
    def found(self) -> bool:
        return True

    @property
    def behind(self) -> int:
        return len(self._world.written) - self._at

    def close(self) -> None:
        """Nothing to let go of."""


class Disk:
    """ports.Store in memory."""

    def __init__(self, saved: dict[str, Saved]) -> None:
        self.saved = dict(saved)
        self.broken: str | None = None
        self.faults: list[str] = []
        self.rebooted: bool | None = None
        self.holds = Holds()
        self.saves = 0

    def load(self) -> dict[str, Saved]:
        return dict(self.saved)

    async def save(self, name: str, saved: Saved) -> None:
        await asyncio.sleep(0.005)
        if self.broken:
            raise EdgeError("store", "save", self.broken)
        self.saved[name] = saved
        self.saves += 1

    async def save_holds(self, holds: Holds) -> None:
        await asyncio.sleep(0.005)
        if self.broken:
            raise EdgeError("store", "save", self.broken)
        self.holds = holds


class Past:
    """ports.History in memory."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Start] = {}  # oldest first
        self.broken: str | None = None
        self.faults: list[str] = []
        self.puts = 0
        self.seen: float | None = None  # when an agent was here last
        self.closed = False

    async def starts(self, server: str, limit: int) -> list[Start]:
        await asyncio.sleep(0.001)
        if self.broken:
            raise EdgeError("history", "read", self.broken)
        return [start for start in reversed(self.rows.values()) if start.server == server][:limit]

    async def put(self, start: Start) -> None:
        await asyncio.sleep(0.001)
        if self.broken:
            raise EdgeError("history", "write", self.broken)
        self.rows[start.server, start.invocation] = start
        self.puts += 1

    async def last_seen(self) -> float | None:
        return self.seen

    async def still_here(self) -> None:
        """The tests say when that was."""

    async def close(self) -> None:
        self.closed = True


class Bench:
    """A real Loop, its board, and the worlds around it."""

    def __init__(self, saved: dict[str, Saved], policy: Policy | None = None) -> None:
        self.worlds = {name: World() for name in saved}
        self.disk = Disk(saved)
        self.past = Past()
        self.digest = "d1"
        self.boot_id = "boot1"
        self.policy = policy or Policy()
        self.policies: dict[str, Policy] = {}  # where a server has another
        self.board = Board()
        self.run = 0
        self.ends_servers = True
        self.shutting_down = False
        self.rivals: Rivals | None = None
        self.listed = frozenset[str]()
        self.gpus: GpuEyes | None = None

    @property
    def world(self) -> World:
        """The only one."""
        (world,) = self.worlds.values()
        return world

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The agent runs; at the end it closes, and its servers with it."""
        closing = asyncio.Event()
        self.run += 1
        self.gpu_watch = GpuWatch(self.gpus)
        self.loop = Loop(
            servers=self.defined(),
            store=self.disk,
            records=Records(self.past, self.boot_id),
            board=self.board,
            run=f"run{self.run}",
            about=({}, {}),
            ends_servers=self.ends_servers,
            shutting_down=lambda: self.shutting_down,
            fight=Fight(self.listed, self.rivals),
            gpus=self.gpu_watch,
        )
        task = asyncio.get_running_loop().create_task(self.loop.run(closing))
        try:
            yield
        finally:
            closing.set()
            await task

    def defined(self) -> dict[str, Defined]:
        """The servers, as the loop takes them."""
        return {
            name: Defined(
                policy=replace(self.policies.get(name, self.policy), name=name),
                url="http://127.0.0.1:1",
                digest=self.digest,
                source=self.digest,
                open=partial(self._outside, world),
            )
            for name, world in self.worlds.items()
        }

    def _outside(self, world: World) -> Outside:
        return Outside(
            server=world,
            checks=world,
            probe=Port(world),
            family=FAMILIES["plain"],
            keeper=world,
            storage=Folders(world),
            open_log=lambda path: Lines(world),
            log_path=lambda invocation: Path(invocation),
            redact=lambda text: text,
        )

    async def ask(self, ask: Ask, name: str = "one", *, back: bool = False) -> str | None:
        """What the operator is answered."""
        return await asyncio.wrap_future(self.loop.ask(name, ask, back=back))

    def stage(self, name: str = "one") -> str:
        """As every face shows it."""
        return self.board.read().servers[name].stage

    async def until_launched(self, times: int, name: str = "one") -> None:
        """Wait until a server has been launched so many times, and is starting."""
        end = asyncio.get_running_loop().time() + PATIENCE_S
        while len(self.worlds[name].launched) < times or self.stage(name) != "starting":
            assert asyncio.get_running_loop().time() < end, f"launched {len(self.worlds[name].launched)} times"
            await asyncio.sleep(0.01)

    async def until(self, stage: str, name: str = "one") -> None:
        """Wait until the board shows this stage."""
        end = asyncio.get_running_loop().time() + PATIENCE_S
        while name not in self.board.read().servers or self.stage(name) != stage:
            assert asyncio.get_running_loop().time() < end, f"never {stage}: {self.board.read().full.decode()}"
            await asyncio.sleep(0.01)
