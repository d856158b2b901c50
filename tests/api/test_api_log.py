"""The log: its tail, and following it; over the socket only, whole lines only, without secrets."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from agent.api.stream import LINE_BYTES, TAIL_BYTES, Tail, WholeLines, read_on, read_tail
from agent.holed import Cursor
from tests.api.api_house import CANARY, House, busy, eventually, page


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "attempt-1.log"


# -- the tail --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "lines", "whole", "opened"),
    [
        (b"", 3, b"", b""),
        (b"a\nb\nc\n", 2, b"b\nc\n", b""),
        (b"a\nb\nc\n", 9, b"a\nb\nc\n", b""),
        (b"a\nb\nc\n", 0, b"", b""),
        (b"a\nb\nc", 2, b"b\n", b"c"),
        (b"a\n\n\n", 2, b"\n\n", b""),
        (b"10%\r20%\r30%\nb\n", 2, b"10%\r20%\r30%\nb\n", b""),
    ],
)
def test_the_tail_is_the_last_lines_an_open_one_included(
    log: Path, written: bytes, lines: int, whole: bytes, opened: bytes
) -> None:
    log.write_bytes(written)
    assert read_tail(log, lines) == Tail(whole, opened, len(written) - len(opened))


def test_the_tail_of_a_long_log_is_right_across_its_blocks(log: Path) -> None:
    lines = [b"line %d %s" % (i, b"x" * (i % 300)) for i in range(5000)]
    log.write_bytes(b"\n".join(lines) + b"\n")
    assert read_tail(log, 3000).whole.splitlines() == lines[-3000:]


def test_a_line_longer_than_what_is_read_is_not_shown_in_half(log: Path) -> None:
    log.write_bytes(b"secret " * (TAIL_BYTES // 4) + b"\nlast\n")
    assert read_tail(log, 10).whole == b"last\n"


def test_a_log_that_was_removed_has_nothing_more(log: Path) -> None:
    assert read_on(log, Cursor(10)) == b""


# -- whole lines -----------------------------------------------------------------------------------


def hide(text: str) -> str:
    """Takes the canary out."""
    return text.replace(CANARY, "***")


@pytest.mark.parametrize("size", [1, 2, 7, 64, 100_000])
def test_however_a_log_is_cut_into_blocks_the_secret_is_found(size: int) -> None:
    text = f"a\r\n10%\r20%\rtoken {CANARY} here\n\nnot \xfc ended {CANARY}".encode("latin-1")
    lines = WholeLines(hide)
    shown = b"".join(lines.feed(text[at : at + size]) for at in range(0, len(text), size)) + lines.rest()
    assert shown.decode() == "a\r\n10%\r20%\rtoken *** here\n\nnot \ufffd ended ***\n"


def test_a_line_that_does_not_end_is_cut_between_two_words_and_costs_no_more_memory() -> None:
    lines = WholeLines(hide)
    filler = b"x" * (LINE_BYTES - 20)
    assert lines.feed(filler + b" ") == b""
    assert lines.feed(CANARY.encode()) == filler + b" [line cut]\n"
    assert lines.feed(b"y" * 10 * LINE_BYTES) == b""
    assert lines.feed(b"rest\nnext\n") == b"next\n"


# -- the route -------------------------------------------------------------------------------------


def test_the_log_is_shown_over_the_socket_without_secrets(house: House, local: httpx2.Client, log: Path) -> None:
    log.write_text(f"one\ntwo {CANARY}\nthree")
    house.publish(page("demo", log=log))
    answer = local.get("/servers/demo/log?lines=2")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.text.startswith("two ")
    assert answer.text.endswith("\nthree")
    assert CANARY not in answer.text


def test_a_server_that_was_never_launched_has_an_empty_log(house: House, local: httpx2.Client) -> None:
    house.publish(page("demo", "down", log=None))
    answer = local.get("/servers/demo/log")
    assert (answer.status_code, answer.text) == (200, "")


def test_a_log_that_cannot_be_read_is_a_503_problem(house: House, local: httpx2.Client, log: Path) -> None:
    house.publish(page("demo", log=log))
    answer = local.get("/servers/demo/log")
    assert answer.status_code == 503
    assert "No such file" in answer.json()["detail"]


def test_over_tcp_the_log_is_refused(house: House, tcp: httpx2.Client, log: Path) -> None:
    log.write_text("one\n")
    house.publish(page("demo", log=log))
    for query in ("", "?follow=1"):
        answer = tcp.get(f"/servers/demo/log{query}")
        assert answer.status_code == 403
        assert "socket" in answer.json()["detail"]


# -- following -------------------------------------------------------------------------------------


class Follower:
    """Reads a followed log in another thread."""

    def __init__(self, house: House, query: str) -> None:
        self.text = ""
        self.ended = threading.Event()
        self._house = house
        self._query = query
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        with self._house.over_socket() as client, client.stream("GET", f"/servers/demo/log?{self._query}") as answer:
            for text in answer.iter_text():
                self.text += text
        self.ended.set()

    def shows(self, text: str) -> None:
        """Wait until exactly this was shown."""
        eventually(lambda: self.text == text, f"{text!r}, but {self.text!r}")


@pytest.fixture
def follow(house: House) -> Iterator[Callable[[str], Follower]]:
    begun: queue.SimpleQueue[Follower] = queue.SimpleQueue()

    def begin(query: str) -> Follower:
        follower = Follower(house, query)
        begun.put(follower)
        return follower

    yield begin
    house.board.close()
    while not begun.empty():
        begun.get().thread.join(60)


def test_what_is_written_is_shown_line_by_line(house: House, follow: Callable[[str], Follower], log: Path) -> None:
    log.write_text("old\nlast\nop")
    house.publish(page("demo", log=log))
    follower = follow("follow=1&lines=1")
    with log.open("a", buffering=1) as file:
        file.write("en\n")
        follower.shows("open\n")
        file.write(f"a {CANARY}\nb")
        eventually(lambda: follower.text.count("\n") == 2, "the next line")
        assert CANARY not in follower.text
        assert not follower.text.endswith("b")


def test_following_goes_on_with_the_next_attempts_log(
    house: House, follow: Callable[[str], Follower], log: Path, tmp_path: Path
) -> None:
    house.publish(page("demo", "waiting", log=None))
    follower = follow("follow=1")
    log.write_text("first\ndied here")
    house.publish(page("demo", "starting", log=log))
    follower.shows("first\n")
    second = tmp_path / "attempt-2.log"
    second.write_text("second\n")
    house.publish(page("demo", "starting", log=second))
    follower.shows("first\ndied here\nsecond\n")


def test_following_ends_with_the_agent(house: House, follow: Callable[[str], Follower], log: Path) -> None:
    log.write_text("one\n")
    house.publish(page("demo", log=log))
    follower = follow("follow=1")
    follower.shows("one\n")
    house.board.close()
    assert follower.ended.wait(60)


def test_following_ends_with_a_server_that_a_reload_removes(
    house: House, follow: Callable[[str], Follower], log: Path
) -> None:
    log.write_text("one\n")
    house.publish(page("demo", log=log), page("other", "down"))
    follower = follow("follow=1")
    follower.shows("one\n")
    with log.open("a") as file:
        file.write("two\nlast words")
    house.publish(page("other", "down"))
    assert follower.ended.wait(60)
    assert follower.text == "one\ntwo\nlast words\n"


def test_following_ends_with_a_removed_server_that_was_never_launched(
    house: House, follow: Callable[[str], Follower]
) -> None:
    house.publish(page("demo", "down", log=None))
    follower = follow("follow=1")
    eventually(lambda: busy(house) == 1, "it follows")
    house.publish()
    assert follower.ended.wait(60)
    assert follower.text == ""


def test_a_follower_that_leaves_costs_nothing_more(house: House, log: Path) -> None:
    log.write_text("one\n")
    house.publish(page("demo", log=log))
    with house.over_socket() as client, client.stream("GET", "/servers/demo/log?follow=1") as answer:
        assert answer.status_code == 200
        assert busy(house) == 1
    eventually(lambda: busy(house) == 0, "the API has noticed")
