"""Looks at units that are to be kept off: a real bus, real files, real processes; and holds, asked of the helper."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from agent.core.model import Rival
from agent.edges.privileged import Privileged
from agent.edges.rivals import UnitRivals
from agent.edges.systemd import Systemd
from agent.errors import EdgeError
from agent.hold_file import path_of, text_of
from tests.edges.edges_house import until
from tests.fakes.privileged import FakeHelper, running_helper
from tests.fakes.rival_units import FakeRival, RivalSystemd
from tests.fakes.systemd import Bus, running_bus

pytestmark = pytest.mark.anyio

VLLM = "vllm.service"
HASH = "0123456789abcdef" * 4


class House:
    """A host with rivals, and the edge to them."""

    def __init__(self, folder: Path, bus: Bus, fake: RivalSystemd, eyes: Systemd, helper: FakeHelper) -> None:
        self.folder, self.bus, self.fake, self.eyes, self.helper = folder, bus, fake, eyes, helper
        self.system, self.groups = folder / "system", folder / "groups"
        self.records = folder / "holds"
        self.edge = UnitRivals(Privileged(helper.path), eyes, self.system, self.groups, self.records)

    async def look(self, unit: str = VLLM) -> Rival:
        (rival,) = await self.edge.look(frozenset({unit}))
        return rival

    def file(self, unit: str = VLLM) -> Path:
        return path_of(unit, self.system)

    def write(self, unit: str = VLLM) -> Path:
        """Its hold's file."""
        path = self.file(unit)
        path.parent.mkdir(parents=True)
        path.write_text(text_of(unit, self.system))
        return path

    def held(self, unit: str = VLLM, **about: object) -> FakeRival:
        """A unit that is held, as it should be."""
        rival = self.fake.rival(unit, **about)
        rival.has_read(self.write(unit))
        return rival

    def group(self, path: str, *pids: int) -> Path:
        """A control group with these processes."""
        folder = self.groups / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
        (folder / "cgroup.events").write_text(f"populated {int(bool(pids))}\nfrozen 0\n")
        return folder

    async def sees(self, what: str, met: Callable[[], bool]) -> None:
        async def ask() -> bool:
            return met()

        await until(ask, what)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(running_bus(tmp_path))
        fake = RivalSystemd(bus.address, tmp_path)
        await fake.connect()
        stack.push_async_callback(fake.close)
        eyes = await stack.enter_async_context(Systemd(bus.address))
        helper = await stack.enter_async_context(running_helper(tmp_path / "helper.sock", {}))
        made = House(tmp_path, bus, fake, eyes, helper)
        await made.sees("systemd on the bus", lambda: eyes.fault is None)
        yield made
        made.edge.close()


@pytest.fixture
def sleeper() -> Iterator[int]:
    process = subprocess.Popen(["/bin/sleep", "600"])
    yield process.pid
    process.kill()
    process.wait()


@pytest.fixture
def zombie() -> Iterator[int]:
    process = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    yield process.pid
    process.wait()


# -- what root has written down -------------------------------------------------------------------------


def record(house: House, unit: str, *of: str, at: str = "2026-12-01T03:40:21+00:00") -> None:
    """That it is held for the sake of these, as root writes it."""
    house.records.mkdir(exist_ok=True)
    about = {"unit": unit, "of": of, "made_folder": True, "prior": False, "enabled": "", "active": "", "at": at}
    (house.records / f"{unit}.json").write_text(json.dumps({"version": 1, **about}))


async def test_what_is_held_is_known_from_roots_records(house: House) -> None:
    assert house.edge.held() == {}
    record(house, VLLM, VLLM)
    record(house, "tpl@.service", "tpl@.service", VLLM, at="last year")
    record(house, "nightly.timer", VLLM)
    (house.records / "broken.service.json").write_text("{")
    (house.records / "vllm.service.prior").write_text("")
    held = house.edge.held()
    assert held.keys() == {VLLM, "tpl@.service"}
    assert held[VLLM] == 1796096421


async def test_records_that_cannot_be_read_are_told(house: House) -> None:
    house.records.mkdir()
    (house.records / "vllm.service.json").symlink_to("elsewhere")
    with pytest.raises(EdgeError, match=r"vllm\.service\.json: Too many levels of symbolic links"):
        house.edge.held()


# -- what is in force -----------------------------------------------------------------------------------


async def test_a_unit_that_nobody_holds_is_told_as_it_is(house: House, sleeper: int) -> None:
    house.fake.rival(VLLM, active="active", group=f"/system.slice/{VLLM}")
    house.group(f"system.slice/{VLLM}", sleeper)
    assert await house.look() == Rival(unit=VLLM, active="active", pids=(sleeper,))


async def test_a_held_unit_is_off(house: House) -> None:
    house.held()
    rival = await house.look()
    assert rival == Rival(unit=VLLM, held=True)
    assert rival.off


