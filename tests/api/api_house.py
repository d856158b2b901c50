"""A real API thread on real sockets. Only the loop is a stand-in: a function that answers what it is asked."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from agent.api.app import build
from agent.api.serve import ApiThread
from agent.board import Board, ServerPage, Snapshot
from agent.core.model import STAGE_CODE, Ask, Stage

CANARY = "hf_CANARYcanaryCANARYcanary123456"  # of the shape of a Hugging Face token


def document(name: str, stage: str, **changes: object) -> dict[str, Any]:
    """GET /servers/NAME, in the shape that the design gives."""
    return {
        "name": name,
        "stage": stage,
        "stage_code": STAGE_CODE[Stage(stage)],
        "step": None,
        "progress": None,
        "eta_s": None,
        "quiet": False,
        "stalled": False,
        "why": f"because it is {stage}",
        "since": "2026-01-02T03:04:05.678Z",
        "want": "up",
        "pid": 123,
        "invocation": "r1-1",
        "attempt": 1,
        "url": "http://127.0.0.1:8000",
        "needs": [],
        "cause": None,
        "exit": None,
        "storage": [],
        "tail": [],
        **changes,
    }


def rival(unit: str, **changes: object) -> dict[str, Any]:
    """One of GET /rivals: a unit that is held, and off."""
    return {
        "unit": unit,
        "load": "loaded",
        "active": "inactive",
        "off": True,
        "held": True,
        "exempt": False,
        "listed": True,
        "pids": [],
        "revivers": [],
        "why": "off",
        "since": "2026-01-02T03:04:05.678Z",
        **changes,
    }


def hold(unit: str, **changes: object) -> dict[str, Any]:
    """One of GET /holds."""
    return {"unit": unit, "in_force": True, "since": "2026-01-02T03:04:05.678Z", "why": "off", "repairs": 0, **changes}


def page(name: str = "demo", stage: str = "starting", log: Path | None = None, **changes: Any) -> ServerPage:
    """A page; what may not be public carries the canary."""
    defaults = {"wanted": True, "dead": False, "stalled": False, "ending": False}
    flags = {key: changes.pop(key, default) for key, default in defaults.items()}
    public = document(name, stage, **changes)
    full = {**public, "tail": [f"token {CANARY}"]}
    return ServerPage(
        name=name, stage=stage, log=log, full=json.dumps(full).encode(), public=json.dumps(public).encode(), **flags
    )


def status(pages: tuple[ServerPage, ...], full: bool) -> bytes:
    """GET /status."""
    return about([json.loads(each.full if full else each.public) for each in pages], [])


def about(servers: list[Any], degraded: list[str]) -> bytes:
    """GET /status with these documents, or the event `status` with these names."""
    agent = {"version": "0.1.0", "pid": 1, "since": "2026-01-02T03:04:05Z", "mode": "embedded"}
    rest = {"gpus": {"state": "not_read", "why": "", "remedy": "", "devices": []}, "holds": [], "degraded": degraded}
    host = {"name": "host", "boot_id": "0a"}
    return json.dumps({"agent": agent, "host": host, "servers": servers, **rest}).encode()


@dataclass
class House:
    """A board, an API thread that reads it, and what was asked of the loop."""

    board: Board
    socket: Path
    thread: ApiThread
    asked: list[tuple[str, Ask, bool]] = field(default_factory=list)
    backs: list[bool] = field(default_factory=list)  # of each, whether it was to come back
    degraded: list[str] = field(default_factory=list)
    answer: Callable[[Future[str | None]], None] = lambda future: future.set_result(None)
    rivals: list[dict[str, Any]] = field(default_factory=list)
    holds: list[dict[str, Any]] = field(default_factory=list)
    held: list[tuple[str, bool]] = field(default_factory=list)  # what was asked of units
    gpus: dict[str, Any] | None = None  # GET /gpus; None: nobody reads them
    seen: int = 0  # how often somebody wanted to see them

    def publish(self, *pages: ServerPage) -> Snapshot:
        """As the loop does."""
        snapshot = Snapshot(
            version=self.board.read().version + 1,
            servers={each.name: each for each in pages},
            full=status(pages, True),
            public=status(pages, False),
            about=about([each.name for each in pages], self.degraded),
            rivals=json.dumps({"rivals": self.rivals, "warnings": ["a warning"]}).encode(),
            holds=json.dumps({"holds": self.holds}).encode(),
            gpus=None if self.gpus is None else json.dumps(self.gpus).encode(),
        )
        self.board.publish(snapshot)
        return snapshot

    def ask(self, name: str, ask: Ask, gpu_check: bool = True, back: bool = False) -> Future[str | None]:
        """As the loop does, but in this thread."""
        self.asked.append((name, ask, gpu_check))
        self.backs.append(back)
        future: Future[str | None] = Future()
        self.answer(future)
        return future

    def hold(self, unit: str, keep_off: bool) -> Future[str | None]:
        """As the loop does, but in this thread."""
        self.held.append((unit, keep_off))
        future: Future[str | None] = Future()
        self.answer(future)
        return future

    def see_gpus(self) -> None:
        """As the loop does, but in the API's thread."""
        self.seen += 1

    def over_socket(self) -> httpx2.Client:
        """A client of the unix socket."""
        return httpx2.Client(
            transport=httpx2.HTTPTransport(uds=str(self.socket)), base_url="http://localhost", timeout=60
        )

    def over_tcp(self) -> httpx2.Client:
        """A client of the TCP port."""
        return httpx2.Client(base_url=f"http://127.0.0.1:{self.thread.port}", timeout=60, trust_env=False)


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Wait until it holds."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.01)


def busy(house: House) -> int:
    """How many requests are being answered at this moment."""
    return len(house.thread._server.server_state.tasks)


@contextmanager
def running(folder: Path) -> Iterator[House]:
    """A house whose API answers."""
    board = Board()
    socket = folder / "run" / "api.sock"
    built: list[House] = []

    def hold(unit: str, keep_off: bool) -> Future[str | None]:
        return built[0].hold(unit, keep_off)

    def ask(*asked: Any, **how: Any) -> Future[str | None]:
        return built[0].ask(*asked, **how)

    app = build(board, ask, "0.1.0", socket, hold=hold, see_gpus=lambda: built[0].see_gpus())
    built.append(House(board, socket, ApiThread(app, ("127.0.0.1", 0), socket)))
    built[0].thread.start()
    yield built[0]
    board.close()
    built[0].thread.stop(30)
