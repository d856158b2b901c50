"""A host that goes down, in good order or by power cuts, and comes up again."""

from __future__ import annotations

import http.client
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent import hold_file
from tests.real.real_house import Document, table, until
from tests.system.conftest import Boot
from tests.system.machine import Machine
from tests.system.rivals import FOLDER, STARTS, active, service, starts
from tests.system.servers import FAKE, fake, live, start, start_agent, watched

CUTS = int(os.environ.get("CUTS", "30"))
LONGEST_S = 2.5
"""From the power's return to the next cut, at most: a boot takes about a second, the agent and a launch another."""
READY_EVERY = 6  # cuts between two that come only once all that is wanted is there
FIRST_FAILS = f"[ -e /tmp/tried ] || {{ touch /tmp/tried; exit 3; }}; exec {' '.join(FAKE)} --port 8504"
"""/tmp is empty after each boot."""


@pytest.fixture(scope="module")
def machine(boot: Boot) -> Machine:
    tables = [
        fake("wanted", 8501),
        fake("idle", 8502),
        fake("auto", 8503, autostart=True),
        table("second", ["/bin/sh", "-c", FIRST_FAILS], port=8504, restart={"attempts": 3, "pauses_s": [0.1]}),
        fake("toggled", 8505),
        fake("slow", 8506, "--load-s", "1", "--listen-late"),
    ]
    made: Machine = boot()
    made.write(f"{FOLDER}/vllm.service", service("vllm", "Restart=always", wanted_by="multi-user.target"))
    made.write(f"{FOLDER}/swapped.service", service("swapped"))
    made.write(f"{STARTS}/none", "")
    made.run("systemctl", "daemon-reload")
    made.run("systemctl", "enable", "--now", "vllm.service")
    start_agent(made, *tables, '[rivals]\nunits = ["vllm.service", "swapped.service"]\n')
    start(made, "wanted")
    assert (active(made, "vllm.service"), starts(made, "vllm")) == ("inactive", 1)
    return made


def outage_of(machine: Machine, name: str) -> Document:
    """The one that the present start has ended."""
    found: Document = machine.ask("GET", f"/servers/{name}/starts").document["starts"][0]["outage"]
    return found


@pytest.mark.parametrize("go_down", [Machine.power_cut, Machine.power_off], ids=["power cut", "shutdown"])
def test_what_was_wanted_is_up_again_and_nothing_else(machine: Machine, go_down: Callable[[Machine], None]) -> None:
    before = start(machine, "wanted")
    go_down(machine)
    machine.boot()
    after = machine.until_stage("wanted", "ready")
    assert after["invocation"] != before["invocation"]
    assert (after["attempt"], after["want"]) == (1, "up")
    assert machine.server("idle")["stage"] == "down"
    assert len(live(machine, "wanted")) == 1
    ended = machine.ask("GET", "/servers/wanted/starts").document["starts"][1]
    assert ended["invocation"] == before["invocation"]
    told = f"{ended['outcome']} {ended['cause']}"
    assert ("shutdown" in told) if go_down is Machine.power_off else ("host_rebooted" in told), told


def test_the_outage_is_told_with_its_length_and_attempts(machine: Machine) -> None:
    """By the API, the command and the journal, and only of those who were away."""
    start(machine, "wanted")
    start(machine, "second")
    machine.power_cut()
    machine.boot()
    tries = {"wanted": 1, "second": 2}
    for name, attempts in tries.items():
        machine.until_stage(name, "ready")
        outage = outage_of(machine, name)
        assert outage["attempts"] == attempts, outage
        assert outage["lasted_s"] > 0
        assert f"{attempts} attempt" in machine.run("gpuagent", "starts", name).splitlines()[1]
    said = [line for line in machine.log("gpuagent").splitlines() if "back after" in line]
    assert sorted("2 attempts" in line for line in said if "auto" not in line) == [False, True], said
    start(machine, "idle")
    assert outage_of(machine, "idle") is None
    for name in ("idle", "second"):
        machine.run("gpuagent", "stop", "--wait", name)


def test_autostart_counts_until_somebody_has_said_what_he_wants(machine: Machine) -> None:
    assert machine.until_stage("auto", "ready")["want"] == "up"
    machine.power_cut()
    machine.boot()
    machine.until_stage("auto", "ready")
    machine.run("gpuagent", "stop", "--wait", "auto")
    machine.power_cut()
    machine.boot()
    machine.until_stage("wanted", "ready")
    assert (machine.server("auto")["stage"], machine.server("auto")["want"]) == ("down", "down")
    assert live(machine, "auto") == []


# -- many cuts -----------------------------------------------------------------------------------------


