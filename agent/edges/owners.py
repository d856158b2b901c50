"""Is a listener the server's own? By the descriptors of its processes, or by its control group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from agent.edges import cgroup, sockets
from agent.edges.cgroup import Cgroup
from agent.edges.sockets import Endpoint, Proof


class Owner(Protocol):
    """Tells the server's own listeners from others. `ours`: the pids of the server's tree, as last seen."""

    def proved(self, ends: tuple[Endpoint, ...], ours: frozenset[int]) -> bool:
        """Whether each of them is known to be the server's, and is so still. Quick."""

    def strangers(self, ends: tuple[Endpoint, ...], ours: frozenset[int]) -> str:
        """Who holds those that are not provably the server's, for a person; "": all are its own. May block."""


class ByDescriptors:
    """Of processes of our own user: /proc/PID/fd tells."""

    def __init__(self) -> None:
        self._proofs: Mapping[int, Proof] = {}  # inode of a listener -> whose of ours it is

    def proved(self, ends: tuple[Endpoint, ...], ours: frozenset[int]) -> bool:
        """See Owner. By what the last search has found."""
        proofs = [(end.inode, self._proofs.get(end.inode)) for end in ends]
        return all(proof and proof.process.pid in ours and proof.holds(inode) for inode, proof in proofs)

    def strangers(self, ends: tuple[Endpoint, ...], ours: frozenset[int]) -> str:
        """See Owner. Looks at every process, if it must."""
        found = sockets.ownership(ends, ours)
        self._proofs = found.proofs
        return sockets.strangers_named(found)


class ByCgroup:
    """Of another user's processes: the kernel tells in which control group each socket was made (5.7 or later)."""

    def __init__(self, group: Cgroup) -> None:
        self._group = group

    def proved(self, ends: tuple[Endpoint, ...], ours: frozenset[int]) -> bool:
        """See Owner. Asked anew each time: the group's number changes with each start."""
        numbers = self._group.ids()
        return all(end.cgroup in numbers for end in ends)

    def strangers(self, ends: tuple[Endpoint, ...], ours: frozenset[int]) -> str:
        """See Owner."""
        numbers = self._group.ids()
        return " and ".join(sorted({_named(end) for end in ends if end.cgroup not in numbers}))


def _named(end: Endpoint) -> str:
    if end.cgroup is None:
        return f"a process of user id {end.uid} that is not provably ours (this kernel does not tell its control group)"
    name = cgroup.name_of(end.cgroup)
    return f"a process of user id {end.uid}" + (f" in {name}" if name is not None else "")
