#!/usr/bin/env python3
"""`make demo`: a real inference server under the agent, drawn until it is ready, kept until Ctrl-C.

Makes the model if there is none, starts `gpuagent run` as a child, asks its API over the unix socket, and ends
it again. All files lie in .demo/ of the checkout.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import click
import psutil
from child_agent import AgentDiedError, ChildAgent
from drawing import drawing

from agent.cli import words
from agent.cli.client import Client, Document
from agent.cli.exits import Fault, Unreachable
from agent.cli.text import utc_now

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".demo"
MODEL = FOLDER / "demo.gguf"
EXAMPLE = ROOT / "config" / "examples" / "demo.toml"
NAME = "demo"  # of the server in EXAMPLE
PORT = 8901  # of the server in EXAMPLE
API = "localhost:8900"  # agent.listen in EXAMPLE
PLACEHOLDER = "/opt/gpuagent"  # in EXAMPLE, for the checkout
SOCKET_BYTES = 107  # sockaddr_un holds 108, the last of which is NUL
POLL_S = 0.1  # while it starts
REST_S = 0.5  # afterwards
ANSWER_S = 20.0  # until the agent's API must answer
WAITING_S = 30.0  # a precondition (such as a port that is taken) may heal for so long
COMPLETION_S = 60.0


class DemoError(Exception):
    """The demo cannot go on; the text says why, and what to do."""


class Ended(BaseException):
    """Ctrl-C, or SIGTERM: an end as any other, but not to be taken for an error on its way up."""


def _end(_signum: int, _frame: object) -> NoReturn:
    _ignore_signals()  # the end is under way, and takes as long as it takes
    raise Ended


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def _only_demo() -> Iterator[None]:
    """One demo at a time from one checkout: they would share files and ports."""
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DemoError(f"a demo already runs in {ROOT}. End it with Ctrl-C where it runs") from error
        yield


@contextmanager
def _socket() -> Iterator[Path]:
    """Where the agent shall listen: in FOLDER or, when that is too deep for a socket's address, somewhere shorter."""
    path = FOLDER / "api.sock"
    if len(os.fsencode(path)) <= SOCKET_BYTES:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="gpuagent-demo-") as folder:
        yield Path(folder) / "api.sock"


def _model() -> None:
    """The model file, made if it is missing. In a session of its own: Ctrl-C reaches the demo alone."""
    command = [sys.executable, str(ROOT / "demo" / "make_model.py"), "--size", "demo", "--out", str(MODEL)]
    maker = subprocess.Popen(command, start_new_session=True)  # noqa: S603 - our own program
    try:
        code = maker.wait()
    finally:
        maker.terminate()  # it takes its half file away; nothing is sent when it has ended
        maker.wait()
    if code != 0:
        raise DemoError("there is no model to serve; why is said above")


def _configuration(socket: Path) -> Path:
    """EXAMPLE with the paths of this checkout."""

    def quoted(path: Path | str) -> str:
        return json.dumps(str(path), ensure_ascii=False)[1:-1]  # TOML's basic strings escape as JSON's do

    text = EXAMPLE.read_text()
    text = text.replace(f'"{PLACEHOLDER}/.venv/bin/python"', f'"{quoted(sys.executable)}"')
    text = text.replace(f'"{PLACEHOLDER}/.demo/api.sock"', f'"{quoted(socket)}"')
    text = text.replace(f'"{PLACEHOLDER}/', f'"{quoted(ROOT)}/')
    path = FOLDER / "gpuagent.toml"
    path.write_text(text)
    return path


def _look(agent: ChildAgent, api: Client) -> Document | None:
    """The server as the agent sees it; None: the API does not answer yet. AgentDiedError: it never will."""
    agent.check()
    try:
        return api.server(NAME)
    except Unreachable:
        return None


def _await_api(agent: ChildAgent, api: Client) -> Document:
    """The first answer. A server that an earlier demo was told to stop is started again."""
    deadline = time.monotonic() + ANSWER_S
    while (server := _look(agent, api)) is None:
        if time.monotonic() > deadline:
            raise DemoError(f"the agent runs, but its API did not answer within {ANSWER_S:g} s:\n{agent.last_words()}")
        time.sleep(POLL_S)
    return server if server["want"] == "up" else api.change(NAME, "start", {})


