"""The plain text that a line must hold before a pattern is worth trying on it: finding that is far cheaper."""

from __future__ import annotations

import re

FILLING = "0123456789 \t"
"""What sets lines of one kind apart: without it they have one shape, and needles are looked for in shapes."""
_SHORTEST = 4  # without filling; a shorter needle would be found in nearly every line
_CLASSES = frozenset("AbBdDsSwWZ")  # escapes that stand for more than one character, or none


def needles(pattern: re.Pattern[str]) -> tuple[str, ...]:
    """One literal for each alternative at the top of `pattern`; any match holds at least one of them.

    Digits and blanks do not count. ValueError: an alternative holds none of at least four characters outside of groups,
    or case is ignored.
    """
    if pattern.flags & re.IGNORECASE:
        raise ValueError(f"a pattern that ignores case has no needle: {pattern.pattern!r}")
    found: list[str] = []
    for runs in _alternatives(pattern.pattern):
        longest = max(runs, key=_weight)
        if _weight(longest) < _SHORTEST:
            raise ValueError(f"an alternative without a literal of {_SHORTEST} characters: {pattern.pattern!r}")
        found.append(longest)
    return tuple(dict.fromkeys(found))


def _weight(text: str) -> int:
    return sum(char not in FILLING for char in text)


def _alternatives(source: str) -> list[list[str]]:
    """For each alternative at the top, its runs of literal text outside of groups."""
    alternatives = [[""]]
    at = 0
    while at < len(source):
        char, runs = source[at], alternatives[-1]
        at += 1
        if char == "\\":
            if source[at] in _CLASSES:
                runs.append("")
            else:
                runs[-1] += source[at]
            at += 1
        elif char == "|":
            alternatives.append([""])
        elif char in "([":
            at = _behind(source, at - 1)
            runs.append("")
        elif char in "?*{":  # what stands before it may be absent
            runs[-1] = runs[-1][:-1]
            runs.append("")
            at = source.index("}", at) + 1 if char == "{" else at
        elif char in "+.^$":
            runs.append("")
        else:
            runs[-1] += char
    return alternatives


def _behind(source: str, at: int) -> int:
    """The place behind the group or class that opens at `at`."""
    depth = 0
    while True:
        char = source[at]
        if char == "\\":
            at += 1
        elif char == "[":
            at += 2 if source[at + 1] in "]^" else 1  # "]" right behind "[" or "[^" is no end
            while source[at] != "]":
                at += 2 if source[at] == "\\" else 1
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        at += 1
        if depth == 0:
            return at
