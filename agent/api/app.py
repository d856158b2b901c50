"""The routes. Each reads the snapshot, already serialised, or posts a command to the loop."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse

from agent.api.answers import as_json, bytes_for, current, page_of, refuse_when_closed, socket_peer
from agent.api.changes import PostAsk, add_changes
from agent.api.events import add_events
from agent.api.gpus import SeeGpus, add_gpus, nobody_looks
from agent.api.guard import Guard
from agent.api.holds import PostHold, add_holds, no_holds
from agent.api.problem import (
    ANY,
    PROBLEM_SCHEMA,
    TEXT_SCHEMA,
    UNKNOWN,
    Meanings,
    Problem,
    ProblemsApi,
    add_problems,
    problems,
)
from agent.api.reload import PostReload, add_reload, impossible
from agent.api.schema import (
    LiveDocument,
    ReadyDocument,
    ServerDocument,
    StatusDocument,
)
from agent.api.starts import add_starts
from agent.api.stream import Changes, Hide, Tail, WholeLines, follow, in_thread, read_tail
from agent.api.wait import add_wait
from agent.board import Board
from agent.core.redact import redact

LIVE_S = 5.0  # the loop turns far more often
LOG_LINES = 10_000


def build(
    board: Board,
    ask: PostAsk,
    version: str,
    socket: Path,
    hide: Hide = redact,
    reload: PostReload = impossible,
    admins: int | None = None,
    hold: PostHold = no_holds,
    see_gpus: SeeGpus = nobody_looks,
) -> FastAPI:
    """The app. `socket`: where changes are possible, for answers over TCP; `hide`: takes secrets out of log lines;
    `admins`: the group whose members may make changes, beside root and the agent's own user."""
    changes = Changes(board)

    @asynccontextmanager
    async def listening(_: FastAPI) -> AsyncIterator[None]:
        with changes.listening():
            yield

    app = ProblemsApi(
        title="gpuagent",
        version=version,
        docs_url=None,  # the pages of FastAPI load scripts from a CDN
        redoc_url=None,
        redirect_slashes=False,
        lifespan=listening,
        responses=ANY,
    )
    app.add_middleware(Guard, socket=socket, uid=os.geteuid(), gid=admins)
    add_problems(app)
    add_agent_routes(app, board)
    add_server_routes(app, board)
    add_starts(app, board)
    add_wait(app, board, changes)
    add_events(app, board, changes)
    add_log(app, board, changes, hide)
    add_changes(app, board, ask)
    add_reload(app, board, reload)
    add_holds(app, board, hold)
    add_gpus(app, board, changes, see_gpus)
    return app


def add_agent_routes(app: FastAPI, board: Board) -> None:
    """/status, /live, /ready."""

    @app.get("/status", response_model=StatusDocument, operation_id="status")
    async def status(request: Request) -> Response:
        """Everything in one document."""
        return as_json(bytes_for(request, current(board)))

    @app.get("/live", response_model=LiveDocument, operation_id="live", responses=problems({503: "the loop is late"}))
    async def live() -> Response:
        """200 while the loop turns, whatever its servers do."""
        age_s = board.beat_age_s(time.monotonic())
        if age_s is None or age_s > LIVE_S:
            raise Problem(503, "the loop has not turned yet" if age_s is None else f"the loop is {age_s:.1f} s late")
        return as_json(json.dumps({"live": True, "beat_age_s": round(max(0.0, age_s), 3)}).encode())

    not_ready = problems({503: "a wanted server is not ready"})

    @app.get("/ready", response_model=ReadyDocument, operation_id="ready", responses=not_ready)
    async def ready() -> Response:
        """200 when every wanted server is ready."""
        stages = {page.name: page.stage for page in current(board).servers.values() if page.wanted}
        late = {name: stage for name, stage in stages.items() if stage != "ready"}
        if late:
            named = ", ".join(f"{name} is {stage}" for name, stage in late.items())
            raise Problem(503, f"not ready: {named}", more={"not_ready": late})
        return as_json(json.dumps({"ready": True, "servers": stages}).encode())


def add_server_routes(app: FastAPI, board: Board) -> None:
    """/servers/NAME and its stage and ready."""

    @app.get("/servers/{name}", response_model=ServerDocument, operation_id="server", responses=UNKNOWN)
    async def server(request: Request, name: str) -> Response:
        """One server."""
        return as_json(bytes_for(request, page_of(board, name)))

    text = PlainTextResponse

    @app.get("/servers/{name}/stage", response_class=text, operation_id="stage", responses=UNKNOWN)
    async def stage(name: str) -> str:
        """Its stage: one word."""
        return page_of(board, name).stage

    not_ready: Meanings = {503: {"description": "not ready: its stage", "content": {**TEXT_SCHEMA, **PROBLEM_SCHEMA}}}

    @app.get(
        "/servers/{name}/ready", response_class=text, operation_id="server_ready", responses={**UNKNOWN, **not_ready}
    )
    async def server_ready(name: str) -> Response:
        """200 when it is ready, for a load balancer; the body is its stage."""
        stage = page_of(board, name).stage
        return PlainTextResponse(stage, 200 if stage == "ready" else 503)


def add_log(app: FastAPI, board: Board, changes: Changes, hide: Hide) -> None:
    """/servers/NAME/log."""
    can_fail = problems({403: "logs are shown over the socket only", 503: "the log cannot be read"})

    @app.get(
        "/servers/{name}/log", response_class=PlainTextResponse, operation_id="log", responses={**UNKNOWN, **can_fail}
    )
    async def log(
        request: Request,
        name: str,
        lines: Annotated[int, Query(ge=0, le=LOG_LINES)] = 200,
        followed: Annotated[Literal["0", "1"], Query(alias="follow", description="1: go on with what comes")] = "0",
    ) -> Response:
        """The last lines of the log of the present attempt, or the last one. Nothing if it was never launched."""
        socket_peer(request, "logs are shown over the socket only")
        path = page_of(board, name).log
        try:
            tail = await in_thread(partial(read_tail, path, lines)) if path else Tail(b"", b"", 0)
        except OSError as error:
            raise Problem(503, f"{path}: {error.strerror}") from error
        shown = WholeLines(hide).shown
        if followed == "0":
            return PlainTextResponse(shown(tail.whole) + shown(tail.open))
        refuse_when_closed(board)

        async def stream() -> AsyncIterator[bytes]:
            yield shown(tail.whole)
            async for text in follow(board, changes, name, (path, tail.end), hide):
                yield text

        return StreamingResponse(stream(), media_type="text/plain")
