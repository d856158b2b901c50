"""A host with a bus, a systemd and a helper of our own, for the edges that speak to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from agent.core.model import Exit, Process
from agent.edges.privileged import Privileged
from agent.edges.systemd import Systemd
from agent.edges.unit_server import UnitServer
from agent.ports import Tree
from tests.edges.edges_house import until
from tests.fakes.privileged import FakeHelper, running_helper
from tests.fakes.systemd import Bus, FakeSystemd, FakeUnit, running_bus


class Host:
    """One server's unit, and the agent's edge to it."""

    def __init__(self, folder: Path, bus: Bus, fake: FakeSystemd, eyes: Systemd) -> None:
        self.folder, self.bus, self.fake, self.eyes = folder, bus, fake, eyes
        self.unit: FakeUnit = fake.unit("demo", folder)
        self.helper: FakeHelper
        self.exits: list[tuple[str, Exit]] = []
        self.started = 0
        self.servers: list[UnitServer] = []

    def server(self) -> UnitServer:
        """A new edge, as after a start of the agent."""
        server = UnitServer(
            "demo", "d1", Privileged(self.helper.path), self.eyes, self.folder / "records", self.folder / "groups"
        )
        server.on_exit(lambda invocation, how: self.exits.append((invocation, how)))
        server.on_started(self._count)
        self.servers.append(server)
        return server

    def _count(self) -> None:
        self.started += 1

    async def launched(self, server: UnitServer, invocation: str = "i1") -> Process:
        """The first process of a launch."""
        return await server.launch(invocation, self.folder / "log")

    async def sees(self, what: str, met: Callable[[], bool]) -> None:
        """Waits for it."""

        async def ask() -> bool:
            return met()

        await until(ask, what)

    async def exit(self) -> Exit:
        """The one end that was told."""
        await self.sees("the exit", lambda: bool(self.exits))
        ((_, how),) = self.exits
        return how

    async def connected(self) -> None:
        """Systemd is heard."""
        await self.sees("systemd on the bus", lambda: self.eyes.fault is None)

    async def bus_away(self) -> None:
        """Both lose it."""
        self.bus.stop()
        await self.sees("the loss of the bus", lambda: self.eyes.fault is not None)

    async def bus_back(self) -> None:
        """Systemd is there at once."""
        await self.bus.start()
        await self.fake.connect()


async def looked(server: UnitServer, met: Callable[[Tree], bool], what: str) -> Tree:
    """The first look of which that is true."""

    async def ask() -> Tree | None:
        tree = await server.look()
        return tree if met(tree) else None

    tree: Tree = await until(ask, what)
    return tree


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    """A host whose bus and helper answer."""
    (tmp_path / "records").mkdir()
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(running_bus(tmp_path))
        fake = FakeSystemd(bus.address, tmp_path)
        await fake.connect()
        stack.push_async_callback(fake.close)
        eyes = await stack.enter_async_context(Systemd(bus.address))
        one = Host(tmp_path, bus, fake, eyes)
        units = {one.unit.name: one.unit}
        one.helper = await stack.enter_async_context(running_helper(tmp_path / "helper.sock", units))
        await one.connected()
        yield one
        for server in one.servers:
            server.close()
