"""/events: what is told, to whom, what is made up for, and what a reader can cost."""

from __future__ import annotations

import itertools
import json
import resource
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, cast

import httpx2
import pytest

from agent import board
from agent.api import events, serve
from tests.api.api_house import CANARY, House, busy, eventually, page
from tests.api.event_reader import Reader

Read = Callable[..., Reader]

STAGES = ["waiting", "clearing", "starting", "ready", "unhealthy", "stopping", "backing-off"]


@pytest.fixture
def read(house: House) -> Iterator[Read]:
    """`read("Header: value", query="?...", tcp=True)`: a reader, which leaves at the end of the test."""
    readers: list[Reader] = []

    def begin(*headers: str, **more: Any) -> Reader:
        readers.append(Reader(house, *headers, **more))
        return readers[-1]

    yield begin
    for reader in readers:
        reader.close()


def told(reader: Reader, number: int) -> list[str]:
    """The stages that the next `number` events tell."""
    return [event.stage for event in reader.take(number)]


# -- what is told ----------------------------------------------------------------------------------


def test_first_the_present_state_then_each_change(house: House, read: Read) -> None:
    house.publish(page("a", "ready"), page("b", "starting"))
    reader = read()
    assert (reader.status, reader.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert reader.headers["cache-control"] == "no-store"
    status, a, b = reader.take(3)
    assert (status.kind, status.document["servers"]) == ("status", ["a", "b"])
    assert [(each.kind, each.document["name"], each.stage) for each in (a, b)] == [
        ("server", "a", "ready"),
        ("server", "b", "starting"),
    ]
    house.publish(page("a", "ready"), page("b", "ready"))
    (change,) = reader.take(1)
    assert (change.document["name"], change.stage) == ("b", "ready")


def test_the_data_are_the_very_bytes_of_the_page(house: House, read: Read) -> None:
    snapshot = house.publish(page("demo", "ready"))
    assert read().take(2)[1].data == snapshot.servers["demo"].full
    assert read(tcp=True).take(2)[1].data == snapshot.servers["demo"].public


def test_over_tcp_nothing_is_told_that_may_not_be_public(house: House, read: Read) -> None:
    house.publish(page("demo", "starting"))
    near, far = read(), read(tcp=True)
    house.publish(page("demo", "ready", why="the end"))
    assert CANARY in str(near.until("the end"))
    assert CANARY not in str(far.until("the end"))
    assert CANARY not in str(read(f"Last-Event-ID: {house.board.journal.run}-1", tcp=True).take(2))


def test_a_page_that_shows_nothing_new_is_no_event(house: House, read: Read) -> None:
    house.publish(page("demo", "starting"))
    reader = read()
    reader.take(2)
    house.publish(page("demo", "starting"))
    house.publish(page("demo", "ready"))
    assert told(reader, 1) == ["ready"]
    assert reader.id == f"{house.board.journal.run}-3"


def test_what_is_wrong_with_the_agent_is_an_event_too(house: House, read: Read) -> None:
    house.publish(page("demo", "ready"))
    reader = read()
    reader.take(2)
    house.degraded = ["state-not-saved: no space"]
    house.publish(page("demo", "ready"))
    (event,) = reader.take(1)
    assert (event.kind, event.document["degraded"]) == ("status", ["state-not-saved: no space"])


def test_a_server_that_is_no_longer_defined_is_told_by_the_list_of_names(house: House, read: Read) -> None:
    house.publish(page("a", "ready"), page("b", "ready"))
    house.publish(page("a", "ready"))
    first, second = read().take(2)
    assert {first.kind, second.kind} == {"server", "status"}
    assert second.document["servers"] == ["a"]


def test_who_comes_before_the_agent_has_looked_around_waits_for_it(house: House, read: Read) -> None:
    reader = read()
    house.publish(page("demo", "ready"))
    assert [event.kind for event in reader.take(2)] == ["status", "server"]


def test_it_beats_while_there_is_nothing_to_tell(house: House, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.02)
    house.publish(page("demo", "starting"))
    reader = read()
    reader.take(2)
    comments = [reader.file.readline(), reader.file.readline()] * 3
    assert set(comments) == {b": alive\n", b"\n"}
    house.publish(page("demo", "ready"))
    assert told(reader, 1) == ["ready"]


def test_it_says_in_openapi_what_it_is(tcp: httpx2.Client) -> None:
    operation = tcp.get("/openapi.json").json()["paths"]["/events"]["get"]
    assert set(operation["responses"]["200"]["content"]) == {"text/event-stream"}
    assert {each["name"].lower() for each in operation["parameters"]} == {"last-event-id", "last_event_id"}


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
def test_no_other_method_begins_a_stream(house: House, tcp: httpx2.Client, method: str) -> None:
    house.publish(page("demo", "ready"))
    assert tcp.request(method, "/events").status_code in (403, 405)
    eventually(lambda: busy(house) == 0, "none is open")


# -- what is made up for ---------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["header", "query", "both"])
def test_a_reader_that_comes_back_gets_what_it_missed(house: House, read: Read, by: str) -> None:
    house.publish(page("demo", "starting"))
    reader = read()
    reader.take(2)
    reader.close()
    for stage in ("ready", "unhealthy", "ready", "stopping"):
        house.publish(page("demo", stage))
    headers = () if by == "query" else (f"Last-Event-ID: {reader.id}",)
    query = {"query": f"?last_event_id={reader.id}", "both": "?last_event_id=0a-1"}.get(by, "")
    back = read(*headers, query=query)
    assert told(back, 4) == ["ready", "unhealthy", "ready", "stopping"]
    house.publish(page("demo", "down"))
    assert told(back, 1) == ["down"]


def test_who_has_missed_nothing_gets_nothing_twice(house: House, read: Read) -> None:
    house.publish(page("demo", "starting"))
    house.publish(page("demo", "ready"))
    back = read(f"Last-Event-ID: {house.board.journal.run}-{house.board.journal.number}")
    house.publish(page("demo", "stopping"))
    assert told(back, 1) == ["stopping"]


def test_of_progress_only_the_latest_is_made_up_for(house: House, read: Read) -> None:
    house.publish(page("a", "starting"), page("b", "starting"))
    reader = read()
    reader.take(3)
    for number in range(100):
        house.publish(page("a", "starting", progress=number / 100), page("b", "starting", progress=number / 200))
    house.publish(page("a", "ready"), page("b", "starting", progress=0.5))
    got = read(f"Last-Event-ID: {reader.id}").take(2)
    assert [(each.document["name"], each.document["progress"]) for each in got] == [("a", None), ("b", 0.5)]


@pytest.mark.parametrize(
    ("last_id", "reason"),
    [
        ("{run}-99", "unknown-id"),
        ("{run}", "unknown-id"),
        ("{run}--1", "unknown-id"),
        ("-1", "unknown-id"),
        ("nonsense", "unknown-id"),
        ("x" * 8000, "unknown-id"),
        ("{run}-" + "9" * 5000, "unknown-id"),
        ("%0a%0adata: x", "unknown-id"),
        ("\N{ARABIC-INDIC DIGIT ONE}-\N{ARABIC-INDIC DIGIT ONE}", "unknown-id"),
        ("0a-1", "other-run"),
    ],
)
def test_an_id_that_leads_nowhere_is_said_and_all_is_told_anew(
    house: House, read: Read, last_id: str, reason: str
) -> None:
    house.publish(page("demo", "starting"))
    house.publish(page("demo", "ready"))
    reader = read(f"Last-Event-ID: {last_id.format(run=house.board.journal.run)}")
    missed, status, server = reader.take(3)
    assert (missed.kind, missed.id, missed.document["reason"]) == ("missed", None, reason)
    assert missed.document["why"]
    assert (status.kind, server.stage) == ("status", "ready")


def test_what_is_not_kept_any_more_is_said_and_all_is_told_anew(house: House, read: Read) -> None:
    house.publish(page("demo", "starting"))
    reader = read()
    reader.take(2)
    reader.close()
    for number in range(board.TURNS + 5):
        house.publish(page("demo", STAGES[number % 7]))
    missed, status, server = read(f"Last-Event-ID: {reader.id}").take(3)
    assert (missed.kind, missed.document["reason"]) == ("missed", "too-old")
    assert (status.kind, server.data) == ("status", house.board.read().servers["demo"].full)


def test_what_is_kept_is_bounded_in_bytes(house: House, read: Read) -> None:
    for number in range(60):
        house.publish(page("demo", STAGES[number % 7], why="x" * 50_000))
    journal = house.board.journal
    kept = sum(len(change.full) + len(change.public) for change in journal.turns)
    assert kept == journal.turn_bytes <= board.TURN_BYTES
    assert 10 < len(journal.turns) < 60
    house.publish(page("demo", "down", why="x" * board.TURN_BYTES))  # on its own too much
    assert house.board.journal.turns == ()
    assert read(f"Last-Event-ID: {journal.run}-{journal.number}").take(1)[0].kind == "missed"


# -- under load ------------------------------------------------------------------------------------


def test_no_change_of_stage_is_lost_in_10000_fast_pages(house: House, read: Read) -> None:
    house.publish(page("demo", "down"))
    readers = [read() for _ in range(3)]
    assert [reader.take(2)[1].stage for reader in readers] == ["down"] * 3
    expected = ["down"]
    for number in range(10_000):
        stage = STAGES[number // 25 % 7]
        expected += [stage] * (stage != expected[-1])
        house.publish(page("demo", stage, progress=number / 10_000))
    house.publish(page("demo", "down", why="the end"))
    expected.append("down")
    for reader in readers:
        got = [event for event in reader.until("the end") if event.kind == "server"]
        assert [stage for stage, _ in itertools.groupby(event.stage for event in got)] == expected[1:]
        numbers = [int((event.id or "").partition("-")[2]) for event in got]
        assert numbers == sorted(set(numbers))


def test_who_cannot_keep_up_with_the_stages_is_told_so_and_never_gets_an_older_page(house: House, read: Read) -> None:
    house.publish(page("demo", "down", progress=0.0))
    reader = read()
    for number in range(10_000):
        house.publish(page("demo", STAGES[number % 7], progress=(number + 1) / 20_000, tail=["x" * 500]))
    house.publish(page("demo", "down", progress=1.0, why="the end"))
    got = reader.until("the end")
    last, missed = 0.0, 0
    for before, event in itertools.pairwise(got):
        if event.kind != "server":
            missed += event.kind == "missed"
            continue
        at = event.document["progress"]
        assert at >= last
        if before.kind == "server" and at != 1.0:
            assert round(at * 20_000) <= round(last * 20_000) + 1, "a change of stage is missing, and nobody says so"
        last = at
    assert missed > 0


def test_a_slow_reader_costs_a_bounded_buffer_and_keeps_nobody_waiting(house: House, read: Read) -> None:
    house.publish(page("demo", "down"))
    slow, fast = read(), read()
    fast.take(2)
    for number in range(400):
        house.publish(page("demo", STAGES[number % 7], why="x" * 2000))
        assert told(fast, 1) == [STAGES[number % 7]]
    buffered = [
        cast(serve.Connection, each).transport.get_write_buffer_size()
        for each in house.thread._server.server_state.connections
    ]
    assert 0 < max(buffered) < 80_000  # asyncio's high water of 64 KiB, and one event
    house.publish(page("demo", "ready", why="the end"))
    assert len(slow.until("the end")) > 400  # it was not lost on it, either


def test_a_reader_that_takes_nothing_is_cut_off_and_the_others_get_everything(
    house: House, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "SLOW_S", 0.2)
    house.publish(page("demo", "down"))
    slow, fast = [read(), read(tcp=True)], read()
    fast.take(2)
    eventually(lambda: busy(house) == 3, "three are served")
    number = 0
    while busy(house) > 1 and number < 20_000:
        house.publish(page("demo", STAGES[number % 7], why="x" * 20_000))
        assert told(fast, 1) == [STAGES[number % 7]]
        number += 1
    assert busy(house) == 1
    assert len(house.thread._server.server_state.connections) == 1
    for reader in slow:
        with suppress(ConnectionResetError):  # over TCP an end with data left is a reset
            while reader.socket.recv(1 << 20):
                continue


def test_five_hundred_readers_get_the_same(house: House, read: Read) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2500:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(2500, hard), hard))
    house.publish(page("demo", "starting"))
    readers = [read() for _ in range(500)]
    assert [reader.take(2)[1].stage for reader in readers] == ["starting"] * 500
    for stage in ("ready", "unhealthy", "ready", "stopping"):
        house.publish(page("demo", stage))
    house.publish(page("demo", "down", why="the end"))
    stages = {tuple(event.stage for event in reader.until("the end") if event.kind == "server") for reader in readers}
    assert {each[-5:] for each in stages} == {("ready", "unhealthy", "ready", "stopping", "down")}
    house.board.close()
    assert [reader.rest() for reader in readers] == [[]] * 500
    eventually(lambda: busy(house) == 0, "all are gone")


