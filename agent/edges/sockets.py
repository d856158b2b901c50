"""Who listens on a TCP port of this host, and whose process that is: plain questions to the kernel, without state."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.core.model import Process
from agent.edges import processes

LISTEN = "0A"
ANY = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, never bound
TCP_LISTEN = 10
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20
NLMSG_HEAD, NLMSG_ERROR, NLMSG_DONE, NLM_F_REQUEST_DUMP = 16, 2, 3, 0x301
INET_DIAG_CGROUP_ID = 21
NETLINK_S = 1.0  # the answer is there when `send` returns
ADDRESS_COLUMN, STATE_COLUMN, UID_COLUMN, INODE_COLUMN = 1, 3, 7, 9


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The local end of a TCP socket."""

    address: str  # as `ipaddress` writes it; an IPv4 address in IPv6 clothes stands as IPv4
    port: int
    inode: int  # 0: no process holds it (TIME_WAIT)
    uid: int
    v6: bool  # stands in the IPv6 table
    cgroup: int | None = field(default=None, compare=False)  # number of the control group (version 2) that made it


def listeners(port: int) -> tuple[Endpoint, ...]:
    """All that listen on `port`, whatever the address.

    Asks the kernel's socket diagnostics, in some 50 µs. Where they are missing (gVisor), the table in /proc, for which
    the kernel walks through its hash of all connections: milliseconds on a large host.
    """
    try:
        return tuple(end for family in (socket.AF_INET, socket.AF_INET6) for end in _diagnosed(family, port))
    except OSError:
        return tuple(end for table in ("tcp", "tcp6") for end in _rows(table, port, only_listening=True))


def _diagnosed(family: int, port: int) -> list[Endpoint]:
    """A dump of struct inet_diag_msg for one struct inet_diag_req_v2; see sock_diag(7)."""
    body = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, 1 << TCP_LISTEN) + struct.pack("!H46x", port)
    head = struct.pack("=IHHII", NLMSG_HEAD + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, 0, 0)
    found: list[Endpoint] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(NETLINK_S)
        kernel.send(head + body)
        while True:
            data = kernel.recv(65_536)
            while data:
                length, kind = struct.unpack_from("=IH", data)
                if kind == NLMSG_DONE:
                    return found
                if kind == NLMSG_ERROR:
                    number = -struct.unpack_from("=i", data, NLMSG_HEAD)[0]
                    raise OSError(number, os.strerror(number))
                found.append(_diagnosis(data[NLMSG_HEAD:length], port))
                data = data[(length + 3) & ~3 :]  # messages are padded to four bytes


def _diagnosis(message: bytes, port: int) -> Endpoint:
    v6 = message[0] == socket.AF_INET6
    uid, inode = struct.unpack_from("=II", message, 64)
    return Endpoint(_plain(message[8 : 24 if v6 else 12]), port, inode, uid, v6, _cgroup(message[72:]))


def _cgroup(attributes: bytes) -> int | None:
    """Each is a length, a kind and what it says, padded to four bytes. None: an older kernel than 5.7."""
    while len(attributes) >= 4:
        length, kind = struct.unpack_from("=HH", attributes)
        if kind == INET_DIAG_CGROUP_ID:
            number: int = struct.unpack_from("=Q", attributes, 4)[0]
            return number
        attributes = attributes[max(4, (length + 3) & ~3) :]
    return None


def connections(port: int) -> tuple[Endpoint, ...]:
    """All sockets with that local port that do not listen, TIME_WAIT among them."""
    heard = {end.inode for end in listeners(port)}
    rows = (end for table in ("tcp", "tcp6") for end in _rows(table, port, only_listening=False))
    return tuple(end for end in rows if end.inode == 0 or end.inode not in heard)


def _rows(table: str, port: int, only_listening: bool) -> Iterator[Endpoint]:
    path = Path("/proc/net", table)
    if table == "tcp6" and not path.exists():
        return  # a kernel without IPv6
    wanted = f":{port:04X}"
    with path.open("rb", buffering=16_384) as file:
        next(file, None)  # the heading
        for line in file:
            words = line.decode("ascii").split()
            if only_listening and words[STATE_COLUMN] != LISTEN:
                return
            if words[ADDRESS_COLUMN].endswith(wanted):
                address = _address(words[ADDRESS_COLUMN].partition(":")[0])
                yield Endpoint(address, port, int(words[INODE_COLUMN]), int(words[UID_COLUMN]), table == "tcp6")


