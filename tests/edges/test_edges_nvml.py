"""The GPU reader on a stand-in for the driver's library, which nvidia-ml-py loads as it loads the real one."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.core.gpu_seen import REMEDY, Fabric, GpuReading, GpuState, GpuUse, MemoryKind, Xid
from agent.edges import processes
from agent.edges.nvml import Nvml, Pace
from tests.disks import disk
from tests.edges.edges_house import nothing_more_than, until
from tests.fakes.nvml.driver import RESERVED_MIB, TOTAL_MIB, Driver, Gpu, build

pytestmark = pytest.mark.anyio

QUICK = Pace(again_s=(0.01,), renew_s=0.05)
HASTY = replace(QUICK, first_s=1.0, answer_s=0.4)
"""For what hangs."""
WHOLE = {1: "error", 9: "no_driver", 12: "no_library", 18: "version_mismatch"}
LOST = {15: "gpu_lost", 16: "gpu_lost"}
NEEDED = {4: "no_permission", 17: "no_permission", 6: "no_devices", 28: "no_devices"}
CODES = (*range(1, 31), 999, 12345)
FIELDS = {
    "nvmlDeviceGetName": "name",
    "nvmlDeviceGetUtilizationRates": "busy",
    "nvmlDeviceGetTemperature": "temperature",
    "nvmlDeviceGetPowerUsage": "power",
    "nvmlDeviceGetTotalEccErrors": "ecc",
    "nvmlDeviceGetRemappedRows": "rows",
    "nvmlDeviceGetMigMode": "mig",
    "nvmlDeviceGetPersistenceMode": "persistence",
    "nvmlDeviceGetComputeRunningProcesses_v3": "uses",
}
"""Functions that one field comes from."""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(tmp_path: Path, library: Path) -> Driver:
    return Driver(tmp_path, library)


@pytest.fixture
async def nvml(driver: Driver) -> AsyncIterator[Nvml]:
    one = Nvml(driver.environment, pace=QUICK)
    yield one
    await one.close()


@pytest.fixture
async def hasty(driver: Driver) -> AsyncIterator[Nvml]:
    one = Nvml(driver.environment, pace=HASTY)
    yield one
    await one.close()


async def until_state(nvml: Nvml, state: GpuState) -> GpuReading:
    """The first reading that says so."""

    async def said() -> GpuReading | None:
        reading = await nvml.read()
        return reading if reading.state is state else None

    found: GpuReading = await until(said, state)
    return found


def readers() -> set[int]:
    """Those of ours that live. Other children of this process are other tests'."""
    ours = [one.pid for one in processes.scan().values() if one.ppid == os.getpid() and not one.gone]
    return {pid for pid in ours if b"agent.edges.nvml_reader" in b" ".join(processes.command_of(pid))}


async def test_a_reading_tells_all_of_each_gpu(nvml: Nvml, driver: Driver) -> None:
    driver.gpus[0].used = "75800"
    driver.gpus[0].processes = [(1, 75000, "compute"), (2, None, "compute"), (3, 800, "both"), (4, 12, "mps")]
    driver.say()
    reading = await nvml.read()
    assert (reading.state, reading.why, reading.remedy, reading.driver) == (GpuState.OK, "", "", "580.159.03")
    gpu, other = reading.devices
    assert (gpu.index, gpu.uuid, gpu.name, gpu.state, gpu.busy_percent) == (0, "GPU-0", "NVIDIA H200", "ok", 7)
    assert gpu.memory is not None
    assert (gpu.memory.total_mib, gpu.memory.used_mib, gpu.memory.reserved_mib) == (TOTAL_MIB, 75800, RESERVED_MIB)
    assert gpu.memory.free_mib == TOTAL_MIB - RESERVED_MIB - 75800
    assert gpu.memory.kind is MemoryKind.OWN
    assert set(gpu.uses or ()) == {GpuUse(1, 75000), GpuUse(2, None), GpuUse(3, 800), GpuUse(4, 12)}
    health = gpu.health
    assert (health.celsius, health.watts, health.ecc_corrected, health.ecc_uncorrected) == (41, 112.5, 3, 0)
    assert (health.rows_remapped, health.rows_pending, health.rows_failed) == (3, False, False)
    assert (health.mig, health.persistent, health.fabric) == (False, True, Fabric.COMPLETED)
    assert gpu.faults == other.faults == ()
    assert other.uses == ()
    assert reading.pids() == {1, 2, 3, 4}


