"""What a dead launch has left in shared memory, among what others have there: real files, users and processes."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agent.privileged.shared_memory import FILES, NAMES, TOLD, Record, clean, remember

SERVER, OTHER = pwd.getpwnam("games"), pwd.getpwnam("daemon")
"""Accounts that every Debian has, that nobody logs in as, and that no process of the test's host has."""

HOLD = """
import mmap, os, sys, time
fd = os.open(sys.argv[2], os.O_RDWR)
if sys.argv[1] == "map":
    held = mmap.mmap(fd, 4096)
    os.close(fd)
print("holds", flush=True)
time.sleep(600)
"""

SMALL_NUMBERS = """
import mmap, os, subprocess, sys
from pathlib import Path
from agent.privileged.shared_memory import clean, remember
shm, other, proc = (Path(sys.argv[1], name) for name in ("shm", "other", "proc"))
for folder in (shm, other):
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", folder], check=True)
proc.mkdir()
(proc / str(os.getpid())).symlink_to(f"/proc/{os.getpid()}")
known = remember(5, shm)
for folder, name in ((shm, "psm_ours"), (other, "psm_other")):
    (folder / name).write_bytes(bytes(4096))
    os.chown(folder / name, 5, 5)
assert (shm / "psm_ours").stat().st_ino == (other / "psm_other").stat().st_ino
held = (other / "psm_other").open("r+b")
mapped = mmap.mmap(held.fileno(), 4096)
print(clean(known, shm, proc)["removed"])
"""


CROWD = """
import os, subprocess, sys
from pathlib import Path
from agent.privileged.shared_memory import clean, remember
shm = Path("/mnt")
subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777,nr_inodes=0", "tmpfs", shm], check=True)
known = remember(5, shm)
for number in range(int(sys.argv[1]) + 1):
    os.close(os.open(shm / str(number), os.O_CREAT | os.O_WRONLY))
print(remember(5, shm))
told = clean(known, shm)
print(told["removed"], told["why"])
"""

FORKS = '''
import os, subprocess, sys, tempfile
from pathlib import Path
from agent.privileged.shared_memory import clean, remember
hop = """
import os, sys
held = os.open(sys.argv[1], os.O_RDWR)
print("holds", flush=True)
for _ in range(5000):
    if os.fork():
        os._exit(0)
"""
shm = Path(tempfile.mkdtemp())
os.chmod(shm, 0o1777)
others = [subprocess.Popen(["sleep", "600"]) for _ in range(100)]
for number in range(8):
    known = remember(13, shm)
    file = shm / str(number)
    file.touch()
    os.chown(file, 13, 13)
    hopper = subprocess.Popen(["/usr/bin/python3", "-S", "-c", hop, file], user=13, stdout=subprocess.PIPE)
    hopper.stdout.readline()
    print(clean(known, shm)["removed"])
'''
REAP = 'trap "" TERM; "$@"; exit'
"""A first process of a pid namespace that reaps, and ends it with all that is in it."""


@pytest.fixture
def shm() -> Iterator[Path]:
    """As /dev/shm is: root's, sticky, everybody may write there."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o1777)
        yield Path(name)


def put(path: Path, user: pwd.struct_passwd = SERVER, size: int = 4096) -> Path:
    path.write_bytes(b"x" * size)
    os.chown(path, user.pw_uid, user.pw_gid)
    return path


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """The processes that this test's root may look at: where the tests run, that need not be all, as in production."""
    folder = tmp_path / "proc"
    folder.mkdir()
    return folder


