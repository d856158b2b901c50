"""What an operator wrote of a server, resolved into what the loop and the edges need."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from agent.config import Config, ServerConfig, read_environment_file
from agent.config.rules import address_of, family_of, port_of, shared
from agent.core.model import Policy
from agent.errors import ConfigError, EdgeError
from agent.families import Family, flag_value, listed_values


class Environment:
    """The server's environment: the agent's own, then the definition's, then the file's, read anew at each launch.

    The values of the file are secrets: `secrets` holds all that were ever read, so that no face shows them.
    """

    def __init__(self, said: Mapping[str, str], file: Path | None, gpus: tuple[str, ...]) -> None:
        self.secrets: frozenset[str] = frozenset()
        self._said = dict(said)
        self._file = file
        self._gpus = gpus

    def read(self) -> dict[str, str]:
        """All variables. EdgeError: the file cannot be read, or a line of it is wrong."""
        variables = {**os.environ, **self._said}
        if self._gpus:
            variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # else an index means another GPU to CUDA than to the driver
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(self._gpus)
        if self._file is None:
            return variables
        try:
            secret = read_environment_file(self._file)
        except ConfigError as error:
            raise EdgeError("environment", "read environment_file", "; ".join(error.faults), "bad_env") from error
        self.secrets |= frozenset(value for value in secret.values() if value)
        return {**variables, **secret}


@dataclass(frozen=True, slots=True)
class Definition:
    """One server."""

    name: str
    command: tuple[str, ...]
    working_dir: Path | None
    environment: Environment
    environment_file: Path | None
    family: Family
    host: str  # where it is asked: a literal address
    bind: str  # where it listens, as far as its command or its family says
    port: int
    health_path: str
    files: tuple[Path, ...]  # models: must be there and readable
    policy: Policy
    digest: str  # of what is launched: starts of the same one can be compared

    @property
    def url(self) -> str:
        """Where a client finds it."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


def define(config: Config) -> dict[str, Definition]:
    """Every server of a configuration that `load` found without fault."""
    servers = config.servers
    overlaps: dict[str, set[str]] = {name: set() for name in servers}
    for a, b in combinations(servers, 2):
        if shared(servers[a], servers[b]) is not None:
            overlaps[a].add(b)
            overlaps[b].add(a)
    return {name: _define(name, server, frozenset(overlaps[name])) for name, server in servers.items()}


def _define(name: str, server: ServerConfig, overlaps: frozenset[str]) -> Definition:
    family = family_of(server)
    host, port = address_of(server), port_of(server)
    if host is None or port is None:
        raise ConfigError([f"servers.{name}: its address cannot be told; give host and port"])
    gpus = tuple(str(gpu) for gpu in server.gpus)
    return Definition(
        name=name,
        command=server.command,
        working_dir=server.working_dir,
        environment=Environment(server.environment, server.environment_file, gpus),
        environment_file=server.environment_file,
        family=family,
        host=host,
        bind=flag_value(server.command, family.host_flags) or server.host or family.default_host,
        port=port,
        health_path=server.health_path or family.health_path,
        files=_files(server, family),
        policy=_policy(name, server, family, gpus, overlaps),
        digest=_digest(server, gpus),
    )


def _digest(server: ServerConfig, gpus: tuple[str, ...]) -> str:
    """The same as long as the same is launched; of environment_file its path counts, not what stands in it."""
    launched = {
        "command": server.command,
        "environment": server.environment,
        "environment_file": str(server.environment_file),
        "gpus": gpus,
        "working_dir": str(server.working_dir),
    }
    content = json.dumps(launched, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _files(server: ServerConfig, family: Family) -> tuple[Path, ...]:
    """The models that the command names by the family's flags, and those that the definition adds."""
    named = (flag_value(server.command, (flag,)) for flag in family.model_flags)
    files = [value for value in named if value is not None] + listed_values(server.command, family.list_flags)
    base = server.working_dir or Path.cwd()
    return tuple(dict.fromkeys(base / file for file in (*map(Path, files), *server.model)))


def _policy(name: str, server: ServerConfig, family: Family, gpus: tuple[str, ...], overlaps: frozenset[str]) -> Policy:
    policy = Policy(
        name=name,
        gpus=gpus,
        need_mib=server.need_mib or 0,
        overlaps=overlaps,
        autostart=server.autostart,
        start_limit_s=server.start_limit_s,
        on_stall=server.on_stall,
        unhealthy_s=server.unhealthy_s,
        terms_s=family.terms_s,
        attempts=server.restart.attempts,
        pauses_s=server.restart.pauses_s,
    )
    if server.stop_s is None:
        return policy
    return replace(policy, terms_s=(server.stop_s, *family.terms_s[1:]))
