"""/gpus: the GPUs, and whose their memory is."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI, Response

from agent.api.answers import as_json, current
from agent.api.gpu_schema import GpusDocument
from agent.api.stream import Changes
from agent.board import Board

FIRST_S = 5.0
"""Where no server names a GPU they are read when somebody asks: so long is waited for the first reading."""
NOT_READ = GpusDocument(state="not_read", why="", remedy="", driver="", devices=[]).model_dump_json().encode()

SeeGpus = Callable[[], None]
"""Tells the loop that somebody wants to see the GPUs; from any thread, and returns at once."""


def nobody_looks() -> None:
    """For an agent that cannot read GPUs."""


def add_gpus(app: FastAPI, board: Board, changes: Changes, see: SeeGpus) -> None:
    """The route. Who holds the memory is no secret: over TCP it is shown as over the socket."""

    @app.get("/gpus", response_model=GpusDocument, operation_id="gpus")
    async def gpus() -> Response:
        """The GPUs as they were last read, a second ago at most, or why they cannot be read."""

        def read() -> bool | None:
            return current(board).gpus is not None or board.closed or None

        see()
        await changes.until(read, FIRST_S)
        return as_json(current(board).gpus or NOT_READ)
