"""The agent is killed again and again, at random moments of the real server's life: its server and clients go on.

25 kills by default; KILLS=100, or `-m soak`, for more. KILLS_SEED repeats the dice of an earlier run.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.real.conftest import Make
from tests.real.real_house import PATIENCE_S, TEST_MARK, Agent, Document, free_port, llama, processes, table

KILLS = int(os.environ.get("KILLS", "25"))
TOKENS = 400
EVENT_S = 0.01  # between two looks of the client at its stream: with 400 tokens it lasts longer than most agents here
NARROW_BYTES = 4096  # of the client's receive buffer: the server must wait for the client, and so holds the stream open
LOOK_S = 0.25  # a second server would live for seconds; more looks would take the agent's share of a small host
AGENT_WORKS_S = 0.8
ACTIONS = {"nothing": 6, "restart": 4, "kill": 3, "stop": 2}


@dataclass(frozen=True, slots=True)
class Tree:
    """A process that is the server: its tree has no other."""

    pid: int
    invocation: str


def servers(agent: Agent) -> list[Tree]:
    """Those that live now."""
    mine = f"{TEST_MARK}={agent.mark}".encode()
    found = []
    for pid, command, environment in processes():
        variables = environment.split(b"\0")
        if mine in variables and "demo/llama_server.py" in command:
            mark = next(each for each in variables if each.startswith(b"GPUAGENT_MARK="))
            found.append(Tree(pid, mark.rpartition(b":")[2].decode()))
    return found


class Sightings:
    """Looks at the processes all the time: at most one is the server, and each lives until we end it."""

    def __init__(self, agent: Agent) -> None:
        self.seen: list[Tree] = []
        self.doomed: set[str] = set()  # invocations that we have asked to end, or killed
        self.faults: list[str] = []
        self._agent = agent
        self._lock = threading.Lock()

    def now(self) -> Tree | None:
        """The server, if it lives."""
        with self._lock:
            found = servers(self._agent)
            if len(found) > 1:  # the first may have ended before the second began: a look takes a moment
                found = [each for each in servers(self._agent) if each in found]
            if len(found) > 1:
                self.faults.append(f"more than one tree: {found}")
            missing = [each for each in self.seen if each not in found and each.invocation not in self.doomed]
            for each in missing:
                self.faults.append(f"{each} is gone, and nobody ended it; now: {found}")
                self.doomed.add(each.invocation)  # said once
            for each in found:
                self._greet(each)
            return found[-1] if found else None

    def _greet(self, tree: Tree) -> None:
        if tree in self.seen:
            return
        for each in self.seen:
            if each.invocation == tree.invocation:
                self.faults.append(f"{tree} has the invocation of {each}")
            if each.invocation not in self.doomed:
                self.faults.append(f"{tree} though nobody ended {each}")
        self.seen.append(tree)


class Reader:
    """A client that holds a stream from the server whenever there is one, and reads it slowly."""

    def __init__(self, port: int, sightings: Sightings) -> None:
        self.events = 0
        self.streams = 0
        self.held: str | None = None  # the invocation whose stream it holds
        self.cuts: list[str] = []
        self._port = port
        self._sightings = sightings
        self._served: set[str] = set()  # invocations that have answered

    def turn(self, ended: threading.Event) -> None:
        """Ask for a stream, and read it to its end. llama.cpp closes a connection after a stream."""
        if (tree := self._sightings.now()) is None:
            return
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
        try:
            self._connect(connection)
            self._read_stream(connection, tree.invocation, ended)
        except (OSError, http.client.HTTPException, AssertionError) as error:
            if tree.invocation in self._served - self._sightings.doomed:
                self.cuts.append(f"{tree}, event {self.events}: {error!r}")
        finally:
            self.held = None
            connection.close()

    def _connect(self, connection: http.client.HTTPConnection) -> None:
        connection.sock = socket.socket()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NARROW_BYTES)
        connection.sock.settimeout(PATIENCE_S)
        connection.sock.connect(("127.0.0.1", self._port))

    def _read_stream(self, connection: http.client.HTTPConnection, invocation: str, ended: threading.Event) -> None:
        body = {"prompt": "hello", "max_tokens": TOKENS, "stream": True, "ignore_eos": True}
        connection.request("POST", "/v1/completions", json.dumps(body))
        answer = connection.getresponse()
        assert answer.status == 200, f"HTTP {answer.status}"  # 503: it loads
        self._served.add(invocation)
        self.held = invocation
        last: Document = {}
        while (line := answer.readline()) and line != b"data: [DONE]\n" and not ended.is_set():
            if line.startswith(b"data: "):
                last = json.loads(line.removeprefix(b"data: "))
                self.events += 1
                time.sleep(EVENT_S)
        if not ended.is_set():
            assert line, "the stream ended early"
            assert last["usage"]["completion_tokens"] == TOKENS
            self.streams += 1


@contextmanager
def at_work(*works: Any) -> Iterator[None]:
    """Each in a thread of its own, again and again."""
    ended = threading.Event()

    def go_on(work: Any) -> None:
        while not ended.is_set():
            work(ended)
            ended.wait(LOOK_S)

    threads = [threading.Thread(target=go_on, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(PATIENCE_S)


class Torment:
    """Starts the agent, does something to its server, and kills the agent; what was done, counted."""

    def __init__(self, agent: Agent, sightings: Sightings, dice: random.Random) -> None:
        self.done: Counter[str] = Counter()
        self._agent = agent
        self._sightings = sightings
        self._dice = dice
        self._attempts: dict[str, int] = {}
        self._served: set[str] = set()
        self._unheard: list[socket.socket] = []
        self._starts_s = 1.0  # how long an agent took to start: a kill within this hits each part of its start

    def once(self, reader: Reader) -> None:
        """One life of an agent."""
        self._agent.process = self._agent.run()
        if self._dice.random() < 0.5:
            self.done["killed while the agent started"] += 1
            time.sleep(self._dice.uniform(0, self._starts_s))
        else:
            began = time.monotonic()
            self._agent.until_answers()
            self._starts_s = time.monotonic() - began
            self._act(self._adopted())
            time.sleep(self._dice.uniform(0, AGENT_WORKS_S))
        held = reader.held
        self._agent.signal(signal.SIGKILL)
        assert self._agent.ended() == -signal.SIGKILL, self._agent.own_log.read_text()
        self.done["a stream was held over it"] += held is not None and held not in self._sightings.doomed
        while self._unheard:
            self._unheard.pop().close()

    def _adopted(self) -> Document:
        """The server's document; of one that nobody ended it tells what its last agent told."""
        tree = self._sightings.now()
        server = self._agent.server()
        self.done[f"server {server['stage']}"] += 1
        if tree is not None and tree == self._sightings.now() and tree.invocation not in self._sightings.doomed:
            shown = (server["pid"], server["invocation"], server["attempt"])
            assert shown == (tree.pid, tree.invocation, self._attempts.get(tree.invocation, server["attempt"]))
            assert server["stage"] in ("ready", "unhealthy") or tree.invocation not in self._served, server
            self.done["found by an agent"] += 1
            self._attempts[tree.invocation] = server["attempt"]
        return server

    def _act(self, server: Document) -> None:
        invocation, pid = server["invocation"], server["pid"]
        if server["stage"] in ("down", "failed"):
            self._post("start")
        elif pid is not None and server["stage"] in ("starting", "ready"):
            [action] = self._dice.choices(list(ACTIONS), list(ACTIONS.values()))
            if invocation in self._sightings.doomed:
                action = "kill"  # what was asked has been lost with the agent that was asked
            self.done[action] += 1
            if action != "nothing":
                self._sightings.doomed.add(invocation)
            if action == "kill":
                self._agent.post("/servers/demo/start")  # its failures count anew
                self._kill(pid)
            elif action != "nothing":
                self._post(action)

    def _kill(self, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            self.done["was gone"] += 1

    def _post(self, verb: str) -> None:
        """Ask for it without waiting for the answer: the agent may be killed before it is saved, or after."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self._agent.socket))
        head = f"POST /servers/demo/{verb} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        connection.sendall(head.encode())
        self._unheard.append(connection)

    def over(self) -> Document:
        """The last agent stays; its server, ready."""
        self._agent.start()
        if self._agent.until(lambda now: now["stage"] != "stopping", "the end of a stop")["want"] == "down":
            self._agent.post("/servers/demo/start")
        if self._agent.until_stage("ready", "failed")["stage"] == "failed":
            self._agent.post("/servers/demo/start")
        return self._agent.until_stage("ready")


@pytest.mark.parametrize("kills", [KILLS, pytest.param(100, marks=pytest.mark.soak)])
def test_kills_of_the_agent_at_random_moments_make_no_second_server_and_cut_no_stream(
    make: Make, model: Path, kills: int
) -> None:
    seed = int(os.environ.get("KILLS_SEED", random.randrange(1_000_000)))
    print(f"KILLS_SEED={seed}")
    port = free_port()
    command = llama(model, port, "--ctx-size", "512")
    server = table(
        "demo", command, "llama_cpp", autostart=True, stop_s=2, restart={"attempts": 1000, "pauses_s": [0.4]}
    )
    agent = make(server)
    sightings = Sightings(agent)
    reader, torment = Reader(port, sightings), Torment(agent, sightings, random.Random(seed))
    with at_work(lambda _: sightings.now(), reader.turn):
        for _ in range(kills):
            torment.once(reader)
            assert not sightings.faults
            assert not reader.cuts
        last = torment.over()
    print(f"{kills} kills; {dict(torment.done)}")
    print(f"{len(sightings.seen)} servers; {reader.streams} whole streams, {reader.events} events, cuts: {reader.cuts}")
    assert (sightings.faults, reader.cuts) == ([], [])
    starts = agent.get("/servers/demo/starts?limit=500").document["starts"]
    told = Counter(start["invocation"] for start in starts)
    assert set(told.values()) == {1}
    assert {each.invocation for each in sightings.seen} <= set(told)
    print(f"starts told: {len(starts)}; {dict(Counter(start['outcome'] for start in starts))}")
    assert [start["invocation"] for start in starts if start["outcome"] is None] == [last["invocation"]]
    assert agent.end() == 0