async def test_eight_devices_and_sixty_four_processes_fit(nvml: Nvml, driver: Driver) -> None:
    driver.gpus = [Gpu(f"GPU-{i}", processes=[(100 * i + n, n, "compute") for n in range(1, 65)]) for i in range(8)]
    driver.say()
    reading = await nvml.read()
    assert len(reading.devices) == 8
    assert len(reading.pids()) == 8 * 64
    assert all(len(gpu.uses or ()) == 64 and not gpu.faults for gpu in reading.devices)


async def test_memory_is_read_anew_each_time_by_one_process(nvml: Nvml, driver: Driver) -> None:
    driver.gpus[0].used = "0:100 10000:1000100"
    driver.say()
    first, *_ = readings = [await nvml.read() for _ in range(3)]
    assert first.devices[0].memory is not None
    assert len(readers()) == 1

    async def grown() -> bool:
        now = (await nvml.read()).devices[0].memory
        return (
            now is not None and first.devices[0].memory is not None and now.used_mib > first.devices[0].memory.used_mib
        )

    await until(grown, "more memory in use")
    assert [reading.began for reading in readings] == sorted(reading.began for reading in readings)


@pytest.mark.parametrize("function", ["nvmlInitWithFlags", "nvmlDeviceGetCount_v2"])
async def test_each_code_for_the_whole_names_a_state_and_heals(driver: Driver, function: str) -> None:
    for code in CODES:
        nvml = Nvml(driver.environment, pace=QUICK)
        driver.say(f"fail {function} {code}")
        reading = await nvml.read()
        assert reading.state == {**WHOLE, **LOST, **NEEDED}.get(code, "error"), code
        assert reading.why.startswith(("nvmlInit: ", "nvmlDeviceGetCount: "))
        assert reading.remedy == REMEDY[reading.state]
        assert reading.devices == ()
        if code in (9, 18, 999):  # what heals, and costs the start of another reader
            driver.say()
            await until_state(nvml, GpuState.OK)
        await nvml.close()


def one_gpu_for_each_code(driver: Driver, *functions: str) -> None:
    """... of which these functions answer it, and a last one that is well."""
    driver.gpus = [Gpu(f"GPU-{code}", also=[f"fail {each} {code}" for each in functions]) for code in CODES]
    driver.gpus.append(Gpu("GPU-well"))
    driver.say()


@pytest.mark.parametrize(
    "functions",
    [("HandleByIndex_v2",), ("UUID",), ("MemoryInfo_v2", "MemoryInfo")],
    ids=lambda functions: functions[0],
)
async def test_each_code_of_a_call_that_a_gpu_needs_names_that_gpus_state(
    nvml: Nvml, driver: Driver, functions: tuple[str, ...]
) -> None:
    one_gpu_for_each_code(driver, *(f"nvmlDeviceGet{each}" for each in functions))
    reading = await nvml.read()
    *sick, well = reading.devices
    for code, gpu in zip(CODES, sick, strict=True):
        if (functions[0], code) == ("MemoryInfo_v2", 3):
            assert (gpu.state, gpu.memory and gpu.memory.kind) == (GpuState.OK, MemoryKind.UNIFIED)
            continue
        assert gpu.state == {**WHOLE, **LOST, **NEEDED}.get(code, "error"), code
        assert gpu.why.endswith(gpu.faults[0].text)
        assert (gpu.memory is None) == (functions[0] != "UUID")
    assert (well.state, well.faults) == (GpuState.OK, ())
    one_gpu_for_each_code(driver)
    reading = await until_state(nvml, GpuState.OK)
    assert [gpu.uuid for gpu in reading.devices] == [gpu.uuid for gpu in driver.gpus]


