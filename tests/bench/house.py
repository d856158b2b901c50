"""An agent in a folder of its own, with one server: the real one of the demo, or the stand-in."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tests.bench.connection import Connection

ROOT = Path(__file__).resolve().parents[2]
NAME = "demo"
DEADLINE_S = 60.0  # nothing that is waited for here takes that long, however busy the machine
FILES = 8192  # descriptors for the agent: a thousand clients need half of theirs, and the usual 1,024 are too few

Found = TypeVar("Found")
Document = dict[str, Any]


class BenchError(Exception):
    """What should have come did not come."""


class House:
    """One agent and its server. `command` begins with Python; `runner` is what runs the agent."""

    def __init__(self, folder: Path, command: Sequence[str], family: str, runner: Sequence[str] | None = None) -> None:
        self.folder = folder
        self.socket = folder / "api.sock"
        self.server_port, self.api_port = free_port(), free_port()
        self.log = folder / "agent.log"
        self._runner = list(runner) if runner else [str(Path(sys.executable).with_name("gpuagent")), "run"]
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir()
        command = [word.replace("{port}", str(self.server_port)) for word in command]
        (folder / "gpuagent.toml").write_text(self._configuration(command, family))

    def _configuration(self, command: Sequence[str], family: str) -> str:
        lines = [
            "[agent]",
            f'listen = "127.0.0.1:{self.api_port}"',
            *(f"{key} = {json.dumps(str(self.folder / value))}" for key, value in PATHS.items()),
            f"[servers.{NAME}]",
            f"command = {json.dumps(list(command))}",
            f'family = "{family}"',
            f"port = {self.server_port}",
            "gpus = []",
            "autostart = true",
        ]
        return "\n".join(lines) + "\n"

    # -- the agent -----------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The agent's."""
        assert self._process is not None, "started before"
        return self._process.pid

    def start(self) -> float:
        """Start the agent; the moment just before."""
        with self.log.open("ab") as log:
            began = time.monotonic()
            self._process = subprocess.Popen(
                [*self._runner, "--config", str(self.folder / "gpuagent.toml")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env=installed(),
                start_new_session=True,
                preexec_fn=_many_files,
            )
        return began

    def kill(self) -> None:
        """SIGKILL to the agent alone: its server goes on."""
        assert self._process is not None, "started before"
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """End the agent, and its server with it."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> House:
        self.start()
        until("the first look", lambda: self.ask("/status").get("servers"), pause_s=0.02)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    # -- its API -------------------------------------------------------------------------------------

    def connect(self) -> Connection:
        """To its socket, as soon as it listens."""

        def connection() -> Connection | None:
            try:
                return Connection(self.socket)
            except OSError:
                return None

        return until("the agent's socket", connection, pause_s=0.001)

    def ask(self, path: str, method: str = "GET") -> Document:
        """One question on a connection of its own."""
        with self.connect() as api:
            return api.document(path, method)

    def server(self) -> Document:
        """What is known of the server."""
        return self.ask(f"/servers/{NAME}")

    def change(self, verb: str) -> None:
        """start, stop or restart. BenchError: refused."""
        with self.connect() as api:
            status, body = api.ask(f"/servers/{NAME}/{verb}", "POST")
        if status != 200:
            raise BenchError(f"{verb}: HTTP {status}: {body.decode(errors='replace')}")

    def await_ready(self) -> Document:
        """Until the server is ready; what is then known of it."""

        def ready() -> Document | None:
            server = self.server()
            if server["stage"] == "failed":
                raise BenchError(f"the server failed: {server['why']}: {server['cause']}")
            return server if server["stage"] == "ready" else None

        return until("ready", ready, pause_s=0.02)


PATHS = {"socket": "api.sock", "state_dir": "state", "log_dir": "log"}


def demo_command(model: Path) -> list[str]:
    """The demo's server with a model so small that a start takes a moment."""
    return [
        *(sys.executable, str(ROOT / "demo" / "llama_server.py"), "--model", str(model), "--alias", "tiny"),
        *("--host", "127.0.0.1", "--port", "{port}", "--threads", "1", "--verbosity", "4", "--ctx-size", "512"),
    ]


def stand_in_command(*flags: str) -> list[str]:
    """The stand-in, where a real server cannot be made to do what is needed."""
    return [sys.executable, "-u", str(ROOT / "tests" / "fakes" / "server.py"), "--port", "{port}", *flags]


def make_tiny_model(path: Path) -> None:
    """Random weights, some hundred kilobytes."""
    maker = str(ROOT / "demo" / "make_model.py")
    subprocess.run([sys.executable, maker, "--size", "tiny", "--out", str(path)], check=True, capture_output=True)


def until(what: str, look: Callable[[], Found | None], pause_s: float = 0.0) -> Found:
    """What `look` finds, as soon as it finds something. BenchError after a generous time."""
    deadline = time.monotonic() + DEADLINE_S
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise BenchError(f"{what} did not come within {DEADLINE_S:g} s")
        if pause_s:
            time.sleep(pause_s)
    return found


def free_port() -> int:
    """One that nobody listens on at this moment."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port: int = trial.getsockname()[1]
        return port


def installed() -> dict[str, str]:
    """An environment in which Python keeps what it has compiled, as it has it of a program that is installed."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


def _many_files() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    soft = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def raise_own_limit() -> None:
    """Descriptors for the clients of this process."""
    _many_files()


def children(pid: int) -> list[int]:
    """Its children, by /proc."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(word) for word in (task / "children").read_text().split()]
    return found


def pidfd(pid: int) -> int:
    """Readable once the process has ended."""
    return os.pidfd_open(pid)
