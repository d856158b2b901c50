"""The preconditions of a launch: the program, its files, its log folder, its port, and what the definition asks of the
host. Looked at as the user that the agent runs as, which is the server's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.core.model import Need
from agent.edges import port_check
from agent.edges.bounded import LATE, BoundedThread
from agent.edges.owners import ByDescriptors, Owner
from agent.errors import EdgeError
from agent.preconditions import Preconditions
from agent.privileged import files, looks, space
from agent.privileged.known import Known

LIMIT_S = 5.0  # milliseconds in health; a network mount that takes longer is as good as frozen


class FileChecks:
    """Implements `agent.ports.Checks` for a server that is a child of the agent.

    `environment` gives the server's own, whose PATH finds the program; its EdgeError (of `environment_file`) becomes a
    need. `files`: models, files or folders that must be readable and whole. `log_folder` need not exist, but it
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
        preconditions: Preconditions | None = None,
    ) -> None:
        self._command = tuple(command)
        self._preconditions = preconditions or Preconditions()
        self._known: Mapping[str, Any] = {}
        self._at = ("", 0.0)  # what the look under way looks at, and since when, Unix seconds
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
        """See `agent.ports.Checks`. A look that hangs is itself a need; after 5 s, and from then on at once."""
        try:
            return await self._thread.run("look at the preconditions", LIMIT_S, lambda _: self._needs(ours))
        except EdgeError as error:
            if error.slug != LATE:
                raise
            return (space.stalled(*self._at),)

    def _begin(self, path: str) -> None:
        self._at = (path, time.time())

    def _needs(self, ours: frozenset[int]) -> tuple[Need, ...]:
        self._begin(str(self._log_folder))
        log = files.log_folder(self._log_folder)
        space.take_a_write(str(space.nearest(str(self._log_folder))))
        self._begin(str(self._environment_file or ""))
        search, unread = self._search()
        found = self._of_files(search or os.defpath)
        if unread is not None and not any(need.name == "mount" for need in found):
            found = [unread]  # without the environment, the program cannot be sought
        self._begin(f"port {self._port}")
        port = port_check.port(self._host, self._port, ours, self._owner) if self._port is not None else None
        return (*found, *(need for need in (log, port) if need is not None))

    def _of_files(self, search: str) -> list[Need]:
        wanted = looks.Wanted(
            command=self._command,
            search=search,
            base=self._working_dir or Path.cwd(),
            models=tuple(map(str, self._files)),
            environment_file=str(self._environment_file) if self._environment_file is not None else None,
            preconditions=self._preconditions,
            forgotten=(),  # nobody brings it up again after a boot but who starts the agent
        )
        known = Known(self._known)
        found = looks.needs(wanted, known, self._begin)
        self._known = known.kept
        return found

    def _search(self) -> tuple[str | None, Need | None]:
        """The server's PATH, or why it cannot be told."""
        if self._environment_file is not None and (need := files.readable_file(self._environment_file)) is not None:
            return None, need
        try:
            return self._environment().get("PATH", os.defpath), None
        except EdgeError as error:
            remedy = "Correct the environment file; each line is NAME=value."
            return None, files.unmet("environment_file", error.slug or "bad_env", f"Environment: {error.why}", remedy)
