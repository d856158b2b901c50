"""A log of which the beginning was given up, read by everybody who reads logs."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.api.stream import BLOCK_BYTES, read_tail
from agent.edges.log_bound import MIB, punch
from agent.families import FAMILIES
from agent.families.reader import Reader
from agent.holed import GONE, Cursor, data_begin, pieces

HOLE = 64 * 1024
Pread = Callable[[int, int, int], bytes]


def holed(path: Path, text: bytes, hole: int = HOLE) -> Path:
    """A file of `text`, the first bytes of which were given up."""
    path.write_bytes(text)
    fd = os.open(path, os.O_RDWR)
    try:
        punch(fd, 0, hole)
        if data_begin(fd, 0) != hole:
            pytest.skip(f"the file system of {path} knows no holes")
    except OSError as error:
        pytest.skip(f"{path}: {error.strerror}")
    finally:
        os.close(fd)
    return path


def read(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        cursor, text = Cursor(), b""
        while data := cursor.read(file.fileno(), count):
            text += data
        return text


def while_punched(path: Path, pread: Pread, calls: int = 1) -> Pread:
    """`os.pread`, during the last of whose first `calls` the hole grows to HOLE: a read is no single moment."""
    left = [calls]

    def racing(fd: int, count: int, offset: int) -> bytes:
        left[0] -= 1
        if left[0]:
            return pread(fd, count, offset)
        begun = pread(fd, 100, offset)
        with path.open("rb+") as file:
            punch(file.fileno(), 0, HOLE)
        return begun + pread(fd, count - 100, offset + 100)

    return racing


TEXT = b"".join(b"line %d\n" % n for n in range(20_000))
WITHIN = TEXT[HOLE:].partition(b"\n")[2]
"""What is behind the line in which the hole ends."""


@pytest.mark.parametrize("count", [1, 4096, MIB])
def test_the_hole_and_the_line_in_which_it_ends_are_passed_over(tmp_path: Path, count: int) -> None:
    path = holed(tmp_path / "log", TEXT)
    with path.open("rb") as file:
        cursor, text = Cursor(HOLE - 3), b""
        while len(text) < 2000 and (data := cursor.read(file.fileno(), count)):
            text += data
    assert text[:2000] == (GONE + WITHIN)[:2000]
    assert read(path, max(count, 4096)) == GONE + WITHIN


def test_a_read_during_which_the_hole_grows_ends_where_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = holed(tmp_path / "log", TEXT, 4096)
    monkeypatch.setattr(os, "pread", while_punched(path, os.pread))
    begin = 4096
    with path.open("rb") as file:
        cursor = Cursor(begin)
        first = cursor.read(file.fileno(), MIB)
        monkeypatch.undo()
        assert first == TEXT[begin : begin + 100]
        assert cursor.read(file.fileno(), MIB) == b"\n" + GONE + WITHIN


def test_a_tail_during_which_the_hole_grows_has_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = holed(tmp_path / "log", TEXT[: BLOCK_BYTES + 40_960], 4096)
    monkeypatch.setattr(os, "pread", while_punched(path, os.pread, calls=2))
    tail = read_tail(path, 20_000)
    monkeypatch.undo()
    assert tail.whole + tail.open == GONE + TEXT[: BLOCK_BYTES + 40_960][HOLE:].partition(b"\n")[2]


def test_a_copy_in_which_the_hole_has_become_nuls_reads_the_same(tmp_path: Path) -> None:
    path = holed(tmp_path / "log", TEXT)
    (tmp_path / "copy").write_bytes(path.read_bytes())
    assert read(tmp_path / "copy", 4096) == GONE + WITHIN
    assert b"".join(pieces(io.BytesIO(path.read_bytes()))) == GONE + WITHIN


def test_nuls_that_a_server_wrote_are_its_own(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a\0b\n" + b"\0" * 10_000 + b"\nc\n")
    assert read(path, 4096) == path.read_bytes()


def test_a_hole_up_to_the_end_has_nothing_in_it_until_something_is_written(tmp_path: Path) -> None:
    path = holed(tmp_path / "log", b"x" * 2 * HOLE)
    with path.open("rb+") as file:
        cursor = Cursor(2 * HOLE)
        file.truncate(8 * HOLE)
        assert cursor.read(file.fileno(), MIB) == b""
        file.seek(0, os.SEEK_END)
        file.write(b"of a cut line\nnext\n")
        file.flush()
        assert cursor.read(file.fileno(), MIB) == GONE + b"next\n"


def test_a_progress_bar_without_a_newline_goes_on_at_its_next_frame(tmp_path: Path) -> None:
    path = holed(tmp_path / "log", b"\r10% 12345" * 20_000)
    assert read(path, MIB).startswith(GONE + b"10% 12345\r10% 12345")


@given(st.binary(max_size=200), st.lists(st.integers(1, 40), max_size=30))
def test_however_a_stream_is_cut_it_reads_the_same(rest: bytes, cuts: list[int]) -> None:
    text = b"\0" * 17 + rest
    cursor, shown, at = Cursor(), b"", 0
    for cut in (*cuts, len(text)):
        shown += cursor.shown(text[at : at + cut])
        at += cut
    assert shown == Cursor().shown(text)
    assert not shown or shown.startswith(GONE)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_no_family_takes_the_mark_for_news_of_the_server(family: object) -> None:
    reader = Reader(family)  # type: ignore[arg-type]  # FAMILIES holds nothing else
    news = reader.feed(GONE)
    assert (news.lines, news.step, news.progress, news.ready) == (1, None, None, False)
    assert (reader.facts, reader.outcome, reader.evidence.empty) == ({}, None, True)


@pytest.mark.parametrize("way", ["file", "copy", "redirected", "piped"])
def test_explain_finds_the_cause_behind_the_hole_and_counts_lines_as_an_editor_does(tmp_path: Path, way: str) -> None:
    death = b"Traceback (most recent call last):\n  somewhere\nValueError: no such model\n"
    path = holed(tmp_path / "log", TEXT + death)
    if way == "copy":
        (tmp_path / "copy").write_bytes(path.read_bytes())
        path = tmp_path / "copy"
    command = [sys.executable, "-m", "agent", "explain", "--json", "--family", "plain"]
    if way in ("file", "copy"):
        said = subprocess.run([*command, str(path)], capture_output=True, check=True).stdout
    elif way == "redirected":
        with path.open("rb") as file:
            said = subprocess.run([*command, "-"], stdin=file, capture_output=True, check=True).stdout
    else:
        said = subprocess.run([*command, "-"], input=path.read_bytes(), capture_output=True, check=True).stdout
    assert b"\\u0000" not in said
    assert f'"line": {path.read_bytes().count(10)}'.encode() in said
    assert b"no such model" in said
