"""Units of the host that are to be kept off, as a stand-in systemd tells of them on a real bus."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dbus_fast import Message, MessageType, Variant

from agent.edges.bus_words import PROPERTIES, UNIT, path_of
from tests.fakes.systemd import FakeSystemd


@dataclass
class FakeRival:
    """One unit: what systemd says of it."""

    unit: str
    load: str = "loaded"
    active: str = "inactive"
    conditions: list[list[Any]] = field(default_factory=list)
    drop_ins: list[str] = field(default_factory=list)
    triggered_by: list[str] = field(default_factory=list)
    upheld_by: list[str] | None = field(default_factory=list)  # None: a systemd that does not know it
    group: str = ""
    slice: str = "system.slice"

    def properties(self) -> dict[str, Variant]:
        said = {
            "Id": Variant("s", self.unit),
            "LoadState": Variant("s", self.load),
            "ActiveState": Variant("s", self.active),
            "Conditions": Variant("a(sbbsi)", self.conditions),
            "DropInPaths": Variant("as", self.drop_ins),
            "TriggeredBy": Variant("as", self.triggered_by),
            "ControlGroup": Variant("s", self.group),
            "Slice": Variant("s", self.slice),
        }
        return said if self.upheld_by is None else {**said, "UpheldBy": Variant("as", self.upheld_by)}

    def has_read(self, file: Path) -> None:
        """Systemd has the hold's file."""
        self.drop_ins.append(str(file))
        self.conditions.append(["ConditionPathExists", False, True, str(file), 0])


class RivalSystemd(FakeSystemd):
    """Speaks for these, too."""

    def __init__(self, address: str, folder: Path) -> None:
        super().__init__(address, folder)
        self.rivals: dict[str, FakeRival] = {}
        self.files: dict[str, str] = {}  # of templates: GetUnitFileState

    def rival(self, unit: str, **about: Any) -> FakeRival:
        """A new one, or another word on it."""
        self.rivals[unit] = made = FakeRival(unit, **about)
        return made

    def changed(self, unit: str, active: str | None = None) -> None:
        """As systemd tells it: also of a start that the conditions forbade, which changes no state."""
        rival = self.rivals[unit]
        rival.active = active or rival.active
        self.emit(path_of(unit), PROPERTIES, "PropertiesChanged", "sa{sv}as", [UNIT, rival.properties(), []])

    def _answer(self, message: Message) -> Message | None:
        if message.message_type is MessageType.METHOD_CALL:
            if message.member == "ListUnitsByPatterns":
                pattern = message.body[1][0].replace("\\\\", "[\\]")
                names = [unit for unit in self.rivals if fnmatch.fnmatchcase(unit, pattern)]
                rows = [[name, "", "", "", "", "", "/", 0, "", "/"] for name in names]
                return Message.new_method_return(message, "a(ssssssouso)", [rows])
            if message.member == "GetUnitFileState":
                state = self.files.get(message.body[0])
                if state is None:
                    return Message.new_error(message, "org.freedesktop.DBus.Error.FileNotFound", "no such file")
                return Message.new_method_return(message, "s", [state])
            by_path = {path_of(unit): rival for unit, rival in self.rivals.items()}
            if message.member == "GetAll" and message.path in by_path:
                return Message.new_method_return(message, "a{sv}", [by_path[message.path].properties()])
        return super()._answer(message)
