"""Asks the privileged helper: the few things that only root may do, each allowed by the root-owned configuration."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from collections.abc import Mapping
from pathlib import Path

from agent.errors import EdgeError

EDGE = "helper"
SOCKET = Path("/run/gpuagent-helper.sock")
LIMIT_S = 15.0
"""One request, its turn at the helper included: milliseconds in health. Longer than the helper's own deadlines."""
START_LIMIT_S = 45.0  # systemd begins a start after the end of a stop that is under way
REPLY_BYTES = 65_536
RETRY_S = 0.02
BUSY = frozenset({errno.EAGAIN, errno.ENOTCONN})
"""What a socket says whose queue of callers is full: asyncio takes the first for a connection under way."""


class Privileged:
    """The helper behind its socket. Every call has a deadline, and raises EdgeError with the helper's slug.

    Slugs: bad_request, not_allowed, no_such_server, digest_differs, policy_unreadable, left_overs, already_runs,
    systemd_failed, too_many; "" where there was no answer, so that nothing is known of what has happened.
    """

    def __init__(self, path: Path = SOCKET) -> None:
        self._path = path
        self._turn = asyncio.Lock()  # it serves one request at a time; a queue here is one that we may leave

    async def start(self, name: str, digest: str, invocation: str) -> None:
        """Start the server's unit, if its definition is still the one of that digest."""
        await self._ask("start", START_LIMIT_S, {"name": name, "digest": digest, "invocation": invocation})

    async def terminate(self, name: str, whole: bool) -> None:
        """SIGTERM to the first process of its unit, or to all."""
        await self._ask("terminate", LIMIT_S, {"name": name, "whole": whole})

    async def kill(self, name: str) -> None:
        """SIGKILL to everything in its unit's control group, also when the unit itself has ended."""
        await self._ask("kill", LIMIT_S, {"name": name})

    async def check(self, name: str, digest: str) -> None:
        """Begin the look at its preconditions with its own user's eyes; its result comes as a record."""
        await self._ask("check", LIMIT_S, {"name": name, "digest": digest})

    async def ping(self) -> None:
        """Whether it answers."""
        await self._ask("ping", LIMIT_S, {})

    async def _ask(self, verb: str, limit_s: float, about: Mapping[str, str | bool]) -> None:
        what = " ".join([verb, str(about.get("name", ""))]).strip()
        try:
            async with asyncio.timeout(limit_s) as patience, self._turn:
                answer = await self._exchange(json.dumps({"verb": verb, **about}).encode())
        except OSError as error:  # TimeoutError is one
            why = f"no answer within {limit_s:g} s" if patience.expired() else error.strerror or str(error)
            raise EdgeError(EDGE, what, f"{self._path}: {why}") from error
        reply = _parsed(answer)
        if reply is None:
            why = "it ended without an answer" if not answer else "its answer is none that we know"
            raise EdgeError(EDGE, what, f"{self._path}: {why}")
        if reply.get("ok") is not True:
            raise EdgeError(EDGE, what, str(reply.get("why", "refused")), str(reply.get("slug", "")))

    async def _exchange(self, request: bytes) -> bytes:
        """One packet there, one back. Waits while its queue of callers is full: nothing has been asked then."""
        loop = asyncio.get_running_loop()
        while True:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
                caller.setblocking(False)
                try:
                    await loop.sock_connect(caller, str(self._path))
                    await loop.sock_sendall(caller, request)
                except OSError as error:
                    if error.errno not in BUSY:
                        raise
                else:
                    return await loop.sock_recv(caller, REPLY_BYTES)
            await asyncio.sleep(RETRY_S)


def _parsed(answer: bytes) -> Mapping[str, object] | None:
    try:
        reply = json.loads(answer)
    except ValueError:
        return None
    return reply if isinstance(reply, dict) else None
