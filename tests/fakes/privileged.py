"""A stand-in for the privileged helper: the same socket and words, for the units of tests/fakes/systemd.py."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.fakes.systemd import FakeUnit


class FakeHelper:
    """Answers one request at a time, by what it does with the units, or by `answer` where that is set."""

    def __init__(self, path: Path, units: Mapping[str, FakeUnit]) -> None:
        self.path, self.units = path, units
        self.asked: list[dict[str, Any]] = []
        self.answer: bytes | None = None  # b"": it ends without one
        self.digest = "d1"
        self.slow_s: dict[str, float] = {}  # by verb
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(str(path))
        self._socket.listen(1)
        self._socket.setblocking(False)

    async def serve(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        with self._socket:
            while True:
                caller, _ = await loop.sock_accept(self._socket)
                with caller:
                    while request := await loop.sock_recv(caller, 4096):
                        reply = await self._reply(json.loads(request))
                        if not reply:
                            break
                        await loop.sock_sendall(caller, reply)

    async def _reply(self, request: dict[str, Any]) -> bytes:
        self.asked.append(request)
        await asyncio.sleep(self.slow_s.get(request["verb"], 0))
        if self.answer is not None:
            return self.answer
        return json.dumps(await self._done(request)).encode()

    async def _done(self, request: dict[str, Any]) -> dict[str, Any]:
        unit = self.units.get(request.get("name", ""))
        match request["verb"]:
            case "start" if unit is not None:
                if request["digest"] != self.digest:
                    return {"ok": False, "slug": "digest_differs", "why": "the configuration has changed: reload it"}
                if unit.pids():
                    return {"ok": False, "slug": "left_overs", "why": "left-over processes", "pids": unit.pids()}
                await unit.start(request["invocation"])
            case "terminate" if unit is not None:
                _send(signal.SIGTERM, unit.pids() if request["whole"] else [unit.service["MainPID"]])
            case "kill" if unit is not None:
                _send(signal.SIGKILL, unit.pids())
        return {"ok": True}


def _send(number: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


@asynccontextmanager
async def running_helper(path: Path, units: Mapping[str, FakeUnit]) -> AsyncIterator[FakeHelper]:
    """One that answers."""
    helper = FakeHelper(path, units)
    task = asyncio.create_task(helper.serve())
    try:
        yield helper
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
