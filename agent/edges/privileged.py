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
"""One request, once it is its turn: milliseconds in health. Longer than the helper's own deadlines for it."""
START_LIMIT_S = 45.0  # systemd begins a start after the end of a stop that is under way
HOLD_LIMIT_S = 60.0  # systemd reads all its files anew
UNITS_BYTES = 3_500  # a request has 4096
STILL_ENDING = "still_ending"
ENDING_S = 10.0
"""Systemd's own last processes of a unit take a tenth of a second in health, and the helper waits for half a one."""
REPLY_BYTES = 65_536
RETRY_S = 0.02
BUSY = frozenset({errno.EAGAIN, errno.ENOTCONN})
"""What a socket says whose queue of callers is full: asyncio takes the first for a connection under way."""


class Privileged:
    """The helper behind its socket. Every call has a deadline, and raises EdgeError with the helper's slug.

    Slugs: bad_request, not_allowed, no_such_server, digest_differs, policy_unreadable, left_overs, still_ending,
    already_runs, another_start, systemd_failed, too_many; "" where there was no answer, so that nothing is known of
    what has happened.
    """

    def __init__(self, path: Path = SOCKET) -> None:
        self._path = path
        self._turn = asyncio.Lock()  # it serves one request at a time; a queue here is one that we may leave

    async def start(self, name: str, digest: str, invocation: str) -> None:
        """Start the server's unit, if its definition is still the one of that digest. Waits for the end of the last."""
        about = {"name": name, "digest": digest, "invocation": invocation}
        until = asyncio.get_running_loop().time() + ENDING_S
        while True:
            try:
                return await self._ask("start", START_LIMIT_S, about)
            except EdgeError as error:
                if error.slug != STILL_ENDING or asyncio.get_running_loop().time() > until:
                    raise
            await asyncio.sleep(RETRY_S)

    async def terminate(self, name: str, whole: bool, launch: str) -> None:
        """SIGTERM to the first process of its unit, or to all. `launch`: systemd's number of the start that is meant,
        "" for any: what has been started since is left alone (another_start)."""
        await self._ask("terminate", LIMIT_S, {"name": name, "whole": whole, "launch": launch})

    async def kill(self, name: str, launch: str) -> None:
        """SIGKILL to everything in its unit's control group, also when the unit has ended. `launch`: as above."""
        await self._ask("kill", LIMIT_S, {"name": name, "launch": launch})

    async def check(self, name: str, digest: str) -> None:
        """Begin the look at its preconditions with its own user's eyes; its result comes as a record."""
        await self._ask("check", LIMIT_S, {"name": name, "digest": digest})

    async def hold(self, units: frozenset[str]) -> None:
        """Keep these units off from now on. EdgeError: some are not, with the reason of each; the others are."""
        await self._ask_of("hold", units)

    async def release(self, units: frozenset[str]) -> None:
        """Keep these units off no more."""
        await self._ask_of("release", units)

    async def relieve(self, name: str) -> None:
        """Begin to start the service that makes room on its disks, as the configuration names it."""
        await self._ask("relieve", LIMIT_S, {"name": name})

    async def ping(self) -> None:
        """Whether it answers."""
        await self._ask("ping", LIMIT_S, {})

    async def _ask_of(self, verb: str, units: frozenset[str]) -> None:
        """As few requests as they fit into: each may cost a reload. The first error, when all were asked."""
        errors: list[EdgeError] = []
        for some in _parted(sorted(units)):
            try:
                await self._ask(verb, HOLD_LIMIT_S, {"units": some})
            except EdgeError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    async def _ask(self, verb: str, limit_s: float, about: Mapping[str, str | bool | list[str]]) -> None:
        what = " ".join([verb, str(about.get("name", ""))]).strip()
        try:
            # The wait for one's turn does not count: each before us has a limit, and a kill must not be given up for a
            # hold, during which systemd may read all its files anew.
            async with self._turn, asyncio.timeout(limit_s) as patience:
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


def _parted(units: list[str]) -> list[list[str]]:
    """Into lists that fit into a request each."""
    parts: list[list[str]] = []
    for unit in units:
        if not parts or len(json.dumps([*parts[-1], unit])) > UNITS_BYTES:
            parts.append([])
        parts[-1].append(unit)
    return parts


def _parsed(answer: bytes) -> Mapping[str, object] | None:
    try:
        reply = json.loads(answer)
    except ValueError:
        return None
    return reply if isinstance(reply, dict) else None
