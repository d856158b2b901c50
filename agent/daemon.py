"""The agent's process: puts the parts together, runs them, ends them in order."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import signal
import socket as sockets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import structlog

from agent import log, socket_path
from agent.api.app import build
from agent.api.reload import PostReload
from agent.api.serve import ApiThread
from agent.board import Board
from agent.config import Config, load
from agent.configured import Configured
from agent.definition import Definition
from agent.edges.checks import FileChecks
from agent.edges.child_server import ChildServer
from agent.edges.history import HistoryFile
from agent.edges.log_bound import LogBound
from agent.edges.log_tail import LogTail
from agent.edges.notify import Notifier
from agent.edges.probe import HttpProbe
from agent.edges.store import LOCKED, StateFile
from agent.errors import ConfigError, EdgeError
from agent.loop import Loop
from agent.records import Records
from agent.view import Document, rfc3339
from agent.watch import Outside

CONFIG = Path("/etc/gpuagent/gpuagent.toml")
OK, FAULT, BAD_CONFIG, ALREADY_RUNS = 0, 1, 2, 100

SWITCH_S = 0.0005
"""Between two threads of Python: at the default 5 ms, 1,000 API clients delay the loop by 27 to 70 ms (p99)."""

logger = structlog.get_logger()


def run(config_path: Path | None, socket: Path | None) -> int:
    """Run the agent until SIGTERM, SIGINT, SIGQUIT or SIGHUP; its servers end with it. The exit code.

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
        gone = asyncio.run(_serve(config, config_path, store, path))
    except EdgeError as error:
        logger.error("the agent cannot run", why=str(error))
        return FAULT
    return OK if gone else FAULT


async def _serve(config: Config, config_path: Path, store: StateFile, path: Path) -> bool:
    """Everything between the start and the end. False: a server has outlived it.

    EdgeError: the agent's own address or state cannot be had.
    """
    notifier, board = Notifier(), Board()
    configured = Configured(config_path, config, _outside)
    loop = Loop(
        servers=configured.servers(),
        store=store,
        records=Records(HistoryFile(config.agent.state_dir / "history.sqlite"), _boot_id()),
        board=board,
        run=secrets.token_hex(4),
        about=_about(),
        more_faults=lambda: [f"configuration-refused: {configured.refused}"] if configured.refused else [],
        on_beat=Pulse(notifier),
    )
    app = build(board, loop.ask, version("gpuagent"), path, configured.hide, _reloading(configured, loop))
    api = ApiThread(app, config.agent.listen_address, path)
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


def _outside(definition: Definition, config: Config, hide: Callable[[str], str]) -> Outside:
    """The edges of one server."""
    folder = config.agent.log_dir / definition.name
    server = ChildServer(
        definition.name,
        definition.command,
        definition.environment.read,
        definition.working_dir,
        _mark(config.agent.state_dir),
    )
    family, log_kept = definition.family, config.servers[definition.name].log
    return Outside(
        server=server,
        checks=FileChecks(
            command=definition.command,
            environment=definition.environment.read,
            working_dir=definition.working_dir,
            files=definition.files,
            environment_file=definition.environment_file,
            log_folder=folder,
            host=definition.bind,
            port=definition.port,
        ),
        probe=HttpProbe(
            definition.bind, definition.port, definition.health_path, family.answers, family.probe_timeout_s
        ),
        family=family,
        keeper=LogBound(folder, log_kept.max_mib, log_kept.keep_attempts, log_kept.keep_mib),
        open_log=LogTail,
        log_path=lambda invocation: folder / f"{invocation}.log",
        redact=hide,
    )


def _mark(state_dir: Path) -> str:
    """Tells the servers of this agent from those of another: the same after a restart, as the state is the same."""
    return hashlib.sha256(os.fsencode(state_dir.resolve())).hexdigest()[:16]


def _about() -> tuple[Document, Document]:
    """The agent and the host, as /status shows them."""
    agent = {
        "version": version("gpuagent"),
        "pid": os.getpid(),
        "since": rfc3339(time.time()),
        "mode": "embedded",
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
        self._notifier.status(why)
        self._notifier.watchdog()