def _await_ready(agent: ChildAgent, api: Client) -> Document:
    """Draw until it is ready. DemoError: it will not be."""
    server: Document | None = _await_api(agent, api)
    picture = drawing()
    patience = time.monotonic() + WAITING_S
    try:
        while server is None or server["stage"] != "ready":
            if server is not None:
                picture.show(server)
                if server["stage"] != "waiting":
                    patience = time.monotonic() + WAITING_S
                if server["stage"] in ("failed", "down") or time.monotonic() > patience:
                    break
            time.sleep(POLL_S)
            server = _look(agent, api)
        picture.show(server)
    finally:
        picture.close()
    if server["stage"] != "ready":
        story = click.unstyle("\n".join(words.story(server, utc_now())))
        raise DemoError(f"the server did not get ready\n\n{story}")
    return server


def _complete() -> str:
    """One completion, asked of the server itself."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=COMPLETION_S)
    try:
        body = json.dumps({"prompt": "The agent says:", "max_tokens": 16})
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise DemoError(f"the server answered a completion with HTTP {response.status}: {answer[:300]!r}")
        return str(json.loads(answer)["choices"][0]["text"])
    except (OSError, http.client.HTTPException, ValueError, LookupError) as error:
        raise DemoError(f"the server is ready, but a completion failed: {error or type(error).__name__}") from error
    finally:
        connection.close()


def _hints(server: Document, socket: Path) -> str:
    """What to try in another terminal."""
    gpuagent = Path(sys.executable).with_name("gpuagent")
    return f"""
Try, in another terminal:

  curl -s {API}/servers/{NAME}/stage
  curl -s {API}/status
  curl -s localhost:{PORT}/v1/completions -d '{{"prompt": "hello", "max_tokens": 16}}'

  export GPUAGENT_SOCKET='{socket}'
  kill -9 {server["pid"]}; {gpuagent} why {NAME}; {gpuagent} status --watch
  {gpuagent} log {NAME}
  {gpuagent} stop {NAME}

Ctrl-C ends the agent and its server.
"""


def _stay(agent: ChildAgent, api: Client, server: Document) -> NoReturn:
    """Until Ctrl-C, a line for each change."""
    shown = (server["stage"], server["step"])
    while True:
        time.sleep(REST_S)
        now = _look(agent, api)
        if now is None or (now["stage"], now["step"]) == shown:
            continue
        shown = (now["stage"], now["step"])
        # click, because the sentence has colours that a pipe must not see
        click.echo(words.sentence(now) + (f" [{words.step(now)}]" if words.step(now) else ""))


def _run(agent: ChildAgent, socket: Path) -> NoReturn:
    api = Client([socket])
    server = _await_ready(agent, api)
    print(f"\nThe server answers a completion (random weights, so random text):\n  {_complete()}")
    print(_hints(server, socket), flush=True)
    _stay(agent, api, server)


def _end_leftovers() -> None:
    """Look whether anything still has the model in its command line; there should be nothing, and then nothing is."""
    for process in psutil.process_iter(["cmdline"]):
        if str(MODEL) in (process.info["cmdline"] or ()):
            print(f"pid {process.pid} of the server was left, and is killed now", file=sys.stderr)
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _demo() -> None:
    """Until Ctrl-C (Ended). Whatever ends it, the agent and its server are ended first."""
    with _only_demo(), _socket() as socket:
        _model()
        agent = ChildAgent(_configuration(socket), FOLDER / "agent.log")
        print(f"Starting the agent (its own log: {agent.log})", flush=True)
        try:
            agent.start()
            _run(agent, socket)
        finally:
            _ignore_signals()
            print(agent.end(), flush=True)
            _end_leftovers()


def main() -> int:
    """0: ended by Ctrl-C or SIGTERM. 1: something failed."""
    if shutil.which("gpuagent", path=Path(sys.executable).parent) is None:
        print("demo: gpuagent is not installed beside this Python. Run: make demo", file=sys.stderr)
        return 1
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    try:
        _demo()
    except Ended:
        return 0
    except (DemoError, AgentDiedError) as error:
        print(f"\ndemo: {error}", file=sys.stderr)
    except Fault as error:
        print(f"\ndemo: the agent says: {error.message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
