"""The routes. Each reads the snapshot, already serialised, or posts a command to the loop."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from fastapi import Body, FastAPI, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse

from agent.api.guard import Guard, Peer, peer_of
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
from agent.api.schema import (
    ChangeOptions,
    LiveDocument,
    ReadyDocument,
    ServerDocument,
    StatusDocument,
)
from agent.api.stream import Changes, Hide, Tail, WholeLines, follow, in_thread, read_tail
from agent.board import Board, ServerPage, Snapshot
from agent.core.model import Ask
from agent.core.redact import redact

LIVE_S = 5.0  # the loop turns far more often
ANSWER_S = 10.0  # a change is answered after a save; a disk that takes longer is in trouble
WAIT_S = 86_400.0  # the longest wait; a client that wants more asks again
LOG_LINES = 10_000

PostAsk = Callable[[str, Ask, bool], "Future[str | None]"]
"""Posts a command for a server to the loop (name, ask, gpu_check). The result is None when the change is made, saved
and published, or else the reason why it was refused."""


def build(board: Board, ask: PostAsk, version: str, socket: Path, hide: Hide = redact) -> FastAPI:
    """The app. `socket`: where changes are possible, for answers over TCP; `hide`: takes secrets out of log lines."""
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
    app.add_middleware(Guard, socket=socket, uid=os.geteuid())
    add_problems(app)
    add_agent_routes(app, board)
    add_server_routes(app, board)
    add_wait(app, board, changes)
    add_log(app, board, changes, hide)
    add_changes(app, board, ask)
    return app


def current(board: Board) -> Snapshot:
    """The snapshot, or a Problem while there is none."""
    snapshot = board.read()
    if snapshot.version == 0:
        raise Problem(503, "the agent has just started and has not looked around yet")
    return snapshot


def page_of(board: Board, name: str) -> ServerPage:
    """The server's page, or a Problem that says which servers there are."""
    servers = current(board).servers
    if name not in servers:
        known = sorted(servers)
        raise Problem(404, f"no server {name!r}; there are: {', '.join(known) or 'none'}", more={"known": known})
    return servers[name]


def refuse_when_closed(board: Board) -> None:
    """Nothing that takes time begins while the agent ends."""
    if board.closed:
        raise Problem(503, "the agent is ending")


def as_json(content: bytes) -> Response:
    """Already serialised: the same bytes for every reader of one snapshot."""
    return Response(content, media_type="application/json")


def bytes_for(request: Request, shown: Snapshot | ServerPage) -> bytes:
    """All of it over the socket; over TCP what may be public."""
    return shown.full if peer_of(request.scope) else shown.public


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


Goal = Literal["ready", "down"]


def reached_or_hopeless(board: Board, name: str, goal: Goal) -> ServerPage | None:
    """The page, when there is nothing left to wait for."""
    page = page_of(board, name)
    hopeless = page.wanted if goal == "down" else page.dead or not page.wanted
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
    if board.closed:
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


def socket_peer(request: Request, why: str) -> Peer:
    """Who asks over the socket, or a Problem."""
    peer = peer_of(request.scope)
    if peer is None:
        raise Problem(403, why)
    return peer


def add_changes(app: FastAPI, board: Board, ask: PostAsk) -> None:
    """POST /servers/NAME/{start,stop,restart}."""
    can_fail = problems(
        {403: "not over the socket, or not allowed", 409: "refused", 503: "ending", 504: "the loop does not answer"}
    )

    def add(verb: Ask) -> None:
        @app.post(
            f"/servers/{{name}}/{verb}",
            response_model=ServerDocument,
            operation_id=str(verb),
            responses={**UNKNOWN, **can_fail},
            description="Answers after the change is saved; it is carried out after that.",
        )
        async def change(
            request: Request, name: str, options: Annotated[ChangeOptions | None, Body()] = None
        ) -> Response:
            page_of(board, name)
            refuse_when_closed(board)
            gpu_check = options.gpu_check if options else True
            answer = asyncio.wrap_future(ask(name, verb, gpu_check))
            # asyncio.wait, unlike wait_for, leaves the future alone: the loop may yet answer it.
            done, _ = await asyncio.wait({answer}, timeout=ANSWER_S)
            if not done:
                raise Problem(504, f"no answer in {ANSWER_S:.0f} s; {verb} may still be carried out")
            refused = answer.result()
            if refused is not None:
                raise Problem(409, refused)
            return as_json(bytes_for(request, page_of(board, name)))

    for verb in Ask:
        add(verb)
