"""[servers.NAME.needs] as the root-owned configuration has it. The agent reads the same table in agent.config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from agent.preconditions import Preconditions
from agent.privileged.policy import PolicyError, Table


def preconditions(table: Table) -> Preconditions:
    """Of a server's whole table. PolicyError: a value of another type."""
    needs = table.get("needs", {})
    if not isinstance(needs, dict):
        raise _fault("needs", "must be a table")
    return Preconditions(
        mounts=_paths(needs, "mounts"),
        filesystems=_by_path(needs, "filesystems", str),
        files=_paths(needs, "files"),
        contains=_by_path(needs, "contains", str),
        sha256=_by_path(needs, "sha256", str),
        free_mib=_by_path(needs, "free_mib", int),
        free_inodes=_by_path(needs, "free_inodes", int),
        shm_mib=_number(needs, "shm_mib"),
        shm_free_mib=_number(needs, "shm_free_mib"),
    )


def _fault(key: str, what: str) -> PolicyError:
    return PolicyError("policy_unreadable", f"{key}: {what}; check it with: gpuagent check-config")


def _paths(needs: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = needs.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, str) and _is_path(each) for each in value):
        raise _fault(f"needs.{key}", "must be a list of absolute paths")
    return tuple(str(PurePath(each)) for each in value)


def _by_path(needs: Mapping[str, Any], key: str, of: type) -> dict[str, Any]:
    value = needs.get(key, {})
    if not isinstance(value, dict) or not all(_is_path(path) and type(each) is of for path, each in value.items()):
        raise _fault(f"needs.{key}", "must be a table of absolute paths")
    return {str(PurePath(path)): each for path, each in value.items()}


def _number(needs: Mapping[str, Any], key: str) -> int:
    value = needs.get(key, 0)
    if type(value) is not int:
        raise _fault(f"needs.{key}", "must be a whole number")
    return value


def _is_path(text: str) -> bool:
    return text.startswith("/") and "\0" not in text
