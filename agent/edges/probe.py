"""The server's port: does it listen, is the listener ours, what does it answer."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Mapping

import httpx2

from agent.core.model import Health
from agent.edges import sockets
from agent.edges.sockets import Endpoint
from agent.errors import EdgeError

BODY_BYTES = 65_536  # no health answer is longer; what comes after is not read
WORDS_CHARS = 120


class HttpProbe:
    """Implements `agent.ports.Probe` for a server told to listen on `host`:`port`.

    `answers` says what each HTTP status means; all others are SICK, as is every redirect: none is followed. The whole
    question, from the connect to the last byte, has `timeout_s`. `host` may be any address or a name.
    """

    def __init__(self, host: str, port: int, path: str, answers: Mapping[int, Health], timeout_s: float) -> None:
        self._host = host
        self._port = port
        self._path = path if path.startswith("/") else f"/{path}"
        self._answers = dict(answers)
        self._timeout_s = timeout_s
        self._taken: tuple[tuple[Endpoint, ...], frozenset[int]] | None = None  # the last listeners, found foreign
        self._taken_by = ""
        self._client = httpx2.AsyncClient(
            trust_env=False,  # a proxy of the environment must not answer for the server
            verify=False,  # plain HTTP only; loading certificates costs 20 ms
            follow_redirects=False,
            limits=httpx2.Limits(max_keepalive_connections=0),  # an old connection may be to another process
            timeout=timeout_s,
        )

    async def ask(self, ours: frozenset[int]) -> tuple[Health, str]:
        """See `agent.ports.Probe`. A port on which nobody listens costs one question to the kernel."""
        try:
            ends = sockets.reached(sockets.listeners(self._port), self._host)
            if (ends, ours) != self._taken:  # finding and naming strangers looks at every process: once is enough
                strangers = sockets.foreign(ends, ours)
                self._taken = (ends, ours) if strangers else None
                self._taken_by = " and ".join(sorted({sockets.who(end) for end in strangers}))
        except OSError as error:
            raise EdgeError("probe", f"see who listens on port {self._port}", error.strerror or str(error)) from error
        if not ends:
            return Health.REFUSED, f"nobody listens on port {self._port}"
        if self._taken is not None:
            return Health.FOREIGN, f"port {self._port} is held by {self._taken_by}"
        return await self._get(sockets.target(ends[0], self._host))

    async def _get(self, address: str) -> tuple[Health, str]:
        host = f"[{address}]" if ipaddress.ip_address(address).version == 6 else address
        url = f"http://{host}:{self._port}{self._path}"
        try:
            async with asyncio.timeout(self._timeout_s):
                status, body = await self._read(url)
        except (TimeoutError, httpx2.TimeoutException):
            return Health.TIMEOUT, f"no whole answer from {self._path} within {self._timeout_s:g} s"
        except httpx2.ConnectError:
            return Health.REFUSED, f"connection to {host}:{self._port} refused"
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
        """Let go of the client."""
        await self._client.aclose()