@pytest.mark.parametrize("function", FIELDS)
async def test_each_code_of_another_call_costs_that_field_alone(nvml: Nvml, driver: Driver, function: str) -> None:
    one_gpu_for_each_code(driver, function)
    *sick, well = (await nvml.read()).devices
    for code, gpu in zip(CODES, sick, strict=True):
        assert {(fault.field, fault.code) for fault in gpu.faults} == {(FIELDS[function], code)}
        assert gpu.state == {**WHOLE, **LOST}.get(code, "ok")
        assert gpu.memory is not None
        assert (gpu.uses is None) == (FIELDS[function] == "uses")
    assert (well.state, well.faults) == (GpuState.OK, ())


@pytest.mark.parametrize("code", WHOLE)
async def test_a_code_that_concerns_all_is_that_of_the_whole_wherever_it_comes_from(
    nvml: Nvml, driver: Driver, code: int
) -> None:
    driver.gpus[1].also = [f"fail nvmlDeviceGetPowerUsage {code}"]
    driver.say()
    reading = await nvml.read()
    assert (reading.state, [gpu.state for gpu in reading.devices]) == (WHOLE[code], ["ok", WHOLE[code]])


async def test_when_every_gpu_has_the_same_fault_it_is_that_of_the_whole(nvml: Nvml, driver: Driver) -> None:
    driver.say("fail nvmlDeviceGetMemoryInfo_v2 15")
    assert (await nvml.read()).state is GpuState.GPU_LOST


async def test_a_lost_gpu_is_seen_again_by_a_fresh_reader(nvml: Nvml, driver: Driver) -> None:
    driver.gpus[1].also = ["fail nvmlDeviceGetMemoryInfo_v2 15"]
    driver.say()
    reading = await nvml.read()
    assert [gpu.state for gpu in reading.devices] == [GpuState.OK, GpuState.GPU_LOST]
    (first,) = readers()

    async def another() -> bool:
        await nvml.read()
        return bool(readers()) and first not in readers()

    await until(another, "a fresh reader")


async def test_no_library_no_devices_and_an_old_package_are_named(driver: Driver, tmp_path: Path) -> None:
    environment = {**driver.environment, "LD_LIBRARY_PATH": str(tmp_path)}
    bare = Nvml(environment, pace=QUICK)
    reading = await bare.read()
    await bare.close()
    if reading.state is not GpuState.OK:  # a host that has the driver
        assert reading.state is GpuState.NO_LIBRARY
    driver.gpus = []
    driver.say()
    empty = Nvml(driver.environment, pace=QUICK)
    assert (await empty.read()).state in (GpuState.NO_DEVICES, GpuState.NO_PERMISSION)
    await empty.close()


@pytest.mark.parametrize("without", [("NO_V3",), ("NO_V2", "NO_V3")])
async def test_an_old_drivers_missing_functions_are_made_up_for(tmp_path: Path, without: tuple[str, ...]) -> None:
    driver = Driver(tmp_path, build(tmp_path / "old", *without))
    driver.gpus[0].used = "1000"
    driver.gpus[0].processes = [(7, 900, "compute"), (8, 100, "graphics")]
    driver.say()
    nvml = Nvml(driver.environment, pace=QUICK)
    gpu = (await nvml.read()).devices[0]
    await nvml.close()
    assert set(gpu.uses or ()) == {GpuUse(7, 900), GpuUse(8, 100)}
    assert gpu.memory is not None
    old = "NO_V2" in without
    assert gpu.memory.kind is (MemoryKind.OWN_V1 if old else MemoryKind.OWN)
    assert gpu.memory.used_mib == 1000 + (RESERVED_MIB if old else 0)
    assert (gpu.health.fabric, gpu.faults) == (Fabric.COMPLETED, ())


