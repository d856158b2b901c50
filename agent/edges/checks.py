"""The preconditions of a launch: the program, its files, its log folder, its port."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agent.core.model import Need
from agent.edges import port_check
from agent.edges.bounded import BoundedThread
from agent.edges.owners import ByDescriptors, Owner
from agent.errors import EdgeError
from agent.privileged import files

LIMIT_S = 5.0  # milliseconds in health; a network mount that takes longer is as good as frozen


class FileChecks:
    """Implements `agent.ports.Checks`. Looks as the user that the agent runs as, which is the server's (embedded).

    `environment` gives the server's own, whose PATH finds the program; its EdgeError (of `environment_file`) becomes a
    need. `files`: models, files or folders that must be readable and not empty. `log_folder` need not exist, but it
    must be possible to make it. `port` None: no port is looked at; `owner` tells whose a listener there is (None: its
    processes' descriptors do). What is relative is relative to `working_dir`.
    """

    def __init__(
        self,
        *,
        command: Sequence[str],
        environment: Callable[[], Mapping[str, str]],
        log_folder: Path,
        working_dir: Path | None = None,
        files: Sequence[Path] = (),
        environment_file: Path | None = None,
        host: str = "127.0.0.1",
        port: int | None = None,
        owner: Owner | None = None,
    ) -> None:
        self._program = command[0]
        self._environment = environment
        self._log_folder = log_folder
        self._working_dir = working_dir
        self._files = tuple(files)
        self._environment_file = environment_file
        self._host = host
        self._port = port
        self._owner = owner or ByDescriptors()
        self._thread = BoundedThread("checks")

    async def needs(self, ours: frozenset[int]) -> tuple[Need, ...]:
        """See `agent.ports.Checks`. EdgeError after 5 s, and at once while an earlier call still hangs."""
        return await self._thread.run("look at the preconditions", LIMIT_S, lambda _: self._needs(ours))

    def _needs(self, ours: frozenset[int]) -> tuple[Need, ...]:
        base = self._working_dir or Path()
        checks: list[Need | None] = [
            self._environment_and_program(),
            files.folder(self._working_dir) if self._working_dir is not None else None,
            *(files.model(base / path) for path in self._files),
            files.log_folder(self._log_folder),
            port_check.port(self._host, self._port, ours, self._owner) if self._port is not None else None,
        ]
        return tuple(need for need in checks if need is not None)

    def _environment_and_program(self) -> Need | None:
        """Without the environment, the program cannot be sought."""
        if self._environment_file is not None and (need := files.readable_file(self._environment_file)) is not None:
            return need
        try:
            search = self._environment().get("PATH", os.defpath)
        except EdgeError as error:
            remedy = "Correct the environment file; each line is NAME=value."
            return files.unmet("environment_file", error.slug or "bad_env", f"Environment: {error.why}", remedy)
        return files.executable(self._program, search, self._working_dir)
