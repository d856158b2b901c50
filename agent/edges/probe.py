"""The server's port: does it listen, is the listener ours, what does it answer."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
from collections.abc import Mapping

import httpx2

from agent.core.model import Health
from agent.edges import sockets
from agent.edges.bounded import BoundedThread
from agent.edges.owners import ByDescriptors, Owner
from agent.edges.sockets import Endpoint
from agent.errors import EdgeError

EDGE = "probe"
SEARCH_S = 5.0  # some milliseconds in health; more means that /proc itself is stuck
REFUSALS = frozenset({errno.ECONNREFUSED, errno.ECONNRESET})
"""What a listener answers, or the lack of one. Any other failure to connect is our own host's."""
BODY_BYTES = 65_536  # no health answer is longer; what comes after is not read
WORDS_CHARS = 120


class HttpProbe:
    """Implements `agent.ports.Probe` for a server told to listen on `host`:`port`.

    `answers` says what each HTTP status means; all others are SICK, as is every redirect: none is followed. The whole
    question, from the connect to the last byte, has `timeout_s`. `host` may be any address or a name. `owner` tells
    whose a listener is; None: its processes' descriptors do.
    """

    def __init__(
        self,
        host: str,
        port: int,
        path: str,
        answers: Mapping[int, Health],
        timeout_s: float,
        owner: Owner | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._path = path if path.startswith("/") else f"/{path}"
        self._answers = dict(answers)
        self._timeout_s = timeout_s
        self._owner = owner or ByDescriptors()
        self._taken: tuple[tuple[Endpoint, ...], frozenset[int]] | None = None  # the last listeners, found foreign
        self._taken_by = ""
        self._thread = BoundedThread(EDGE)
        self._client = httpx2.AsyncClient(
            trust_env=False,  # a proxy of the environment must not answer for the server
            verify=False,  # plain HTTP only; loading certificates costs 20 ms
            follow_redirects=False,
            limits=httpx2.Limits(max_keepalive_connections=0),  # an old connection may be to another process
            timeout=timeout_s,
        )

    async def ask(self, ours: frozenset[int]) -> tuple[Health, str]:
        """See `agent.ports.Probe`. A port on which nobody listens costs one question to the kernel.

        Whose a listener is takes a look at many processes, in a thread of its own: once, for what was found then is
        checked with one more question. EdgeError: it cannot be seen, or connected to, for a reason of this host's.
        """
        try:
            ends = sockets.reached(sockets.listeners(self._port), self._host)
        except OSError as error:
            raise EdgeError(EDGE, f"see who listens on port {self._port}", error.strerror or str(error)) from error
        if not ends:
            return Health.REFUSED, f"nobody listens on port {self._port}"
        if not self._owner.proved(ends, ours):
            if (ends, ours) != self._taken:
                await self._search(ends, ours)
            if self._taken is not None:
                return Health.FOREIGN, f"port {self._port} is held by {self._taken_by}"
        return await self._get(sockets.target(ends[0], self._host))

    async def _search(self, ends: tuple[Endpoint, ...], ours: frozenset[int]) -> None:
        what = f"see whose the listener on port {self._port} is"
        self._taken_by = await self._thread.run(what, SEARCH_S, lambda _: self._owner.strangers(ends, ours))
        self._taken = (ends, ours) if self._taken_by else None

    async def _get(self, address: str) -> tuple[Health, str]:
        host = f"[{address}]" if ipaddress.ip_address(address).version == 6 else address
        url = f"http://{host}:{self._port}{self._path}"
        try:
            async with asyncio.timeout(self._timeout_s):
                status, body = await self._read(url)
        except (TimeoutError, httpx2.TimeoutException):
            return Health.TIMEOUT, f"no whole answer from {self._path} within {self._timeout_s:g} s"
        except httpx2.ConnectError as error:
            if (number := _number(error)) in REFUSALS:
                return Health.REFUSED, f"connection to {host}:{self._port} refused"
            why = os.strerror(number) if number is not None else str(error)
            raise EdgeError(EDGE, f"connect to {host}:{self._port}", why) from error
        except httpx2.HTTPError as error:
            return Health.SICK, f"{self._path}: {error or type(error).__name__}"
        redirect = 300 <= status < 400
        health = Health.SICK if redirect else self._answers.get(status, Health.SICK)
        text = " ".join(body.decode(errors="replace").split())
        words = "".join(char for char in text if char.isprintable())[:WORDS_CHARS]
        return health, f"{self._path} answered {status}" + (f": {words}" if words else "")

    async def _read(self, url: str) -> tuple[int, bytes]:
        body = b""
        async with self._client.stream("GET", url, headers={"accept-encoding": "identity"}) as response:
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) >= BODY_BYTES:
                    break
            return response.status_code, body

    async def close(self) -> None:
        """See `agent.ports.Probe`."""
        await self._client.aclose()


def _number(error: BaseException) -> int | None:
    """The errno of what is at the bottom of it: our host's word, that the client's own errors wrap."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno is not None:
            return cause.errno
        cause = cause.__cause__ or cause.__context__
    return None
