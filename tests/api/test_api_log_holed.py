"""A log of which the beginning was given up, over the API."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx2

from agent.api.stream import TAIL_BYTES, Tail, read_on, read_tail
from agent.edges.log_bound import MIB, bound
from agent.holed import GONE, Cursor
from tests.api.api_house import House, page

LINES = [b"line %07d %s" % (n, b"x" * 50) for n in range(60_000)]
TEXT = b"\n".join(LINES) + b"\n"


def bounded(log: Path) -> Path:
    """A log of 4 MB, of which the last one or two are left."""
    log.write_bytes(TEXT)
    bound(log, MIB, threading.Event())
    assert log.read_bytes()[0] == 0
    return log


def small(log: Path) -> Path:
    """One whose lines are so long that those behind the hole are few."""
    log.write_bytes(b"".join(b"%d %s\n" % (n, b"y" * 400_000) for n in range(9)) + b"open")
    bound(log, MIB, threading.Event())
    return log


def test_the_tail_of_a_bounded_log_is_as_ever(tmp_path: Path) -> None:
    log = bounded(tmp_path / "log")
    assert read_tail(log, 5000) == Tail(b"\n".join(LINES[-5000:]) + b"\n", b"", len(TEXT))


def test_a_tail_that_goes_back_to_the_hole_says_so(tmp_path: Path) -> None:
    log = small(tmp_path / "log")
    with log.open("rb+") as file:
        file.truncate(log.stat().st_size - 3 * 400_000)  # so that what is read goes back to the hole
    tail = read_tail(log, 100)
    assert tail.whole.startswith(GONE)
    assert b"\0" not in tail.whole + tail.open
    assert all(line.split(b" ")[1:] == [b"y" * 400_000] for line in tail.whole.removeprefix(GONE).splitlines())
    assert read_tail(log, 0).whole == b""
    assert log.stat().st_size - tail.end == len(tail.open)


def test_however_many_lines_are_asked_for_no_nul_is_shown(tmp_path: Path, house: House, local: httpx2.Client) -> None:
    log = bounded(tmp_path / "log")
    house.publish(page("demo", log=log))
    answer = local.get("/servers/demo/log?lines=10000")
    assert answer.content == b"\n".join(LINES[-10_000:]) + b"\n"
    assert len(answer.content) < TAIL_BYTES


def test_who_follows_and_is_overtaken_by_the_hole_goes_on_behind_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(TEXT)
    cursor = Cursor()
    shown = read_on(log, cursor)
    bound(log, MIB, threading.Event())
    while block := read_on(log, cursor):
        shown += block
    before, _, behind = shown.partition(GONE)
    assert TEXT.startswith(before.removesuffix(b"\n"))
    assert TEXT.endswith(b"\n" + behind)
    assert len(behind) >= MIB