@pytest.mark.parametrize("load", ["not-found", "masked", "error", "bad-setting"])
async def test_of_a_unit_that_systemd_does_not_load_the_file_counts(house: House, load: str) -> None:
    house.fake.rival(VLLM, load=load)
    assert not (await house.look()).held
    house.write()
    assert await house.look() == Rival(unit=VLLM, load=load, held=True)


async def test_a_file_that_systemd_has_not_read_is_not_in_force(house: House) -> None:
    house.fake.rival(VLLM)
    path = house.write()
    rival = await house.look()
    assert (rival.held, rival.fault) == (False, f"systemd has not read it yet: {path}")


async def test_a_file_that_was_taken_away_lets_it_start_whatever_systemd_remembers(house: House) -> None:
    house.held()
    house.file().unlink()
    rival = await house.look()
    assert (rival.held, rival.fault) == (False, f"its file was taken away: {house.file()}")


async def test_a_file_that_was_changed_is_told(house: House) -> None:
    house.held()
    house.file().write_text("[Unit]\n")
    rival = await house.look()
    assert (rival.held, rival.fault) == (False, f"its file is not as it was written: {house.file()}")


@pytest.mark.parametrize("line", ["ConditionPathExists=", "  ConditionVirtualization = \t"])
async def test_a_later_drop_in_that_empties_the_conditions_is_named(house: House, line: str) -> None:
    rival = house.held()
    harmless, guilty = house.file().with_name("zzy.conf"), house.file().with_name("zzz.conf")
    harmless.write_text("[Unit]\nConditionPathExists=/etc\n")
    guilty.write_text(f"[Unit]\n{line}\n")
    rival.drop_ins += [str(harmless), str(guilty)]
    rival.conditions.clear()
    seen = await house.look()
    assert (seen.held, seen.fault) == (False, f"a later drop-in empties its conditions: {guilty}")


async def test_a_condition_like_it_is_not_it(house: House) -> None:
    rival = house.held()
    for other in (["ConditionPathExists", True, True], ["ConditionPathExists", False, False]):
        rival.conditions = [[*other, str(house.file()), 0], ["ConditionPathExists", False, True, "/elsewhere", 0]]
        assert not (await house.look()).held


async def test_a_file_of_the_same_name_in_its_place_is_named(house: House) -> None:
    rival = house.held()
    other = f"/run/systemd/system.control/{VLLM}.d/{house.file().name}"
    rival.drop_ins, rival.conditions = [other], []
    assert (await house.look()).fault == f"another file stands in its place: {other}"


# -- processes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False], ids=["group known", "group forgotten"])
async def test_processes_that_outlive_their_unit_keep_it_from_being_off(
    house: House, sleeper: int, known: bool
) -> None:
    path = f"system.slice/system-a.slice/{VLLM}"
    house.held(slice="system-a.slice", group=f"/{path}" if known else "")
    house.group(path, sleeper)
    house.group(f"system.slice/{VLLM}", 1)  # of no slice of its
    rival = await house.look()
    assert (rival.held, rival.pids, rival.off) == (True, (sleeper,), False)


async def test_zombies_are_no_processes(house: House, zombie: int) -> None:
    house.held(group=f"/system.slice/{VLLM}")
    house.group(f"system.slice/{VLLM}", zombie)
    assert (await house.look()).off


# -- what brings it up ----------------------------------------------------------------------------------


async def test_an_active_trigger_is_named_and_its_hold_not_in_force(house: House) -> None:
    house.held(triggered_by=["vllm.socket", "vllm.timer"])
    house.fake.rival("vllm.socket", active="active")
    house.fake.rival("vllm.timer")
    rival = await house.look()
    assert (rival.held, rival.revivers) == (False, ("vllm.socket",))
    assert rival.fault == "it can be brought up by vllm.socket, which is active"


async def test_a_unit_that_upholds_it_is_named_and_the_hold_is_in_force(house: House) -> None:
    house.held(upheld_by=["up.service", "down.service"])
    house.fake.rival("up.service", active="active")
    house.fake.rival("down.service", active="failed")
    rival = await house.look()
    assert (rival.off, rival.revivers) == (True, ("up.service",))


async def test_a_systemd_that_does_not_know_of_upholding_units_is_good_enough(house: House) -> None:
    house.held(upheld_by=None)
    assert (await house.look()).off


# -- templates ------------------------------------------------------------------------------------------


async def test_a_template_without_instances_is_told_by_its_file(house: House) -> None:
    unit = "foo@.service"
    assert await house.look(unit) == Rival(unit=unit, load="not-found")
    house.fake.files[unit] = "static"
    house.write(unit)
    assert await house.look(unit) == Rival(unit=unit, held=True)
    house.fake.files[unit] = "masked-runtime"
    assert (await house.look(unit)).load == "masked"


