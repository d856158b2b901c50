"""Where the agent's unix socket is. Standard library only: every command pays for this import."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SYSTEM = Path("/run/gpuagent/api.sock")
_BELOW_A_FOLDER = Path("gpuagent", "api.sock")


def candidates(environ: Mapping[str, str], uid: int | None = None) -> list[Path]:
    """Where to look for an agent, best first.

    $GPUAGENT_SOCKET is alone in the list when it is set: who names a socket must not reach another agent instead.
    """
    named = environ.get("GPUAGENT_SOCKET")
    if named:
        return [Path(named)]
    found = [SYSTEM]
    session = _session_socket(environ)
    if session is not None:
        found.append(session)
    if not _is_root(uid):
        found.append(_home_socket(environ))
    return found


def default_for_run(environ: Mapping[str, str], uid: int | None = None) -> Path:
    """Where `gpuagent run` listens when nobody says; always one of `candidates` of the same environment."""
    named = environ.get("GPUAGENT_SOCKET")
    if named:
        return Path(named)
    session = _session_socket(environ)
    if session is not None:
        return session
    return SYSTEM if _is_root(uid) else _home_socket(environ)


def _session_socket(environ: Mapping[str, str]) -> Path | None:
    """Below $XDG_RUNTIME_DIR; the XDG specification says to ignore one that is not absolute."""
    folder = Path(environ.get("XDG_RUNTIME_DIR", ""))
    return folder / _BELOW_A_FOLDER if folder.is_absolute() else None


def _home_socket(environ: Mapping[str, str]) -> Path:
    """For a user without a session, as under cron or `su`."""
    home = environ.get("HOME")
    return (Path(home) if home else Path.home()) / ".local" / "state" / _BELOW_A_FOLDER


def _is_root(uid: int | None) -> bool:
    return (os.geteuid() if uid is None else uid) == 0
