"""Waiting for a server: answered as soon as the answer is known."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from functools import partial
from typing import Annotated, Literal

from fastapi import FastAPI, Query, Request, Response

from agent.api.answers import as_json, bytes_for, page_of
from agent.api.problem import UNKNOWN, Problem, problems
from agent.api.schema import ServerDocument
from agent.api.stream import Changes
from agent.board import Board, ServerPage

WAIT_S = 86_400.0  # the longest wait; a client that wants more asks again

Goal = Literal["ready", "down"]


def reached_or_hopeless(board: Board, name: str, goal: Goal) -> ServerPage | None:
    """The page, when there is nothing left to wait for."""
    page = page_of(board, name)
    hopeless = page.wanted if goal == "down" else page.dead or page.ending or not page.wanted
    return page if page.stage == goal or hopeless or board.closed else None


async def while_connected(request: Request, work: Awaitable[ServerPage | None]) -> ServerPage | None:
    """The result of `work`; None, at once, when the client has gone."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            continue  # the rest of a body that nobody reads

    worker, watcher = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({worker, watcher}, return_when=asyncio.FIRST_COMPLETED)
        return worker.result() if worker.done() else None
    finally:
        worker.cancel()
        watcher.cancel()


def wait_problem(board: Board, request: Request, page: ServerPage, goal: Goal, ended: bool) -> Problem:
    """Why `wait` did not reach its goal; `ended`: it will not, or else the time is over."""
    if board.closed or (page.ending and not page.dead):
        return Problem(503, "the agent is ending")
    document = json.loads(bytes_for(request, page))
    more = {"stage": page.stage, "cause": document.get("cause")}
    detail = f"{page.name} is {page.stage}: {document.get('why', '')}"
    if not ended:
        return Problem(504, detail, more={**more, "progress": "stalled" if page.stalled else "progressing"})
    if not page.wanted:
        return Problem(409, f"{page.name} is not wanted ({page.stage}); start it first", more=more)
    return Problem(409, f"{page.name} is wanted" if goal == "down" else detail, more=more)


def add_wait(app: FastAPI, board: Board, changes: Changes) -> None:
    """/servers/NAME/wait."""
    can_fail = problems(
        {
            409: "it will not come: failed, died or not wanted, with the cause",
            503: "the agent is ending",
            504: "not yet: `progress` says whether it is progressing or stalled",
        }
    )

    @app.get(
        "/servers/{name}/wait", response_model=ServerDocument, operation_id="wait", responses={**UNKNOWN, **can_fail}
    )
    async def wait(
        request: Request,
        name: str,
        goal: Annotated[Goal, Query(alias="for")] = "ready",
        timeout_s: Annotated[float, Query(alias="timeout", ge=0, le=WAIT_S, description="seconds")] = 900,
    ) -> Response:
        """Answers when it is ready (or down), or as soon as it is known that it will not be."""
        look = partial(reached_or_hopeless, board, name, goal)
        page = look() or await while_connected(request, changes.until(look, timeout_s))
        if page and page.stage == goal:
            return as_json(bytes_for(request, page))
        raise wait_problem(board, request, page or page_of(board, name), goal, ended=page is not None)
