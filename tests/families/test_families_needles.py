"""A needle stands in every text that its pattern matches."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.families import FAMILIES
from agent.families.needles import needles
from agent.families.rules import rules_of


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"failed to open", ("failed to open",)),
        (r"alpha|beta\.x", ("alpha", "beta.x")),
        (r"(?:main|init): loading model\s*$", (": loading model",)),
        (r"colou?rs are nice", ("rs are nice",)),
        (r"abcd{2,3}efgh", ("efgh",)),
        (r"\bn_ctx += (\d+)", ("n_ctx ",)),
        (r"[^\]a-z)|]number (?:[)\]|(]|x)+ of", ("number ",)),
        (r"a\(b\|c\)d", ("a(b|c)d",)),
        (r"what\(\):\s+Resource gone", ("Resource gone",)),
    ],
)
def test_the_longest_certain_text_of_each_alternative_is_its_needle(pattern: str, expected: tuple[str, ...]) -> None:
    assert needles(re.compile(pattern)) == expected


@pytest.mark.parametrize(
    "pattern", [r"\d+", r"abc", r"long enough|no", r"(?:long enough)", r"(?i)long enough", r"abcd?", r"12345 78"]
)
def test_a_pattern_without_a_needle_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"needle|literal"):
        needles(re.compile(pattern))


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_every_pattern_of_every_family_has_needles(family) -> None:  # type: ignore[no-untyped-def]
    assert all(needles(rule.pattern) for rule in rules_of(family).all)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_progress_is_looked_for_in_whole_blocks_of_bytes(family) -> None:  # type: ignore[no-untyped-def]
    for pattern in family.progress.values():
        assert pattern.flags & re.ASCII
        assert pattern.pattern.startswith("^")
        assert "\\s" not in pattern.pattern


_RULES = [rule for family in FAMILIES.values() for rule in rules_of(family).all]


@given(st.data())
def test_whatever_a_pattern_matches_is_found_by_its_needles(data: st.DataObject) -> None:
    rule = data.draw(st.sampled_from(_RULES))
    text = data.draw(st.from_regex(rule.pattern))
    line = text.replace("\n", " ").replace("\r", " ")
    if rule.pattern.search(line):
        assert any(needle in line for needle in needles(rule.pattern))
