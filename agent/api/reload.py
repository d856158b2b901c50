"""POST /reload: read the configuration again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

from fastapi import FastAPI, Response

from agent.api.answers import as_json, refuse_when_closed
from agent.api.problem import Problem, problems
from agent.api.schema import ReloadDocument
from agent.board import Board
from agent.errors import ConfigError, EdgeError

KEPT = "the last good one stays in force"
RELOAD_S = 20.0  # reads a file and saves; a disk that takes longer is in trouble

PostReload = Callable[[], "Future[Mapping[str, Sequence[str]]]"]
"""Posts the wish to the loop. The result, once the new configuration is in force: the members of schema.ReloadDocument.
Raises ConfigError when the file is wrong, EdgeError when it cannot be taken; then the last good one stays in force."""


def impossible() -> Future[Mapping[str, Sequence[str]]]:
    """For an agent that cannot reload."""
    answer: Future[Mapping[str, Sequence[str]]] = Future()
    answer.set_exception(EdgeError("agent", "reload", "start the agent again instead"))
    return answer


def add_reload(app: FastAPI, board: Board, reload: PostReload) -> None:
    """POST /reload."""
    can_fail = problems(
        {
            403: "not over the socket, or not allowed",
            409: "refused: the last good configuration stays in force",
            422: "the configuration is wrong, with every fault; the last good one stays in force",
            503: "ending",
            504: "the loop does not answer",
        }
    )

    @app.post("/reload", response_model=ReloadDocument, operation_id="reload", responses=can_fail)
    async def reload_() -> Response:
        """Read the configuration again: as a whole, or not at all. Says what it changed."""
        refuse_when_closed(board)
        answer = asyncio.wrap_future(reload())
        # asyncio.wait, unlike wait_for, leaves the future alone: the loop may yet answer it.
        done, _ = await asyncio.wait({answer}, timeout=RELOAD_S)
        if not done:
            raise Problem(504, f"no answer in {RELOAD_S:.0f} s; the configuration may still be taken")
        try:
            changes = answer.result()
        except ConfigError as error:
            raise Problem(422, f"the configuration is wrong; {KEPT}", more={"faults": _faults(error)}) from error
        except EdgeError as error:
            raise Problem(409, f"{error}; {KEPT}") from error
        return as_json(json.dumps({key: list(names) for key, names in changes.items()}).encode())


def _faults(error: ConfigError) -> list[dict[str, str]]:
    """Each is "FILE: what"; see agent.config."""
    parted = (fault.partition(": ") for fault in error.faults)
    return [{"where": file, "what": what} for file, _, what in parted]
