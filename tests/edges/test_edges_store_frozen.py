"""The state file on a disk that is frozen (whoever writes there waits for the thaw), or has become read-only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from agent.core.model import Saved, Want
from agent.edges.store import StateFile
from agent.errors import EdgeError
from tests.disks import disk

DEADLINE_S = 20.0
START = """
import sys
from pathlib import Path
from agent.edges.store import StateFile
state = StateFile(Path(sys.argv[1]))
state.lock()
print(state.load()["demo"].want)
"""


async def save(state: StateFile) -> None:
    state.load()
    await state.save("demo", Saved(want=Want.UP))


def test_a_frozen_disk_keeps_no_agent_from_its_start(tmp_path: Path) -> None:
    with disk(tmp_path) as frozen:
        state = StateFile(frozen.kept / "state.json")
        state.lock()
        anyio.run(save, state)
        state.unlock()
        frozen.freeze()
        command = [sys.executable, "-c", START, str(frozen.kept / "state.json")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
            try:
                said, _ = agent.communicate(timeout=DEADLINE_S)
            finally:
                frozen.thaw()  # else it could not even be killed
                agent.kill()
        assert said == "up\n"


def test_a_disk_that_has_become_read_only_keeps_no_agent_from_its_start_nor_lets_two_in(tmp_path: Path) -> None:
    with disk(tmp_path) as damaged:
        state = StateFile(damaged.kept / "state.json")
        state.lock()
        anyio.run(save, state)
        state.unlock()
        subprocess.run(["mount", "-o", "remount,ro", str(damaged.kept)], check=True)
        second = StateFile(damaged.kept / "state.json")
        second.lock()
        assert second.load()["demo"].want is Want.UP
        with pytest.raises(EdgeError, match="another agent holds it"):
            StateFile(damaged.kept / "state.json").lock()
        second.unlock()
