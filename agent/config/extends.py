"""`extends`: a server that takes what it does not say itself from another one. On plain tables, before they are read.

Each value remembers where it was written, so that a fault in it is reported there, and once.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.config.faults import Fault, Where

Tables = Mapping[str, Mapping[str, Any]]
"""[servers], as far as its values are tables."""

OWN = frozenset({"extends", "template", "autostart"})
"""Keys that are not inherited: what they say is meant of one server alone."""
MERGED = frozenset({"disk", "environment", "log", "needs", "restart"})
"""Tables that are merged key by key."""
ADDED = "arguments"
"""The list of which each server of a chain gives a part, the base first."""
DEPTH = 8
"""Servers in a chain at most: nobody can tell any more what a longer one says."""


@dataclass(slots=True)
class Resolved:
    """A server's table with all that it takes from others, and where each part of it was written."""

    base: str | None = None
    """What it extends."""
    table: dict[str, Any] = field(default_factory=dict)
    written: dict[Where, Where] = field(default_factory=dict)
    """Place in `table` -> place in the file. What lies deeper in a place was written with it."""

    def place(self, where: Where) -> Where | None:
        """Where the file says what stands at `where` in `table`; None: nowhere."""
        for length in range(len(where), 0, -1):
            if (begin := self.written.get(where[:length])) is not None:
                return (*begin, *where[length:])
        return None


def resolve(tables: Tables, found: list[Fault]) -> dict[str, Resolved]:
    """Every server whose chain is sound, each after its base; the others are left out, and why is added to `found`."""
    chains = {name: chain for name in tables if (chain := _chain(name, tables, found)) is not None}
    return {name: _merged(chain, tables) for name, chain in sorted(chains.items(), key=lambda item: len(item[1]))}


def _chain(name: str, tables: Tables, found: list[Fault]) -> list[str] | None:
    """`name`, its base, that one's base and so on; None: somewhere in it is a fault, said where it is."""
    chain = [name]
    while (base := tables[chain[-1]].get("extends")) is not None:
        if not isinstance(base, str):  # said where values are read
            return None
        fault = _fault(base, chain, tables)
        if fault is not None:
            found.extend([fault] if fault not in found else [])
            return None
        chain.append(base)
    return chain


def _fault(base: str, chain: list[str], tables: Tables) -> Fault | None:
    """What is wrong with the last link of a chain, which leads to `base`."""
    where = ("servers", chain[-1], "extends")
    if base not in tables:
        near = difflib.get_close_matches(base, tables, n=1)
        return Fault(where, f"names no server; {f'did you mean {near[0]}?' if near else 'define it, or take this out'}")
    if base in chain:
        circle = chain[chain.index(base) :]
        first = min(circle)  # the same circle, wherever one came in: one fault
        names = ", ".join((*circle[circle.index(first) :], *circle[: circle.index(first)], first))
        return Fault(("servers", first, "extends"), f"leads back to itself ({names}); take it out of one of them")
    if len(chain) == DEPTH:
        return Fault(where, f"makes a chain of more than {DEPTH} servers; extend one that is nearer to the base")
    return None


def _merged(chain: list[str], tables: Tables) -> Resolved:
    """The tables of a chain as one."""
    resolved = Resolved(base=chain[1] if len(chain) > 1 else None)
    for name in reversed(chain):
        for key, value in tables[name].items():
            if key not in OWN or name == chain[0]:
                _lay(resolved, key, value, ("servers", name, key))
    return resolved


def _lay(resolved: Resolved, key: str, value: object, place: Where) -> None:
    """Put a value, written at `place`, over what the bases said."""
    table, below = resolved.table, resolved.table.get(key)
    if key in MERGED and isinstance(value, dict) and isinstance(below, dict):
        table[key] = {**below, **value}
        resolved.written.update({(key, inner): (*place, inner) for inner in value})
    elif key == ADDED and isinstance(value, list) and isinstance(below, list):
        table[key] = [*below, *value]
        resolved.written.update({(key, len(below) + i): (*place, i) for i in range(len(value))})
    elif key == ADDED and below is not None and not isinstance(below, list):
        return  # the base's is faulty, and stays, so that nothing is concluded from it
    else:
        _forget(resolved.written, key)
        table[key] = value
        resolved.written.update({where: (*place, *where[1:]) for where in ((key,), *_parts(key, value))})


def _forget(written: dict[Where, Where], key: str) -> None:
    for where in [where for where in written if where[0] == key]:
        del written[where]


def _parts(key: str, value: object) -> Iterator[Where]:
    """The places within a value that may get another one beside them."""
    inner: Iterable[str | int] = ()
    if key in MERGED and isinstance(value, dict):
        inner = value
    elif key == ADDED and isinstance(value, list):
        inner = range(len(value))
    return ((key, each) for each in inner)