async def test_a_name_that_is_no_text_and_impossible_pids_cost_nothing_else(nvml: Nvml, driver: Driver) -> None:
    driver.gpus[0].name = b"NVIDIA \xff\xfe H200"
    driver.gpus[0].processes = [(4294967295, 5, "compute"), (0, 5, "compute"), (9, 5, "compute")]
    driver.say()
    gpu = (await nvml.read()).devices[0]
    assert gpu.name == "NVIDIA \\xff\\xfe H200"
    assert gpu.uses == (GpuUse(9, 5),)
    assert [fault.text for fault in gpu.faults] == ["2 impossible process numbers were left out"]


async def test_after_a_reboot_that_flips_the_order_each_gpu_keeps_its_uuid(nvml: Nvml, driver: Driver) -> None:
    assert [(gpu.index, gpu.uuid) for gpu in (await nvml.read()).devices] == [(0, "GPU-0"), (1, "GPU-1")]
    driver.gpus.reverse()
    driver.say()
    reading = await nvml.read()
    assert [(gpu.index, gpu.uuid) for gpu in reading.devices] == [(0, "GPU-1"), (1, "GPU-0")]
    flipped = reading.device("GPU-0")
    assert flipped is not None
    assert flipped.index == 1


@pytest.mark.parametrize("spoilt", ["name", "mig", "lost", "silent"])
async def test_memory_is_called_the_hosts_only_where_the_gpu_is_well_in_every_other_way(
    driver: Driver, spoilt: str
) -> None:
    driver.gpus = [Gpu("GPU-0", also=["fail nvmlDeviceGetMemoryInfo 3", "fail nvmlDeviceGetMemoryInfo_v2 3"])]
    driver.gpus[0].also += {
        "name": ["fail nvmlDeviceGetName 999"],
        "mig": ["mig 1"],
        "lost": ["fail nvmlDeviceGetRemappedRows 15"],
        "silent": [f"fail nvmlDeviceGet{each} 3" for each in ("UtilizationRates", "Temperature", "PowerUsage")],
    }[spoilt]
    driver.say()
    nvml = Nvml(driver.environment, pace=QUICK)
    gpu = (await nvml.read()).devices[0]
    await nvml.close()
    assert gpu.memory is None


async def test_a_divided_gpu_tells_its_parts(nvml: Nvml, driver: Driver) -> None:
    driver.gpus[0].also = [
        "fail nvmlDeviceGetMemoryInfo_v2 4",
        "fail nvmlDeviceGetComputeRunningProcesses_v3 4",
        "mig 1",
    ]
    part = ["part MIG-a", "total 16384", "used 4096", "process 7 4000", "part MIG-b", "total 32768", "used 0"]
    driver.gpus[0].name = b"NVIDIA H200\n" + "\n".join(part).encode()
    driver.say()
    gpu = (await nvml.read()).devices[0]
    assert (gpu.state, gpu.uses, gpu.memory, gpu.health.mig) == (GpuState.NO_PERMISSION, None, None, True)
    assert [(part.uuid, part.memory and part.memory.free_mib, part.uses) for part in gpu.parts] == [
        ("MIG-a", 12288, (GpuUse(7, 4000),)),
        ("MIG-b", 32768, ()),
    ]
    assert gpu.state is GpuState.NO_PERMISSION


async def test_an_xid_is_told_once(nvml: Nvml, driver: Driver) -> None:
    assert (await nvml.read()).xids == ()
    driver.gpus[1].also = ["xid 79", "xid 31"]
    driver.say()
    assert (await nvml.read()).xids == (Xid("GPU-1", 79), Xid("GPU-1", 31))
    assert (await nvml.read()).xids == ()


