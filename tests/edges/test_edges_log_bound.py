"""Logs are bounded in place, on a real file system, under a real writer; old ones are removed, and nothing else is."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.edges import log_bound
from agent.edges.log_bound import ATTEMPT, GRAIN_BYTES, LINE_BYTES, MIB, LogBound, attempts, bound, punch
from agent.edges.log_tail import LogTail
from agent.errors import EdgeError
from agent.holed import GONE, data_begin

pytestmark = pytest.mark.anyio

NEVER = threading.Event()

WRITER = """
import os, sys
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
for first in range(0, int(sys.argv[2]), 500):
    os.write(log, b"".join(b"%09d %s\\n" % (n, b"x" * (n % 90)) for n in range(first, first + 500)))
"""
"""Numbered lines of 11 to 100 bytes, as fast as they can be written."""
LINES = 1_200_000  # 65 MB


def knows_holes(folder: Path) -> bool:
    """Whether the file system below `folder` can do what is tested here."""
    with (folder / "trial").open("wb+") as file:
        file.write(b"x" * 2 * MIB)
        file.flush()
        try:
            punch(file.fileno(), 0, MIB)
        except OSError:
            return False
        return data_begin(file.fileno(), 0) == MIB


@pytest.fixture(params=["temporary folder", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """On the disk that pytest uses (ext4 and overlayfs know holes), and in tmpfs."""
    place = tmp_path
    if request.param == "memory":
        place = Path("/dev/shm", f"gpuagent-test-{os.getpid()}-{tmp_path.name}")
        if not os.access("/dev/shm", os.W_OK):
            pytest.skip("no /dev/shm here")
        place.mkdir()
    if not knows_holes(place):
        pytest.skip(f"the file system of {place} knows no holes")
    yield place
    if place is not tmp_path:
        for each in place.iterdir():
            each.unlink()
        place.rmdir()


def writing(path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-c", WRITER, path, str(LINES)])


@pytest.fixture
def without_holes() -> Iterator[int]:
    """A file of procfs, to which the kernel answers as a file system does that knows no holes."""
    fd = os.open("/proc/self/comm", os.O_RDWR)
    yield fd
    os.close(fd)


def taken_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


def numbered(count: int, length: int = 100) -> bytes:
    return b"".join(b"%09d %s\n" % (n, b"y" * (length - 11)) for n in range(count))


def log(folder: Path, number: int, size: int = 10, age_s: int = 0) -> Path:
    """An attempt's log of zeros as text, last written so long ago."""
    path = folder / f"0123abcd-{number}.log"
    path.write_bytes(b"0" * size)
    os.utime(path, (1_700_000_000 - age_s,) * 2)
    return path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if ATTEMPT.fullmatch(path.name)}


# -- in place --------------------------------------------------------------------------------------


def test_what_is_older_than_the_bound_gives_its_room_back_and_every_line_within_it_is_there(folder: Path) -> None:
    text = numbered(120_000)
    path = folder / "a.log"
    path.write_bytes(text)
    bound(path, 4 * MIB, NEVER)
    assert 4 * MIB <= taken_bytes(path) < 4 * MIB + 2 * GRAIN_BYTES
    assert path.stat().st_size == len(text), "what is kept stays at its place"
    with path.open("rb") as file:
        begin = data_begin(file.fileno(), 0)
        file.seek(begin)
        rest = file.read()
    assert rest == text[begin:]
    whole = rest.partition(b"\n")[2]  # readers pass over the line in which the hole ends
    assert len(whole) >= 4 * MIB


def test_a_log_that_is_within_the_bound_is_left_as_it_is(folder: Path) -> None:
    path = folder / "a.log"
    path.write_bytes(numbered(10_000))
    before = path.stat()
    bound(path, MIB, NEVER)
    assert path.read_bytes() == numbered(10_000)
    assert path.stat().st_ctime_ns == before.st_ctime_ns


def test_bounding_again_and_again_as_the_log_grows_never_goes_beyond_the_bound(folder: Path) -> None:
    path = folder / "a.log"
    for _ in range(12):
        with path.open("ab") as file:
            file.write(numbered(10_000))
        bound(path, 2 * MIB, NEVER)
        assert taken_bytes(path) < 2 * MIB + 2 * GRAIN_BYTES


def test_a_log_without_any_line_end_is_bounded_all_the_same(folder: Path) -> None:
    path = folder / "a.log"
    path.write_bytes(b"z" * 9 * MIB)
    bound(path, 2 * MIB, NEVER)
    assert taken_bytes(path) == 2 * MIB
    tail = LogTail(path)
    assert tail.read() == b"", "of a line whose beginning is gone, nothing is shown"
    with path.open("ab") as file:
        file.write(b"z\nnext\n")
    assert tail.read() == GONE + b"next\n"
    tail.close()


