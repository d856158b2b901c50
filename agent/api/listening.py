"""The sockets that the API listens on, and who is at the other end of them."""

from __future__ import annotations

import errno
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

import psutil

from agent.api.guard import Peer
from agent.errors import EdgeError

CONNECT_S = 1.0  # a living agent's kernel accepts at once
UCRED = struct.Struct("3i")  # struct ucred: pid, uid, gid
SO_PEERGROUPS = 59  # Python has no name for it
GROUPS_BYTES = 1024  # the most that Python asks a socket for: 256 groups


def peer_credentials(connection: socket.socket) -> Peer | None:
    """Who is at the other end of a unix socket; None: it is another kind of socket."""
    if connection.family != socket.AF_UNIX:
        return None
    pid, uid, gid = UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, UCRED.size))
    try:
        groups = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, GROUPS_BYTES)
    except OSError:  # more groups than that, or a kernel before 4.13: then the first one alone counts
        groups = b""
    return Peer(pid, uid, gid, frozenset(each for (each,) in struct.iter_unpack("I", groups)))


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode; None: nothing is there."""
    try:
        stat = path.lstat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def bind_tcp(host: str, port: int) -> socket.socket:
    """A bound TCP socket. EdgeError: it cannot be had, and by whom it is taken, if that can be told."""
    what = f"listen on {host}:{port}"
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICHOST
        )[0]
        bound = socket.socket(family, kind, proto)
    except OSError as error:
        raise EdgeError("api", what, str(error)) from error
    try:
        # So that connections of the last run, in TIME_WAIT, do not stand in the way. Not a second listener, on Linux.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen()  # now, because two sockets that only bind would not be in each other's way
    except OSError as error:
        bound.close()
        taken = error.errno == errno.EADDRINUSE
        raise EdgeError("api", what, f"taken by {listener(port)}" if taken else str(error.strerror)) from error
    return bound


def listener(port: int) -> str:
    """Who listens on a TCP port, for a person."""
    with suppress(psutil.Error, OSError):  # looking is a courtesy: it may not be allowed
        for each in psutil.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port and each.pid:
                return f"pid {each.pid} ({psutil.Process(each.pid).name()})"
    return "another process"


def bind_unix(path: Path, mode: int, group: int | None = None) -> socket.socket:
    """A listening unix socket at `path`; its file has `mode` and `group`. A file that nobody answers on is replaced."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        clear_stale(path)
        bound.bind(str(path))
        if group is not None:
            os.chown(path, -1, group)
        path.chmod(mode)  # before it listens: until then nobody can connect
        bound.listen()
    except OSError as error:
        bound.close()
        raise EdgeError("api", f"listen on {path}", error.strerror or str(error)) from error
    except EdgeError:
        bound.close()
        raise
    return bound


def clear_stale(path: Path) -> None:
    """Remove the socket file of an agent that is gone. EdgeError: somebody answers there, or it is no socket."""
    if not path.is_symlink() and not path.exists():
        return
    what = f"listen on {path}"
    if not path.is_socket():
        raise EdgeError("api", what, "there is something else than a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_S)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        peer = peer_credentials(probe)
    raise EdgeError("api", what, f"pid {peer.pid if peer else '?'} answers there: another gpuagent?")
