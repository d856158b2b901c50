"""POST /servers/NAME/{start,stop,restart} and /switch: what an operator wants."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Annotated, Protocol

from fastapi import Body, FastAPI, Request, Response

from agent.api.answers import as_json, bytes_for, page_of, refuse_when_closed
from agent.api.problem import UNKNOWN, Problem, problems
from agent.api.schema import ChangeOptions, ServerDocument, SwitchOptions
from agent.board import Board
from agent.core.model import UNSAVED, Ask

ANSWER_S = 10.0  # a change is answered after a save; a disk that takes longer is in trouble

OF_ONE_SERVER = (Ask.START, Ask.STOP, Ask.RESTART)


class PostAsk(Protocol):
    """Posts a command for a server to the loop. The result is None when the change is made, saved and published, or
    else the reason why it was refused."""

    def __call__(self, name: str, ask: Ask, gpu_check: bool = True, back: bool = False) -> Future[str | None]:
        """From any thread; returns at once."""


CAN_FAIL = {
    403: "not over the socket, or not allowed",
    409: "refused",
    503: "ending",
    504: "the loop does not answer",
    507: "refused: the state cannot be saved",
}


def add_changes(app: FastAPI, board: Board, ask: PostAsk) -> None:
    """The routes."""
    can_fail = problems(CAN_FAIL)

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
            await answered(verb, ask(name, verb, options.gpu_check if options else True))
            return as_json(bytes_for(request, page_of(board, name)))

    for verb in OF_ONE_SERVER:
        add(verb)

    @app.post("/switch", response_model=ServerDocument, operation_id="switch", responses={**UNKNOWN, **can_fail})
    async def switch(request: Request, options: SwitchOptions) -> Response:
        """Start a server, and let those give way that share a GPU or the port with it. With `back`, return to the one
        that gave way should the new one fail. Answers after the change is saved; it is carried out after that.
        """
        page_of(board, options.to)
        refuse_when_closed(board)
        await answered(Ask.SWITCH, ask(options.to, Ask.SWITCH, back=options.back))
        return as_json(bytes_for(request, page_of(board, options.to)))


async def answered(verb: str, answer: Future[str | None]) -> None:
    """Wait until the loop has made the change. Problem: it was refused, or there is no answer."""
    # asyncio.wait, unlike wait_for, leaves the future alone: the loop may yet answer it.
    done, _ = await asyncio.wait({asyncio.wrap_future(answer)}, timeout=ANSWER_S)
    if not done:
        raise Problem(504, f"no answer in {ANSWER_S:.0f} s; {verb} may still be carried out")
    if (refused := answer.result()) is not None:
        raise Problem(507 if UNSAVED in refused else 409, refused)