def seen(proc: Path) -> Path:
    """Those that live now."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            Path("/proc", pid, "maps").read_bytes()
            os.listdir(f"/proc/{pid}/fd")
            (proc / pid).symlink_to(f"/proc/{pid}")
    return proc


def before(shm: Path, user: pwd.struct_passwd = SERVER) -> Record:
    known = remember(user.pw_uid, shm)
    assert known is not None
    return known


@contextmanager
def living(*command: str, user: int = 0) -> Iterator[int]:
    """A process that has said its first line."""
    process = subprocess.Popen(command, user=user, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process.pid
    finally:
        process.kill()
        process.communicate(timeout=30)


def names(shm: Path) -> list[str]:
    return sorted(path.name for path in shm.iterdir())


def test_what_the_dead_launch_has_made_is_taken_away_and_counted(shm: Path, proc: Path) -> None:
    known = before(shm)
    for name in ("psm_1", "nccl-2", "sem.x"):
        put(shm / name, size=1 << 20)
    told = clean(known, shm, seen(proc))
    assert names(shm) == []
    assert (told["removed"], told["mib"], told["left"], told["why"]) == (3, 3.0, [], "")


def test_what_is_older_or_anothers_stays_and_is_not_told(shm: Path, proc: Path) -> None:
    put(shm / "older")
    known = before(shm)
    (shm / "older").write_bytes(b"written again during the launch")
    put(shm / "theirs", OTHER)
    put(shm / "ours")
    told = clean(known, shm, seen(proc))
    assert names(shm) == ["older", "theirs"]
    assert (told["removed"], told["left"]) == (1, [])


@pytest.mark.parametrize("how", ["open", "map"])
def test_what_a_process_of_anybody_still_uses_stays(shm: Path, proc: Path, how: str) -> None:
    known = before(shm)
    put(shm / "used")
    put(shm / "unused")
    with living(sys.executable, "-c", HOLD, how, str(shm / "used")):
        told = clean(known, shm, seen(proc))
    assert told["left"] == [{"name": "used", "why": "is in use"}]
    assert names(shm) == ["used"]


def test_the_same_inode_number_on_another_file_system_is_not_taken_for_it(shm: Path) -> None:
    """Numbers of a tmpfs are small, and each has the same ones."""
    command = ["unshare", "--mount", sys.executable, "-c", SMALL_NUMBERS, str(shm)]
    if subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", shm], capture_output=True).returncode:
        pytest.skip("this user may not mount")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1"]


def test_no_symlink_is_followed_and_no_folder_pipe_or_second_name_is_taken(
    shm: Path, proc: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    known = before(shm)
    (shm / "link").symlink_to(victim)
    (shm / "folder").mkdir()
    put(shm / "folder" / "inner")
    os.mkfifo(shm / "pipe")
    put(shm / "one")
    os.link(shm / "one", shm / "two")
    for name in ("link", "folder", "pipe"):
        os.chown(shm / name, SERVER.pw_uid, SERVER.pw_gid, follow_symlinks=False)
    told = clean(known, shm, seen(proc))
    assert names(shm) == ["folder", "link", "one", "pipe", "two"]
    assert victim.read_text() == "untouched"
    assert (told["removed"], told["left_count"]) == (0, 5)


def test_while_a_process_of_the_same_user_lives_everything_stays(shm: Path, proc: Path) -> None:
    known = before(shm)
    put(shm / "perhaps-theirs")
    with living("sh", "-c", "echo up; exec sleep 600", user=SERVER.pw_uid) as pid:
        told = clean(known, shm, seen(proc))
    assert names(shm) == ["perhaps-theirs"]
    assert told["left"] == [{"name": "perhaps-theirs", "why": f"pid {pid} of the same user lives"}]


def test_what_a_person_may_have_made_stays(shm: Path, proc: Path) -> None:
    person = pwd.getpwuid(0)
    known = before(shm, person)
    put(shm / "data", person)
    told = clean(known, shm, seen(proc))
    assert names(shm) == ["data"]
    assert "may log in" in told["left"][0]["why"]


def test_a_folder_in_which_others_may_exchange_names_is_left_alone(shm: Path, proc: Path) -> None:
    known = before(shm)
    put(shm / "ours")
    shm.chmod(0o777)
    assert remember(SERVER.pw_uid, shm) is None
    assert (clean(known, shm, seen(proc))["removed"], names(shm)) == (0, ["ours"])
    shm.chmod(0o1777)
    os.chown(shm, SERVER.pw_uid, SERVER.pw_gid)
    assert remember(SERVER.pw_uid, shm) is None
    assert (clean(known, shm, seen(proc))["removed"], names(shm)) == (0, ["ours"])


def test_another_file_system_in_its_place_is_left_alone(shm: Path) -> None:
    known = before(shm)
    put(shm / "ours")
    told = clean({**known, "device": known["device"] + 1}, shm)
    assert names(shm) == ["ours"]
    assert "another file system" in told["why"]


def test_a_process_that_cannot_be_looked_at_costs_a_bounded_time_and_nothing_is_taken(
    shm: Path, tmp_path: Path
) -> None:
    known = before(shm)
    put(shm / "ours")
    (tmp_path / "7").mkdir()
    os.mkfifo(tmp_path / "7" / "status")  # whoever reads it hangs
    told = clean(known, shm, proc=tmp_path, limit_s=0.2)
    assert names(shm) == ["ours"]
    assert "no answer" in told["why"]


def test_more_files_than_can_be_remembered_are_all_left_alone(shm: Path) -> None:
    for number in range(FILES):
        os.close(os.open(shm / str(number), os.O_CREAT | os.O_WRONLY))
        os.chown(shm / str(number), SERVER.pw_uid, SERVER.pw_gid)
    assert remember(SERVER.pw_uid, shm) is None


def test_more_files_of_anybody_than_can_be_looked_through_are_left_alone_and_cost_a_bounded_time() -> None:
    script = ["unshare", "--mount", sys.executable, "-c", CROWD, str(NAMES)]
    said = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["None", f"0 there are more than {NAMES} files"]


@pytest.mark.parametrize("name", ["a\rb", "a\x0cb", "a b", "a\u2028b", "a (deleted)"])
def test_no_name_of_a_file_that_some_process_has_mapped_stops_it(shm: Path, proc: Path, name: str) -> None:
    other = put(shm.parent / f"{shm.name}-{name}", OTHER)
    try:
        known = before(shm)
        put(shm / "ours")
        with living(sys.executable, "-c", HOLD, "map", str(other)):
            assert clean(known, shm, seen(proc))["removed"] == 1
    finally:
        other.unlink()


def test_a_process_that_forks_and_ends_all_the_while_is_not_overlooked() -> None:
    said = subprocess.run(
        ["unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc",
         "sh", "-c", REAP, "sh", sys.executable, "-c", FORKS],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert said.stdout.split() == ["0"] * 8, said.stderr


def test_what_is_left_is_told_in_few_words_that_break_no_line(shm: Path, proc: Path) -> None:
    known = before(shm)
    for number in range(TOLD + 5):
        name = shm / f"{number}\n\x1b[31m\udcff"
        name.mkdir()
        os.chown(name, SERVER.pw_uid, SERVER.pw_gid)
    told = clean(known, shm, seen(proc))
    assert (len(told["left"]), told["left_count"]) == (TOLD, TOLD + 5)
    assert all(each["name"].isprintable() for each in told["left"])
