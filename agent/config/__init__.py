"""The configuration: a TOML file, read strictly. `load` finds every fault at once.

What it gives are plain values as the operator wrote them; definition.py turns them into what the loop needs.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

from agent.config import rules
from agent.config.faults import Fault, Reading, dotted, read, unknown_key
from agent.config.model import AgentConfig, Config, DiskConfig, LogConfig, RestartConfig, RivalsConfig, ServerConfig
from agent.config.servers import read_servers
from agent.environment_file import read_environment_file
from agent.errors import ConfigError

__all__ = [
    "AgentConfig",
    "Config",
    "DiskConfig",
    "LogConfig",
    "RestartConfig",
    "RivalsConfig",
    "ServerConfig",
    "load",
    "read_environment_file",
]

_SYNTAX = re.compile(r"(?P<what>.*) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)", re.DOTALL)


def load(path: Path) -> Config:
    """What `path` says. ConfigError: all that is wrong with it, each as "FILE: KEY: what; what to do"."""
    document = _document(path)
    found: list[Fault] = [
        Fault((key,), unknown_key(key, Config.model_fields)) for key in document if key not in Config.model_fields
    ]
    agent = read(AgentConfig, document.get("agent", {}), ("agent",), found)
    servers = read_servers(document.get("servers", {}), agent, found)
    rivals = read(RivalsConfig, document.get("rivals", {}), ("rivals",), found)
    found.extend(_fights(servers))
    if found or agent.value is None:
        raise ConfigError([f"{path}: {fault}" for fault in found])
    return Config(
        agent=agent.value,
        servers={name: s.value for name, s in servers.items() if s.value is not None},
        rivals=rivals.value or RivalsConfig(),
    )


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


def _fights(servers: Mapping[str, Reading[ServerConfig]]) -> Iterator[Fault]:
    """Servers that start by themselves and cannot run side by side."""
    sure = [(name, s.value) for name, s in servers.items() if s.value is not None and not s.unsure & rules.SHARED]
    for (first, a), (second, b) in combinations(sure, 2):
        shared = rules.shared(a, b) if a.autostart and b.autostart else None
        if shared is not None:
            text = f"both it and {dotted(('servers', first))} start by themselves and use {shared}"
            yield Fault(("servers", second, "autostart"), f"{text}; take autostart from one of them, or part them")
