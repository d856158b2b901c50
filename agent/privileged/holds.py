"""Keeps units of the host off, and lets them go again, to the byte. By root, for units that the configuration lists.

A hold: write down what was before; write the file whose condition is its own absence, for the unit and for each
socket, timer or path that triggers it; one reload; then the stops. A second hold repairs what is missing of the first,
wherever that was cut off, and does nothing where nothing is missing. A release undoes it backwards and starts nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime

from agent.privileged.bucket import Bucket
from agent.privileged.hold_files import HoldError, HoldFiles
from agent.privileged.hold_records import HoldRecords, Record
from agent.privileged.rival_units import TRIGGERS, RivalUnits, Shown
from agent.protected import fault, is_protected, is_template, is_unit

RELOADS, RELOADS_PER_S = 60.0, 0.2
"""Each costs the whole host: systemd does nothing else meanwhile. An agent at its worst asks for one a minute."""
LISTED_IN = "[rivals] units in /etc/gpuagent/gpuagent.toml"


@dataclass(slots=True)
class Rival:
    """A unit to be held, and what was found of it."""

    unit: str
    shown: list[Shown] = field(default_factory=list)  # itself; of a template: the instances that there are
    triggers: list[Shown] = field(default_factory=list)

    @property
    def held(self) -> frozenset[str]:
        """The units for which a file is written."""
        return frozenset({self.unit, *(each.unit for each in self.triggers)})

    @property
    def triggered_by(self) -> frozenset[str]:
        """Sockets, timers and paths that systemd has loaded."""
        names = {each for one in self.shown for each in one.triggered_by}
        return frozenset(each for each in names if each.rpartition(".")[2] in TRIGGERS)


class Refusals:
    """What could not be done, while the rest was."""

    def __init__(self) -> None:
        self._first = ""
        self._why: dict[str, str] = {}

    def add(self, unit: str, slug: str, why: str) -> None:
        """The first reason for a unit counts."""
        self._first = self._first or slug
        self._why.setdefault(unit, why)

    def __contains__(self, unit: str) -> bool:
        return unit in self._why

    def tell(self) -> None:
        """HoldError, if there is any."""
        if self._why:
            raise HoldError(self._first, "; ".join(f"{unit} {why}" for unit, why in self._why.items()))


class Holds:
    """All calls raise HoldError, SystemdError and OSError; what they have begun goes on with the next call."""

    def __init__(
        self, units: RivalUnits | None = None, files: HoldFiles | None = None, records: HoldRecords | None = None
    ) -> None:
        self._units = units or RivalUnits()
        self._files = files or HoldFiles()
        self._records = records or HoldRecords()
        self._reloads = Bucket(RELOADS, RELOADS_PER_S)

    # -- hold ----------------------------------------------------------------------------------------

    def hold(self, units: Collection[str], listed: Collection[str]) -> None:
        """Begin to keep them off. What is refused is told at the end, and the others are held."""
        refusals = Refusals()
        for unit in units:
            if unit not in listed:
                refusals.add(unit, "not_listed", f"is not listed: add it to {LISTED_IN}")
            elif why := fault(unit):
                refusals.add(unit, "protected", why)
        rivals = self._found([unit for unit in units if unit not in refusals])
        rivals = [rival for rival in rivals if self._may(rival, refusals)]
        self._note(rivals)
        self._units.stop(one.unit for rival in rivals for one in rival.triggers if one.runs)
        self._write(rivals)
        self._units.stop(one.unit for rival in rivals for one in rival.shown if one.runs)
        refusals.tell()

    def _found(self, units: Collection[str]) -> list[Rival]:
        """With the instances of templates and what triggers each."""
        instances = {unit: self._units.instances(unit) if is_template(unit) else frozenset({unit}) for unit in units}
        near = {unit: self._units.neighbours(unit) for unit in units}
        shown = self._units.show({each for some in [*instances.values(), *near.values()] for each in some})
        rivals = [Rival(unit, [shown[each] for each in sorted(instances[unit])]) for unit in units]
        named = {each for rival in rivals for each in rival.triggered_by}
        shown |= self._units.show(named - shown.keys())
        for rival in rivals:
            known = rival.triggered_by | {each for each in near[rival.unit] if shown[each].may_trigger(rival.unit)}
            rival.triggers = [shown[each] for each in sorted(known - {rival.unit})]
        return rivals

    def _may(self, rival: Rival, refusals: Refusals) -> bool:
        """Whether nothing stands against it: other names of it, what triggers it, the folders that are written to."""
        names = {name for one in [*rival.shown, *rival.triggers] for name in (one.unit, *one.names)}
        if protected := sorted(filter(is_protected, names)):
            refusals.add(rival.unit, "protected", f"is or belongs to {protected[0]}, which is protected; take it out")
        for name in sorted(rival.held):
            try:
                self._files.read(name)
                self._records.read(name)
            except HoldError as error:
                refusals.add(rival.unit, error.slug, f"is not held: {error}")
        return rival.unit not in refusals

    def _note(self, rivals: Collection[Rival]) -> None:
        """What is before they are held, unless that is written down already."""
        of: dict[str, set[str]] = {}
        for rival in rivals:
            for name in rival.held:
                of.setdefault(name, set()).add(rival.unit)
        shown = {one.unit: one for rival in rivals for one in [*rival.shown, *rival.triggers]}
        for name, whose in sorted(of.items()):
            if (record := self._records.read(name)) is not None:
                self._records.serve(record, frozenset({*record.of, *whose}))
            else:
                self._begin(name, whose, shown.get(name))

    def _begin(self, unit: str, of: Collection[str], shown: Shown | None) -> None:
        prior = self._files.read(unit)
        if prior is not None and self._files.is_ours(prior[0], unit):
            prior = None  # of a hold whose record was lost
        record = Record(
            unit=unit,
            of=tuple(sorted(of)),
            made_folder=not self._files.has_folder(unit),
            prior=prior is not None,
            enabled=shown.enabled if shown else "",
            active=shown.active if shown else "",
            at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        self._records.begin(record, prior)

    def _write(self, rivals: Collection[Rival]) -> None:
        """The files and the reload; nothing where nothing is missing."""
        held = sorted({name for rival in rivals for name in rival.held})
        missing = [name for name in held if not self._files.is_whole(name)]
        if missing:
            self._records.due()
        for name in missing:
            self._files.write(name)
        if self._records.reload_due or any(map(self._is_unread, rivals)):
            self._reload()

    def _is_unread(self, rival: Rival) -> bool:
        """Whether systemd does not know the file of a unit that it has loaded."""
        own = str(self._files.path(rival.unit))
        pairs = [(one, own) for one in rival.shown]
        pairs += [(one, str(self._files.path(one.unit))) for one in rival.triggers]
        return any(one.load == "loaded" and (one.stale or path not in one.drop_ins) for one, path in pairs)

    def _reload(self) -> None:
        if not self._reloads.take():
            raise HoldError("too_many", "too many changes, each of which has systemd read all its files; wait a minute")
        self._units.reload()
        self._records.reloaded()

    # -- release -------------------------------------------------------------------------------------

    def release(self, units: Collection[str]) -> None:
        """Undo it, listed or not. What is not held costs nothing."""
        refusals = Refusals()
        wanted = frozenset(unit for unit in units if self._may_release(unit, refusals))
        undone = [record for record in self._records.every() if wanted & frozenset(record.of)]
        for record in undone:
            if left := frozenset(record.of) - wanted:
                self._records.serve(record, left)
            else:
                self._undo(record, refusals)
        if self._records.reload_due:
            self._reload()
        for record in undone:
            if frozenset(record.of) <= wanted and record.unit not in refusals:
                self._records.end(record.unit)
        refusals.tell()

    def _may_release(self, unit: str, refusals: Refusals) -> bool:
        """Whether it is held for its own sake, or not at all. A file of ours whose record was lost goes with it."""
        if not is_unit(unit):
            refusals.add(unit, "bad_request", "is no name of a unit")
            return False
        try:
            record, found = self._records.read(unit), self._files.read(unit)
        except HoldError as error:
            refusals.add(unit, error.slug, f"is not released: {error}")
            return False
        if record is not None and unit not in record.of:
            refusals.add(unit, "not_allowed", f"is held because it triggers {', '.join(record.of)}: release that")
        elif record is None and found is not None and self._files.is_ours(found[0], unit):
            self._records.due()
            self._files.remove(unit, its_folder=False)
        return unit not in refusals

    def _undo(self, record: Record, refusals: Refusals) -> None:
        try:
            self._files.read(record.unit)  # what cannot be undone is refused before a reload is due for it
            self._records.due()
            if record.prior:
                self._files.restore(record.unit, *self._records.prior(record.unit))
            else:
                self._files.remove(record.unit, record.made_folder)
        except HoldError as error:
            refusals.add(record.unit, error.slug, f"is not released: {error}")
