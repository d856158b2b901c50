"""The real `gpuagent run` as a process, as a user has it: a configuration, a socket, a TCP port, signals."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Document = dict[str, Any]

ROOT = Path(__file__).parents[2]
FAKE = [sys.executable, "-S", str(ROOT / "tests" / "fakes" / "server.py")]
LLAMA = [sys.executable, str(ROOT / "demo" / "llama_server.py")]
PATIENCE_S = 60.0  # generous: a deadline of the test, never a measure of the agent
TEST_MARK = "GPUAGENT_TEST_RUN"


_given: set[int] = set()


def free_port() -> int:
    """One that is free now, below the range from which the kernel gives ports to clients; never the same one twice."""
    while True:
        number = random.randint(15_000, 32_000)
        if number in _given:
            continue
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", number))
            except OSError:
                continue
        _given.add(number)
        return number


def until(met: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """The first true answer of `met`."""
    end = time.monotonic() + patience_s
    while not (answer := met()):
        assert time.monotonic() < end, f"never came: {what}"
        time.sleep(0.02)
    return answer


def llama(model: Path, port: int, *flags: str) -> list[str]:
    """The command of a real server with a small context, so that it is up in a moment."""
    basic = ["--host", "127.0.0.1", "--port", str(port), "--ctx-size", "64", "--threads", "1", "--verbosity", "4"]
    return [*LLAMA, "--model", str(model), *basic, *flags]


def table(name: str, command: Sequence[str | Path], family: str = "plain", **keys: Any) -> str:
    """One [servers.NAME] of a configuration."""
    keys = {"command": [str(word) for word in command], "family": family, **keys}
    return "\n".join([f"[servers.{name}]", *(f"{key} = {_toml(value)}" for key, value in keys.items()), ""])


def _toml(value: Any) -> str:
    """A value as TOML: of texts, numbers and lists JSON is a part of it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + "}"
    return json.dumps(value, default=str)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(str(self._path))


class Reply:
    """What an HTTP server answered."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self.text = answer.read().decode()

    @property
    def document(self) -> Document:
        document: Document = json.loads(self.text)
        return document


def ask(connection: http.client.HTTPConnection, method: str, path: str, body: str | None = None) -> Reply:
    try:
        connection.request(method, path, body)
        return Reply(connection.getresponse())
    finally:
        connection.close()


class Agent:
    """One agent, started and ended any number of times on the same folder."""

    def __init__(self, folder: Path, *tables: str, env: Mapping[str, str] | None = None, agent: str = "") -> None:
        """`agent`: further lines of the [agent] table; `env`: what is added to the environment of the agent."""
        self.folder = folder
        self.tcp_port = free_port()
        self.socket = folder / "api.sock"
        self.state = folder / "state" / "state.json"
        self.logs = folder / "log"
        self.own_log = folder / "agent.log"
        self.configuration = folder / "gpuagent.toml"
        self.mark = uuid.uuid4().hex
        self.env = {**os.environ, **(env or {}), TEST_MARK: self.mark, "GPUAGENT_SOCKET": str(self.socket)}
        self.process: subprocess.Popen[bytes] | None = None
        paths = {"socket": self.socket, "state_dir": self.state.parent, "log_dir": self.logs}
        lines = ["[agent]", f'listen = "127.0.0.1:{self.tcp_port}"']
        lines += [f"{key} = {json.dumps(str(path))}" for key, path in paths.items()]
        self._own_table = [*lines, agent]
        self.configure(*tables)

    def configure(self, *tables: str) -> None:
        """Write the configuration: these servers and no others. What runs hears of it by a reload."""
        self.configuration.write_text("\n".join([*self._own_table, *tables]))

    # -- the process ---------------------------------------------------------------------------------

    def run(self, *under: str) -> subprocess.Popen[bytes]:
        """`gpuagent run`, perhaps under another program."""
        command = [*under, sys.executable, "-m", "agent", "run", "--config", str(self.configuration)]
        with self.own_log.open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=ROOT,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start(self, *under: str) -> Agent:
        self.process = self.run(*under)
        return self.until_answers()

    def until_answers(self) -> Agent:
        until(self._answers, f"the API's first answer:\n{self.own_log.read_text()}")
        return self

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.own_log.read_text()
        try:
            return self.get("/status").status == 200
        except (OSError, http.client.HTTPException):
            return False

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def ended(self) -> int:
        """The agent's exit code, once it has ended."""
        assert self.process is not None
        code = self.process.wait(PATIENCE_S)
        self.process = None
        return code

    def end(self) -> int:
        """SIGTERM; the exit code. Nothing of it or its servers may be left."""
        self.signal(signal.SIGTERM)
        code = self.ended()
        assert self.left() == [], f"left running: {self.left()}\n{self.own_log.read_text()}"
        return code

    def crash(self) -> None:
        """SIGKILL to the agent alone."""
        self.signal(signal.SIGKILL)
        self.ended()

    def left(self) -> list[str]:
        """All processes that descend from the agent, whoever their parent is now: pid and command. No zombies."""
        mark = f"{TEST_MARK}={self.mark}".encode()
        return [f"{pid} {command}" for pid, command, environment in processes() if mark in environment.split(b"\0")]

    def clear_away(self) -> None:
        """After a test that failed midway: whatever is left of it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        for each in self.left():
            os.kill(int(each.split()[0]), signal.SIGKILL)

    # -- the API and the commands --------------------------------------------------------------------

    def get(self, path: str) -> Reply:
        return ask(_UnixConnection(self.socket), "GET", path)

    def post(self, path: str) -> Reply:
        return ask(_UnixConnection(self.socket), "POST", path)

    def curl(self, path: str) -> Reply:
        """Over TCP."""
        return ask(http.client.HTTPConnection("127.0.0.1", self.tcp_port, timeout=PATIENCE_S), "GET", path)

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.cli_start(*arguments).finish()

    def cli_start(self, *arguments: str) -> Cli:
        return Cli([sys.executable, "-m", "agent", *arguments], self.env)

    def server(self, name: str = "demo") -> Document:
        return self.get(f"/servers/{name}").document

    def until_stage(self, *stages: str, name: str = "demo") -> Document:
        """The server's document, once it is in one of these stages."""
        return self.until(lambda server: server["stage"] in stages, f"{name} in {stages}", name)

    def until(self, met: Callable[[Document], Any], what: str, name: str = "demo") -> Document:
        """The server's document, once it fits."""
        seen: Document = {}

        def look() -> Document | None:
            nonlocal seen
            seen = self.server(name)
            return seen if met(seen) else None

        try:
            document: Document = until(look, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; last seen: {json.dumps(seen, indent=1)}") from error
        return document


class Cli:
    """A `gpuagent` command that runs."""

    def __init__(self, command: list[str], env: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def finish(self) -> subprocess.CompletedProcess[str]:
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(self.process.args, self.process.returncode, out, err)


def processes() -> Iterator[tuple[int, str, bytes]]:
    """pid, command and environment of every process that we may look at and that is no zombie."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            yield int(folder.name), command, environment
