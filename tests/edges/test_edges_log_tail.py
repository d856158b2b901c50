"""The log file, as it grows, is truncated, replaced and frozen."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from agent.edges import log_tail
from agent.edges.log_tail import READ_BYTES, LogTail
from agent.errors import EdgeError
from agent.holed import GONE

PATIENCE_S = 30.0


def everything(tail: LogTail, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += tail.read()
    return data


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "i1.log"


@pytest.fixture
def thaw(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Until it is set, the disk hangs."""
    thawed, read = threading.Event(), os.pread

    def frozen(fd: int, count: int, offset: int) -> bytes:
        thawed.wait()
        return read(fd, count, offset)

    monkeypatch.setattr(os, "pread", frozen)
    return thawed


def write(path: Path, data: bytes, mode: str = "ab") -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open(mode) as file:
        file.write(data)


def test_a_file_that_comes_later_is_read_from_its_start(path: Path) -> None:
    tail = LogTail(path)
    assert tail.read() == b""
    write(path, b"one\n")
    assert tail.read() == b"one\n"
    assert tail.read() == b""
    write(path, b"tw")
    assert tail.read() == b"tw"
    tail.close()


def test_a_large_file_comes_in_pieces_of_a_mebibyte(path: Path) -> None:
    data = os.urandom(2 * READ_BYTES + 7)
    write(path, data)
    tail = LogTail(path)
    assert len(tail.read()) == READ_BYTES
    assert len(everything(tail, READ_BYTES + 7)) == READ_BYTES + 7
    tail.close()


def test_a_truncated_file_is_read_from_its_start(path: Path) -> None:
    write(path, b"a long first line\n")
    tail = LogTail(path)
    tail.read()
    write(path, b"new\n", "wb")
    assert tail.read() == b"new\n"
    tail.close()


def test_a_replaced_file_is_read_to_its_end_and_then_the_new_one(path: Path) -> None:
    write(path, b"old\n")
    tail = LogTail(path)
    assert tail.read() == b"old\n"
    write(path, b"last\n")
    path.rename(path.with_suffix(".1"))
    assert tail.read() == b"last\n"
    assert tail.read() == b""
    write(path, b"new\n")
    assert tail.read() == b"new\n"
    tail.close()


def test_a_folder_in_its_place_is_an_error_with_its_reason(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(EdgeError, match="Is a directory"):
        LogTail(path).read()


def test_a_read_that_hangs_delays_nobody_and_is_handed_over_later(path: Path, thaw: threading.Event) -> None:
    write(path, b"late\n")
    tail = LogTail(path)
    others = [one.name for one in threading.enumerate()].count("gpuagent-log")  # of tails that were never closed
    assert tail.read() == tail.read() == b""
    assert [one.name for one in threading.enumerate()].count("gpuagent-log") == others + 1
    thaw.set()
    assert everything(tail, 5) == b"late\n"
    tail.close()


def test_at_a_death_a_read_that_is_under_way_is_waited_for(path: Path, thaw: threading.Event) -> None:
    write(path, b"last words\n")
    tail = LogTail(path)
    assert tail.read() == b""
    assert tail.read(0.01) == b"", "it still hangs"
    threading.Timer(0.2, thaw.set).start()
    assert tail.read(PATIENCE_S) == b"last words\n"
    tail.close()


# -- the jump to the last words -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "left", "newlines"),
    [
        (100, b"one\ntwo\nthree\nit", 0),  # nothing to jump over
        (16, b"one\ntwo\nthree\nit", 0),
        (15, b"two\nthree\nit", 1),
        (12, b"two\nthree\nit", 1),  # exactly a line's begin
        (11, b"three\nit", 2),
        (2, b"it", 3),
        (1, b"", 3),
        (0, b"", 3),
    ],
)
def test_after_a_jump_at_most_so_much_is_left_and_it_begins_a_line(
    path: Path, count: int, left: bytes, newlines: int
) -> None:
    write(path, b"one\ntwo\nthree\nit")
    tail = LogTail(path)
    assert tail.seek_last(count) == newlines
    assert tail.read(PATIENCE_S) == left
    assert tail.behind == 0
    tail.close()


