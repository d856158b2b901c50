"""The state file: torn, full, read-only, held by another."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent.core.model import Saved, Want
from agent.edges import store
from agent.edges.saved_json import KEYS, from_json, to_json
from agent.edges.store import StateFile
from agent.errors import EdgeError
from tests.edges.edges_house import until

pytestmark = pytest.mark.anyio

FULL = Saved(
    want=Want.UP,
    asks=4,
    gpu_check=False,
    attempt=3,
    failures=("cuda_oom", "cuda_oom"),
    invocation="i-3",
    running=True,
    served=True,
    over=frozenset({"b", "a"}),
    back="a",
    gave_up="cuda_oom",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "state.json"


@pytest.fixture
def state(path: Path) -> Iterator[StateFile]:
    one = StateFile(path)
    one.lock()
    one.load()
    yield one
    one.unlock()


def again(path: Path) -> StateFile:
    one = StateFile(path)
    one.load()
    return one


def content_of(path: Path) -> Any:
    return json.loads(path.read_bytes())


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)


def beside(path: Path) -> list[str]:
    return sorted(one.name for one in path.parent.iterdir() if ".broken-" in one.name)


async def test_what_was_saved_is_there_after_a_restart(state: StateFile, path: Path) -> None:
    await state.save("a", FULL)
    await state.save("b", Saved())
    restarted = StateFile(path)
    assert restarted.load() == {"a": FULL, "b": Saved()}
    assert (restarted.faults, restarted.rebooted) == ([], False)
    content = content_of(path)
    assert content["version"] == 2
    assert set(content) == {"version", "boot_id", "holds", "servers"}


async def test_saves_of_several_servers_at_once_lose_none(state: StateFile, path: Path) -> None:
    async with anyio.create_task_group() as group:
        for n in range(20):
            group.start_soon(state.save, f"s{n}", Saved(attempt=n))
    assert {name: saved.attempt for name, saved in again(path).load().items()} == {f"s{n}": n for n in range(20)}


def test_every_field_of_saved_is_in_the_file() -> None:
    assert {field.name for field in fields(Saved)} == KEYS
    assert set(to_json(FULL)) == KEYS
    assert from_json(json.loads(json.dumps(to_json(FULL)))) == (FULL, [])


async def test_another_boot_is_noticed(state: StateFile, path: Path) -> None:
    await state.save("a", FULL)
    put(path, json.dumps({**content_of(path), "boot_id": "another"}).encode())
    assert again(path).rebooted is True


async def test_a_file_cut_at_any_byte_is_set_aside_and_said(state: StateFile, path: Path) -> None:
    await state.save("a", FULL)
    whole = json.dumps(content_of(path)).encode()
    for cut in range(len(whole)):
        put(path, whole[:cut])
        restarted = StateFile(path)
        assert restarted.load() == {}
        assert len(restarted.faults) == 1
        assert "set aside" in restarted.faults[0]
    assert beside(path)


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "[]",
        "{}",
        '{"version": 1}',
        '{"version": 0, "servers": {}}',
        '{"version": 3, "servers": {}}',
        '{"version": true, "servers": {}}',
        '{"version": 1, "servers": []}',
        "[" * 100_000,
        "\x00" * 4096,
        "\xff\xfe\xfd",
        '{"version": 1, "servers": {}, "x": "' + "y" * (1 << 20) + '"}',
    ],
)
async def test_a_file_that_is_not_understood_is_set_aside_whole(path: Path, text: str) -> None:
    put(path, text.encode("latin-1"))
    state = StateFile(path)
    assert state.load() == {}
    assert len(state.faults) == 1
    (aside,) = beside(path)
    assert (path.parent / aside).read_bytes() == text.encode("latin-1")
    await state.save("a", FULL)
    assert again(path).load() == {"a": FULL}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("want", "sideways"),
        ("want", 1),
        ("gpu_check", 1),
        ("gpu_check", None),
        ("asks", "1"),
        ("attempt", True),
        ("attempt", -1),
        ("attempt", "3"),
        ("attempt", 1.0),
        ("failures", "cuda_oom"),
        ("failures", [1]),
        ("invocation", 5),
        ("gave_up", True),
        ("over", {"a": 1}),
        ("over", None),
    ],
)
def test_a_wrong_type_leaves_out_that_server_alone(path: Path, key: str, value: Any) -> None:
    path.parent.mkdir()
    servers = {"bad": {**to_json(FULL), key: value}, "good": to_json(FULL)}
    path.write_text(json.dumps({"version": 1, "boot_id": None, "servers": servers}))
    for _ in range(3):  # starting again and again makes no further copies
        state = StateFile(path)
        assert state.load() == {"good": FULL}
        assert any("server bad" in fault and key in fault for fault in state.faults)
    assert len(beside(path)) == 1


def test_unknown_keys_and_impossible_names_are_left_out_and_said(path: Path) -> None:
    path.parent.mkdir()
    servers = {"a": {**to_json(FULL), "colour": "red"}, "../x": {}, "A": {}, "b": []}
    path.write_text(json.dumps({"version": 1, "boot_id": 7, "servers": servers}))
    state = StateFile(path)
    assert state.load() == {"a": FULL}
    assert len([fault for fault in state.faults if "left out" in fault]) == 5
    assert state.rebooted is None


def test_a_second_agent_is_kept_off_and_told_who_has_it(state: StateFile, path: Path) -> None:
    with pytest.raises(EdgeError, match=f"another agent holds it .pid {os.getpid()}"):
        StateFile(path).lock()
    state.unlock()
    second = StateFile(path)
    second.lock()
    second.unlock()


def test_the_lock_ends_with_a_killed_agent_and_no_child_keeps_it(path: Path) -> None:
    code = (
        "import subprocess, sys\nfrom pathlib import Path\nfrom agent.edges.store import StateFile\n"
        "state = StateFile(Path(sys.argv[1])); state.lock()\n"
        "child = subprocess.Popen(['sleep', '600']); print(child.pid, flush=True); child.wait()\n"
    )
    agent = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    child = int(agent.stdout.readline())
    try:
        with pytest.raises(EdgeError, match="another agent"):
            StateFile(path).lock()
        agent.kill()
        agent.wait()
        second = StateFile(path)
        second.lock()
        second.unlock()
    finally:
        os.kill(child, signal.SIGKILL)
        agent.kill()
        agent.wait()
        agent.stdout.close()


@contextmanager
def no_file_larger_than(count: int) -> Iterator[None]:
    """A disk that is full after so many bytes, in effect."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