class Toggler:
    """An operator who asks for one change and its opposite all the time; `said`: what was answered last."""

    def __init__(self, machine: Machine, path: str, words: tuple[str, str], said: str) -> None:
        self.said, self.asking = said, ""
        self._machine, self._path, self._words = machine, path, words
        self._enough = threading.Event()

    @property
    def possible(self) -> set[str]:
        """What the disk may hold: a change that was not answered yet may be made or not."""
        return {self.said, self.asking} - {""}

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Until the block ends."""
        thread = threading.Thread(target=self._toggle)
        thread.start()
        try:
            yield
        finally:
            self._enough.set()
            thread.join()

    def _toggle(self) -> None:
        while not self._enough.wait(0.01):
            self.asking = self._words[self.said == self._words[0]]
            try:
                done = self._machine.ask("POST", f"{self._path}/{self.asking}").status == 200
            except (OSError, http.client.HTTPException, ValueError):  # no agent yet; no power any more, in mid-answer
                continue
            if done:
                self.said, self.asking = self.asking, ""


def saved(machine: Machine) -> dict[str, Any]:
    """What the host's disk holds while it is off: whole, and nothing of it ever set aside."""
    folder = machine.folder / "upper" / "var" / "lib" / "gpuagent"
    assert list(folder.glob("*.broken*")) == []
    state: dict[str, Any] = json.loads((folder / "state.json").read_text())
    return state


def is_whole(machine: Machine, unit: str) -> bool:
    """Whether a hold's file is there, as it must be or not at all."""
    file = machine.folder / "upper" / FOLDER.removeprefix("/") / f"{unit}.d" / hold_file.NAME
    if not file.exists():
        return False
    assert file.read_text() == hold_file.text_of(unit)
    return True


def all_there(machine: Machine) -> None:
    """What is wanted is ready, with one tree each; what is not has none."""
    for name in ("wanted", "slow"):
        server = machine.until_stage(name, "ready")
        assert server["want"] == "up"
        assert len(live(machine, name)) == 1
    assert machine.server("idle")["stage"] == "down"
    assert live(machine, "idle") == []
    assert [mark for mark in machine.ask("GET", "/status").document["degraded"] if "state" in mark] == []


def test_power_cuts_at_any_moment_lose_no_want_and_tear_nothing(machine: Machine) -> None:
    """During boots, saves, launches and looks; the last boot finds all as it was said to be."""
    dice = random.Random(5)
    for name in ("wanted", "slow"):
        start(machine, name)
    machine.run("gpuagent", "stop", "--wait", "toggled")
    machine.power_cut()
    want, hold = "stop", "hold"
    for number in range(1, CUTS + 1):
        operator = Toggler(machine, "/servers/toggled", ("start", "stop"), want)
        other = Toggler(machine, "/holds/swapped.service", ("hold", "release"), hold)
        machine.power_on()
        with (
            watched(machine, "wanted") as seen,
            watched(machine, "toggled") as toggled,
            operator.at_work(),
            other.at_work(),
        ):
            if number % READY_EVERY == 0:
                all_there(machine)
            else:
                time.sleep(dice.uniform(0.0, LONGEST_S))
            machine.power_cut()
        assert max(seen.most, toggled.most) <= 1
        state = saved(machine)
        now = {name: each["want"] for name, each in state["servers"].items()}
        assert (now["wanted"], now["slow"], now.get("idle", "down")) == ("up", "up", "down")
        want = "start" if now["toggled"] == "up" else "stop"
        hold = "release" if "swapped.service" in state["holds"]["exempt"] else "hold"
        assert (want in operator.possible, hold in other.possible) == (True, True), f"after cut {number}"
        assert is_whole(machine, "vllm.service")
        is_whole(machine, "swapped.service")
    machine.boot()
    all_there(machine)
    machine.until_stage("toggled", "ready" if want == "start" else "down")
    begun = machine.ask("GET", "/servers/wanted/starts?limit=500").document["starts"]
    assert len({each["invocation"] for each in begun}) == len(begun)
    assert [each for each in begun[1:] if each["outcome"] is None] == []
    assert (active(machine, "vllm.service"), starts(machine, "vllm"), starts(machine, "swapped")) == ("inactive", 1, 0)
    until(lambda: machine.path(f"{FOLDER}/swapped.service.d").exists() == (hold == "hold"), "the hold as it was said")


def test_no_process_of_another_boot_is_believed(machine: Machine) -> None:
    """What has its pid now is a stranger, left alone: so it is when the record of a launch outlives its boot."""
    before = start(machine, "wanted")
    record = Path("run/gpuagent-server/wanted.launch.json")
    kept = (machine.root / record).read_text()
    assert json.loads(kept)["pid"] == before["pid"]
    machine.power_cut()
    machine.boot()
    machine.until_stage("wanted", "ready")
    machine.run("gpuagent", "stop", "--wait", "wanted")
    machine.run("systemctl", "stop", "gpuagent")
    stranger = machine.start("sh", "-c", "echo $$; exec sleep 600")
    assert stranger.stdout is not None
    pid = int(stranger.stdout.readline())
    born = machine.run("cut", "-d ", "-f22", f"/proc/{pid}/stat").strip()
    machine.write(f"/{record}", json.dumps({**json.loads(kept), "pid": pid, "started": int(born)}))
    machine.run("systemctl", "start", "gpuagent")
    machine.until_stage("wanted", "down")
    assert machine.server("wanted")["pid"] is None
    start(machine, "wanted")
    assert stranger.poll() is None
