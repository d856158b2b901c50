"""Clients of the API in a process of their own, so that they do not take the agent's or the bench's interpreter.

`python -m tests.bench.clients ADDRESS CONNECTIONS SECONDS [EVERY_S]`: keep-alive connections that ask /status, each as
fast as it is answered, or each every EVERY_S seconds. ADDRESS is a path or HOST:PORT. Prints one JSON object:
{"seconds": ..., "latencies_ms": [...], "failed": ...}.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bench.connection import Address, request, whole
from tests.bench.house import ROOT, BenchError, raise_own_limit

QUESTION = request("GET", "/status")
GRACE_S = 60.0


@dataclass(frozen=True, slots=True)
class Load:
    """What the clients saw."""

    seconds: float
    latencies_ms: list[float]
    failed: int

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.latencies_ms) / self.seconds


class Clients:
    """The process, started. `result` waits for its end."""

    def __init__(self, address: Address, connections: int, seconds: float, every_s: float = 0.0) -> None:
        where = str(address) if isinstance(address, Path) else f"{address[0]}:{address[1]}"
        words = [where, str(connections), str(seconds), str(every_s)]
        command = [sys.executable, "-m", "tests.bench.clients", *words]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        self._deadline_s = seconds + GRACE_S

    def result(self) -> Load:
        """What they saw. BenchError: they did not end well."""
        out, _ = self._process.communicate(timeout=self._deadline_s)
        if self._process.returncode != 0:
            raise BenchError(f"the clients ended with {self._process.returncode}")
        return Load(**json.loads(out))


class Client(asyncio.Protocol):
    """One connection: asks, waits for the whole answer, asks again."""

    def __init__(self, every_s: float, latencies_ms: list[float], failures: list[str]) -> None:
        self._every_s = every_s
        self._latencies_ms = latencies_ms
        self._failures = failures
        self._data = bytearray()
        self._asked = 0.0
        self._ending = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask, at a random moment of the period: a thousand clients do not come in step."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        asyncio.get_running_loop().call_later(random.random() * self._every_s, self._ask)

    def _ask(self) -> None:
        if not self._ending:
            self._asked = time.monotonic()
            self._transport.write(QUESTION)

    def data_received(self, data: bytes) -> None:
        """The next piece of the answer."""
        self._data += data
        size = whole(self._data)
        if size is None:
            return
        if not self._data.startswith(b"HTTP/1.1 200"):
            self._failures.append(bytes(self._data[:40]).decode(errors="replace"))
        del self._data[:size]
        taken_s = time.monotonic() - self._asked
        self._latencies_ms.append(taken_s * 1000)
        if self._every_s:
            asyncio.get_running_loop().call_later(max(0.0, self._every_s - taken_s), self._ask)
        else:
            self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        """Only we may end it."""
        if not self._ending:
            self._failures.append(f"closed: {error}")

    def end(self) -> None:
        """Ask no more."""
        self._ending = True
        self._transport.abort()


async def load(address: Address, connections: int, seconds: float, every_s: float) -> Load:
    """Connect all, then measure for `seconds`."""
    loop = asyncio.get_running_loop()
    latencies_ms: list[float] = []
    failures: list[str] = []
    clients: list[Client] = []
    for _ in range(connections):

        def client() -> Client:
            return Client(every_s, latencies_ms, failures)

        if isinstance(address, Path):
            _, made = await loop.create_unix_connection(client, str(address))
        else:
            _, made = await loop.create_connection(client, *address)
        clients.append(made)
    latencies_ms.clear()  # of those that asked while the others connected
    began = time.monotonic()
    await asyncio.sleep(seconds)
    took_s = time.monotonic() - began
    for each in clients:
        each.end()
    if failures:
        print(f"clients: {len(failures)} failed, the first with {failures[0]}", file=sys.stderr)
    return Load(took_s, latencies_ms, len(failures))


def main() -> None:
    """See above."""
    where, connections, seconds, every_s = sys.argv[1:]
    host, _, port = where.rpartition(":")
    address: Address = Path(where) if "/" in where else (host, int(port))
    raise_own_limit()
    seen = asyncio.run(load(address, int(connections), float(seconds), float(every_s)))
    print(json.dumps({"seconds": seen.seconds, "latencies_ms": seen.latencies_ms, "failed": seen.failed}))


if __name__ == "__main__":
    main()
