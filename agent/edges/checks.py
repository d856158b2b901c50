"""The preconditions of a launch: the program, its files, its log folder, its port."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agent.core.model import Cause, Need, Retry
from agent.edges import sockets
from agent.edges.bounded import BoundedThread
from agent.errors import EdgeError

LIMIT_S = 5.0  # milliseconds in health; a network mount that takes longer is as good as frozen


class FileChecks:
    """Implements `agent.ports.Checks`. Looks as the user that the agent runs as, which is the server's (embedded).

    `environment` gives the server's own, whose PATH finds the program; its EdgeError (of `environment_file`) becomes a
    need. `files`: models, files or folders that must be readable and not empty. `log_folder` need not exist, but it
    must be possible to make it. `port` None: no port is looked at. What is relative is relative to `working_dir`.
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
    ) -> None:
        self._program = command[0]
        self._environment = environment
        self._log_folder = log_folder
        self._working_dir = working_dir
        self._files = tuple(files)
        self._environment_file = environment_file
        self._host = host
        self._port = port
        self._thread = BoundedThread("checks")

    async def needs(self, ours: frozenset[int]) -> tuple[Need, ...]:
        """See `agent.ports.Checks`. EdgeError after 5 s, and at once while an earlier call still hangs."""
        return await self._thread.run("look at the preconditions", LIMIT_S, lambda _: self._needs(ours))

    def _needs(self, ours: frozenset[int]) -> tuple[Need, ...]:
        base = self._working_dir or Path()
        checks: list[Need | None] = [
            self._environment_and_program(),
            folder(self._working_dir) if self._working_dir is not None else None,
            *(model(base / path) for path in self._files),
            log_folder(self._log_folder),
            port(self._host, self._port, ours) if self._port is not None else None,
        ]
        return tuple(need for need in checks if need is not None)

    def _environment_and_program(self) -> Need | None:
        """Without the environment, the program cannot be sought."""
        if self._environment_file is not None and (need := readable_file(self._environment_file)) is not None:
            return need
        try:
            search = self._environment().get("PATH", os.defpath)
        except EdgeError as error:
            remedy = "Correct the environment file; each line is NAME=value."
            return _need("environment_file", error.slug or "bad_env", f"Environment: {error.why}", remedy)
        return executable(self._program, search, self._working_dir)


def _need(name: str, slug: str, text: str, remedy: str) -> Need:
    return Need(name=name, cause=Cause(slug=slug, text=text, remedy=remedy, retry=Retry.NO), heals=False)


# -- the program ----------------------------------------------------------------------------------------


def executable(program: str, search: str, working_dir: Path | None) -> Need | None:
    """What the exec would refuse. `search`: the server's PATH."""
    if "/" in program:
        candidates = [Path(working_dir or "", program)]
        if _closed(candidates[0]):
            text = f"Not executable: a folder above {candidates[0]} may not be entered"
            return _need("executable", "exec_not_executable", text, "Let the server's user enter each folder above it.")
    else:
        candidates = [Path(working_dir or "", place, program) for place in search.split(os.pathsep)]
    there = [path for path in candidates if os.path.exists(path)]  # pathlib's raises in a folder closed to us
    if not there:
        where = "" if "/" in program else f" in PATH ({search})"
        remedy = "Install it, or correct the first word of `command`; a full path is best."
        return _need("executable", "exec_missing", f"Executable not found: {program}{where}", remedy)
    faults = [fault for path in there if (fault := _not_executable(path))]
    if len(faults) < len(there):
        return None
    remedy = "Make it executable (chmod +x) and its interpreter present, or correct `command`."
    return _need("executable", "exec_not_executable", faults[0], remedy)


def _closed(path: Path) -> bool:
    """Whether nobody but others can say if it is there: a folder above it may not be entered."""
    try:
        os.stat(path)
    except OSError as error:
        return error.errno == errno.EACCES
    return False


def _not_executable(path: Path) -> str | None:
    if not os.path.isfile(path):
        return f"Not a program: {path} is {'a folder' if os.path.isdir(path) else 'no file'}"
    if not os.access(path, os.X_OK):
        return f"Not executable: {path}"
    if not os.access(path, os.R_OK):
        return None  # a program may be executable and not readable; a script may not, and the exec will say so
    with path.open("rb") as file:
        head = file.readline(256)
    if not head.startswith(b"#!"):
        return None
    interpreter = Path(os.fsdecode((head[2:].split() or [b""])[0]))
    if os.path.isfile(interpreter) and os.access(interpreter, os.X_OK):
        return None
    return f"Not executable: {path} names an interpreter that is not there: {interpreter}"


# -- files and folders ----------------------------------------------------------------------------------


