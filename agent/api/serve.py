"""The API's thread: uvicorn on a TCP port and a unix socket, with the limits that keep one client from all others."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from agent.api.events import EVENTS
from agent.api.guard import with_peer
from agent.api.listening import bind_tcp, bind_unix, identity, peer_credentials
from agent.api.problem import PROBLEM_JSON, Problem
from agent.errors import EdgeError

START_S = 10.0  # until the thread must answer; it takes some milliseconds
REQUEST_S = 10.0  # until a request must have come in whole
KEEP_ALIVE_S = 5  # an idle connection is worth a file descriptor for this long
HEAD_BYTES = 16 * 1024
SLOW_S = 20.0  # until a reader of /events must have taken what is ready for it
DATE_S = 1.0  # the Date of an answer counts seconds
SEEN_CONNECTIONS = 4096  # beyond this, uvicorn's own lists get slow


class Connection(H11Protocol):
    """One connection. Tells the app who is at the other end, and does not wait for ever."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own one, too
        """Note who connected, before anything is read."""
        super().connection_made(transport)
        self.late: asyncio.TimerHandle | None = None
        self.slow: asyncio.TimerHandle | None = None
        self.peer = peer_credentials(transport.get_extra_info("socket"))
        if self.peer is not None:
            self.app = cast(Any, with_peer(cast(ASGIApp, self.app), self.peer))
        elif sum(isinstance(each, Connection) and each.peer is None for each in self.connections) > tcp_limit():
            # Any local user can connect over TCP: half of the room is kept for those on the socket.
            transport.abort()
        self.app = cast(Any, self._within_limits(cast(ASGIApp, self.app)))
        self._watch()

    def _within_limits(self, app: ASGIApp) -> ASGIApp:
        """`app`, or a problem while there are too many connections. uvicorn's own limit answers with plain text."""

        async def limited(scope: Scope, receive: Receive, send: Send) -> None:
            full = len(self.connections) >= connection_limit()
            answer = Problem(503, "too many connections; ask again soon").response() if full else app
            await answer(scope, receive, send)

        return limited

    def data_received(self, data: bytes) -> None:
        """Read on."""
        super().data_received(data)
        self._watch()

    def pause_writing(self) -> None:
        """The other end does not read. A log may be paged through; whoever follows the events must keep up."""
        super().pause_writing()
        if self.scope["path"] == EVENTS:
            self.slow = self.loop.call_later(SLOW_S, self.transport.abort)

    def resume_writing(self) -> None:
        """It reads again."""
        self._unhurry()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The other end is gone."""
        self._forgive()
        self._unhurry()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """For what is no HTTP, as a problem document like every other error."""
        body = Problem(400, msg).document()
        headers = [("content-type", PROBLEM_JSON), ("content-length", str(len(body))), ("connection", "close")]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _watch(self) -> None:
        """End it when the request that is coming in drips: uvicorn has no limit for that."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._forgive()
        elif self.late is None:
            self.late = self.loop.call_later(REQUEST_S, self.transport.abort)

    def _forgive(self) -> None:
        if self.late is not None:
            self.late.cancel()
            self.late = None

    def _unhurry(self) -> None:
        if self.slow is not None:
            self.slow.cancel()
            self.slow = None


def connection_limit() -> int:
    """Half of the file descriptors that this process may have: the loop must always find one for a pidfd or a log."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return SEEN_CONNECTIONS if files == resource.RLIM_INFINITY else min(SEEN_CONNECTIONS, files // 2)


def tcp_limit() -> int:
    """How many connections there may be over TCP."""
    return connection_limit() // 2


class ThreadServer(uvicorn.Server):
    """uvicorn beside the loop's thread."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.settled = threading.Event()  # it answers, or it has ended
        self._ending = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self.settled.set()

    async def main_loop(self) -> None:
        """Until told to end. uvicorn's own looks for that ten times a second, at half of the agent's CPU at rest."""
        while not await self.on_tick(0):  # 0: the Date of the answers is set at each
            with suppress(TimeoutError):
                async with asyncio.timeout(DATE_S):
                    await self._ending.wait()

    def end(self) -> None:
        """End soon; from any thread."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it is closed: the server has ended by itself
                self._loop.call_soon_threadsafe(self._ending.set)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the main thread: it closes the board first, then calls `stop`."""
        yield


class ApiThread:
    """Serves `app` over TCP (host, port; None: not at all) and on a unix socket, in a thread of its own."""

    def __init__(
        self,
        app: ASGIApp,
        tcp: tuple[str, int] | None,
        path: Path,
        mode: int = 0o600,
        group: int | None = None,
    ) -> None:
        """`mode`, `group`: of the socket's file; group None: that of this process."""
        self._tcp = tcp
        self._path = path
        self._mode = mode
        self._group = group
        self._file: tuple[int, int] | None = None  # device and inode of our socket file
        self._server = ThreadServer(settings(app))
        self._thread: threading.Thread | None = None
        self.port: int | None = None  # the TCP port, once bound

    def start(self) -> None:
        """Bind here, so that a fault is the caller's to see (EdgeError), and return when the thread answers."""
        sockets = [bind_unix(self._path, self._mode, self._group)]
        try:
            if self._tcp is not None:
                sockets.append(bind_tcp(*self._tcp))
                self.port = sockets[-1].getsockname()[1]
        except EdgeError:
            sockets[0].close()
            self._path.unlink(missing_ok=True)
            raise
        self._file = identity(self._path)
        self._thread = threading.Thread(target=self._run, args=(sockets,), name="api", daemon=True)
        self._thread.start()
        if not self._server.settled.wait(START_S) or not self._server.started:
            raise EdgeError("api", "start", "its thread does not answer; the agent's log says more")

    def _run(self, sockets: list[socket.socket]) -> None:
        try:
            self._server.run(sockets)
        finally:
            self._server.settled.set()

    def stop(self, deadline_s: float = 1.0) -> None:
        """End within `deadline_s`. Close the board first: that is what ends the waits and streams.

        EdgeError: the thread still runs; it does not keep the process from ending.
        """
        if self._thread is None:
            return
        # Half for the clients to take their last bytes; then their tasks are cancelled. A float is fine for asyncio.
        self._server.config.timeout_graceful_shutdown = deadline_s / 2  # type: ignore[assignment]  # declared as int
        self._server.end()
        self._thread.join(deadline_s)
        # By identity: another agent may have put its own file there.
        if self._file is not None and identity(self._path) == self._file:
            self._path.unlink(missing_ok=True)
        if self._thread.is_alive():
            raise EdgeError("api", "stop", f"its thread has not ended in {deadline_s} s")


def is_fault(record: logging.LogRecord) -> bool:
    """Not one: an answer that was cut off because the agent ends. uvicorn logs a traceback for each of them."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def settings(app: ASGIApp) -> uvicorn.Config:
    """uvicorn's settings."""
    logging.getLogger("uvicorn.error").addFilter(is_fault)
    return uvicorn.Config(
        app,
        loop="asyncio",
        http=Connection,
        ws="none",
        interface="asgi3",
        lifespan="on",
        log_config=None,
        log_level="error",  # below that, any client can fill the log
        access_log=False,
        proxy_headers=False,  # nobody's word for who asks
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        h11_max_incomplete_event_size=HEAD_BYTES,
    )