def _address(text: str) -> str:
    """Hexadecimal words of 32 bits, each in the host's byte order."""
    return _plain(b"".join(int(text[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(text), 8)))


def _plain(raw: bytes) -> str:
    address = ipaddress.ip_address(raw)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def literal(host: str) -> str | None:
    """The host as an address; None: it is a name."""
    try:
        return str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return None


def reached(ends: Iterable[Endpoint], host: str) -> tuple[Endpoint, ...]:
    """Those that take the connections to a server that was told to listen on `host`.

    For one exact address: what the kernel would choose (the exact address before any, IPv4 before IPv6). For any
    address or a name: all, for each of them may take a client's connection.
    """
    ends = tuple(ends)
    address = literal(host)
    if address is None or address == "::":
        return ends
    four = ipaddress.ip_address(address).version == 4
    if address in ANY:
        plain = tuple(end for end in ends if "." in end.address)
        return plain or tuple(end for end in ends if end.address == "::")
    ranks = (
        [end for end in ends if end.address == address and not end.v6],
        [end for end in ends if end.address == address and end.v6],
        [end for end in ends if four and end.address in ANY and not end.v6],
        [end for end in ends if end.address == "::"],
    )
    return next((tuple(rank) for rank in ranks if rank), ())


def target(end: Endpoint, host: str) -> str:
    """The literal address at which to ask this listener."""
    address = literal(host)
    if address is None or address in ANY:
        address = end.address
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104 - compared with, never bound


@dataclass(frozen=True, slots=True)
class Proof:
    """This process has a socket open, under this descriptor of its own."""

    process: Process
    fd: int

    def holds(self, inode: int) -> bool:
        """Whether it is so still."""
        try:
            link = os.readlink(f"/proc/{self.process.pid}/fd/{self.fd}")
        except OSError:
            return False
        now = processes.stat(self.process.pid)  # after the link: if it is the right one now, it was then
        return link == f"socket:[{inode}]" and now is not None and now.started == self.process.started


@dataclass(frozen=True, slots=True)
class Holders:
    """Who has sockets open, among the processes that were asked about."""

    proofs: Mapping[int, Proof]  # by inode
    closed: frozenset[int]  # pids whose descriptors we may not see


def holders(inodes: Iterable[int], pids: Iterable[int]) -> Holders:
    """The first of `pids` that has each of them open. Stops as soon as each is found."""
    missing = {f"socket:[{inode}]": inode for inode in inodes if inode}
    proofs: dict[int, Proof] = {}
    closed: set[int] = set()
    for pid in pids:
        if not missing:
            break
        try:
            for fd, link in _links(pid):
                if link in missing and (one := processes.stat(pid)) is not None:
                    proofs[missing.pop(link)] = Proof(one.process, fd)
                if not missing:
                    break
        except PermissionError:
            closed.add(pid)
        except OSError:
            continue  # gone
    return Holders(proofs, frozenset(closed))


def _links(pid: int) -> Iterator[tuple[int, str]]:
    """Its descriptors, and what each is. PermissionError: they are not ours to see."""
    with os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            try:
                yield int(entry.name), os.readlink(entry.path)
            except FileNotFoundError:
                continue  # closed meanwhile


@dataclass(frozen=True, slots=True)
class Ownership:
    """Whose some listeners are."""

    proofs: Mapping[int, Proof]  # by inode: those that are ours
    strangers: tuple[Endpoint, ...]  # those that are not provably ours
    closed: frozenset[int]  # pids of ours whose descriptors we may not see, so that nothing can be proved


def ownership(ends: Iterable[Endpoint], ours: frozenset[int]) -> Ownership:
    """Which of them are provably held by one of `ours`, or by a child of theirs that was forked a moment ago."""
    ends = tuple(ends)
    known = holders((end.inode for end in ends), sorted(ours))
    left = tuple(end for end in ends if end.inode not in known.proofs)
    if not left or not ours:
        return Ownership(known.proofs, left, known.closed)
    late = holders((end.inode for end in left), _descendants(ours, processes.scan()))
    left = tuple(end for end in left if end.inode not in late.proofs)
    return Ownership({**known.proofs, **late.proofs}, left, known.closed | late.closed)


def _descendants(ours: frozenset[int], table: dict[int, processes.Stat]) -> list[int]:
    found: set[int] = set()
    fresh = set(ours)
    while fresh:
        fresh = {one.pid for one in table.values() if one.ppid in fresh} - found - ours
        found |= fresh
    return sorted(found)


def who(end: Endpoint) -> str:
    """A few words for a person: the process that holds it, as far as we may know. Looks at every process."""
    return _named(end) or f"a process of user id {end.uid}"


def strangers_named(found: Ownership) -> str:
    """The same for all strangers. What could not be proved is not said to be somebody else's."""
    return " and ".join(sorted({_named(end) or _unnamed(end, found.closed) for end in found.strangers}))


def _named(end: Endpoint) -> str | None:
    table = processes.scan()
    proof = holders([end.inode], sorted(table)).proofs.get(end.inode)
    return f"pid {proof.process.pid} ({table[proof.process.pid].comm})" if proof is not None else None


def _unnamed(end: Endpoint, closed: frozenset[int]) -> str:
    if not closed:
        return f"a process of user id {end.uid}"
    pids = ", ".join(str(pid) for pid in sorted(closed))
    return f"a process of user id {end.uid} that is not provably ours (the descriptors of pid {pids} may not be seen)"
