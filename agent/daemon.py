"""The agent's process: puts the parts together, runs them, ends them in order."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket as sockets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import structlog

from agent import log, socket_path
from agent.api.app import build
from agent.api.reload import PostReload
from agent.api.serve import ApiThread
from agent.board import Board
from agent.config import Config, load
from agent.configured import Configured
from agent.definition import Definition
from agent.edges.history import HistoryFile
from agent.edges.notify import Notifier
from agent.edges.store import LOCKED, StateFile
from agent.errors import ConfigError, EdgeError
from agent.gpu_watch import GpuEyes, GpuWatch
from agent.keeping_off import Fight
from agent.loop import Loop
from agent.ports import Rivals
from agent.records import Records
from agent.view import Document, rfc3339
from agent.watch import Outside

CONFIG = Path("/etc/gpuagent/gpuagent.toml")
OK, FAULT, BAD_CONFIG, ALREADY_RUNS = 0, 1, 2, 100

SWITCH_S = 0.0005
"""Between two threads of Python: at the default 5 ms, 1,000 API clients delay the loop by 27 to 70 ms (p99)."""

logger = structlog.get_logger()


class Mode(AbstractAsyncContextManager[Any, None], Protocol):
    """How servers are run: as children of the agent, or as units of systemd. It makes their edges."""

    @property
    def name(self) -> str:
        """As /status shows it."""

    @property
    def ends_servers(self) -> bool:
        """Whether the servers end with the agent."""

    @property
    def admins(self) -> int | None:
        """The group whose members may make changes; None: there is none."""

    @property
    def rivals(self) -> Rivals | None:
        """The units that fight over the GPUs; None: it cannot turn any off."""

    @property
    def gpus(self) -> GpuEyes:
        """How the GPUs are read."""

    def shutting_down(self) -> bool:
        """Whether the host goes down."""

    def faults(self) -> list[str]:
        """What does not work beside the servers' own edges, for a person."""

    def outside(self, definition: Definition, config: Config, hide: Callable[[str], str]) -> Outside:
        """The edges of one server."""


def run(config_path: Path | None, socket: Path | None, make_mode: Callable[[], Mode]) -> int:
    """Run the agent until SIGTERM, SIGINT, SIGQUIT or SIGHUP. The exit code. `make_mode` is called in its loop.

    0: ended as asked; 1: something outside failed, or a server has outlived the agent, said on stderr; 2: the
    configuration is wrong; 100: another agent runs on the same state.
    """
    config_path = config_path or CONFIG
    try:
        config = load(config_path)
    except ConfigError as error:
        print("\n".join(error.faults), file=sys.stderr)
        return BAD_CONFIG
    store = StateFile(config.agent.state_dir / "state.json")
    try:
        store.lock()
    except EdgeError as error:
        print(f"gpuagent: {error}", file=sys.stderr)
        return ALREADY_RUNS if error.slug == LOCKED else FAULT
    path = socket or config.agent.socket or socket_path.default_for_run(os.environ)
    sys.setswitchinterval(SWITCH_S)
    log.setup()
    try:
        gone = asyncio.run(_serve(config, config_path, store, path, make_mode))
    except EdgeError as error:
        logger.error("the agent cannot run", why=str(error))
        return FAULT
    return OK if gone else FAULT


async def _serve(
    config: Config, config_path: Path, store: StateFile, path: Path, make_mode: Callable[[], Mode]
) -> bool:
    """Everything between the start and the end. False: a server has outlived it that should not.

    EdgeError: the agent's own address or state cannot be had.
    """
    notifier = Notifier()
    async with make_mode() as mode:
        return await _serve_in(mode, config, config_path, store, path, notifier)


async def _serve_in(
    mode: Mode, config: Config, config_path: Path, store: StateFile, path: Path, notifier: Notifier
) -> bool:
    board = Board()
    configured = Configured(config_path, config, mode.outside)
    gpus = GpuWatch(mode.gpus)
    loop = Loop(
        servers=configured.servers(),
        store=store,
        records=Records(HistoryFile(config.agent.state_dir / "history.sqlite"), _boot_id()),
        board=board,
        run=secrets.token_hex(4),
        about=_about(mode.name),
        more_faults=lambda: _faults(mode, configured),
        on_beat=Pulse(notifier),
        ends_servers=mode.ends_servers,
        shutting_down=mode.shutting_down,
        fight=Fight(configured.listed, mode.rivals),
        gpus=gpus,
    )
    reload, admins = _reloading(configured, loop), mode.admins
    see = partial(_post, asyncio.get_running_loop(), gpus.ask)
    app = build(board, loop.ask, version("gpuagent"), path, configured.hide, reload, admins, loop.hold, see)
    api = ApiThread(app, config.agent.listen_address, path, mode=0o600 if admins is None else 0o660, group=admins)
    closing = _closing_on_signals(notifier)
    api.start()
    try:
        logger.info("the agent runs", socket=str(path), http=config.agent.listen, servers=list(config.servers))
        return await loop.run(closing)
    finally:
        board.close()  # ends every wait and stream, so that the API can end
        try:
            await asyncio.to_thread(api.stop)
        except EdgeError as error:  # a thread of clients that hang does not keep the process from ending
            logger.warning("the API has not ended well", why=str(error))


def _post(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Have the loop's thread call it; from any thread. One that has ended does not."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)


def _reloading(configured: Configured, loop: Loop) -> PostReload:
    """How the API's thread asks for a reload."""
    main = asyncio.get_running_loop()

    async def reload() -> Mapping[str, Sequence[str]]:
        try:
            return await configured.reload(loop.redefine)
        finally:
            loop.publish()  # a file that is refused is told by /status too

    return lambda: asyncio.run_coroutine_threadsafe(reload(), main)


def _closing_on_signals(notifier: Notifier) -> asyncio.Event:
    """Set by the first signal that asks for an end, a closed terminal's included: none may leave servers behind."""
    closing = asyncio.Event()

    def close() -> None:
        notifier.stopping()
        closing.set()

    numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup has said that the terminal does not count
        numbers.append(signal.SIGHUP)
    for number in numbers:
        asyncio.get_running_loop().add_signal_handler(number, close)
    return closing


def _faults(mode: Mode, configured: Configured) -> list[str]:
    refused = [f"configuration-refused: {configured.refused}"] if configured.refused else []
    lacks = f"no-server: no server is defined: edit {configured.path.absolute()}, then: gpuagent reload"
    return [*refused, *([] if configured.config.servers else [lacks]), *mode.faults()]


def _about(mode: str) -> tuple[Document, Document]:
    """The agent and the host, as /status shows them."""
    agent = {
        "version": version("gpuagent"),
        "pid": os.getpid(),
        "since": rfc3339(time.time()),
        "mode": mode,
    }
    return agent, {"name": sockets.gethostname(), "boot_id": _boot_id()}


def _boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


class Pulse:
    """What systemd hears of the loop, from the loop itself: withheld while it hangs. READY with the first beat: from
    then on every server has been looked at, and the API answers with what was found."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self._ready = False

    def __call__(self, why: str) -> None:
        """One beat, with the sentence of the moment."""
        if not self._ready:
            self._notifier.ready()
            self._ready = True
        self._notifier.status(why or "no server is defined")
        self._notifier.watchdog()
