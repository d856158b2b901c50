"""/servers/NAME/starts: what is remembered of earlier starts."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import FastAPI, Query, Request, Response

from agent.api.answers import as_json, page_of
from agent.api.guard import peer_of
from agent.api.problem import UNKNOWN
from agent.api.schema import StartsDocument
from agent.board import Board
from agent.core.chronicle import KEPT


def add_starts(app: FastAPI, board: Board) -> None:
    """The route. Each start is serialised already."""

    @app.get("/servers/{name}/starts", response_model=StartsDocument, operation_id="starts", responses=UNKNOWN)
    async def starts(request: Request, name: str, limit: Annotated[int, Query(ge=0, le=KEPT)] = 20) -> Response:
        """The last starts, newest first; the present one too, while its server lives."""
        page = page_of(board, name)
        shown = page.starts if peer_of(request.scope) else page.public_starts
        head = f'{{"name":{json.dumps(page.name)},"starts":['.encode()
        return as_json(head + b",".join(shown[:limit]) + b"]}")
