"""Whether a server can listen where it is told to."""

from __future__ import annotations

import errno
import os
import socket

from agent.core.model import Cause, Need, Retry
from agent.edges import sockets
from agent.edges.owners import Owner


def port(host: str, number: int, ours: frozenset[int], owner: Owner) -> Need | None:
    """Whether the server can listen there. While processes of it live, only a stranger that listens is a conflict.

    Whoever holds the port may end, and at a boot an address may come late: both are waited for, by name.
    """
    if strangers := owner.strangers(sockets.reached(sockets.listeners(number), host), ours):
        return _taken(number, strangers)
    if ours:
        return None
    try:
        addresses = socket.getaddrinfo(host.strip("[]") or None, number, 0, socket.SOCK_STREAM, 0, socket.AI_PASSIVE)
    except socket.gaierror as error:
        text, remedy = f"Host {host}: {error.strerror}", "Correct `host`, or bring its network and its names up."
        return _need("address", "address_unavailable", text, remedy, host, heals=True)
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
        remedy = "Correct `host`, or bring its network up; the start goes on by itself."
        return _need("address", "address_unavailable", text, remedy, str(address[0]), heals=True)
    if plain != errno.EADDRINUSE:
        why = os.strerror(plain or 0)
        text, remedy = f"Port {number}: {why}", "Choose a port from 1024 on."
        return _need("port", "permission_denied", text, remedy, str(number), heals=False)
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
    return _need("port", "port_taken", f"Port {number} is taken by {by}", remedy, str(number), heals=True)


def _need(name: str, slug: str, text: str, remedy: str, subject: str, *, heals: bool) -> Need:
    cause = Cause(slug=slug, text=text, remedy=remedy, retry=Retry.WAIT if heals else Retry.NO)
    return Need(name=name, cause=cause, heals=heals, subject=subject)
