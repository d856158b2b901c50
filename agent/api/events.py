"""GET /events: the present state, then each change, as Server-Sent Events.

A reader is a number in the journal, and nothing else: it has no queue, so a slow one costs no more than a fast one.
It takes one change at a time. What it was too slow for is coalesced by the journal, which keeps the latest document of
each server and every change of stage. So a reader never gets an older document after a newer one, and gets every
change of stage, or an event `missed` and the present state. One that takes nothing at all is cut off by serve.py.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

from fastapi import FastAPI, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from agent.api.answers import refuse_when_closed
from agent.api.guard import peer_of
from agent.api.problem import Problem, problems
from agent.api.stream import Changes
from agent.board import Board, Journal

EVENTS = "/events"
STREAMS = 1000  # over the socket and over TCP each, so that nobody who reaches the port keeps the operator out
HEARTBEAT_S = 12.0  # proxies cut what is silent for 30 to 60 s
RETRY = b"retry: 1000\n\n"  # milliseconds: how soon a browser connects again
HEARTBEAT = b": alive\n\n"
ID = re.compile(r"([0-9a-f]{1,32})-([0-9]{1,15})")

MISSED = {
    "unknown-id": "that is no id of an event of this agent",
    "other-run": "the agent has started again since",
    "too-old": "too much has changed since",
}
"""Reason of an event `missed` -> what it means, for a person."""


class EventStream(StreamingResponse):
    """For OpenAPI. Not FastAPI's EventSourceResponse: that one makes each reader's events for it alone."""

    media_type = "text/event-stream"


class CountedStream(EventStream):
    """Counted for as long as it lasts."""

    def __init__(self, events: AsyncIterator[bytes], open_streams: Counter[bool], door: bool) -> None:
        super().__init__(events, headers={"X-Accel-Buffering": "no"})  # nginx would hold events back
        self._open_streams = open_streams
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        self._open_streams[self._door] += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._open_streams[self._door] -= 1


def resumed(journal: Journal, last_id: str) -> tuple[int | None, str | None]:
    """Where to go on after the event `last_id`: a number, or None (with the present state) and what is missed."""
    if not last_id:
        return None, None
    match = ID.fullmatch(last_id)
    if match is None:
        return None, "unknown-id"
    number = int(match[2])
    if match[1] != journal.run:
        return None, "other-run"
    return (number, None) if number <= journal.number else (None, "unknown-id")


def missed_event(reason: str) -> bytes:
    """Says that changes were missed, before the present state. Without an id: it takes a reader nowhere."""
    return b"event: missed\ndata: %b\n\n" % json.dumps({"reason": reason, "why": MISSED[reason]}).encode()


async def events(board: Board, changes: Changes, last_id: str, full: bool) -> AsyncIterator[bytes]:
    """What a reader is sent, until the board is closed. `full`: over the socket."""
    at, missed = resumed(board.journal, last_id)
    yield RETRY
    while True:
        change = changes.next()
        closed = board.closed  # before the journal: whatever was published until the end is still sent
        journal = board.journal
        if at is not None and at < journal.floor:
            at, missed = None, "too-old"
        if missed:
            yield missed_event(missed)
            missed = None
        if at is None:
            for each in journal.present():
                yield each.full if full else each.public
            at = journal.number
        elif news := journal.after(at):
            yield news.full if full else news.public
            at = news.number
        elif closed:
            return
        else:
            beat = HEARTBEAT
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    await change.wait()
                    beat = b""
            if beat:
                yield beat


def add_events(app: FastAPI, board: Board, changes: Changes) -> None:
    """/events."""
    open_streams: Counter[bool] = Counter()

    @app.get(
        EVENTS,
        response_class=EventStream,
        operation_id="events",
        responses=problems({503: "the agent is ending, or too many follow the events"}),
    )
    async def followed(
        request: Request,
        last_event_id: Annotated[str, Header(description="go on after this event")] = "",
        last_id: Annotated[str, Query(alias="last_event_id", description="the same, where no header can be set")] = "",
    ) -> Response:
        """First the present state, then each change, for as long as the client wants.

        `server`: data is the document of /servers/NAME. `status`: that of /status, with the names of the servers
        instead of their documents. `missed` (data: `reason`, `why`): some changes cannot be told any more, and the
        present state follows. Every change of a server's stage is told; of others, only the latest may be.
        """
        refuse_when_closed(board)
        door = peer_of(request.scope) is not None
        if open_streams[door] >= STREAMS:
            raise Problem(503, f"{STREAMS} clients follow the events already", headers={"Retry-After": "5"})
        # The header first: a browser that connects again repeats the query that it began with.
        return CountedStream(events(board, changes, last_event_id or last_id, door), open_streams, door)
