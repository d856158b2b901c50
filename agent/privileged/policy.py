"""What root may do for the agent: the root-owned configuration's word, read anew for each request.

Whoever asks is not believed: a server exists, and is launched with these words, only if this file says so.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from agent.environment_file import NAME as VARIABLE
from agent.environment_file import parse_environment
from agent.errors import ConfigError
from agent.launch_spec import DEFAULT_USER, NO_SERVERS, LaunchSpec
from agent.protected import start_fault

CONFIG = Path("/etc/gpuagent/gpuagent.toml")
CONFIG_BYTES = 1 << 20
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
CHAIN = 8  # servers that extend each other; as agent.config has it
OWN = frozenset({"extends", "template", "autostart"})  # said of one server alone
MERGED = frozenset({"disk", "environment", "log", "needs", "restart"})  # merged key by key

Table = Mapping[str, Any]


class PolicyError(Exception):
    """The configuration may not be believed, or does not say what is needed. `slug` as the helper's replies have it."""

    def __init__(self, slug: str, why: str) -> None:
        super().__init__(why)
        self.slug = slug


class Policy:
    """The configuration at one moment."""

    def __init__(self, servers: Mapping[str, Table], rivals: object = None) -> None:
        self._servers = servers
        self._rivals = rivals

    def rivals(self) -> frozenset[str]:
        """The units that may be kept off. PolicyError: they are none that we know."""
        table = {} if self._rivals is None else self._rivals
        units = table.get("units", []) if isinstance(table, dict) else None
        if not isinstance(units, list) or not all(isinstance(unit, str) for unit in units):
            raise _fault("rivals.units", "must be a list of texts")
        return frozenset(units)

    def relief(self, name: str) -> str | None:
        """The service that makes room on a server's disks. PolicyError: it is none that may be started."""
        disk = self.table(name).get("disk", {})
        unit = disk.get("start_unit") if isinstance(disk, dict) else None
        if unit is None:
            return None
        why = start_fault(unit) if isinstance(unit, str) else "must be a text"
        if why is not None:
            raise _fault(f"servers.{name}.disk.start_unit", why)
        return str(unit)

    def table(self, name: str) -> Table:
        """A server's table with all that it extends. PolicyError: there is no such server, or it is no table."""
        table = self._servers.get(name)
        if not NAME.fullmatch(name) or not isinstance(table, dict) or table.get("template") is True:
            raise PolicyError("no_such_server", f"{CONFIG} defines no server {name[:40]!r}")
        return _merged(self._chain(name))

    def spec(self, name: str) -> LaunchSpec:
        """What is launched of it. PolicyError: besides, a value of another type, or root as its user."""
        table = self.table(name)
        user = _text(table, "user") or DEFAULT_USER
        if user in NO_SERVERS:
            raise PolicyError("not_allowed", f"servers.{name}.user: a server does not run as {user}")
        return LaunchSpec(
            name=name,
            command=(*_words(table, "command"), *_words(table, "arguments")),
            environment=_environment(table),
            environment_file=_path(table, "environment_file"),
            gpus=_gpus(table),
            working_dir=_path(table, "working_dir"),
            user=user,
        )

    def _chain(self, name: str) -> list[Table]:
        """Its table, its base's and so on."""
        chain: list[Table] = []
        base: object = name
        while base is not None:
            table = self._servers.get(base) if isinstance(base, str) else None
            if not isinstance(table, dict) or len(chain) == CHAIN:
                raise PolicyError(
                    "policy_unreadable", f"{CONFIG}: servers.{name}: is no table, or its chain is too long"
                )
            chain.append(table)
            base = table.get("extends")
        return chain


def load(path: Path = CONFIG) -> Policy:
    """PolicyError: it cannot be read, or others than root could have written it."""
    try:
        document = tomllib.loads(read_owned(path).decode())
    except OSError as error:
        raise PolicyError("policy_unreadable", f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and TOMLDecodeError are the first
        raise PolicyError("policy_unreadable", f"{path}: is not TOML: {error}") from error
    servers = document.get("servers")
    if not isinstance(servers, dict):
        raise PolicyError("policy_unreadable", f"{path}: has no table [servers]")
    return Policy(servers, document.get("rivals"))


def read_owned(path: Path) -> bytes:
    """A file that only root can have written, no symlink on the way. OSError; PolicyError: what to mend, and how."""
    folder = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        so_far = Path("/")
        for part in path.parts[1:-1]:
            so_far /= part
            inner = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = inner
            _check_owner(so_far, os.fstat(folder))
        fd = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)
    with open(fd, "rb") as file:
        state = os.fstat(fd)
        _check_owner(path, state)
        if not stat.S_ISREG(state.st_mode) or state.st_size > CONFIG_BYTES:
            raise PolicyError("policy_unreadable", f"{path}: is no regular file of at most {CONFIG_BYTES} bytes")
        return file.read(CONFIG_BYTES)


def read_secrets(path: Path) -> dict[str, str]:
    """An environment_file, which root alone may have written: whoever could put a link in its place could have root
    read another one to him. ConfigError, PolicyError: what to mend, and how."""
    try:
        return parse_environment(path, read_owned(path))
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from error


def _check_owner(path: Path, state: os.stat_result) -> None:
    sticky = stat.S_ISDIR(state.st_mode) and state.st_mode & stat.S_ISVTX
    if state.st_uid != 0:
        raise PolicyError("policy_unreadable", f"{path}: belongs to uid {state.st_uid}; run: chown root:root {path}")
    if state.st_mode & 0o022 and not sticky:
        raise PolicyError("policy_unreadable", f"{path}: others than root may write it; run: chmod go-w {path}")


def _merged(chain: list[Table]) -> Table:
    """The tables of a chain as one, the base first."""
    whole: dict[str, Any] = {}
    for table in reversed(chain):
        for key, value in table.items():
            below = whole.get(key)
            if key in OWN and table is not chain[0]:
                continue
            if key in MERGED and isinstance(value, dict) and isinstance(below, dict):
                whole[key] = {**below, **value}
            elif key == "arguments" and isinstance(value, list) and isinstance(below, list):
                whole[key] = [*below, *value]
            else:
                whole[key] = value
    return whole


def _fault(key: str, what: str) -> PolicyError:
    return PolicyError("policy_unreadable", f"{CONFIG}: {key}: {what}; check it with: gpuagent check-config")


def _text(table: Table, key: str) -> str | None:
    value = table.get(key)
    if value is not None and not isinstance(value, str):
        raise _fault(key, "must be text")
    return value


def _path(table: Table, key: str) -> str | None:
    value = _text(table, key)
    return str(PurePath(value)) if value is not None else None


def _words(table: Table, key: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(word, str) and "\0" not in word for word in value):
        raise _fault(key, "must be a list of texts")
    if key == "command" and not value:
        raise _fault(key, "is missing")
    return tuple(value)


def _gpus(table: Table) -> tuple[str, ...]:
    value = table.get("gpus", [])
    if not isinstance(value, list) or not all(isinstance(each, str | int) for each in value):
        raise _fault("gpus", "must be a list of indexes or UUIDs")
    return tuple(map(str, value))


def _environment(table: Table) -> Mapping[str, str]:
    value = table.get("environment", {})
    if not isinstance(value, dict) or not all(isinstance(each, str) and "\0" not in each for each in value.values()):
        raise _fault("environment", "must be a table of texts")
    if not all(map(VARIABLE.fullmatch, value)):
        raise _fault("environment", "has a name that is none of a variable")
    return value
