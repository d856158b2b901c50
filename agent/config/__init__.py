"""The configuration: a TOML file, read strictly. `load` finds every fault at once.

What it gives are plain values as the operator wrote them; definition.py turns them into what the loop needs.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

from agent.config import rules
from agent.config.environment_file import read_environment_file
from agent.config.faults import Fault, Reading, dotted, kind, read, unknown_key
from agent.config.model import AgentConfig, Config, RestartConfig, ServerConfig
from agent.errors import ConfigError

__all__ = ["AgentConfig", "Config", "RestartConfig", "ServerConfig", "load", "read_environment_file"]

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_SYNTAX = re.compile(r"(?P<what>.*) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)", re.DOTALL)


def load(path: Path) -> Config:
    """What `path` says. ConfigError: all that is wrong with it, each as "FILE: KEY: what; what to do"."""
    document = _document(path)
    found: list[Fault] = [
        Fault((key,), unknown_key(key, Config.model_fields)) for key in document if key not in Config.model_fields
    ]
    agent = read(AgentConfig, document.get("agent", {}), ("agent",), found)
    servers = _servers(document.get("servers", {}), found)
    for name, server in servers.items():
        found.extend(_contradictions(name, server))
        found.extend(_port_of_the_agent(name, server, agent))
    found.extend(_fights(servers))
    if found or agent.value is None:
        raise ConfigError([f"{path}: {fault}" for fault in found])
    return Config(agent=agent.value, servers={name: s.value for name, s in servers.items() if s.value is not None})


def _document(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}; name a file that this user may read"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8"]) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"{path}: {_syntax_fault(str(error))}"]) from error


def _syntax_fault(message: str) -> str:
    said = _SYNTAX.fullmatch(message)
    if said is None:
        return f"is not TOML: {message}; correct it"
    if said["line"] is None:
        return f"end of the file: {said['what']}; something that was opened is not closed"
    return f"line {said['line']}, column {said['column']}: {said['what']}; correct it, TOML cannot be read past it"


def _servers(tables: object, found: list[Fault]) -> dict[str, Reading[ServerConfig]]:
    if not isinstance(tables, dict):
        found.append(Fault(("servers",), f"must be a table, not {kind(tables)}; begin each server with [servers.NAME]"))
        return {}
    if not tables:
        found.append(Fault(("servers",), "no server is defined; add a table [servers.NAME] with its command"))
    for name in tables:
        if not _NAME.fullmatch(name):
            text = "is no name for a server; use 1 to 32 of a-z, 0-9 and -, and do not begin with -"
            found.append(Fault(("servers", name), text))
    return {name: read(ServerConfig, table, ("servers", name), found) for name, table in tables.items()}


def _contradictions(name: str, reading: Reading[ServerConfig]) -> Iterator[Fault]:
    """What is wrong with a server beyond single keys. Nothing is concluded from keys that are faulty themselves."""
    server = reading.value
    if server is None:
        return
    for keys, rule in rules.RULES:
        if reading.unsure.isdisjoint(keys):
            yield from (Fault(("servers", name, *where), text) for where, text in rule(server))
    if server.environment_file is not None:
        yield from _environment_file_faults(name, server.environment_file)


def _environment_file_faults(name: str, path: Path) -> Iterator[Fault]:
    # A file that is not there now may be when the server is launched, as with its program and its model: the checks
    # before a launch look for it.
    if not os.access(path, os.R_OK):
        return
    try:
        read_environment_file(path)
    except ConfigError as error:
        yield from (Fault(("servers", name, "environment_file"), fault) for fault in error.faults)


def _port_of_the_agent(name: str, server: Reading[ServerConfig], agent: Reading[AgentConfig]) -> Iterator[Fault]:
    if server.value is None or agent.value is None or agent.value.listen_address is None:
        return
    port = rules.port_of(server.value)
    if port == agent.value.listen_address[1] and not server.unsure & {"port", "family"}:
        yield Fault(("servers", name, "port"), f"{port} is the agent's own (agent.listen); give one of them another")


def _fights(servers: Mapping[str, Reading[ServerConfig]]) -> Iterator[Fault]:
    """Servers that start by themselves and cannot run side by side."""
    sure = [(name, s.value) for name, s in servers.items() if s.value is not None and not s.unsure & rules.SHARED]
    for (first, a), (second, b) in combinations(sure, 2):
        shared = rules.shared(a, b) if a.autostart and b.autostart else None
        if shared is not None:
            text = f"both it and {dotted(('servers', first))} start by themselves and use {shared}"
            yield Fault(("servers", second, "autostart"), f"{text}; take autostart from one of them, or part them")
