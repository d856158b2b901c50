"""[servers]: every server of the file with what it extends, and every fault once, where it was written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent.config import rules
from agent.config.extends import Resolved, resolve
from agent.config.faults import Fault, Reading, Where, kind, read
from agent.config.model import AgentConfig, ServerConfig
from agent.environment_file import read_environment_file
from agent.errors import ConfigError

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")

Readings = dict[str, Reading[ServerConfig]]


def read_servers(tables: object, agent: Reading[AgentConfig], found: list[Fault]) -> Readings:
    """The servers, templates left out; what is wrong with any of them is added to `found`."""
    if not isinstance(tables, dict):
        found.append(Fault(("servers",), f"must be a table, not {kind(tables)}; begin each server with [servers.NAME]"))
        return {}
    found.extend(_names(tables))
    resolved = resolve({name: table for name, table in tables.items() if isinstance(table, dict)}, found)
    for name, table in tables.items():
        found.extend(_missing(name, resolved))
        _read_values(name, table, found)
    readings = {name: _reading(each) for name, each in resolved.items() if not _is_template(each)}
    contradictions = {name: list(_contradictions(each, agent)) for name, each in readings.items()}
    for name in filter(contradictions.__contains__, tables):
        for fault in _told(name, resolved, contradictions):
            found.extend([fault] if fault not in found else [])
    return {name: readings[name] for name in tables if name in readings}


def _names(tables: Mapping[str, object]) -> Iterator[Fault]:
    for name in tables:
        if not _NAME.fullmatch(name):
            text = "is no name for a server; use 1 to 32 of a-z, 0-9 and -, and do not begin with -"
            yield Fault(("servers", name), text)


def _is_template(server: Resolved) -> bool:
    return server.table.get("template") is True


def _base(name: str, resolved: Mapping[str, Resolved]) -> str | None:
    """The next server up its chain that is no template."""
    base = resolved[name].base
    while base is not None and _is_template(resolved[base]):
        base = resolved[base].base
    return base


def _missing(name: str, resolved: Mapping[str, Resolved]) -> Iterator[Fault]:
    """That nobody gives a command; of a base and its variants, the base is to blame."""
    server = resolved.get(name)
    if server is None or _is_template(server) or "command" in server.table:
        return
    if _base(name, resolved) is None:
        yield Fault(("servers", name, "command"), "is missing; add it")


def _read_values(name: str, table: object, found: list[Fault]) -> None:
    """Look at each value that was written here, by itself."""
    whole = {"command": ["-"], **table} if isinstance(table, dict) else table  # whether it is missing is said elsewhere
    read(ServerConfig, whole, ("servers", name), found)
    if isinstance(table, dict) and table.get("template") is True and table.get("autostart") is True:
        found.append(Fault(("servers", name, "autostart"), "means nothing in a template; take one of the two out"))


def _reading(server: Resolved) -> Reading[ServerConfig]:
    """A server with all that it takes from others, its arguments behind its command."""
    reading = read(ServerConfig, server.table, (), [])  # each value's faults are said where it was written
    if reading.value is None:
        return reading
    value, unsure = reading.value, reading.unsure
    flat: dict[str, Any] = {"extends": None, "command": value.command + value.arguments, "arguments": ()}
    return Reading(value.model_copy(update=flat), unsure | {"command"} if "arguments" in unsure else unsure)


def _told(name: str, resolved: Mapping[str, Resolved], contradictions: Mapping[str, list[Fault]]) -> Iterator[Fault]:
    """What of a server's contradictions its base has not, where it was written.

    A value of a base that is right there contradicts the variant, and is told there; a template alone cannot tell.
    """
    server, base = resolved[name], _base(name, resolved)
    words = server.table.get("command", ())
    for fault in contradictions[name]:
        where = fault.where
        match where:
            case ("command", int(i)) if i >= len(words):
                where = ("arguments", i - len(words))
        written = server.place(where)
        if (written is None or written[1] != name) and fault in contradictions.get(base or "", ()):
            continue
        if written is None or written[1] in contradictions.keys() - {name}:
            written = ("servers", name, *where)
        yield Fault(written, fault.text)


def _contradictions(reading: Reading[ServerConfig], agent: Reading[AgentConfig]) -> Iterator[Fault]:
    """What is wrong with a server beyond single keys, with its place in the server's table.

    Nothing is concluded from keys that are faulty themselves.
    """
    server = reading.value
    if server is None:
        return
    for keys, rule in rules.RULES:
        if reading.unsure.isdisjoint(keys):
            yield from (Fault(where, text) for where, text in rule(server))
    if server.environment_file is not None:
        yield from _environment_file_faults(server.environment_file)
    yield from _port_of_the_agent(server, reading.unsure, agent)


def _environment_file_faults(path: Path) -> Iterator[Fault]:
    # A file that is not there now may be when the server is launched, as with its program and its model: the checks
    # before a launch look for it.
    if not os.access(path, os.R_OK):
        return
    where: Where = ("environment_file",)
    try:
        read_environment_file(path)
    except ConfigError as error:
        yield from (Fault(where, fault) for fault in error.faults)


def _port_of_the_agent(server: ServerConfig, unsure: frozenset[str], agent: Reading[AgentConfig]) -> Iterator[Fault]:
    if agent.value is None or agent.value.listen_address is None:
        return
    port = rules.port_of(server)
    if port == agent.value.listen_address[1] and not unsure & {"port", "family", "command"}:
        yield Fault(("port",), f"{port} is the agent's own (agent.listen); give one of them another")
