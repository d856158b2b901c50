"""The tables of the configuration file: plain values as the operator wrote them.

Every key is explained in config/gpuagent.toml; a test compares the two.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from agent.config import values
from agent.core.model import Policy
from agent.launch_spec import DEFAULT_USER

_DEFAULT = Policy()

Text = Annotated[str, AfterValidator(values.text)]
AbsolutePath = Annotated[Path, Field(strict=False), AfterValidator(values.absolute)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Port = Annotated[int, Field(ge=1, le=65535)]
Gpu = Annotated[int | str, BeforeValidator(values.gpu)]
EnvironmentName = Annotated[str, AfterValidator(values.environment_name)]


class Table(BaseModel):
    """A table of the file: no key that is not known, no value of another type."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class LogConfig(Table):
    """[servers.NAME.log]"""

    max_mib: Annotated[int, Field(ge=1)] = 256  # of one attempt
    keep_attempts: Annotated[int, Field(ge=0)] = 20  # earlier ones
    keep_mib: Annotated[int, Field(ge=0)] = 1024  # of all earlier ones together


class DiskConfig(Table):
    """[servers.NAME.disk]"""

    folders: Annotated[tuple[AbsolutePath, ...], Field(strict=False)] = ()  # none: found from the definition
    warn_mib: Annotated[int, Field(ge=1)] | None = None  # None: see agent.core.storage
    low_mib: Annotated[int, Field(ge=1)] | None = None
    on_low: Literal["report", "stop"] = "report"
    start_unit: Annotated[str, AfterValidator(values.startable)] | None = None


Uuid = Annotated[str, AfterValidator(values.uuid)]
Digest = Annotated[str, AfterValidator(values.sha256)]
Wanted = Annotated[Text, Field(min_length=1)]
Number = Annotated[int, Field(ge=1)]


class NeedsConfig(Table):
    """[servers.NAME.needs]"""

    mounts: Annotated[tuple[AbsolutePath, ...], Field(strict=False)] = ()
    filesystems: dict[AbsolutePath, Uuid] = {}  # mount point -> which one
    files: Annotated[tuple[AbsolutePath, ...], Field(strict=False)] = ()
    contains: dict[AbsolutePath, Wanted] = {}
    sha256: dict[AbsolutePath, Digest] = {}
    free_mib: dict[AbsolutePath, Number] = {}
    free_inodes: dict[AbsolutePath, Number] = {}
    shm_mib: Annotated[int, Field(ge=0)] = 0
    shm_free_mib: Annotated[int, Field(ge=0)] = 0


class RestartConfig(Table):
    """[servers.NAME.restart]"""

    attempts: Annotated[int, Field(ge=1)] = _DEFAULT.attempts  # launches in all
    pauses_s: Annotated[tuple[Seconds, ...], Field(strict=False, min_length=1), AfterValidator(values.growing)] = (
        _DEFAULT.pauses_s
    )  # the last one repeats


class ServerConfig(Table):
    """[servers.NAME]. None: not said, so found from the command or the family.

    In a Config, what it extends has gone into it, and `arguments` into `command`.
    """

    extends: str | None = None
    template: bool = False
    command: Annotated[tuple[Text, ...], Field(strict=False, min_length=1), AfterValidator(values.command)]
    arguments: Annotated[tuple[Text, ...], Field(strict=False)] = ()
    family: Annotated[str, AfterValidator(values.family)] | None = None
    user: Annotated[str, AfterValidator(values.user)] = DEFAULT_USER  # where it is a systemd unit
    working_dir: AbsolutePath | None = None
    environment: Annotated[dict[EnvironmentName, Text], Field(repr=False)] = {}  # may hold secrets
    environment_file: AbsolutePath | None = None
    model: Annotated[tuple[Annotated[Path, Field(strict=False)], ...], Field(strict=False)] = ()
    gpus: Annotated[tuple[Gpu, ...], Field(strict=False), AfterValidator(values.distinct)] = ()
    need_mib: Annotated[int, Field(ge=1)] | None = None  # on each GPU
    host: Annotated[str, AfterValidator(values.host)] | None = None
    port: Port | None = None
    health_path: Annotated[str, AfterValidator(values.health_path)] | None = None
    autostart: bool = False
    start_limit_s: Seconds | None = None
    on_stall: Literal["report", "restart"] = "report"
    stop_s: Seconds | None = None
    unhealthy_s: Seconds = _DEFAULT.unhealthy_s
    needs: NeedsConfig = NeedsConfig()
    restart: RestartConfig = RestartConfig()
    disk: DiskConfig = DiskConfig()
    log: LogConfig = LogConfig()


class AgentConfig(Table):
    """[agent]"""

    listen: Annotated[str, AfterValidator(values.listen)] = "127.0.0.1:8900"
    socket: Annotated[AbsolutePath, AfterValidator(values.socket)] | None = None  # None: see socket_path.py
    state_dir: Annotated[AbsolutePath, Field(validate_default=True)] = Field(
        default_factory=lambda: values.default_state_dir(os.environ, os.geteuid() == 0)
    )
    log_dir: AbsolutePath = Field(default_factory=lambda said: said["state_dir"] / "log")

    @property
    def listen_address(self) -> tuple[str, int] | None:
        """Address and port of the HTTP listener; None: there is none."""
        return values.listen_address(self.listen)


class RivalsConfig(Table):
    """[rivals]"""

    units: Annotated[
        tuple[Annotated[str, AfterValidator(values.rival)], ...], Field(strict=False), AfterValidator(values.each_once)
    ] = ()


class Config(Table):
    """The whole file."""

    agent: AgentConfig
    servers: dict[str, ServerConfig]
    rivals: RivalsConfig = RivalsConfig()
