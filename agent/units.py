"""Unit mode: each server is a systemd unit of its own user, and outlives the agent."""

from __future__ import annotations

import grp
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from agent.config import Config
from agent.definition import Definition
from agent.edges.gpu_holders import GpuHolders
from agent.edges.log_bound import LogBound
from agent.edges.log_tail import LogTail
from agent.edges.nvml import Nvml
from agent.edges.owners import ByCgroup
from agent.edges.privileged import Privileged
from agent.edges.probe import HttpProbe
from agent.edges.rivals import UnitRivals
from agent.edges.storage import FileSystems
from agent.edges.systemd import Systemd
from agent.edges.unit_checks import UnitChecks
from agent.edges.unit_server import UnitServer
from agent.gpu_watch import GpuEyes
from agent.ports import Rivals
from agent.watch import Outside

LOGS = Path("/var/log/gpuagent")
"""Where root opens the servers' logs: not for the configuration to choose, as root writes only where only root can."""
ADMINS = "gpuagent-admin"


class Units:
    """Implements `agent.daemon.Mode`."""

    name = "units"
    ends_servers = False

    def __init__(self) -> None:
        self._systemd = Systemd()
        self._helper = Privileged()
        self.rivals: Rivals | None = UnitRivals(self._helper, self._systemd)
        self.gpus = GpuEyes(lambda: Nvml(os.environ), GpuHolders())

    async def __aenter__(self) -> Units:
        await self._systemd.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._systemd.__aexit__()

    @property
    def admins(self) -> int | None:
        """The group whose members may make changes; None: this host has none."""
        try:
            return grp.getgrnam(ADMINS).gr_gid
        except KeyError:
            return None

    def shutting_down(self) -> bool:
        """Whether the host goes down, as far as systemd has told."""
        return self._systemd.shutting_down

    def faults(self) -> list[str]:
        """That systemd is not seen: ends are told later then, and how they came about from their records."""
        fault = self._systemd.lasting_fault
        return [f"systemd-not-seen: {fault}"] if fault else []

    def outside(self, definition: Definition, config: Config, hide: Callable[[str], str]) -> Outside:
        """The edges of one server."""
        name, family, log = definition.name, definition.family, config.servers[definition.name].log
        server = UnitServer(name, definition.digest, self._helper, self._systemd)
        owner, folder = ByCgroup(server.group), LOGS / name
        return Outside(
            server=server,
            checks=UnitChecks(name, definition.digest, self._helper, definition.bind, definition.port, owner, folder),
            probe=HttpProbe(
                definition.bind, definition.port, definition.health_path, family.answers, family.probe_timeout_s, owner
            ),
            family=family,
            keeper=LogBound(folder, log.max_mib, None),  # earlier attempts are forgotten by root, at each launch
            storage=FileSystems((folder, *definition.writes)),
            open_log=LogTail,
            log_path=lambda invocation: folder / f"{invocation}.log",
            redact=hide,
            relieve=partial(self._helper.relieve, name),
        )