async def test_a_disk_that_takes_no_more_leaves_the_old_file_whole(state: StateFile, path: Path) -> None:
    await state.save("a", FULL)
    before = content_of(path)
    for count in (0, 1, 100, 200):
        with no_file_larger_than(count), pytest.raises(EdgeError):
            await state.save("b", FULL)
        assert content_of(path) == before
    assert sorted(one.name for one in path.parent.iterdir()) == ["state.json", "state.json.lock"]
    await state.save("b", FULL)
    assert again(path).load() == {"a": FULL, "b": FULL}


ON_A_SMALL_DISK = """
import asyncio, json, subprocess, sys
from pathlib import Path
from agent.core.model import Saved
from agent.edges.store import StateFile
from agent.errors import EdgeError

def refused(saved):
    try:
        asyncio.run(state.save("b", saved))
    except EdgeError as error:
        return error.why

folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], check=True)
state = StateFile(folder / "state.json")
state.lock()
state.load()
asyncio.run(state.save("a", Saved(attempt=1)))
why = [refused(Saved(failures=("x" * 100_000,)))]
state.unlock()  # a file open for writing would forbid the next step
subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
why.append(refused(Saved()))
kept = StateFile(folder / "state.json").load()
print(json.dumps([why, sorted(kept), sorted(one.name for one in folder.iterdir())]))
"""


def test_a_full_disk_and_a_read_only_one_leave_the_old_file_whole(tmp_path: Path) -> None:
    in_own_mounts = ["unshare", "--mount"]  # what is mounted there is gone with the process
    if subprocess.run([*in_own_mounts, "mount", "-t", "tmpfs", "tmpfs", tmp_path], capture_output=True).returncode:
        pytest.skip("this user may not mount")
    done = subprocess.run(
        [*in_own_mounts, sys.executable, "-c", ON_A_SMALL_DISK, tmp_path], capture_output=True, check=True, text=True
    )
    why, kept, names = json.loads(done.stdout)
    assert why == ["No space left on device", "Read-only file system"]
    assert kept == ["a"]
    assert names == ["state.json", "state.json.lock"]


async def test_a_folder_that_takes_no_file_is_an_edge_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    state = StateFile(tmp_path / "gone" / "state.json")
    state.load()
    with pytest.raises(EdgeError, match="No such file"):
        await state.save("a", FULL)
    with pytest.raises(EdgeError):
        StateFile(tmp_path / "file" / "state.json").lock()
    with pytest.raises(EdgeError, match="Not a directory"):
        StateFile(tmp_path / "file" / "state.json").load()


async def test_a_state_too_large_to_be_read_again_is_not_saved(state: StateFile, path: Path) -> None:
    await state.save("a", FULL)
    with pytest.raises(EdgeError, match="too large"):
        await state.save("b", Saved(failures=("x" * (1 << 20),)))
    assert again(path).load() == {"a": FULL}


async def test_a_save_that_hangs_fails_and_does_not_come_true_later(
    state: StateFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await state.save("a", FULL)
    frozen, thaw, synced = threading.Event(), threading.Event(), os.fsync

    def hang(fd: int) -> None:
        frozen.set()
        thaw.wait()
        synced(fd)

    monkeypatch.setattr(os, "fsync", hang)
    monkeypatch.setattr(store, "SAVE_LIMIT_S", 0.2)
    with pytest.raises(EdgeError, match="no answer"):
        await state.save("a", Saved(want=Want.DOWN))
    assert frozen.is_set()
    with pytest.raises(EdgeError, match="still hangs"):
        await state.save("a", Saved(want=Want.DOWN))
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(store, "SAVE_LIMIT_S", 30.0)
    thaw.set()

    async def thawed() -> bool:
        return sorted(os.listdir(path.parent)) == ["state.json", "state.json.lock"]

    await until(thawed, "the end of the hanging save")
    assert again(path).load() == {"a": FULL}
    await state.save("b", FULL)
    assert again(path).load() == {"a": FULL, "b": FULL}


async def test_a_save_without_a_load_is_a_bug(path: Path) -> None:
    with pytest.raises(RuntimeError, match="load before save"):
        await StateFile(path).save("a", FULL)