def test_a_carriage_return_ends_a_line_and_is_no_newline(path: Path) -> None:
    write(path, b"one\n10%\r20%\r30%")
    tail = LogTail(path)
    assert tail.seek_last(9) == 1
    assert tail.read(PATIENCE_S) == b"20%\r30%"
    tail.close()


def test_a_jump_begins_where_the_reading_stands(path: Path) -> None:
    write(path, b"one\ntwo\n")
    tail = LogTail(path)
    assert tail.read(PATIENCE_S) == b"one\ntwo\n"
    assert tail.seek_last(4) == 0
    write(path, b"three\nfour\nfive\n")
    assert tail.seek_last(5) == 2
    write(path, b"six\n")
    assert tail.read(PATIENCE_S) == b"five\nsix\n"
    tail.close()


@pytest.mark.parametrize(("count", "left", "newlines"), [(4, b"end\n", 3), (100, b"one\ntwo\n", 0)])
def test_what_a_slow_read_brought_is_jumped_over_too_or_not_lost(
    path: Path, thaw: threading.Event, count: int, left: bytes, newlines: int
) -> None:
    write(path, b"one\ntwo\n")
    tail = LogTail(path)
    assert tail.read() == b""
    assert tail.seek_last(count) is None, "nobody can tell while the disk hangs"
    thaw.set()
    assert tail._asked is not None
    assert tail._asked.done.wait(PATIENCE_S)
    write(path, b"three\nend\n")
    assert tail.seek_last(count) == newlines
    assert tail.read(PATIENCE_S) == left
    tail.close()


def test_lines_that_are_too_many_to_count_are_jumped_over_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, b"x\n" * READ_BYTES + b"last\n")
    monkeypatch.setattr(log_tail, "COUNT_S", -1.0)
    tail = LogTail(path)
    counted = tail.seek_last(6)
    assert counted is None
    assert everything(tail, 5) == b"last\n"
    tail.close()


def test_many_lines_are_counted_in_pieces(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, b"x\n" * READ_BYTES + b"last\n")  # two pieces
    monkeypatch.setattr(log_tail, "COUNT_S", PATIENCE_S)
    tail = LogTail(path)
    assert tail.seek_last(6) == READ_BYTES
    tail.close()


def test_a_jump_into_what_was_given_up_says_that_it_is_gone(path: Path) -> None:
    hole = 1 << 20
    path.parent.mkdir()
    with path.open("wb") as file:
        file.truncate(hole)
        file.seek(hole)
        file.write(b"rest of a cut line\nlast\n")
    tail = LogTail(path)
    tail.seek_last(hole // 2)
    if (data := tail.read(PATIENCE_S)).startswith(b"\0"):
        pytest.skip("this file system has no holes")
    assert data == GONE + b"last\n"
    tail.close()


def test_a_log_that_is_not_there_or_was_truncated_has_nothing_to_jump_over(path: Path) -> None:
    tail = LogTail(path)
    assert tail.seek_last(1) == 0
    assert not tail.found
    write(path, b"a long first line\n")
    tail.read(PATIENCE_S)
    write(path, b"new\n", "wb")
    assert tail.seek_last(0) == 0
    assert tail.read(PATIENCE_S) == b"new\n"
    tail.close()


def test_a_jump_in_what_cannot_be_read_is_an_error_with_its_reason(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, b"one\ntwo\n")
    tail = LogTail(path)

    def broken(fd: int, count: int, offset: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", broken)
    with pytest.raises(EdgeError, match="Input/output error"):
        tail.seek_last(4)
    tail.close()


def test_neither_descriptor_nor_thread_is_left(path: Path) -> None:
    write(path, b"x\ny\n")

    descriptors, threads = len(os.listdir("/proc/self/fd")), set(threading.enumerate())
    for _ in range(5):
        tail = LogTail(path)
        tail.close()
        tail.read(PATIENCE_S)
        tail.seek_last(1)
        tail.close()
        tail.close()
    end = time.monotonic() + PATIENCE_S
    while left := set(threading.enumerate()) - threads:
        assert time.monotonic() < end, left
        time.sleep(0.01)
    assert len(os.listdir("/proc/self/fd")) == descriptors
