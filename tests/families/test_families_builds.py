"""Servers of other ages, builds and wrappers are read as truly as those that we know well."""

from __future__ import annotations

import pytest

from agent.families import FAMILIES
from agent.families.explain import explain
from tests.families.other_builds import CRASHES, HEALTHY, PREFIXES

LLAMA = FAMILIES["llama_cpp"]


def line_of(log: str, words: str) -> int:
    return next(number for number, line in enumerate(log.split("\n"), start=1) if words in line)


@pytest.mark.parametrize("name", CRASHES)
def test_a_crash_is_named_with_its_line(name: str) -> None:
    log, slug, words = CRASHES[name]
    told = explain(log.encode(), LLAMA)
    assert told["cause"] is not None
    assert (told["outcome"], told["cause"]["slug"]) == ("crash", slug)
    assert told["cause"]["line"] == line_of(log, words)
    assert words in told["cause"]["text"]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_log_without_a_crash_names_none(name: str) -> None:
    log, outcome = HEALTHY[name]
    told = explain(log.encode(), LLAMA)
    assert (told["outcome"], told["cause"]) == (outcome, None)


@pytest.mark.parametrize("name", HEALTHY)
def test_its_family_is_told_from_the_log(name: str) -> None:
    assert explain(HEALTHY[name][0].encode())["family"] == "llama_cpp"


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
def test_prefixes_of_others_change_nothing(prefix: str) -> None:
    for log, *_ in [*CRASHES.values(), *HEALTHY.values()]:
        prefixed = "".join(prefix + line for line in log.splitlines(keepends=True))
        assert _told(prefixed) == _told(log)


def _told(log: str) -> tuple[object, ...]:
    told = explain(log.encode(), LLAMA)
    cause = told["cause"] and (told["cause"]["slug"], told["cause"]["line"])
    return told["outcome"], cause, [(step["step"], step["line"]) for step in told["steps"]], told["facts"]