async def test_a_library_that_was_upgraded_under_a_loaded_driver_is_told_with_the_readings_going_on(
    tmp_path: Path,
) -> None:
    folder = build(tmp_path / "upgraded")
    driver = Driver(tmp_path, folder)
    nvml = Nvml(driver.environment, pace=QUICK)
    assert (await nvml.read()).state is GpuState.OK
    build(folder, version="590.44")
    reading = await until_state(nvml, GpuState.VERSION_MISMATCH)
    assert "590.44" in reading.why
    assert [gpu.state for gpu in reading.devices] == [GpuState.OK, GpuState.OK]
    assert (await nvml.read()).state is GpuState.VERSION_MISMATCH
    driver.version = "590.44"  # ... and with the driver reloaded, a fresh reader sees no fault
    driver.say("fail nvmlDeviceGetCount_v2 999")
    await until_state(nvml, GpuState.ERROR)
    driver.say()
    await until_state(nvml, GpuState.OK)
    await nvml.close()


async def test_a_library_that_was_installed_again_is_loaded_by_a_fresh_reader(tmp_path: Path) -> None:
    folder = build(tmp_path / "again")
    nvml = Nvml(Driver(tmp_path, folder).environment, pace=QUICK)
    assert (await nvml.read()).state is GpuState.OK
    (first,) = readers()
    build(folder)

    async def another() -> bool:
        assert (await nvml.read()).state is GpuState.OK
        return bool(readers()) and first not in readers()

    await until(another, "a fresh reader")
    await nvml.close()


async def test_a_library_that_crashes_costs_the_reader_alone(nvml: Nvml, driver: Driver) -> None:
    driver.say("crash nvmlDeviceGetPowerUsage")
    reading = await nvml.read()
    assert (reading.state, "signal 11" in reading.why) == (GpuState.ERROR, True)
    driver.say()
    assert len((await until_state(nvml, GpuState.OK)).devices) == 2


@pytest.mark.parametrize("function", ["nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlDeviceGetMemoryInfo_v2"])
async def test_a_driver_that_hangs_is_named_and_seen_again(hasty: Nvml, driver: Driver, function: str) -> None:
    driver.say(f"hang {function}")
    reading = await until_state(hasty, GpuState.HUNG)
    assert reading.devices == ()
    assert len(readers()) <= 1
    driver.say()
    assert len((await until_state(hasty, GpuState.OK)).devices) == 2


async def test_a_reader_that_hangs_after_it_has_answered_is_named_by_the_next_question(
    hasty: Nvml, driver: Driver
) -> None:
    await until_state(hasty, GpuState.OK)
    driver.say("hang nvmlDeviceGetMemoryInfo_v2")
    assert (await hasty.read()).state is GpuState.HUNG


async def test_a_first_answer_that_takes_long_is_waited_for_by_one_question(driver: Driver) -> None:
    driver.say("hang nvmlInitWithFlags")
    nvml = Nvml(driver.environment, pace=replace(QUICK, first_s=60.0, answer_s=0.1))
    for _ in range(3):
        assert (await nvml.read()).state is GpuState.OPENING
    (reader,) = readers()
    driver.say()
    await until_state(nvml, GpuState.OK)
    assert readers() == {reader}
    await nvml.close()


async def test_many_at_once_share_one_question(nvml: Nvml) -> None:
    readings = await asyncio.gather(*(nvml.read() for _ in range(20)))
    assert len({reading.began for reading in readings}) == 1
    assert len(readers()) == 1


async def test_a_caller_that_is_cancelled_leaves_the_question_to_the_next_one(hasty: Nvml, driver: Driver) -> None:
    driver.say("hang nvmlDeviceGetMemoryInfo_v2")
    caller = asyncio.create_task(hasty.read())
    await until(has_reader, "the question")
    caller.cancel()
    await asyncio.wait([caller])
    driver.say()
    await until_state(hasty, GpuState.OK)
    assert len(readers()) == 1


async def has_reader() -> bool:
    return bool(readers())