async def test_a_template_is_off_when_all_its_instances_are(house: House, sleeper: int) -> None:
    unit = "foo@.service"
    house.fake.files[unit] = "enabled"
    path = house.write(unit)
    first = house.fake.rival("foo@1.service", active="failed")
    second = house.fake.rival("foo@2.service", active="deactivating", group="/system.slice/foo@2.service")
    house.fake.rival("food@2.service", active="active")
    first.has_read(path)
    second.has_read(path)
    house.group("system.slice/foo@2.service", sleeper)
    assert await house.look(unit) == Rival(unit=unit, active="deactivating", held=True, pids=(sleeper,))
    second.active = "inactive"
    house.group("system.slice/foo@2.service")
    assert (await house.look(unit)).off
    second.conditions.clear()
    assert (await house.look(unit)).fault.startswith("a later drop-in empties its conditions")


# -- the bus --------------------------------------------------------------------------------------------


async def test_without_the_bus_nothing_is_known(house: House) -> None:
    house.held()
    assert (await house.look()).off
    house.bus.stop()
    await house.sees("the loss", lambda: house.eyes.fault is not None)
    with pytest.raises(EdgeError):
        await house.look()
    await house.bus.start()
    await house.fake.connect()
    await house.sees("its return", lambda: house.eyes.fault is None)
    assert (await house.look()).off


async def test_a_systemd_that_does_not_answer_for_a_unit_is_no_answer(house: House) -> None:
    house.held()
    with pytest.raises(EdgeError):
        await house.edge.look(frozenset({VLLM, "unanswered.service"}))


async def test_a_change_is_told_and_a_start_that_came_to_nothing_is_none(house: House) -> None:
    told: list[int] = []
    house.edge.on_change(lambda: told.append(1))
    house.held(triggered_by=["vllm.socket"])
    house.fake.rival("vllm.socket")
    await house.look()
    house.fake.changed(VLLM)
    house.fake.changed(VLLM, "activating")
    await house.sees("the change", lambda: len(told) == 1)
    house.fake.changed("vllm.socket", "active")
    await house.sees("that of its trigger", lambda: len(told) == 2)
    house.fake.tell_manager("Reloading", "b", True)
    house.fake.tell_manager("Reloading", "b", False)
    await house.sees("the reload", lambda: len(told) == 3)
    house.edge.close()
    house.edge.close()
    other: list[int] = []
    house.eyes.stir(lambda: other.append(1))
    house.fake.changed(VLLM, "active")
    await house.sees("what others hear", lambda: bool(other))
    assert len(told) == 3


async def test_the_return_of_the_bus_is_a_change(house: House) -> None:
    told: list[int] = []
    house.edge.on_change(lambda: told.append(1))
    house.bus.stop()
    await house.sees("the loss", lambda: house.eyes.fault is not None)
    await house.bus.start()
    await house.fake.connect()
    await house.sees("the change", lambda: bool(told))


# -- the helper -----------------------------------------------------------------------------------------


async def test_holds_and_releases_are_one_request(house: House) -> None:
    units = frozenset({"b.service", "a.service"})
    await house.edge.hold(units)
    await house.edge.release(units)
    assert house.helper.asked == [{"verb": verb, "units": ["a.service", "b.service"]} for verb in ("hold", "release")]


async def test_more_units_than_fit_into_a_request_are_several(house: House) -> None:
    units = frozenset(f"{'x' * 180}{number}.service" for number in range(40))
    await house.edge.hold(units)
    assert len(house.helper.asked) == 3
    assert {unit for each in house.helper.asked for unit in each["units"]} == units


async def test_a_refusal_is_told_in_the_helpers_words(house: House) -> None:
    house.helper.answer = b'{"ok": false, "slug": "unsafe_path", "why": "vllm.service is not held: ..."}'
    with pytest.raises(EdgeError, match="is not held") as raised:
        await house.edge.hold(frozenset({VLLM}))
    assert raised.value.slug == "unsafe_path"


# -- bystanders -----------------------------------------------------------------------------------------


async def test_user_units_with_the_name_of_a_rival_that_run_are_told(house: House) -> None:
    user = "user.slice/user-1000.slice/user@1000.service/app.slice"
    house.fake.rival(VLLM, load="not-found")
    house.group(f"{user}/other.service", 5)
    house.group(f"{user}/foo@1.service")
    await house.look()
    assert house.edge.warnings() == []
    house.group(f"{user}/{VLLM}", 5)
    house.group(f"{user}/foo@1.service", 5)
    await house.edge.look(frozenset({VLLM, "foo@.service"}))
    first, second = house.edge.warnings()
    assert first.startswith("foo@1.service runs as a unit of user 1000")
    assert second.endswith("systemctl --user stop vllm.service")


async def test_containers_under_systemds_cgroup_driver_are_one_warning(house: House) -> None:
    house.fake.rival(VLLM)
    pod = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice"
    for path in (
        f"system.slice/docker-{HASH}.scope", f"machine.slice/libpod-{HASH}.scope",
        f"{pod}/cri-containerd-{HASH}.scope", f"{pod}/crio-{HASH}.scope", "system.slice/docker.service",
    ):  # fmt: skip
        house.group(path, 5)
    await house.look()
    (warning,) = house.edge.warnings()
    assert warning.startswith("containers run under systemd's cgroup driver (")
    assert "docker-0123456789abcdef" in warning
    assert "and 1 more" in warning
