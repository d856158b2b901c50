"""The real API around a board that the test writes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from agent.api.app import build
from agent.api.serve import ApiThread
from agent.board import Board, ServerPage, Snapshot
from agent.core.model import Ask
from tests.cli.fake_agent import Document, FakeAgent


class House:
    """The API around a board that the test writes on. `refusal`: the loop's answer to a change."""

    def __init__(self, socket: Path, log: Path) -> None:
        self.board = Board()
        self.socket = socket
        self.log = log
        self.refusal: str | None = None
        self.held: list[tuple[str, bool]] = []
        self.asked: list[tuple[str, Ask, bool]] = []
        self._version = 0

    def come(self) -> None:
        """The API answers from now on."""
        self._api = ApiThread(build(self.board, self.ask, "0", self.socket, hold=self.hold), None, self.socket)
        self._api.start()

    def leave(self) -> None:
        """The API ends; the board stays."""
        self._api.stop(2.0)

    def begin_anew(self) -> None:
        """The board of another run of the agent."""
        self.board = Board()
        self._version = 0

    def show(self, document: Document, rivals: Sequence[Document] = (), holds: Sequence[Document] = ()) -> None:
        """Let the board show this one server, and these units."""
        self._version += 1
        full = json.dumps(document).encode()
        page = ServerPage(
            name=document["name"],
            stage=document["stage"],
            wanted=document["want"] == "up",
            dead=document["stage"] == "failed",
            stalled=document["stalled"],
            log=self.log,
            full=full,
            public=full,
        )
        agent = FakeAgent(Path(), [document], rivals=[*rivals], holds=[*holds])
        status, told, kept = (agent.answer("GET", path)[1] for path in ("/status", "/rivals", "/holds"))
        assert isinstance(status, dict)
        body, about = json.dumps(status).encode(), json.dumps(status | {"servers": [page.name]}).encode()
        self.board.publish(
            Snapshot(
                version=self._version,
                servers={page.name: page},
                full=body,
                public=body,
                about=about,
                rivals=json.dumps(told).encode(),
                holds=json.dumps(kept).encode(),
                gpus=json.dumps(agent.gpus).encode(),
            )
        )

    def hold(self, unit: str, keep_off: bool) -> Future[str | None]:
        """The loop, as the API sees it."""
        self.held.append((unit, keep_off))
        answer: Future[str | None] = Future()
        answer.set_result(self.refusal)
        return answer

    def ask(self, name: str, ask: Ask, gpu_check: bool) -> Future[str | None]:
        """The loop, as the API sees it."""
        self.asked.append((name, ask, gpu_check))
        answer: Future[str | None] = Future()
        answer.set_result(self.refusal)
        return answer
