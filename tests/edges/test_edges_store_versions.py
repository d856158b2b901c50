"""The state file of each version that was ever written, as an agent of that version left it; and the holds in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent.core.holds import Holds
from agent.core.model import Saved, Want
from agent.edges.saved_json import holds_from_json, holds_to_json
from agent.edges.store import KNOWN, VERSION, StateFile

pytestmark = pytest.mark.anyio

GOLDEN = Path(__file__).with_name("golden")
SERVERS = {
    "chat": Saved(
        want=Want.UP,
        asks=4,
        gpu_check=False,
        attempt=3,
        failures=("cuda_oom exited with 1", "cuda_oom exited with 1"),
        invocation="0a1b2c3d-3",
        running=True,
        served=True,
        over=frozenset({"sweep"}),
        back="sweep",
    ),
    "sweep": Saved(want=Want.DOWN, asks=5, gave_up="bad_flag"),
}
HOLDS = Holds(
    begun=True,
    held={"ollama.service": 1764553351.25, "vllm@1.service": 1764553352.0},
    exempt=frozenset({"comfyui.socket"}),
)


def laid(tmp_path: Path, version: int) -> StateFile:
    """A state file of that version."""
    path = tmp_path / "state.json"
    path.write_bytes((GOLDEN / f"state-{version}.json").read_bytes())
    return StateFile(path)


@pytest.mark.parametrize("version", KNOWN)
def test_the_file_of_every_version_is_read_whole(tmp_path: Path, version: int) -> None:
    state = laid(tmp_path, version)
    assert state.load() == SERVERS
    assert state.holds == (HOLDS if version > 1 else Holds())
    assert (state.faults, state.rebooted) == ([], True)


def test_there_is_a_file_of_every_version() -> None:
    assert {f"state-{version}.json" for version in KNOWN} == {file.name for file in GOLDEN.iterdir()}
    assert max(KNOWN) == VERSION


async def test_a_file_of_an_older_version_is_written_as_the_newest(tmp_path: Path) -> None:
    state = laid(tmp_path, 1)
    state.load()
    await state.save_holds(HOLDS)
    written, newest = (
        json.loads((tmp_path / "state.json").read_bytes()),
        json.loads((GOLDEN / "state-2.json").read_bytes()),
    )
    assert {**written, "boot_id": None} == {**newest, "boot_id": None}


async def test_saves_of_holds_and_of_servers_at_once_lose_none(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "state.json")
    state.load()
    async with anyio.create_task_group() as group:
        for n in range(10):
            group.start_soon(state.save, f"s{n}", Saved(attempt=n))
            group.start_soon(state.save_holds, Holds(begun=True, held={"a.service": float(n)}))
    again = StateFile(tmp_path / "state.json")
    assert {name: saved.attempt for name, saved in again.load().items()} == {f"s{n}": n for n in range(10)}
    assert again.holds == state.holds


@pytest.mark.parametrize(
    "holds",
    [
        None,
        [],
        {"begun": 1},
        {"held": ["a.service"]},
        {"held": {"a.service": "now"}},
        {"held": {"a.service": True}},
        {"held": {"a.service": -1}},
        {"held": {"a.service": 1e300}},
        {"held": {"a.service": float("nan")}},
        {"held": {"../../etc/passwd": 1}},
        {"held": {"": 1}},
        {"exempt": "a.service"},
        {"exempt": ["a b.service"]},
    ],
)
def test_holds_that_are_not_understood_are_left_out_and_the_servers_are_not(tmp_path: Path, holds: Any) -> None:
    content = {**json.loads((GOLDEN / "state-2.json").read_bytes()), "holds": holds}
    (tmp_path / "state.json").write_text(json.dumps(content))
    state = StateFile(tmp_path / "state.json")
    assert state.load() == SERVERS
    assert state.holds == Holds()
    assert any("holds" in fault and "left out" in fault for fault in state.faults)
    (aside,) = (file for file in tmp_path.iterdir() if ".broken-" in file.name)
    assert aside.read_bytes() == (tmp_path / "state.json").read_bytes()


def test_an_unknown_key_of_the_holds_is_left_out_and_said(tmp_path: Path) -> None:
    content = json.loads((GOLDEN / "state-2.json").read_bytes())
    content["holds"]["colour"] = "red"
    (tmp_path / "state.json").write_text(json.dumps(content))
    state = StateFile(tmp_path / "state.json")
    state.load()
    assert state.holds == HOLDS
    assert any("colour" in fault for fault in state.faults)


def test_holds_come_back_as_they_were() -> None:
    assert holds_from_json(json.loads(json.dumps(holds_to_json(HOLDS)))) == (HOLDS, [])
    assert holds_from_json({}) == (Holds(), [])