def test_there_is_room_for_so_many_and_each_door_has_its_own(
    house: House, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "STREAMS", 2)
    house.publish(page("demo", "ready"))
    inside = [read(tcp=True) for _ in range(2)]
    refused = read(tcp=True)
    assert (refused.status, refused.headers["content-type"]) == (503, "application/problem+json")
    assert "2 clients" in json.loads(refused.file.read())["detail"]
    assert read().status == 200
    inside[0].close()
    eventually(lambda: busy(house) == 2, "one has left")
    assert read(tcp=True).status == 200


# -- the end ---------------------------------------------------------------------------------------


def test_the_end_of_the_agent_ends_every_stream_after_the_last_change(house: House, read: Read) -> None:
    house.publish(page("demo", "stopping"))
    readers = [read(), read(tcp=True)]
    house.publish(page("demo", "down"))
    house.board.close()
    for reader in readers:
        assert reader.rest()[-1].stage == "down"


def test_while_the_agent_ends_no_stream_begins(house: House, read: Read) -> None:
    house.publish(page("demo", "down"))
    house.board.close()
    assert read().status == 503


def test_a_reader_that_leaves_costs_nothing_more(house: House, read: Read) -> None:
    house.publish(page("demo", "ready"))
    reader = read()
    reader.take(2)
    assert busy(house) == 1
    reader.close()
    eventually(lambda: busy(house) == 0, "the API has noticed")
