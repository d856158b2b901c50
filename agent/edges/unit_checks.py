"""The preconditions of a launch as a unit, looked at with the eyes of the server's own user: its files may be private.

The look itself is made by `gpuagent-check@NAME.service`, which the helper starts; here its record is read.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.core.model import Cause, Need, Retry
from agent.edges import port_check
from agent.edges.bounded import LATE, BoundedThread
from agent.edges.owners import Owner
from agent.edges.privileged import Privileged
from agent.edges.unit_records import FOLDER
from agent.errors import EdgeError
from agent.privileged import space

EDGE = "checks"
LIMIT_S = 5.0
"""Of the whole look: a tenth of a second in health. One that hangs tells so, twice a second."""
WRITE_LIMIT_S = 2.0  # of a write to the log's folder: microseconds in health
POLL_S = 0.01
AGAIN_S = 0.3  # until it is asked for again: to ask twice costs nothing
OTHER_DEFINITION = "digest_differs"


class UnitChecks:
    """Implements `agent.ports.Checks` for `gpuagent-server@NAME.service`.

    `digest` is that of the definition in force. `owner` tells whose a listener on `host`:`port` is. `log_folder` must
    take writes: root would hang in it at the launch.
    """

    def __init__(
        self,
        name: str,
        digest: str,
        helper: Privileged,
        host: str,
        port: int,
        owner: Owner,
        log_folder: Path,
        records: Path = FOLDER,
    ) -> None:
        self._name = name
        self._digest = digest
        self._helper = helper
        self._host = host
        self._port = port
        self._owner = owner
        self._record = records / f"{name}.check.json"
        self._thread = BoundedThread(EDGE)
        self._log_folder = log_folder
        self._writer = BoundedThread("storage")
        self._write_began = 0.0  # Unix seconds

    async def needs(self, ours: frozenset[int]) -> tuple[Need, ...]:
        """See `agent.ports.Checks`. EdgeError: the helper does not answer, or the look takes longer than 5 s."""
        needs = await self._of_files()
        taken = await self._thread.run(
            "look at the port", LIMIT_S, lambda _: port_check.port(self._host, self._port, ours, self._owner)
        )
        return (*needs, *(need for need in (await self._of_log(), taken) if need is not None))

    async def _of_log(self) -> Need | None:
        """Whether the log's file system takes writes."""
        try:
            await self._writer.run("write a log", WRITE_LIMIT_S, lambda _: self._write())
        except EdgeError as error:
            if error.slug != LATE:
                raise
            return space.stalled(str(self._log_folder), self._write_began)
        return None

    def _write(self) -> None:
        self._write_began = time.time()
        space.take_a_write(str(space.nearest(str(self._log_folder))))

    async def _of_files(self) -> tuple[Need, ...]:
        began, why = time.clock_gettime(time.CLOCK_BOOTTIME), "the helper has not answered"
        try:
            async with asyncio.timeout(LIMIT_S):
                record = None
                while record is None:
                    await self._helper.check(self._name, self._digest)
                    why = f"gpuagent-check@{self._name}.service has not answered: is its storage frozen?"
                    record = await self._await_record(began)
        except TimeoutError as error:
            raise EdgeError(EDGE, "look at the preconditions", f"{why} (within {LIMIT_S:g} s)") from error
        except EdgeError as error:
            if error.slug != OTHER_DEFINITION:
                raise
            return (_other_definition(self._name),)
        return tuple(_need(each) for each in record["needs"])

    async def _await_record(self, began: float) -> Mapping[str, Any] | None:
        """Of a look that began since; None: not soon. One that was asked for while another ended is not made."""
        for _ in range(int(AGAIN_S / POLL_S)):
            if (record := self._read(began)) is not None:
                return record
            await asyncio.sleep(POLL_S)
        return None

    def _read(self, began: float) -> Mapping[str, Any] | None:
        """The record of a look that began since; None: there is none yet."""
        try:
            record = json.loads(self._record.read_bytes())
        except (OSError, ValueError):
            return None
        fits = isinstance(record, dict) and record.get("at", 0.0) >= began and record.get("digest") == self._digest
        return record if fits else None


def _need(said: Mapping[str, Any]) -> Need:
    retry = Retry.WAIT if said["heals"] else Retry.NO
    cause = Cause(slug=said["slug"], text=said["text"], remedy=said["remedy"], retry=retry)
    return Need(name=said["name"], cause=cause, heals=said["heals"], subject=said["subject"])


def _other_definition(name: str) -> Need:
    cause = Cause(
        slug=OTHER_DEFINITION,
        text=f"The definition of {name} in /etc/gpuagent/gpuagent.toml is not the one that the agent has read",
        remedy="Take it over with: gpuagent reload",
        retry=Retry.NO,
    )
    return Need(name="definition", cause=cause, heals=True)
