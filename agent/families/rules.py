"""A family's patterns as one list of rules, and the needles that say which of them are worth trying on a line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from agent.families.evidence import EXCEPTION
from agent.families.family import Family
from agent.families.needles import FILLING, needles

_FILLING = FILLING.encode()
_STEM_CHARS = 5  # shorter ones stand in too many lines, longer ones are shared by too few needles
_KNOWN_BYTES = 262_144  # of shapes; a log has hundreds of them, and only a strange one fills this
_SHAPE_BYTES = 120  # that one shape takes beside its own text

_Gate = tuple[bytes, tuple[tuple[bytes, frozenset[int]], ...]]
"""(stem, ((needle that holds it, places of the needle's rules), ...)), all without filling."""


class Kind(IntEnum):
    """What a line that matches a rule says, in the order in which the rules of one line are heard."""

    NOISE = 0
    RECOVERY = 1
    STEP = 2
    OUTCOME = 3
    FACT = 4
    SPECIFIC = 5
    GENERAL = 6
    WRAPPER = 7
    EXCEPTION = 8


@dataclass(frozen=True, slots=True)
class Rule:
    """One pattern. `name`: the step, outcome, fact or slug that it stands for."""

    kind: Kind
    name: str
    pattern: re.Pattern[str]
    bar: bool = False  # of a step: a progress bar, with its percent


class Rules:
    """All rules of a family, in the order of their kinds.

    Which of them are worth trying on a line is worked out once for each shape of line. For a new shape, a few stems
    are looked for first, then needles with such a stem.
    """

    def __init__(self, every: Iterable[Rule]) -> None:
        """ValueError: a pattern has no needle (see Family)."""
        self.all = tuple(sorted(every, key=lambda rule: rule.kind))  # stable: within a kind, the family's order
        self.bars = tuple(rule for rule in self.all if rule.bar)
        self.exceptions = frozenset(place for place, rule in enumerate(self.all) if rule.kind is Kind.EXCEPTION)
        self._gates = _gates(self.all)
        self._known: dict[bytes, frozenset[int]] = {}
        self._known_bytes = 0

    def of_steps(self, steps: Sequence[str]) -> frozenset[int]:
        """The rules of steps that were entered, in that order: none is again. Only the last one's bars count."""
        return frozenset(
            place
            for place, rule in enumerate(self.all)
            if rule.kind is Kind.STEP and rule.name in steps and not (rule.bar and rule.name == steps[-1])
        )

    def of_kinds(self, *kinds: Kind) -> frozenset[int]:
        """The places of the rules of these kinds."""
        return frozenset(place for place, rule in enumerate(self.all) if rule.kind in kinds)

    def find(self, block: bytes) -> dict[int, frozenset[int]]:
        """Where in `block`, which ends with a newline, the lines begin that may match, and which rules (their places
        in `all`) they may."""
        shapes = block.translate(None, _FILLING).split(b"\n")
        self._learn(set(shapes))
        hits: dict[int, frozenset[int]] = {}
        places_of = list(map(self._known.__getitem__, shapes))
        if any(places_of):
            at = 0
            for line, places in zip(block.split(b"\n"), places_of, strict=True):
                if places:
                    hits[at] = places
                at += len(line) + 1
        return hits

    def _learn(self, shapes: set[bytes]) -> None:
        new = shapes - self._known.keys()
        if not new:
            return
        self._known_bytes += sum(map(len, new)) + _SHAPE_BYTES * len(new)
        if self._known_bytes > _KNOWN_BYTES:
            self._known.clear()
            new, self._known_bytes = shapes, sum(map(len, shapes)) + _SHAPE_BYTES * len(shapes)
        block = b"\n".join([*new, b""])
        found: dict[bytes, set[int]] = {}
        for stem, sought in self._gates:
            first = block.find(stem)
            if first < 0:
                continue
            first = block.rfind(b"\n", 0, first) + 1  # the stem may stand in the middle of the needle
            for needle, places in sought:
                at = block.find(needle, first)
                while at >= 0:
                    end = block.index(b"\n", at)
                    found.setdefault(block[block.rfind(b"\n", 0, at) + 1 : end], set()).update(places)
                    at = block.find(needle, end)
        self._known.update(dict.fromkeys(new, frozenset()))
        self._known.update({shape: frozenset(places) for shape, places in found.items()})


_RULES: dict[Family, Rules] = {}  # as many as there are families: a handful


def rules_of(family: Family) -> Rules:
    """Worked out once for each family. ValueError: a pattern has no needle (see Family)."""
    if family not in _RULES:
        _RULES[family] = Rules(_rules(family))
    return _RULES[family]


def _gates(every: Sequence[Rule]) -> tuple[_Gate, ...]:
    """Few stems that stand in all needles between them: of each needle the one that most of those left share."""
    places: dict[bytes, set[int]] = {}
    for place, rule in enumerate(every):
        for needle in needles(rule.pattern):
            places.setdefault(needle.encode().translate(None, _FILLING), set()).add(place)
    left = {needle: _stems(needle) for needle in sorted(places)}
    shared = Counter(stem for stems in left.values() for stem in stems)
    gates = []
    while left:
        stem = max(sorted(left[next(iter(left))]), key=shared.__getitem__)
        held = [needle for needle, stems in left.items() if stem in stems]
        for each in held:
            shared.subtract(left.pop(each))
        gates.append((_grown(stem, held), tuple((needle, frozenset(places[needle])) for needle in held)))
    return tuple(gates)


def _stems(needle: bytes) -> set[bytes]:
    return {needle[at : at + _STEM_CHARS] for at in range(max(1, len(needle) - _STEM_CHARS + 1))}


def _grown(stem: bytes, held: list[bytes]) -> bytes:
    """`stem` with all that stands beside it in each of the needles: the longer a text, the quicker it is found."""
    first = held[0]
    start = first.index(stem)
    end = start + len(stem)
    while end < len(first) and all(first[start : end + 1] in needle for needle in held):
        end += 1
    while start and all(first[start - 1 : end] in needle for needle in held):
        start -= 1
    return first[start:end]


def _rules(family: Family) -> Iterator[Rule]:
    yield from (Rule(Kind.NOISE, "", pattern) for pattern in family.noise)
    yield from (Rule(Kind.STEP, rule.step, rule.pattern) for rule in family.steps)
    yield from (Rule(Kind.STEP, rule.step, rule.pattern, bar=True) for rule in family.bars)
    yield from (Rule(Kind.RECOVERY, "", pattern) for pattern in family.recoveries)
    yield from (Rule(Kind.OUTCOME, name, pattern) for name, pattern in family.outcomes.items())
    yield from (Rule(Kind.FACT, name, pattern) for name, pattern in family.facts.items())
    for rule in family.causes:
        rank = Kind.WRAPPER if rule.wrapper else Kind.SPECIFIC if rule.specific else Kind.GENERAL
        yield Rule(rank, rule.slug, rule.pattern)
    yield Rule(Kind.EXCEPTION, "unknown", EXCEPTION)
