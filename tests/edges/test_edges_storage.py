"""The room on real file systems: small ones that fill up, frozen ones, and those that are hidden from us."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent.core.model import Space
from agent.edges import storage
from agent.edges.storage import FileSystems, measure
from tests.edges.edges_house import until

pytestmark = pytest.mark.anyio

ALONE = ("unshare", "--mount")
"""What is mounted there is gone with the process."""

FILL = """
import asyncio, json, os, subprocess, sys
from pathlib import Path
from agent.edges.storage import FileSystems

async def main():
    folder = Path(sys.argv[1])
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,nr_inodes=50", "tmpfs", folder]
    subprocess.run(mount, check=True)
    (folder / "inner").mkdir()
    disks = FileSystems((folder, folder / "inner", folder / "not" / "there"))
    said = [await disks.look(1.0)]
    (folder / "large").write_bytes(b"x" * (6 << 20))
    for number in range(40):
        (folder / str(number)).touch()
    said.append(await disks.look(2.0))
    print(json.dumps([[{name: getattr(each, name) for name in each.__slots__} for each in look] for look in said]))

asyncio.run(main())
"""

HIDDEN = """
import json, os, subprocess, sys
from pathlib import Path
from agent.edges.storage import measure

folder = Path(sys.argv[1])
def mount(size, name, mode):
    (folder / name).mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode={mode}", "tmpfs", folder / name], check=True)
mount("8m", "home", "755")
mount("16m", "home/alice/disk", "755")
(folder / "home" / "alice").chmod(0o700)
subprocess.run(["mount", "--bind", folder / "home", folder / "seen"], check=True)
for odd in ("a\\r\\rb", "a\\rb", "a\\x0cb", "a\\u2028b", "a\\udcffb", "-"):  # any user may have one: with FUSE
    mount("1m", odd, "755")
host = folder / "host"
host.write_bytes(Path("/proc/self/mountinfo").read_bytes())
mount("1m", "home", "000")  # as systemd's ProtectHome= hides it
os.setuid(65534)
def size(path):
    try:
        return measure(path, host)[1].f_blocks * measure(path, host)[1].f_frsize >> 20
    except OSError as error:
        return error.strerror
print(json.dumps([size(folder / "home" / "alice" / each) for each in ("cache", "disk/x")]))
"""


def alone(program: str, folder: Path) -> Any:
    """What a program says that mounts as it likes."""
    if subprocess.run([*ALONE, "mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("this user may not mount")
    done = subprocess.run([*ALONE, sys.executable, "-c", program, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_bytes_and_inodes_of_a_small_disk_are_read_once_for_all_its_folders(tmp_path: Path) -> None:
    (before,), (after,) = alone(FILL, tmp_path)
    assert (before["path"], before["at"], before["total_mib"], before["total_inodes"]) == (str(tmp_path), 1.0, 8.0, 50)
    assert before["free_mib"] > 7.5
    assert before["free_inodes"] > 45
    assert (after["at"], after["why"]) == (2.0, "")
    assert after["free_mib"] <= 2.0
    assert after["free_inodes"] < 9


def test_a_folder_that_we_may_not_enter_is_known_by_its_mount(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for above in (*tmp_path.parents,):
        if above.stat().st_uid == os.geteuid() and not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o011)
    (tmp_path / "seen").mkdir()
    assert alone(HIDDEN, tmp_path) == [8, "it is hidden from the agent: name a folder on that disk that it may see"]


async def test_a_disk_that_does_not_answer_costs_one_thread_and_is_told_while_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen, good = tmp_path / "frozen", tmp_path / "good"
    good.mkdir()
    thaw = threading.Event()

    def stat_of(folder: Path, host: Path) -> tuple[int, os.statvfs_result]:
        if folder == frozen and not thaw.wait(60.0):
            raise TimeoutError
        return measure(tmp_path, host)

    monkeypatch.setattr(storage, "measure", stat_of)
    monkeypatch.setattr(storage, "LIMIT_S", 0.2)
    disks = FileSystems((frozen, good))
    for at in range(3):
        stuck, read = await disks.look(float(at))
        assert (stuck.path, stuck.free_mib) == (str(frozen), None)
        assert stuck.why.startswith("storage stalled: does not answer since ")
        assert read.free_mib is not None
        assert len(_looking()) <= 2  # that one, and the other's, which is about to end
    thaw.set()

    async def thawed() -> bool:
        return [space.why for space in await disks.look(9.0)] == [""]  # the same disk: told once

    await until(thawed, "an answer after the thaw")


async def test_a_folder_that_is_not_there_stands_for_its_disk_and_nonsense_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (missing,) = await FileSystems((tmp_path / "a" / "b",)).look(1.0)
    room = os.statvfs(tmp_path)
    assert missing.total_mib == room.f_blocks * room.f_frsize / (1 << 20)
    (nonsense,) = await FileSystems((tmp_path / "file" / "x",)).look(1.0)
    assert nonsense == Space(path=str(tmp_path / "file" / "x"), at=1.0, why="Not a directory")


async def test_a_look_leaves_no_thread_and_no_descriptor(tmp_path: Path) -> None:
    descriptors = set(os.listdir("/proc/self/fd"))
    disks = FileSystems((tmp_path, Path("/dev/shm")))
    await disks.look(1.0)
    for _ in range(100):
        if set(os.listdir("/proc/self/fd")) <= descriptors and not _looking():
            return
        await anyio.sleep(0.05)
    pytest.fail("a thread or a descriptor is left")


def _looking() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "gpuagent-storage"]
