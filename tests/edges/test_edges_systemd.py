"""The eyes on systemd: a real bus that goes and comes back, and whose word counts."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest
from dbus_fast import Message, Variant
from dbus_fast.aio import MessageBus

from agent.edges import systemd
from agent.edges.systemd import MANAGER_PATH, PROPERTIES, SERVICE, Systemd, Unit, path_of
from tests.edges.edges_house import nothing_more_than, until
from tests.edges.unit_house import Host
from tests.fakes.systemd import running_bus

pytestmark = pytest.mark.anyio


class Told:
    """What was told of the unit."""

    def __init__(self, host: Host) -> None:
        self.units: list[Unit] = []
        host.eyes.follow(host.unit.unit, self.units.append)

    async def last(self, **wanted: object) -> Unit:
        """Once the last word is like that."""

        async def like() -> Unit | None:
            last = self.units[-1] if self.units else None
            return last if last and all(getattr(last, key) == value for key, value in wanted.items()) else None

        unit: Unit = await until(like, str(wanted))
        return unit


async def test_the_present_state_is_told_first(host: Host) -> None:
    await host.unit.start("i1")
    unit = await Told(host).last(active="active")
    assert (unit.main_pid, unit.invocation, unit.code) == (host.unit.service["MainPID"], host.unit.number, 0)


async def test_a_unit_that_was_never_started_is_no_end(host: Host) -> None:
    unit = await Told(host).last()
    assert (unit.active, unit.invocation, unit.main_pid, unit.code) == ("inactive", "", 0, 0)


async def test_each_change_is_told_until_it_is_not_followed_any_more(host: Host) -> None:
    told = Told(host)
    await told.last(active="inactive")
    host.unit.state = "activating"
    host.unit.changed()
    await told.last(active="activating")
    other = Told(host)
    host.eyes.unfollow(host.unit.unit, told.units.append)
    count = len(told.units)
    host.unit.state = "active"
    host.unit.changed()
    await other.last(active="active")
    assert len(told.units) == count


async def test_what_happens_while_the_bus_is_away_is_told_when_it_is_back(host: Host) -> None:
    told = Told(host)
    await told.last(active="inactive")
    await host.bus_away()
    count = len(told.units)
    await host.unit.start("i1")
    await host.bus_back()
    await told.last(active="active")
    assert all(unit.code == 0 for unit in told.units[count:])
    await host.connected()
    assert host.fake.subscribed == 2
    host.unit.state = "reloading"
    host.unit.changed()
    await told.last(active="reloading")


async def test_a_bus_that_comes_and_goes_is_survived(host: Host) -> None:
    told = Told(host)
    for number in range(3):
        await host.bus_away()
        await host.bus_back()
        host.unit.service["MainPID"] = 100 + number
        await told.last(main_pid=100 + number)


async def test_a_bus_without_systemd_is_said_and_its_coming_seen(host: Host) -> None:
    await host.bus_away()
    await host.bus.start()
    await host.sees("the lack", lambda: "systemd is not on the bus" in (host.eyes.fault or ""))
    host.unit.state = "active"
    told = Told(host)
    await host.fake.connect()
    await told.last(active="active")
    await host.connected()


async def test_systemd_under_a_new_name_is_believed_and_the_old_one_no_more(host: Host) -> None:
    told = Told(host)
    await told.last(active="inactive")
    host.fake.leave()
    host.unit.state = "active"
    await host.fake.connect()
    await told.last(active="active")


async def test_after_a_reload_lost_signals_are_made_good(host: Host) -> None:
    told = Told(host)
    await told.last(active="inactive")
    host.fake.tell_manager("Reloading", "b", True)
    host.fake.silent = True
    await host.unit.start("i1")
    host.fake.silent = False
    host.fake.tell_manager("Reloading", "b", False)
    await told.last(active="active")


async def test_nobody_else_can_speak_for_systemd(host: Host) -> None:
    told = Told(host)
    await told.last(active="inactive")
    stranger = await MessageBus(host.bus.address).connect()
    ours = await stranger.call(
        Message("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "ListNames")
    )
    dead = {"MainPID": Variant("u", 0), "ExecMainCode": Variant("i", 2)}
    for name in ours.body[0]:
        if name.startswith(":") and name != stranger.unique_name:
            signal = Message.new_signal(
                path_of(host.unit.unit), PROPERTIES, "PropertiesChanged", "sa{sv}as", [SERVICE, dead, []]
            )
            signal.destination = name
            await stranger.send(signal)
            down = Message.new_signal(MANAGER_PATH, "org.freedesktop.systemd1.Manager", "JobNew", "uos")
            down.destination, down.body = name, [1, "/j", "shutdown.target"]
            await stranger.send(down)
    stranger.disconnect()
    await host.sees("the stranger's leave", lambda: not stranger.connected)
    host.unit.state = "active"
    host.unit.changed()
    await told.last(active="active")
    assert all(unit.code == 0 for unit in told.units)
    assert not host.eyes.shutting_down


async def test_the_hosts_shutdown_is_seen_live_and_at_the_start(host: Host) -> None:
    assert not host.eyes.shutting_down
    host.fake.tell_manager("JobNew", "uos", 7, "/j", "shutdown.target")
    await host.sees("the shutdown", lambda: host.eyes.shutting_down)
    host.fake.tell_manager("JobRemoved", "uoss", 7, "/j", "shutdown.target", "canceled")
    await host.sees("its end", lambda: not host.eyes.shutting_down)
    host.fake.system_state = "stopping"
    async with Systemd(host.bus.address) as second:
        await host.sees("the shutdown", lambda: second.shutting_down)


async def test_without_a_bus_it_says_so_and_finds_it_later(tmp_path: Path) -> None:
    async with Systemd(f"unix:path={tmp_path / 'bus'}") as eyes:

        async def refused() -> bool:
            return "No such file" in (eyes.fault or "")

        await until(refused, "the fault")
        async with running_bus(tmp_path):

            async def there() -> bool:
                return "systemd is not on the bus" in (eyes.fault or "")

            await until(there, "the bus")


async def test_a_peer_that_never_answers_does_not_keep_it_from_ending(tmp_path: Path) -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    descriptors, threads = set(os.listdir("/proc/self/fd")), set(threading.enumerate())
    async with await asyncio.start_unix_server(mute, tmp_path / "bus"), Systemd(f"unix:path={tmp_path / 'bus'}"):
        await asyncio.sleep(0.1)
    await nothing_more_than(descriptors, threads)


async def test_nothing_is_left_open_at_its_end(host: Host) -> None:
    descriptors, threads = set(os.listdir("/proc/self/fd")), set(threading.enumerate())
    async with Systemd(host.bus.address) as eyes:
        await host.sees("systemd", lambda: eyes.fault is None)
    await nothing_more_than(descriptors, threads)


async def test_only_a_blindness_that_lasts_is_told(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd, "LASTS_S", 600.0)
    await host.bus_away()
    assert host.eyes.lasting_fault is None
    async with Systemd(f"unix:path={host.folder / 'no-bus'}") as newborn:
        await host.sees("the fault", lambda: "No such file" in (newborn.fault or ""))
        assert newborn.lasting_fault is None
        monkeypatch.setattr(systemd, "LASTS_S", 0.1)
        await host.sees("that it lasts", lambda: newborn.lasting_fault == newborn.fault)
    await host.sees("that it lasts", lambda: host.eyes.lasting_fault == host.eyes.fault)
    monkeypatch.setattr(systemd, "LASTS_S", 600.0)
    await host.bus_back()
    await host.connected()
    assert host.eyes.lasting_fault is None
    await host.bus_away()  # another one, which begins anew
    assert host.eyes.lasting_fault is None
