"""The board: one writer, many readers."""

from __future__ import annotations

from agent.board import Board, Snapshot


def test_before_the_first_publish_the_version_is_0() -> None:
    assert Board().read().version == 0


def test_a_reader_gets_the_very_snapshot_that_was_published() -> None:
    board, snapshot = Board(), Snapshot(version=1)
    board.publish(snapshot)
    assert board.read() is snapshot


def test_publishing_and_closing_wake_each_subscriber_until_it_unsubscribes() -> None:
    board, woken = Board(), []

    def first() -> None:
        woken.append(("first", board.read().version, board.closed))

    def second() -> None:
        woken.append(("second", board.read().version, board.closed))

    board.subscribe(first)
    board.subscribe(second)
    board.publish(Snapshot(version=1))
    board.unsubscribe(first)
    board.close()
    assert woken == [("first", 1, False), ("second", 1, False), ("second", 1, True)]


def test_the_age_of_the_beat_is_unknown_until_the_loop_turns() -> None:
    board = Board()
    assert board.beat_age_s(100.0) is None
    board.beat(100.0)
    assert board.beat_age_s(101.5) == 1.5
