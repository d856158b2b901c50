"""An agent that is only its API's shapes, on a unix socket, for the CLI to talk to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any
from urllib.parse import unquote

Document = dict[str, Any]


def server(name: str = "demo", stage: str = "ready", **changes: Any) -> Document:
    """A server's document as in DESIGN 8."""
    document: Document = {
        "name": name,
        "stage": stage,
        "stage_code": 40,
        "step": None,
        "progress": None,
        "eta_s": None,
        "quiet": False,
        "stalled": False,
        "why": "it answers",
        "since": "2026-01-02T03:04:05.678Z",
        "want": "up",
        "pid": 4711,
        "invocation": "abc-1",
        "attempt": 1,
        "url": "http://127.0.0.1:8000",
        "needs": [],
        "cause": None,
        "exit": None,
        "storage": [],
        "tail": [],
    }
    assert changes.keys() <= document.keys()
    return document | changes


def failed(name: str = "demo", **changes: Any) -> Document:
    """A server that gave up."""
    return server(
        name,
        "failed",
        **{
            "why": "gave up: out of memory",
            "pid": None,
            "cause": {
                "slug": "gpu-out-of-memory",
                "line": 17,
                "text": "CUDA error: out of memory",
                "remedy": "give it fewer layers",
                "retry": "no",
            },
            "exit": {"code": None, "signal": 9, "oom": None, "asked": False, "stopped": False},
            "tail": ["loading", "CUDA error: out of memory"],
        }
        | changes,
    )


def rival(unit: str = "vllm.service", **changes: Any) -> Document:
    """A unit that is kept off, and off."""
    document: Document = {
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
    }
    assert changes.keys() <= document.keys()
    return document | changes


def hold(unit: str = "vllm.service", **changes: Any) -> Document:
    """A hold that is in force."""
    return {"unit": unit, "in_force": True, "since": "2026-01-02T03:04:05.678Z", "why": "off", "repairs": 0} | changes


def holder(pid: int = 4123, **changes: Any) -> Document:
    """A process of a unit that holds 61.2 GiB."""
    document: Document = {
        "pid": pid,
        "mib": 62_669,
        "kind": "unit",
        "owner": "vllm.service",
        "name": "VLLM::Worker",
        "user": "vllm",
        "since": "2026-01-02T03:04:05.678Z",
        "protected": "",
    }
    assert changes.keys() <= document.keys()
    return document | changes


BRIEF = ("index", "uuid", "name", "state", "total_mib", "used_mib", "free_mib")


def gpu(index: int = 0, **changes: Any) -> Document:
    """A GPU that is well, and that nobody uses."""
    document: Document = {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "NVIDIA H200",
        "state": "ok",
        "total_mib": 143_771,
        "used_mib": 0,
        "free_mib": 143_156,
        "why": "",
        "remedy": "",
        "memory": "own",
        "reserved_mib": 615,
        "holders": [],
        "busy_percent": 7,
        "celsius": 41,
        "watts": 112.5,
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "rows_remapped": 0,
        "rows_pending": False,
        "rows_failed": False,
        "mig": False,
        "persistent": True,
        "fabric": None,
        "faults": [],
    }
    assert changes.keys() <= document.keys()
    return document | changes


def gpus(*devices: Document, **changes: Any) -> Document:
    """The document of /gpus."""
    return {"state": "ok", "why": "", "remedy": "", "driver": "580.159.03", "devices": [*devices], **changes}


def problem(status: int, detail: str, **more: Any) -> tuple[int, Document]:
    """A problem document and its status."""
    return status, {"type": "about:blank", "title": "Some Phrase", "status": status, "detail": detail, **more}