async def test_twenty_hangs_leave_one_stuck_reader_at_most_and_the_driver_comes_back(
    driver: Driver, tmp_path: Path
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    with disk(folder) as frozen:
        driver.say(f"block nvmlDeviceGetMemoryInfo_v2 {frozen.kept / 'file'}")
        nvml = Nvml(driver.environment, pace=HASTY)
        await until_state(nvml, GpuState.OK)
        frozen.freeze()
        try:
            reading = await until_state(nvml, GpuState.HUNG)
            stuck = nvml.stuck
            assert stuck is not None
            for _ in range(20):
                reading = await nvml.read()
                assert reading.state is GpuState.HUNG
                assert readers() == {stuck}
            assert f"pid {stuck}" in reading.why
            assert "no signal reaches it" in reading.why
        finally:
            frozen.thaw()
        await until_state(nvml, GpuState.OK)
        assert stuck not in readers()
        await nvml.close()


async def test_closing_leaves_no_process_no_descriptor_and_no_thread(driver: Driver) -> None:
    descriptors, threads = set(os.listdir("/proc/self/fd")), set(threading.enumerate())
    for rule in ("", "hang nvmlInitWithFlags"):
        driver.say(rule)
        nvml = Nvml(driver.environment, pace=HASTY)
        asking = asyncio.create_task(nvml.read())
        await until(has_reader, "the reader")
        await nvml.close()
        await asyncio.wait([asking])
        await nvml.close()
        assert (await nvml.read()).state is GpuState.ERROR
        await until(_none_left, "the end of a reader that was being started")
    await nothing_more_than(descriptors, threads)


async def test_closing_does_not_wait_for_a_reader_that_is_stuck(driver: Driver, tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    with disk(folder) as frozen:
        driver.say(f"block nvmlDeviceGetMemoryInfo_v2 {frozen.kept / 'file'}")
        nvml = Nvml(driver.environment, pace=HASTY)
        await until_state(nvml, GpuState.OK)
        frozen.freeze()
        try:
            await until_state(nvml, GpuState.HUNG)
            await nvml.close()
            assert len(readers()) == 1
        finally:
            frozen.thaw()
        await until(_none_left, "the end of the stuck reader")


async def _none_left() -> bool:
    return not readers()


async def test_a_reader_ends_with_an_agent_that_is_killed_though_the_driver_hangs(driver: Driver) -> None:
    driver.say("hang nvmlInitWithFlags")
    program = (
        "import asyncio, os\nfrom agent.edges.nvml import Nvml\n"
        "async def main():\n    await Nvml(dict(os.environ)).read()\n    await asyncio.sleep(600)\n"
        "asyncio.run(main())"
    )
    agent = await asyncio.create_subprocess_exec(sys.executable, "-c", program, env=driver.environment)
    found: set[int] = set()

    async def has_one() -> bool:
        found.update(
            one.pid
            for one in processes.scan().values()
            if one.ppid == agent.pid and any(b"libnvidia-ml" in line for line in _maps(one.pid))
        )
        return bool(found)

    await until(has_one, "the agent's reader")
    agent.kill()
    await agent.wait()

    async def gone() -> bool:
        return all((one := processes.stat(pid)) is None or one.gone for pid in found)

    await until(gone, "the reader's end")


def _maps(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/maps").read_bytes().splitlines()
    except OSError:
        return []


async def test_a_program_that_is_no_reader_is_an_error_and_nothing_else(driver: Driver) -> None:
    for program in ("import socket; socket.socket(fileno=0).sendall(b'nonsense\\n'); input()", "raise SystemExit(3)"):
        nvml = Nvml(driver.environment, command=(sys.executable, "-c", program), pace=HASTY)
        reading = await nvml.read()
        await nvml.close()
        assert reading.state is GpuState.ERROR
        assert "no answer" in reading.why or "with 3" in reading.why


async def test_the_reader_sees_nothing_that_is_meant_for_the_agent(driver: Driver) -> None:
    nvml = Nvml({**driver.environment, "NOTIFY_SOCKET": "/run/x", "LISTEN_FDS": "1"}, pace=QUICK)
    await nvml.read()
    (reader,) = readers()
    environment = (processes.environment_of(reader) or b"").split(b"\0")
    names = {each.partition(b"=")[0] for each in environment}
    assert not names & {b"NOTIFY_SOCKET", b"LISTEN_FDS"}
    assert b"FAKE_NVML" in names
    await nvml.close()
