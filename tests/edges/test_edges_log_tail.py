"""The log file, as it grows, is truncated, replaced and frozen."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from agent.edges.log_tail import READ_BYTES, LogTail
from agent.errors import EdgeError


def everything(tail: LogTail, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += tail.read()
    return data


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "i1.log"


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


def test_a_read_that_hangs_delays_nobody_and_is_handed_over_later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, b"late\n")
    thaw = threading.Event()
    read = os.pread

    def frozen(fd: int, count: int, offset: int) -> bytes:
        thaw.wait()
        return read(fd, count, offset)

    monkeypatch.setattr(os, "pread", frozen)
    tail = LogTail(path)
    others = [one.name for one in threading.enumerate()].count("gpuagent-log")  # of tails that were never closed
    assert tail.read() == tail.read() == b""
    assert [one.name for one in threading.enumerate()].count("gpuagent-log") == others + 1
    thaw.set()
    assert everything(tail, 5) == b"late\n"
    tail.close()


def test_no_descriptor_is_left_open(path: Path) -> None:
    write(path, b"x")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        tail = LogTail(path)
        tail.read()
        tail.close()
        tail.close()
    assert len(os.listdir("/proc/self/fd")) == before