@dataclass
class FakeAgent:
    """What it answers: `special` by "METHOD /path" (no query) first, else from `servers`."""

    socket: Path
    servers: list[Document] = field(default_factory=lambda: [server()])
    degraded: list[str] = field(default_factory=list)
    rivals: list[Document] = field(default_factory=list)
    holds: list[Document] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    gpus: Document = field(default_factory=lambda: gpus(gpu()))
    special: dict[str, tuple[int, Document | bytes]] = field(default_factory=dict)
    log: Iterable[bytes] = (b"one\n", b"two\n")
    asked: list[tuple[str, bytes]] = field(default_factory=list)  # "METHOD /path?query", body
    on_request: Callable[[str], None] = lambda _request: None
    run: str = "0a"  # begins the ids of its events
    gone: threading.Event = field(default_factory=threading.Event)

    def answer(self, method: str, path: str) -> tuple[int, Document | bytes]:
        """Status and body, as the real one would."""
        if (special := self.special.get(f"{method} {path}")) is not None:
            return special
        if path == "/status":
            return 200, {
                "agent": {"version": "0", "pid": 1, "since": "2026-01-02T03:04:05Z", "mode": "embedded"},
                "host": {"name": "here", "boot_id": None},
                "servers": self.servers,
                "gpus": {
                    **{key: self.gpus[key] for key in ("state", "why", "remedy")},
                    "devices": [{key: each[key] for key in BRIEF} for each in self.gpus["devices"]],
                },
                "holds": self.holds,
                "degraded": self.degraded,
            }
        if path == "/gpus":
            return 200, self.gpus
        if path == "/rivals":
            return 200, {"rivals": self.rivals, "warnings": self.warnings}
        if path == "/holds":
            return 200, {"holds": self.holds}
        if path.startswith("/holds/"):
            _, _, unit, verb = path.split("/")
            return 200, {"unit": unquote(unit), "held": verb == "hold"}
        _, _, name, *rest = path.split("/")
        found = next((each for each in self.servers if each["name"] == name), None)
        if found is None:
            return problem(404, f"no server {name}", known=[each["name"] for each in self.servers])
        return self._of_server(found, rest)

    def events(self, last_id: str) -> Iterator[bytes]:
        """`/events`: what `servers` and `degraded` become, until it is gone. It keeps nothing for who comes back."""
        if last_id:
            yield b'event: missed\ndata: {"reason": "too-old", "why": "too much has changed since"}\n\n'
        sent: dict[str, str] = {}
        number = 0
        while not self.gone.is_set():
            status = self.answer("GET", "/status")[1]
            assert isinstance(status, dict)
            names = [each["name"] for each in self.servers]
            for name, document in [("", status | {"servers": names}), *zip(names, status["servers"], strict=True)]:
                text = json.dumps(document)
                if sent.get(name) != text:
                    sent[name], number = text, number + 1
                    kind = "server" if name else "status"
                    yield f"id: {self.run}-{number}\nevent: {kind}\ndata: {text}\n\n".encode()
            self.gone.wait(0.01)
            yield b": alive\n\n"

    def _of_server(self, found: Document, rest: list[str]) -> tuple[int, Document | bytes]:
        if rest == ["stage"]:
            return 200, f"{found['stage']}\n".encode()
        if rest == ["wait"] and found["stage"] == "failed":
            return problem(409, "demo is failed", stage=found["stage"], cause=found["cause"])
        return 200, found


class _Handler(BaseHTTPRequestHandler):
    agent: FakeAgent

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_args: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def _serve(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.agent.asked.append((f"{method} {self.path}", body))
        self.agent.on_request(f"{method} {self.path}")
        path, _, query = self.path.partition("?")
        if path == "/events" and f"GET {path}" not in self.agent.special:
            self._stream(self.agent.events(query.partition("=")[2]))
            return
        status, answer = self.agent.answer(method, path)
        if path.endswith("/log") and status == 200:
            self._stream(self.agent.log)
            return
        self.send_response(status)
        payload = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def _stream(self, pieces: Iterable[bytes]) -> None:
        self.send_response(200)
        self.end_headers()
        for piece in pieces:
            self.wfile.write(piece)
            self.wfile.flush()


class _Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True
    block_on_close = False  # a follower may still be connected

    def handle_error(self, *_args: object) -> None:
        """A client that hung up is no news here."""


@contextmanager
def listening(agent: FakeAgent) -> Iterator[FakeAgent]:
    """The agent on its socket; gone, socket and all, afterwards."""
    handler = type("Handler", (_Handler,), {"agent": agent})
    with _Server(str(agent.socket), handler) as listener:
        thread = threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield agent
        finally:
            agent.gone.set()
            listener.shutdown()
            thread.join()
            agent.socket.unlink(missing_ok=True)
