"""A family's patterns as one list of rules, and the needles that say which of them are worth trying on a line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from agent.families.evidence import EXCEPTION
from agent.families.family import Family
from agent.families.needles import needles

_WORD = re.compile(r"[A-Za-z]{4,}")


class Kind(IntEnum):
    """What a line that matches a rule says, in the order in which the rules of one line are heard."""

    NOISE = 0
    RECOVERY = 1
    STEP = 2
    OUTCOME = 3
    FACT = 4
    SPECIFIC = 5
    GENERAL = 6
    EXCEPTION = 7


@dataclass(frozen=True, slots=True)
class Rule:
    """One pattern. `name`: the step, outcome, fact or slug that it stands for."""

    kind: Kind
    name: str
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules of a family, in the order of their kinds.

    `gates`: word -> needles that hold it -> the places of their rules in `all`. In most blocks most words are absent,
    and a word is looked for once where its needles would be looked for one by one.
    """

    all: tuple[Rule, ...]
    gates: Mapping[bytes, Mapping[bytes, frozenset[int]]]
    quiet: frozenset[int]  # the places of rules that only take something back

    def find(self, block: bytes) -> dict[int, set[int]]:
        """Where in `block`, which ends with a newline, the lines begin that may match, and which rules they may."""
        hits: dict[int, set[int]] = {}
        for gate, sought in self.gates.items():
            first = block.find(gate)
            if first < 0:
                continue
            first = block.rfind(b"\n", 0, first) + 1  # the gate may stand in the middle of the needle
            for needle, places in sought.items():
                at = block.find(needle, first)
                while at >= 0:
                    hits.setdefault(block.rfind(b"\n", 0, at) + 1, set()).update(places)
                    at = block.find(needle, block.find(b"\n", at))
        return hits


def rules_of(family: Family) -> Rules:
    """ValueError: a pattern has no needle (see Family)."""
    every = tuple(sorted(_rules(family), key=lambda rule: rule.kind))  # stable: within a kind, the family's order
    wanted: dict[str, set[int]] = {}
    for place, rule in enumerate(every):
        for needle in needles(rule.pattern):
            wanted.setdefault(needle, set()).add(place)
    sought: dict[str, set[int]] = {}
    for needle, places in wanted.items():
        shortest = min((other for other in wanted if other in needle), key=len)  # a needle within it finds it too
        sought.setdefault(shortest, set()).update(places)
    quiet = frozenset(place for place, rule in enumerate(every) if rule.kind <= Kind.RECOVERY)
    return Rules(every, _gates(sought), quiet)


def _gates(sought: Mapping[str, set[int]]) -> dict[bytes, dict[bytes, frozenset[int]]]:
    """Few words that stand in all needles between them: the most frequent first."""
    holders: dict[str, set[str]] = {}
    for needle in sought:
        for word in {needle, *_WORD.findall(needle)}:
            holders.setdefault(word, set()).add(needle)
    gates: dict[bytes, dict[bytes, frozenset[int]]] = {}
    left = set(sought)
    while left:
        word = max(sorted(holders), key=lambda word: len(holders[word] & left))
        held = holders[word] & left
        gates[word.encode()] = {needle.encode(): frozenset(sought[needle]) for needle in sorted(held)}
        left -= held
    return gates


def _rules(family: Family) -> Iterator[Rule]:
    yield from (Rule(Kind.NOISE, "", pattern) for pattern in family.noise)
    yield from (Rule(Kind.STEP, rule.step, rule.pattern) for rule in family.steps)
    yield from (Rule(Kind.RECOVERY, "", pattern) for pattern in family.recoveries)
    yield from (Rule(Kind.OUTCOME, name, pattern) for name, pattern in family.outcomes.items())
    yield from (Rule(Kind.FACT, name, pattern) for name, pattern in family.facts.items())
    for rule in family.causes:
        yield Rule(Kind.SPECIFIC if rule.specific else Kind.GENERAL, rule.slug, rule.pattern)
    yield Rule(Kind.EXCEPTION, "unknown", EXCEPTION)
