"""The host's units that are kept off, by systemctl: how they stand, the one reload, the stops. All with deadlines."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from agent.privileged.units import CALL_S, SYSTEMCTL, SystemdError, systemctl
from agent.protected import instances_of, is_template, template_of

RELOAD_S = 30.0
"""A tenth of a second in health, seconds on a host of many units. A later one is asked for again with the next hold."""
PROPERTIES = (
    "Id", "Names", "LoadState", "ActiveState", "UnitFileState", "Triggers", "TriggeredBy", "DropInPaths",
    "NeedDaemonReload", "Job",
)  # fmt: skip
TRIGGERS = ("socket", "timer", "path")
BATCH = 50
"""Units asked about at a time."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One unit at one moment, in systemd's words."""

    unit: str
    names: frozenset[str]  # its aliases too
    load: str
    active: str
    enabled: str  # UnitFileState; "": it has no file
    triggers: frozenset[str]
    triggered_by: frozenset[str]
    drop_ins: frozenset[str]
    stale: bool  # its files have changed since systemd read them
    job: bool  # something is to be done with it

    @property
    def runs(self) -> bool:
        """Whether there is something to stop."""
        return self.active not in ("inactive", "failed") or self.job

    def may_trigger(self, unit: str) -> bool:
        """Whether it does. A socket with an instance for each connection names none before the first one."""
        if is_template(unit):
            return self.load != "not-found" and all(template_of(each) == unit for each in self.triggers)
        return unit in self.triggers


class RivalUnits:
    """All calls raise SystemdError. `program` is another in tests alone."""

    def __init__(self, program: str = SYSTEMCTL) -> None:
        self._program = program

    def show(self, units: Iterable[str]) -> dict[str, Shown]:
        """Each of them; none of them is a template."""
        names = sorted(units)
        shown: dict[str, Shown] = {}
        for at in range(0, len(names), BATCH):
            some = names[at : at + BATCH]
            said = self._call(CALL_S, "show", f"--property={','.join(PROPERTIES)}", "--", *some)
            try:
                shown |= zip(some, map(_shown, said.split("\n\n")), strict=True)
            except (ValueError, KeyError) as error:
                raise SystemdError("systemctl show: its answer is none that is known") from error
        return shown

    def instances(self, template: str) -> frozenset[str]:
        """Those of its instances that systemd has in its memory."""
        listing = ("list-units", "--plain", "--no-legend", "--all", "--full")
        said = self._call(CALL_S, *listing, "--", instances_of(template))
        return frozenset(line.split()[0] for line in said.splitlines() if line.strip())

    def neighbours(self, unit: str) -> frozenset[str]:
        """Units that trigger it by their name alone, if they are there."""
        stem, _, kind = unit.rpartition(".")
        if kind != "service":
            return frozenset()
        if is_template(unit):
            stem = stem.removesuffix("@")  # a socket with Accept=yes
        return frozenset(f"{stem}.{each}" for each in TRIGGERS)

    def reload(self) -> None:
        """Have systemd read its files anew."""
        self._call(RELOAD_S, "daemon-reload")

    def stop(self, units: Iterable[str]) -> None:
        """Begin the end of each; nothing is waited for."""
        if names := sorted(units):
            self._call(CALL_S, "stop", "--no-block", "--", *names)

    def _call(self, limit_s: float, *words: str) -> str:
        return systemctl(self._program, limit_s, *words)


def _shown(block: str) -> Shown:
    said = dict(line.split("=", 1) for line in block.strip().splitlines())

    def several(key: str) -> frozenset[str]:
        return frozenset(shlex.split(said.get(key, "")))

    return Shown(
        unit=said["Id"],
        names=several("Names"),
        load=said["LoadState"],
        active=said["ActiveState"],
        enabled=said.get("UnitFileState", ""),
        triggers=several("Triggers"),
        triggered_by=several("TriggeredBy"),
        drop_ins=several("DropInPaths"),
        stale=said.get("NeedDaemonReload") == "yes",
        job=said.get("Job", "") not in ("", "0"),
    )
