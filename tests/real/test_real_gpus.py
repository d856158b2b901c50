"""The real agent on a stand-in for the driver's library: room, holders, and a driver that hangs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.disks import disk
from tests.fakes.nvml.driver import Driver, build
from tests.real.conftest import Make
from tests.real.real_house import FAKE, Agent, free_port, processes, table, until

NEED_MIB = 100_000


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(tmp_path: Path, library: Path) -> Driver:
    return Driver(tmp_path, library)


@pytest.fixture
def agent(make: Make, driver: Driver) -> Agent:
    """With a server "demo" that needs most of GPU 0, and "plain" that needs none."""
    port, other = free_port(), free_port()
    gpu = {name: driver.environment[name] for name in ("LD_LIBRARY_PATH", "FAKE_NVML")}
    demo = table("demo", [*FAKE, "--port", str(port)], port=port, gpus=[0], need_mib=NEED_MIB, stop_s=1)
    return make(demo, table("plain", [*FAKE, "--port", str(other)], port=other, stop_s=1), env=gpu)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is none of the agent's."""
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    yield child
    child.kill()
    child.wait()


def gpus(agent: Agent) -> dict[str, Any]:
    return agent.get("/gpus").document


def readers(agent: Agent) -> list[int]:
    """Those of this agent that live."""
    return [int(each.split()[0]) for each in agent.left() if "agent.edges.nvml_reader" in each]


def test_memory_is_waited_for_with_its_holder_named_and_the_server_is_then_shown_as_a_holder(
    agent: Agent, driver: Driver, stranger: subprocess.Popen[bytes]
) -> None:
    driver.gpus[0].used, driver.gpus[0].processes = "62669", [(stranger.pid, 62_669, "compute")]
    driver.say()
    agent.start()
    agent.post("/servers/demo/start")
    why = agent.until(lambda server: server["stage"] == "clearing", "clearing")["why"]
    assert why.startswith("GPU 0: 78.6 GiB free, 97.7 GiB needed: 61.2 GiB held by ")
    assert f", pid {stranger.pid}, since 20" in why
    (holder,) = gpus(agent)["devices"][0]["holders"]
    assert (holder["pid"], holder["mib"]) == (stranger.pid, 62_669)
    assert holder["kind"] in ("stray", "unit", "user_unit", "container"), "as this machine runs its tests"
    shown = agent.cli("gpus").stdout
    assert f"pid {stranger.pid}" in shown
    assert json.loads(agent.cli("gpus", "--json").stdout)["devices"][0]["holders"] == [holder]
    assert agent.curl("/gpus").document["state"] == "ok"

    driver.gpus[0].used, driver.gpus[0].processes = "0", []
    driver.say()
    pid = agent.until_stage("ready")["pid"]
    driver.gpus[0].used, driver.gpus[0].processes = "50000", [(pid, 50_000, "compute")]
    driver.say()
    (ours,) = until(
        lambda: [h for h in gpus(agent)["devices"][0]["holders"] if (h["kind"], h["owner"]) == ("ours", "demo")],
        "the server's own memory shown as its own",
    )
    assert ours["pid"] == pid
    assert agent.end() == 0


def test_memory_that_comes_and_goes_is_no_room(agent: Agent, driver: Driver) -> None:
    driver.gpus[0].used = " ".join(f"{second}:{30_000 if second % 2 else 0}" for second in range(30))
    driver.say()
    agent.start()
    agent.post("/servers/demo/start")
    agent.until(lambda server: "is not steady yet" in server["why"], "not steady")
    driver.gpus[0].used = "30000"
    driver.say()
    agent.until_stage("ready")
    assert agent.end() == 0


def test_a_driver_that_hangs_is_named_delays_no_other_server_and_the_launch_comes_once_it_is_back(
    agent: Agent, driver: Driver
) -> None:
    driver.say("hang nvmlDeviceGetMemoryInfo_v2")
    agent.start()
    agent.post("/servers/demo/start")
    agent.post("/servers/plain/start")
    agent.until_stage("ready", name="plain")
    agent.until_stage("waiting")
    assert agent.get("/live").status == 200
    assert len(readers(agent)) <= 1
    assert agent.server()["pid"] is None
    driver.say()
    agent.until_stage("ready")
    assert agent.end() == 0


def test_a_driver_that_hangs_in_the_midst_is_named_and_harms_no_server_that_runs(agent: Agent, driver: Driver) -> None:
    agent.start()
    agent.post("/servers/demo/start")
    pid = agent.until_stage("ready")["pid"]
    driver.say("hang nvmlDeviceGetMemoryInfo_v2")
    until(lambda: gpus(agent)["state"] == "hung", "the hang is told")
    marks = agent.get("/status").document["degraded"]
    assert [mark.startswith("gpus: hung: ") for mark in marks] == [True]
    assert agent.server()["pid"] == pid
    assert agent.server()["stage"] == "ready"
    agent.post("/servers/demo/restart")
    agent.until(lambda s: s["stage"] == "waiting" and s["why"].startswith("GPU driver hung: "), "named")
    assert [need["name"] for need in agent.server()["needs"]] == ["gpus"]
    driver.say()
    assert agent.until_stage("ready")["pid"] != pid
    assert agent.get("/status").document["degraded"] == []
    assert agent.end() == 0