def folder(path: Path) -> Need | None:
    """The working folder."""
    is_dir = os.path.isdir(path)
    if is_dir and os.access(path, os.X_OK):
        return None
    there = "is not a folder" if os.path.exists(path) else "does not exist"
    state = "may not be entered" if is_dir or _closed(path) else there
    return _need("working_dir", "launch_failed", f"Working folder {path} {state}", "Correct `working_dir`, or make it.")


def readable_file(path: Path) -> Need | None:
    """The file with the server's secrets."""
    fault = _unreadable(path, may_be_folder=False)
    if fault is None:
        return None
    remedy = "Correct `environment_file`, or give the agent's user the right to read it."
    return _need("environment_file", "bad_env", f"Environment file {path} {fault}", remedy)


def model(path: Path) -> Need | None:
    """Weights: a file or a folder."""
    fault = _unreadable(path, may_be_folder=True)
    if fault is not None:
        slug = "missing_weights" if fault == "does not exist" else "model_unreadable"
        remedy = "Correct the path, mount its disk, or give the server's user the right to read it."
        return _need("model", slug, f"Model {path} {fault}", remedy)
    empty = next(path.iterdir(), None) is None if path.is_dir() else path.stat().st_size == 0
    if not empty:
        return None
    return _need("model", "missing_weights", f"Model {path} is empty", "Download or copy the weights there.")


def _unreadable(path: Path, may_be_folder: bool) -> str | None:
    """Why a server could not read it; None: it could."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe in its place must not block
    except FileNotFoundError:
        return "does not exist"
    except OSError as error:
        return f"is not readable: {error.strerror}"
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            return None if may_be_folder else "is a folder"
        os.read(fd, 1)  # a broken disk opens well and reads badly
    except OSError as error:
        return f"is not readable: {error.strerror}"
    finally:
        os.close(fd)
    return None


def log_folder(path: Path) -> Need | None:
    """Writable, or possible to make: the nearest thing above that exists, be it a dangling link, is what counts."""
    nearest = next(one for one in (path.absolute(), *path.absolute().parents) if os.path.lexists(one))
    if nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK):
        return None
    state = "is not writable" if nearest.is_dir() else "is not a folder"
    text = f"Log folder {path}: {nearest} {state}" if nearest != path else f"Log folder {path} {state}"
    return _need("log", "log_unwritable", text, "Make it writable for the agent's user, or choose another one.")


# -- the port -------------------------------------------------------------------------------------------


def port(host: str, number: int, ours: frozenset[int]) -> Need | None:
    """Whether the server can listen there. While processes of it live, only a stranger that listens is a conflict."""
    found = sockets.ownership(sockets.reached(sockets.listeners(number), host), ours)
    if found.strangers:
        return _taken(number, sockets.strangers_named(found))
    if ours:
        return None
    try:
        addresses = socket.getaddrinfo(host.strip("[]") or None, number, 0, socket.SOCK_STREAM, 0, socket.AI_PASSIVE)
    except socket.gaierror as error:
        return _need("address", "address_unavailable", f"Host {host}: {error.strerror}", "Correct `host`.")
    needs = [_bindable(family, address, number) for family, _, _, _, address in addresses]
    taken = [need for need in needs if need is not None and need.name == "port"]
    if taken or None not in needs:
        return (taken or needs)[0]
    return None  # a name may have an address that this host lacks (localhost without IPv6): one that works is enough


def _bindable(family: int, address: tuple[object, ...], number: int) -> Need | None:
    """A plain bind is refused by what waits out its time (TIME_WAIT) too, which a server's own bind ignores.

    A bind with SO_REUSEADDR ignores that, but also a socket that is bound in the same way and does not listen yet (a
    vLLM that loads). So: refused with it, or refused without it and nothing waits: taken.
    """
    plain = _bind_error(family, address, reuse=False)
    if plain in (None, errno.EAFNOSUPPORT):  # IPv6 is off: no conflict there
        return None
    if plain == errno.EADDRNOTAVAIL:
        text = f"Address {address[0]} is not one of this host"
        return _need("address", "address_unavailable", text, "Correct `host`, or bring its network up.")
    if plain != errno.EADDRINUSE:
        why = os.strerror(plain or 0)
        return _need("port", "permission_denied", f"Port {number}: {why}", "Choose a port from 1024 on.")
    connections = sockets.connections(number)
    if connections and _bind_error(family, address, reuse=True) is None:
        return None
    holder = next((end for end in connections if end.inode), None)
    return _taken(number, sockets.who(holder) if holder else "a process that does not listen yet")


def _bind_error(family: int, address: tuple[object, ...], reuse: bool) -> int | None:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))
            if family == socket.AF_INET6:
                trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            trial.bind(address)
    except OSError as error:
        return error.errno
    return None


def _taken(number: int, by: str) -> Need:
    remedy = "End that process, or give the server another port."
    return _need("port", "port_taken", f"Port {number} is taken by {by}", remedy)
