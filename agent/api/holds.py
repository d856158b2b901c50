"""/rivals and /holds: the units of this host that are kept off, and what an operator wants of one of them."""

from __future__ import annotations

import json
from concurrent.futures import Future
from typing import Annotated, Protocol

from fastapi import FastAPI, Path, Response

from agent.api.answers import as_json, current, refuse_when_closed
from agent.api.changes import CAN_FAIL, answered
from agent.api.problem import PROBLEM_SCHEMA, Meanings, Problem, problems
from agent.api.schema import HoldChangeDocument, HoldsDocument, RivalsDocument
from agent.board import Board

UNIT = r"^[A-Za-z0-9:_.@\\-]+\.(service|socket|timer|path)$"
"""A name that a unit to keep off can have; `\\x2d` and its like stand for what systemd escapes."""
UNIT_BYTES = 255

Unit = Annotated[str, Path(pattern=UNIT, max_length=UNIT_BYTES)]


class PostHold(Protocol):
    """Posts to the loop that a unit is to be kept off, or no more. The result is None when that is saved and
    published, or else the reason why it was refused."""

    def __call__(self, unit: str, keep_off: bool) -> Future[str | None]:
        """From any thread; returns at once."""


def no_holds(unit: str, keep_off: bool) -> Future[str | None]:
    """For an agent that cannot turn units off."""
    answer: Future[str | None] = Future()
    answer.set_result("this agent turns no units off")
    return answer


def add_holds(app: FastAPI, board: Board, hold: PostHold) -> None:
    """The routes. The names of units are no secret: over TCP they are shown as over the socket."""

    @app.get("/rivals", response_model=RivalsDocument, operation_id="rivals")
    async def rivals() -> Response:
        """Each unit that is to be kept off, or is kept off, as it was last seen."""
        return as_json(current(board).rivals)

    @app.get("/holds", response_model=HoldsDocument, operation_id="holds")
    async def holds() -> Response:
        """Each unit that is kept off, and whether that is in force."""
        return as_json(current(board).holds)

    unknown: Meanings = {404: {"description": "refused: nobody has listed this unit", "content": PROBLEM_SCHEMA}}
    can_fail = problems(CAN_FAIL)

    def add(verb: str, keep_off: bool, summary: str) -> None:
        @app.post(
            f"/holds/{{unit}}/{verb}",
            response_model=HoldChangeDocument,
            operation_id=f"{verb}_unit",
            responses={**unknown, **can_fail},
            description=f"{summary} Answers after the change is saved; it is carried out after that.",
        )
        async def change(unit: Unit) -> Response:
            current(board)
            refuse_when_closed(board)
            try:
                await answered(verb, hold(unit, keep_off))
            except Problem as problem:
                if problem.status == 409 and unit not in _known(board):
                    raise Problem(404, problem.detail) from problem
                raise
            return as_json(json.dumps({"unit": unit, "held": keep_off}).encode())

    add("hold", True, "Turn a unit off that is listed in [rivals], and keep it off.")
    add("release", False, "Keep a unit off no more, until it is told to be held again; nothing is started.")


def _known(board: Board) -> set[str]:
    """The units that are shown. Says only what a refusal means: whether to refuse is the loop's to decide."""
    return {each["unit"] for each in json.loads(board.read().rivals)["rivals"]}
