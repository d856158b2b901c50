"""The units that are to be kept off, as systemd tells of them; holds and releases are the helper's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from agent.core.model import Rival
from agent.edges import bystanders
from agent.edges.bounded import BoundedThread
from agent.edges.bus_words import MANAGER, MANAGER_PATH, PROPERTIES, path_of
from agent.edges.cgroup import ROOT
from agent.edges.privileged import Privileged
from agent.edges.rival_looks import OFF, Asked, Properties, RivalLooks
from agent.edges.systemd import Systemd
from agent.errors import EdgeError
from agent.hold_file import FOLDER
from agent.privileged import hold_records
from agent.protected import instances_of, is_template

EDGE = "rivals"
LIMIT_S = 8.0
"""One look at all of them: some milliseconds for each in health; systemd does not answer while it reloads."""
FILES_S = 5.0
BYSTANDERS_S = 10.0  # between two looks at the control groups of others
TRIGGERS = (".socket", ".timer", ".path")
OTHERS = ("UpheldBy", "OnFailureOf", "OnSuccessOf")
"""Lists of units that bring it up by themselves. Where a systemd does not have one, nothing is known of these."""


class UnitRivals:
    """Implements `agent.ports.Rivals`. The folders are others in tests alone."""

    def __init__(
        self,
        helper: Privileged,
        systemd: Systemd,
        folder: Path = FOLDER,
        groups: Path = ROOT,
        records: Path = hold_records.FOLDER,
    ) -> None:
        self._helper = helper
        self._systemd = systemd
        self._looks = RivalLooks(folder, groups)
        self._groups = groups
        self._records = hold_records.HoldRecords(records)
        self._thread = BoundedThread(EDGE)
        self._tells: list[Callable[[], None]] = []
        self._warnings: list[str] = []
        self._warned_at = float("-inf")
        self._warned_of: frozenset[str] = frozenset()

    async def look(self, units: frozenset[str]) -> tuple[Rival, ...]:
        """See `agent.ports.Rivals`. EdgeError: systemd cannot be asked, or a control group not be read."""
        try:
            async with asyncio.timeout(LIMIT_S):
                asked = [await self._ask(unit) for unit in sorted(units)]
        except TimeoutError as error:
            raise EdgeError(EDGE, "look", f"systemd has not told within {LIMIT_S:g} s") from error
        return await self._thread.run("look", FILES_S, lambda _: self._judge(units, asked))

    async def hold(self, units: frozenset[str]) -> None:
        """See `agent.ports.Rivals`."""
        await self._helper.hold(units)

    async def release(self, units: frozenset[str]) -> None:
        """See `agent.ports.Rivals`."""
        await self._helper.release(units)

    def held(self) -> Mapping[str, float]:
        """See `agent.ports.Rivals`. Root's records, which all may read; not those of what merely triggers a unit."""
        try:
            return {record.unit: _unix_s(record.at) for record in self._records.every() if record.unit in record.of}
        except OSError as error:
            raise EdgeError(EDGE, "held", f"{error.filename}: {error.strerror}") from error

    def on_change(self, tell: Callable[[], None]) -> None:
        """See `agent.ports.Rivals`."""
        self._tells.append(tell)
        self._systemd.stir(tell)

    def warnings(self) -> list[str]:
        """See `agent.ports.Rivals`. As of a look, at most some seconds ago."""
        return list(self._warnings)

    def close(self) -> None:
        """See `agent.ports.Rivals`."""
        for tell in self._tells:
            self._systemd.unstir(tell)
        self._tells.clear()

    # -- what systemd says ---------------------------------------------------------------------------

    async def _ask(self, unit: str) -> Asked:
        if is_template(unit):
            load, names = await self._template(unit)
            said = tuple([await self._properties(name) for name in names])
        else:
            said = (await self._properties(unit),)
            load = said[0]["LoadState"]
            await self._heed(said[0])
        triggers = _named(said, ("TriggeredBy",))
        return Asked(
            unit=unit,
            load=load,
            said=said,
            active=next((each["ActiveState"] for each in said if each["ActiveState"] not in OFF), _first(said)),
            triggers=await self._active(each for each in triggers if each.endswith(TRIGGERS)),
            others=await self._active(_named(said, OTHERS) - triggers),
        )

    async def _active(self, units: Iterable[str]) -> tuple[str, ...]:
        """Those of them that are."""
        found = []
        for unit in sorted(units):
            said = await self._properties(unit)
            await self._heed(said)
            if said["ActiveState"] not in OFF:
                found.append(unit)
        return tuple(found)

    async def _heed(self, said: Properties) -> None:
        await self._systemd.heed(said["Id"], said["ActiveState"])

    async def _properties(self, unit: str) -> Properties:
        answer = await self._systemd.ask(path_of(unit), PROPERTIES, "GetAll", "s", "")
        if answer is None:
            raise EdgeError(EDGE, "look", f"systemd does not tell of {unit}")
        return {key: variant.value for key, variant in answer[0].items()}

    async def _template(self, unit: str) -> tuple[str, list[str]]:
        """Its LoadState, which systemd says of instances alone, and its instances."""
        listed = await self._manager("ListUnitsByPatterns", "asas", [], [instances_of(unit)])
        file = await self._manager("GetUnitFileState", "s", unit)
        state = "not-found" if file is None else "masked" if str(file[0]).startswith("masked") else "loaded"
        return state, sorted(each[0] for each in (listed or [[]])[0])

    async def _manager(self, member: str, signature: str, *body: object) -> list[Any] | None:
        return await self._systemd.ask(MANAGER_PATH, MANAGER, member, signature, *body)

    # -- what the files and groups say ---------------------------------------------------------------

    def _judge(self, units: frozenset[str], asked: list[Asked]) -> tuple[Rival, ...]:
        """In a thread."""
        if time.monotonic() - self._warned_at > BYSTANDERS_S or units != self._warned_of:
            self._warnings = bystanders.warnings(units, self._groups)
            self._warned_at, self._warned_of = time.monotonic(), units
        return tuple(self._looks.judge(each) for each in asked)


def _named(said: Iterable[Properties], keys: Iterable[str]) -> set[str]:
    return {unit for each in said for key in keys for unit in each.get(key, [])}


def _unix_s(at: str) -> float:
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:  # an administrator has been at it
        return time.time()


def _first(said: tuple[Properties, ...]) -> str:
    return said[0]["ActiveState"] if said else "inactive"
