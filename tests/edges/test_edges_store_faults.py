"""A save of the state file, in a real process, whose every system call fails in turn, or is the last one: by strace."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.core.model import Saved, Want
from agent.edges.store import StateFile

DEADLINE_S = 60.0

SAVE = """
import asyncio, ctypes, sys
from pathlib import Path
from agent.core.model import Saved, Want
from agent.edges.store import StateFile
from agent.errors import EdgeError

ctypes.CDLL(None).prctl(0x59616D61, -1, 0, 0, 0)  # PR_SET_PTRACER: whoever tests may trace, where Yama forbids it
attempt = int(sys.argv[2])
state = StateFile(Path(sys.argv[1]))
state.load()
print("loaded", flush=True)
sys.stdin.readline()
try:
    asyncio.run(state.save("a", Saved(want=Want.UP, attempt=attempt, failures=("cuda_oom",) * 20 * attempt)))
    print("saved", flush=True)
except EdgeError as error:
    print("refused", flush=True)
"""


def saved(attempt: int) -> Saved:
    """What such a process saves."""
    return Saved(want=Want.UP, attempt=attempt, failures=("cuda_oom",) * 20 * attempt)


@pytest.fixture(autouse=True)
def _strace() -> None:
    if shutil.which("strace") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("strace is not here")
        pytest.skip("needs strace")


@pytest.fixture(params=["over an older file", "the first of all"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A state file as it is before the save: attempt 1, or none."""
    path = tmp_path / "state" / "state.json"
    path.parent.mkdir()
    if request.param == "over an older file":
        assert save(path, 1) == "saved"
    return path


def save(path: Path, attempt: int, *inject: str) -> str:
    """What a process says that saves an attempt: "saved", "refused", or nothing if it was killed.

    strace writes what touches the folder to `trace` beside it, and `inject` says what it does to that.
    """
    folder = path.parent
    watched = [word for each in (folder, path, folder / f".{path.name}.new") for word in ("-P", str(each))]
    flags = [word for each in inject for word in ("-e", f"inject={each}")]
    process = subprocess.Popen(
        [sys.executable, "-c", SAVE, str(path), str(attempt)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "loaded\n"
        command = ["strace", "-f", "-o", str(folder.parent / "trace"), *watched, *flags, "-p", str(process.pid)]
        tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert tracer.stderr is not None
        assert "attached" in (said := tracer.stderr.readline()), said
        said, _ = process.communicate("\n", DEADLINE_S)
        tracer.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.wait(DEADLINE_S)
    assert process.returncode in (0, -signal.SIGKILL)
    return said.strip()


def calls_of_a_save(path: Path) -> Iterator[tuple[str, int]]:
    """Each system call of a save that touches its folder: its name, and the how manieth of that name it is."""
    folder = path.parent
    shutil.copytree(folder, aside := folder.with_name("aside"))
    assert save(path, 2) == "saved"
    names = re.findall(r"^\d+ +(\w+)\(", (folder.parent / "trace").read_text(), re.MULTILINE)
    assert {"openat", "write", "fsync", "rename"} <= set(names), names
    seen: Counter[str] = Counter()
    for name in names:
        seen[name] += 1
        shutil.rmtree(folder)
        shutil.copytree(aside, folder)
        yield name, seen[name]


def found(path: Path) -> Saved | None:
    """What an agent finds that starts now; and nothing wrong with it."""
    state = StateFile(path)
    servers = state.load()
    assert state.faults == []
    return servers.get("a")


def check_goes_on(path: Path) -> None:
    """The next save is as good as ever, and leaves nothing behind."""
    state = StateFile(path)
    state.load()
    asyncio.run(state.save("a", saved(3)))
    assert found(path) == saved(3)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_whichever_call_of_a_save_fails_the_file_is_the_old_or_the_new_one(path: Path, error: str) -> None:
    old = found(path)
    for name, number in calls_of_a_save(path):
        said = save(path, 2, f"{name}:error={error}:when={number}")
        trace = (path.parent.parent / "trace").read_text()
        assert "(INJECTED)" in trace, f"{name} {number}: nothing was injected\n{trace}"
        now = found(path)
        assert now in ((saved(2),) if said == "saved" else (old, saved(2))), f"{name} {number}: {said}, and it is {now}"
        check_goes_on(path)


def test_whichever_call_of_a_save_is_the_last_one_the_file_is_the_old_or_the_new_one(path: Path) -> None:
    old = found(path)
    ends = set()
    for name, number in calls_of_a_save(path):
        assert save(path, 2, f"{name}:signal=KILL:when={number}") == "", f"{name} {number}: it was not killed"
        now = found(path)
        assert now in (old, saved(2)), f"{name} {number}: it is {now}"
        ends.add(now)
        check_goes_on(path)
    assert ends == {old, saved(2)}  # before the file was exchanged, and after
