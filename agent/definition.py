"""What an operator wrote of a server, resolved into what the loop and the edges need."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TypeVar

from agent.config import Config, ServerConfig, read_environment_file
from agent.config.model import NeedsConfig
from agent.config.rules import address_of, family_of, port_of, shared
from agent.core.model import Policy
from agent.core.storage import SHM
from agent.errors import ConfigError, EdgeError
from agent.families import Family, flag_value, model_files
from agent.launch_spec import LaunchSpec, digest, variables
from agent.preconditions import Preconditions

V = TypeVar("V")

CACHES = (
    "HF_HOME",
    "HF_HUB_CACHE",
    "TRANSFORMERS_CACHE",
    "LLAMA_CACHE",
    "VLLM_CACHE_ROOT",
    "SGLANG_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "FLASHINFER_WORKSPACE_BASE",
    "XDG_CACHE_HOME",
    "TMPDIR",
)
"""Variables that name a folder to which servers write."""


class Environment:
    """The server's environment: the agent's own, then the definition's, then the file's, read anew at each launch.

    The values of the file are secrets: `secrets` holds all that were ever read, so that no face shows them.
    """

    def __init__(self, spec: LaunchSpec) -> None:
        self.secrets: frozenset[str] = frozenset()
        self._spec = spec

    def read(self) -> dict[str, str]:
        """All variables. EdgeError: the file cannot be read, or a line of it is wrong."""
        if self._spec.environment_file is None:
            return variables(self._spec, os.environ, {})
        try:
            secret = read_environment_file(Path(self._spec.environment_file))
        except ConfigError as error:
            raise EdgeError("environment", "read environment_file", "; ".join(error.faults), "bad_env") from error
        self.secrets |= frozenset(value for value in secret.values() if value)
        return variables(self._spec, os.environ, secret)


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
    files: tuple[Path, ...]  # models: must be there, readable and whole
    preconditions: Preconditions
    writes: tuple[Path, ...]  # folders that it fills, beside that of its logs
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
    spec = launch_spec(name, server)
    return Definition(
        name=name,
        command=server.command,
        working_dir=server.working_dir,
        environment=Environment(spec),
        environment_file=server.environment_file,
        family=family,
        host=host,
        bind=flag_value(server.command, family.host_flags) or server.host or family.default_host,
        port=port,
        health_path=server.health_path or family.health_path,
        files=_files(server, family),
        preconditions=preconditions(server.needs),
        writes=_writes(server),
        policy=_policy(name, server, family, spec.gpus, overlaps),
        digest=digest(spec),
    )


def launch_spec(name: str, server: ServerConfig) -> LaunchSpec:
    """As the privileged code makes it from the same file: a test compares the two."""
    return LaunchSpec(
        name=name,
        command=server.command,
        environment=server.environment,
        environment_file=str(server.environment_file) if server.environment_file is not None else None,
        gpus=tuple(map(str, server.gpus)),
        working_dir=str(server.working_dir) if server.working_dir is not None else None,
        user=server.user,
    )


def preconditions(needs: NeedsConfig) -> Preconditions:
    """As the privileged code makes them from the same file: a test compares the two."""
    return Preconditions(
        mounts=tuple(map(str, needs.mounts)),
        filesystems=_by_path(needs.filesystems),
        files=tuple(map(str, needs.files)),
        contains=_by_path(needs.contains),
        sha256=_by_path(needs.sha256),
        free_mib=_by_path(needs.free_mib),
        free_inodes=_by_path(needs.free_inodes),
        shm_mib=needs.shm_mib,
        shm_free_mib=needs.shm_free_mib,
    )


def _by_path(table: Mapping[Path, V]) -> dict[str, V]:
    return {str(path): value for path, value in table.items()}


def _files(server: ServerConfig, family: Family) -> tuple[Path, ...]:
    """The models that the command names by the family's flags, and those that the definition adds."""
    base = server.working_dir or Path.cwd()
    named = map(Path, model_files(server.command, family))
    return tuple(dict.fromkeys(base / file for file in (*named, *server.model)))


def _writes(server: ServerConfig) -> tuple[Path, ...]:
    """What is said, or else its working folder and the caches that its environment names; and shared memory."""
    named = [Path(server.environment[name]) for name in CACHES if name in server.environment]
    found = [*([server.working_dir] if server.working_dir is not None else []), *named]
    folders = server.disk.folders or [folder for folder in found if folder.is_absolute()]
    return tuple(dict.fromkeys([*folders, Path(SHM)]))


def _policy(name: str, server: ServerConfig, family: Family, gpus: tuple[str, ...], overlaps: frozenset[str]) -> Policy:
    policy = Policy(
        name=name,
        gpus=gpus,
        need_mib=server.need_mib or 0,
        overlaps=overlaps,
        autostart=server.autostart,
        start_limit_s=server.start_limit_s,
        on_stall=server.on_stall,
        on_disk_low=server.disk.on_low,
        disk_warn_mib=server.disk.warn_mib,
        disk_low_mib=server.disk.low_mib,
        relief=server.disk.start_unit,
        unhealthy_s=server.unhealthy_s,
        terms_s=family.terms_s,
        attempts=server.restart.attempts,
        pauses_s=server.restart.pauses_s,
    )
    if server.stop_s is None:
        return policy
    return replace(policy, terms_s=(server.stop_s, *family.terms_s[1:]))