def test_a_reader_that_is_stuck_in_the_kernel_delays_neither_the_agents_end_nor_its_next_start(
    agent: Agent, driver: Driver, tmp_path: Path
) -> None:
    (tmp_path / "disk").mkdir()
    with disk(tmp_path / "disk") as frozen:
        driver.say(f"block nvmlDeviceGetMemoryInfo_v2 {frozen.kept / 'file'}")
        agent.start()
        until(lambda: gpus(agent)["state"] == "ok", "a reading")
        frozen.freeze()
        try:
            until(lambda: "no signal reaches it" in gpus(agent)["why"], "the hang is told")
            (stuck,) = readers(agent)
            agent.post("/servers/demo/start")
            agent.until(lambda server: server["why"].startswith("GPU driver hung: "), "named")
            assert agent.cli("start", "demo", "--without-gpu-check").returncode == 0
            agent.until_stage("ready")
            agent.signal(signal.SIGTERM)
            assert agent.ended() == 0
            assert readers(agent) == [stuck]
            assert len(agent.left()) == 1, "its server has ended"
            agent.start()
            agent.post("/servers/plain/start")
            agent.until_stage("ready", name="plain")
        finally:
            frozen.thaw()
        agent.until_stage("ready")
        assert len(readers(agent)) == 1
        assert agent.end() == 0


def test_a_start_without_the_check_launches_beside_a_driver_that_tells_nothing(agent: Agent, driver: Driver) -> None:
    driver.say("fail nvmlInitWithFlags 9")
    agent.start()
    agent.post("/servers/demo/start")
    agent.until(lambda server: server["why"].startswith("GPU driver not loaded: "), "why it waits")
    assert "modprobe nvidia" in agent.cli("why", "demo").stdout
    assert agent.cli("start", "demo", "--without-gpu-check").returncode == 0
    agent.until_stage("ready")
    assert agent.end() == 0


def test_a_gpu_is_named_by_its_uuid_as_well_as_by_its_index(make: Make, driver: Driver) -> None:
    uuids = [f"GPU-0000000{n}-0000-0000-0000-000000000000" for n in range(2)]
    for gpu, uuid in zip(driver.gpus, uuids, strict=True):
        gpu.uuid = uuid
    driver.gpus[0].used = "143000"
    driver.say()
    port, other = free_port(), free_port()
    env = {name: driver.environment[name] for name in ("LD_LIBRARY_PATH", "FAKE_NVML")}
    keys = {"need_mib": NEED_MIB, "stop_s": 1}
    agent = make(
        table("demo", [*FAKE, "--port", str(port)], port=port, gpus=[uuids[1]], **keys),
        table("full", [*FAKE, "--port", str(other)], port=other, gpus=[uuids[0]], **keys),
        env=env,
    ).start()
    agent.post("/servers/full/start")
    agent.post("/servers/demo/start")
    agent.until_stage("ready")
    agent.until(lambda server: server["why"].startswith(f"GPU {uuids[0]}: 0.1 GiB free"), "no room", "full")
    assert agent.end() == 0


def test_without_a_server_that_names_gpus_there_is_no_reader_until_somebody_asks(make: Make, driver: Driver) -> None:
    port = free_port()
    env = {name: driver.environment[name] for name in ("LD_LIBRARY_PATH", "FAKE_NVML")}
    agent = make(table("demo", [*FAKE, "--port", str(port)], port=port, autostart=True, stop_s=1), env=env).start()
    agent.until_stage("ready")
    assert readers(agent) == []
    assert agent.get("/status").document["gpus"]["state"] == "not_read"
    assert [gpu["uuid"] for gpu in gpus(agent)["devices"]] == ["GPU-0", "GPU-1"], "the first answer waits for it"
    assert len(readers(agent)) == 1
    assert agent.end() == 0


def test_a_crash_of_the_agent_leaves_no_reader(agent: Agent, driver: Driver) -> None:
    driver.say("hang nvmlDeviceGetMemoryInfo_v2")
    agent.start()
    (reader,) = until(lambda: readers(agent), "a reader")
    assert any(pid == reader for pid, *_ in processes())
    agent.crash()
    until(lambda: reader not in readers(agent), "its end")
    driver.say()
    agent.start()
    agent.post("/servers/demo/start")
    os.kill(agent.until_stage("ready")["pid"], signal.SIGKILL)
    agent.until(lambda server: server["stage"] == "ready" and server["attempt"] == 2, "another attempt")
    assert agent.end() == 0
