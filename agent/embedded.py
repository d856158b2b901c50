"""Embedded mode: without systemd and root. Each server is a child of the agent, and ends with it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from agent.config import Config
from agent.definition import Definition
from agent.edges.checks import FileChecks
from agent.edges.child_server import ChildServer
from agent.edges.gpu_holders import GpuHolders
from agent.edges.log_bound import LogBound
from agent.edges.log_tail import LogTail
from agent.edges.nvml import Nvml
from agent.edges.probe import HttpProbe
from agent.edges.storage import FileSystems
from agent.gpu_watch import GpuEyes
from agent.ports import Rivals
from agent.watch import Outside


class Embedded:
    """Implements `agent.daemon.Mode`."""

    name = "embedded"
    ends_servers = True
    admins: int | None = None
    rivals: Rivals | None = None

    def __init__(self) -> None:
        self.gpus = GpuEyes(lambda: Nvml(os.environ), GpuHolders())

    async def __aenter__(self) -> Embedded:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def shutting_down(self) -> bool:
        """Nobody tells; nor does it matter, as the servers end with the agent."""
        return False

    def faults(self) -> list[str]:
        """None: there is nothing beside the servers' own edges."""
        return []

    def outside(self, definition: Definition, config: Config, hide: Callable[[str], str]) -> Outside:
        """The edges of one server."""
        folder = config.agent.log_dir / definition.name
        family, log = definition.family, config.servers[definition.name].log
        return Outside(
            server=ChildServer(
                definition.name,
                definition.command,
                definition.environment.read,
                definition.working_dir,
                _mark(config.agent.state_dir),
            ),
            checks=FileChecks(
                command=definition.command,
                environment=definition.environment.read,
                working_dir=definition.working_dir,
                files=definition.files,
                environment_file=definition.environment_file,
                preconditions=definition.preconditions,
                log_folder=folder,
                host=definition.bind,
                port=definition.port,
            ),
            probe=HttpProbe(
                definition.bind, definition.port, definition.health_path, family.answers, family.probe_timeout_s
            ),
            family=family,
            keeper=LogBound(folder, log.max_mib, (log.keep_attempts, log.keep_mib)),
            storage=FileSystems((folder, *definition.writes)),
            open_log=LogTail,
            log_path=lambda invocation: folder / f"{invocation}.log",
            redact=hide,
        )


def _mark(state_dir: Path) -> str:
    """Tells the servers of this agent from those of another: the same after a restart, as the state is the same."""
    return hashlib.sha256(os.fsencode(state_dir.resolve())).hexdigest()[:16]
