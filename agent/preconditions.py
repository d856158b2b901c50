"""What a definition needs of the host's files, mounts and space: one noun, for the agent and for the privileged code.

Standard library only: root runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Preconditions:
    """[servers.NAME.needs]. Every path is absolute."""

    mounts: tuple[str, ...] = ()  # where a file system must be mounted
    filesystems: Mapping[str, str] = field(default_factory=dict)  # the same, and which one: path -> UUID
    files: tuple[str, ...] = ()  # files and folders that must be readable
    contains: Mapping[str, str] = field(default_factory=dict)  # file -> text that must be in it
    sha256: Mapping[str, str] = field(default_factory=dict)  # file -> its digest, 64 hex digits
    free_mib: Mapping[str, int] = field(default_factory=dict)  # folder -> MiB
    free_inodes: Mapping[str, int] = field(default_factory=dict)  # folder -> number
    shm_mib: int = 0  # size of /dev/shm
    shm_free_mib: int = 0

    @property
    def mounted(self) -> tuple[str, ...]:
        """Every path on which something must be mounted, the outer ones first."""
        return tuple(sorted({*self.mounts, *self.filesystems}))