def test_a_line_at_the_edge_is_kept_whole_if_it_is_not_enormous(folder: Path) -> None:
    long_line = b"(" + b"w" * (LINE_BYTES - 100) + b")\n"
    path = folder / "a.log"
    path.write_bytes(numbered(30_000) + long_line + b"v\n" * (MIB // 2 - 10))
    bound(path, MIB, NEVER)
    assert taken_bytes(path) < path.stat().st_size
    tail, read = LogTail(path), b""
    while data := tail.read():
        read += data
    tail.close()
    assert long_line in read


async def test_a_fast_writer_loses_no_line_and_a_reader_beside_it_none_either(folder: Path) -> None:
    path = log(folder, 1, size=0)
    keeper, tail = LogBound(folder, 2, (0, 0)), LogTail(path)
    read = bytearray()
    most = 0
    with writing(path) as writer:
        while writer.poll() is None:
            await keeper.keep(frozenset({"0123abcd-1"}))
            most = max(most, taken_bytes(path))
            read += tail.read()
    assert writer.returncode == 0
    while data := tail.read():
        read += data
    tail.close()
    await keeper.keep(frozenset({"0123abcd-1"}))
    assert taken_bytes(path) < 2 * MIB + 2 * GRAIN_BYTES
    assert most < path.stat().st_size, "it was bounded while it grew"
    kept = LogTail(path)
    within = b""
    while data := kept.read():
        within += data
    kept.close()
    assert within.startswith(GONE)
    assert len(within) >= 2 * MIB
    assert numbers(within.removeprefix(GONE))[-1] == LINES - 1
    for part in bytes(read).split(GONE):  # where the reader was too slow, it says so; elsewhere nothing is missing
        numbers(part.removesuffix(b"\n\n") + b"\n" if part.endswith(b"\n\n") else part)


def numbers(text: bytes) -> list[int]:
    """The numbers of whole, undamaged, successive lines; the last one may be cut off by a line end of the reader's."""
    lines = text.split(b"\n")
    assert lines.pop() == b""
    found = []
    for place, line in enumerate(lines):
        match = re.fullmatch(rb"(\d{9}) (x*)", line)
        if match is None or len(match[2]) != int(match[1]) % 90:
            assert place == len(lines) - 1, f"damaged: {line!r}"
            continue
        found.append(int(match[1]))
    assert found == list(range(found[0], found[0] + len(found))) if found else True
    return found


def test_a_reader_within_the_bound_notices_nothing(folder: Path) -> None:
    path = folder / "a.log"
    path.write_bytes(numbered(60_000))
    tail, read = LogTail(path), b""
    while data := tail.read():
        read += data
    bound(path, MIB, NEVER)
    with path.open("ab") as file:
        file.write(b"one more\n")
    assert tail.read() == b"one more\n"
    assert read == numbered(60_000)
    tail.close()


def test_a_reader_that_the_hole_overtakes_goes_on_behind_it_and_says_so(folder: Path) -> None:
    path = folder / "a.log"
    path.write_bytes(numbered(60_000))
    tail = LogTail(path)
    read = tail.read()
    assert not read.endswith(b"\n"), "it is within a line"
    bound(path, MIB, NEVER)
    after = tail.read()
    assert after.startswith(b"\n" + GONE)
    assert re.fullmatch(rb"(\d{9} y{89}\n)+(\d{9} y{0,89})?", after.removeprefix(b"\n" + GONE))
    assert b"\0" not in after
    tail.close()


def test_work_that_nobody_waits_for_any_more_has_no_effect(folder: Path) -> None:
    path = folder / "a.log"
    path.write_bytes(numbered(60_000))
    given_up = threading.Event()
    given_up.set()
    bound(path, MIB, given_up)
    assert path.read_bytes() == numbered(60_000)


# -- what cannot be bounded ------------------------------------------------------------------------


def test_a_file_system_without_holes_says_that_it_has_none(without_holes: int) -> None:
    with pytest.raises(OSError, match="not supported") as raised:
        punch(without_holes, 0, 4096)
    assert raised.value.errno == errno.EOPNOTSUPP


async def test_where_no_hole_can_be_punched_the_log_is_left_whole_and_old_ones_still_go(
    tmp_path: Path, without_holes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Kernel:
        @staticmethod
        def fallocate(_fd: int, mode: int, begin: int, length: int) -> int:
            return int(real.fallocate(without_holes, mode, begin, length))

    text = numbered(60_000)
    log(tmp_path, 1, age_s=10)
    present = log(tmp_path, 2)
    present.write_bytes(text)
    real = log_bound._libc()
    monkeypatch.setattr(log_bound, "_libc", Kernel)
    with pytest.raises(EdgeError, match=r"0123abcd-2\.log: its file system knows no holes, so it grows without"):
        await LogBound(tmp_path, 1, (0, 0)).keep(frozenset({"0123abcd-2"}))
    assert present.read_bytes() == text
    assert names(tmp_path) == {present.name}


async def test_a_folder_that_is_not_there_yet_is_no_fault(tmp_path: Path) -> None:
    await LogBound(tmp_path / "absent", 1, (1, 1)).keep(frozenset())


async def test_a_folder_that_cannot_be_read_is_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EdgeError, match="Not a directory"):
        await LogBound(tmp_path / "file", 1, (1, 1)).keep(frozenset())


# -- earlier attempts ------------------------------------------------------------------------------


async def test_earlier_attempts_are_kept_by_number_the_oldest_go_first(tmp_path: Path) -> None:
    for number in range(1, 7):
        log(tmp_path, number, age_s=100 - number)
    await LogBound(tmp_path, 1, (2, 10)).keep(frozenset({"0123abcd-6"}))
    assert names(tmp_path) == {f"0123abcd-{number}.log" for number in (4, 5, 6)}


async def test_earlier_attempts_are_kept_by_the_room_that_they_take(tmp_path: Path) -> None:
    for number in range(1, 6):
        log(tmp_path, number, size=600 * 1024, age_s=100 - number)
    await LogBound(tmp_path, 1, (100, 2)).keep(frozenset({"0123abcd-5"}))
    assert names(tmp_path) == {f"0123abcd-{number}.log" for number in (2, 3, 4, 5)}


async def test_the_present_attempt_stays_however_old_its_last_line_is_and_so_does_the_latest(tmp_path: Path) -> None:
    log(tmp_path, 1, age_s=10_000)
    log(tmp_path, 2, age_s=50)
    log(tmp_path, 3)
    await LogBound(tmp_path, 1, (0, 0)).keep(frozenset({"0123abcd-1"}))
    assert names(tmp_path) == {"0123abcd-1.log", "0123abcd-3.log"}


async def test_nothing_is_touched_but_regular_files_named_like_an_attempt(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(numbered(60_000))
    folder = tmp_path / "demo"
    folder.mkdir()
    for name in ("notes.log", "0123abcd-1.log.gz", "0123ABCD-1.log", "0123abcd-1", "x0123abcd-1.log"):
        (folder / name).write_bytes(numbered(60_000))
    (folder / "0123abcd-7.log").symlink_to(outside)
    (folder / "0123abcd-8.log").mkdir()
    os.mkfifo(folder / "0123abcd-9.log")
    log(folder, 2, age_s=9)
    before = {path.name for path in folder.iterdir()}
    await LogBound(folder, 1, (0, 0)).keep(frozenset())
    assert {path.name for path in folder.iterdir()} == before
    assert outside.read_bytes() == (folder / "notes.log").read_bytes() == numbered(60_000)
    assert [each.invocation for each in attempts(folder)] == ["0123abcd-2"]


async def test_a_symlink_put_in_the_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(numbered(60_000))
    link = tmp_path / "0123abcd-1.log"
    link.symlink_to(outside)
    with pytest.raises(OSError, match="symbolic links"):
        bound(link, MIB, NEVER)
    assert outside.read_bytes() == numbered(60_000)


async def test_earlier_attempts_are_bounded_too(folder: Path) -> None:
    path = log(folder, 1, age_s=50)
    path.write_bytes(numbered(60_000))
    log(folder, 2)
    await LogBound(folder, 1, (5, 100)).keep(frozenset({"0123abcd-2"}))
    assert taken_bytes(path) < MIB + 2 * GRAIN_BYTES


async def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    log(tmp_path, 1).write_bytes(numbered(60_000))
    keeper = LogBound(tmp_path, 1, (5, 100))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        await keeper.keep(frozenset())
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_writer_is_never_kept_waiting_for_one_large_hole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "a.log"
    with path.open("wb") as file:
        file.truncate(0)
        for _ in range(40):
            file.write(numbered(10_486))
    punched: list[int] = []
    monkeypatch.setattr(
        log_bound, "punch", lambda fd, begin, length: (punched.append(length), punch(fd, begin, length))
    )
    bound(path, MIB, NEVER)
    assert len(punched) > 1
    assert max(punched) == log_bound.PUNCH_BYTES
    assert taken_bytes(path) < MIB + 2 * GRAIN_BYTES


async def test_earlier_attempts_are_left_to_whoever_sees_to_them(tmp_path: Path) -> None:
    for number in range(1, 5):
        (tmp_path / f"0123abcd-{number}.log").write_text("x\n")
    await LogBound(tmp_path, 1, None).keep(frozenset())
    assert len(os.listdir(tmp_path)) == 4
