"""How soon the API tells what happens to a real server, and how soon the agent does what follows."""

from __future__ import annotations

import json
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.connection import Connection
from tests.bench.figures import Aim, Figure
from tests.bench.house import (
    DEADLINE_S,
    NAME,
    BenchError,
    Document,
    House,
    demo_command,
    pidfd,
    stand_in_command,
    until,
)

CYCLES = 60  # of two starts each, about half a second a start
AGENT_STARTS = 20
STARTING_DEATHS = 30
HEALTH_POLL_S = 0.002
SETTLE_S = 0.05  # between an answer and the next act, so that nothing of the last one is still going on
PATH = f"/servers/{NAME}"

DEATH_AIMS = (Aim(0.5, 15), Aim(0.99, 100))


class Samples:
    """Milliseconds, by what was measured."""

    def __init__(self) -> None:
        self.death: list[float] = []
        self.ready: list[float] = []
        self.relaunch: list[float] = []


def real_server(folder: Path, model: Path) -> list[Figure]:
    """Kills, starts and restarts of the demo's own server."""
    samples = Samples()
    with House(folder / "real", demo_command(model), "llama_cpp") as house:
        house.await_ready()
        for _ in range(CYCLES):
            samples.death.append(_kill(house))
            samples.ready.append(_ready_after(house, lambda: house.change("start")))
            samples.relaunch.append(_restart(house, samples.ready))
        started = [_restart_agent(house) for _ in range(AGENT_STARTS)]
    api, adopted, ready = zip(*started, strict=True)
    return [
        Figure("kill -9 when ready -> API tells cause, signal, tail", "ms", samples.death, DEATH_AIMS, "tight poller"),
        Figure("first 200 of the server -> API says ready", "ms", samples.ready, (Aim(0.99, 120),), "by `wait`"),
        Figure("server's own end -> relaunched (restart)", "ms", samples.relaunch, (Aim(0.99, 150),)),
        Figure("agent start -> API answers", "ms", api),
        Figure("agent start -> server adopted", "ms", adopted, (Aim(0.99, 1000),)),
        Figure("agent start -> adopted server ready", "ms", ready),
    ]


def starting_server(folder: Path) -> list[Figure]:
    """Deaths while it starts, told to a client that waits."""
    command = stand_in_command("--load-s", "600", "--print", "loading weights")
    with House(folder / "starting", command, "plain") as house:
        samples = [_kill_while_waited_for(house) for _ in range(STARTING_DEATHS)]
    return [Figure("kill -9 while starting -> `wait` returns the cause", "ms", samples, DEATH_AIMS, "stand-in")]


def _ms(begin: float, end: float) -> float:
    return (end - begin) * 1000


# -- a death ---------------------------------------------------------------------------------------------


def _kill(house: House) -> float:
    """From just before the kill to the first document that tells all of it."""
    pid = house.await_ready()["pid"]
    time.sleep(SETTLE_S)
    with house.connect() as api:
        api.document(PATH)
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        until("the death", lambda: _death(api.document(PATH)))
        return _ms(began, time.monotonic())


def _death(server: Document) -> Document | None:
    told = server["cause"] and server["exit"] and server["exit"]["signal"] == signal.SIGKILL and server["tail"]
    return server if server["stage"] != "ready" and told else None


def _kill_while_waited_for(house: House) -> float:
    house.change("start")

    def loading() -> Document | None:
        server = house.server()
        return server if server["stage"] == "starting" and server["pid"] and server["tail"] else None

    pid = until("the stand-in's first line", loading, pause_s=0.02)["pid"]
    with house.connect() as api:
        ended: list[tuple[float, int, bytes]] = []

        def wait() -> None:
            status, body = api.ask(f"{PATH}/wait?for=ready&timeout=60")
            ended.append((time.monotonic(), status, body))

        waiter = threading.Thread(target=wait)
        waiter.start()
        time.sleep(SETTLE_S)  # the request is in
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        waiter.join(DEADLINE_S)
    at, status, body = ended[0]
    if status != 409 or b'"cause"' not in body:
        raise BenchError(f"wait answered {status}: {body.decode(errors='replace')}")
    return _ms(began, at)


# -- a start ---------------------------------------------------------------------------------------------


def _ready_after(house: House, start: Callable[[], object]) -> float:
    """From the first 200 of the server itself to the answer of `wait`; 0: the agent told it before we saw it."""
    first_200: list[float] = []
    over = threading.Event()

    def ask_health() -> None:
        while not first_200 and not over.is_set():
            try:
                with Connection(("127.0.0.1", house.server_port)) as server:
                    if server.ask("/health")[0] == 200:
                        first_200.append(time.monotonic())
            except OSError:
                pass
            time.sleep(HEALTH_POLL_S)

    start()
    asker = threading.Thread(target=ask_health)
    asker.start()
    try:
        with house.connect() as api:
            status, body = api.ask(f"{PATH}/wait?for=ready&timeout={DEADLINE_S:g}")
            told = time.monotonic()
    finally:
        asker.join(1.0)
        over.set()
    if status != 200:
        raise BenchError(f"wait answered {status}: {body.decode(errors='replace')}")
    return _ms(first_200[0], told) if first_200 and first_200[0] <= told else 0.0


def _restart(house: House, ready: list[float]) -> float:
    """From the end of the old first process to the first document with a new one."""
    old = house.await_ready()["pid"]
    time.sleep(SETTLE_S)
    fd = pidfd(old)
    ended: list[float] = []

    def await_end() -> None:
        if select.select([fd], [], [], DEADLINE_S)[0]:
            ended.append(time.monotonic())

    watcher = threading.Thread(target=await_end)
    watcher.start()
    launched: list[float] = []

    def restart() -> None:
        house.change("restart")
        with house.connect() as api:
            until("the new process", lambda: api.document(PATH)["pid"] not in (None, old) or None, pause_s=0.001)
        launched.append(time.monotonic())

    ready.append(_ready_after(house, restart))
    watcher.join()
    os.close(fd)
    return _ms(ended[0], launched[0])


# -- the agent itself ------------------------------------------------------------------------------------


def _restart_agent(house: House) -> tuple[float, float, float]:
    """Kill it and start it again, its server alive: until the API answers, shows the old pid, and says ready."""
    pid = house.await_ready()["pid"]
    house.kill()
    began = house.start()
    with house.connect() as api:
        server = until("the first answer", lambda: _answer(api), pause_s=0.001)
        answered = time.monotonic()
        while server["pid"] != pid:
            server = api.document(PATH)
        adopted = time.monotonic()
        until("ready", lambda: api.document(PATH)["stage"] == "ready" or None, pause_s=0.002)
        return _ms(began, answered), _ms(began, adopted), _ms(began, time.monotonic())


def _answer(api: Connection) -> Document | None:
    """The server's document; None: the agent has not looked around yet."""
    status, body = api.ask(PATH)
    document: Document | None = json.loads(body) if status == 200 else None
    return document
