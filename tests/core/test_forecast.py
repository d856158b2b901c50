"""Signs of life, and what their absence is called."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.forecast import alive, judge, limit_at, next_word, take_signs
from agent.core.model import Life, Policy, Seen, State, Step

POLICY = Policy(quiet_s=120, stall_s=900, stall_init_s=600)
STARTED = State(confirmed=1000.0, steps=((Step.LAUNCHED, 1000.0),))
STILL = Life(cpu_s=5.0, read_bytes=10, faults=1, memory_mib=100, gpu_mib=1)


@pytest.mark.parametrize(
    ("change", "sign"),
    [
        ({}, False),
        ({"cpu_s": 5.04}, False),  # idle threads wake up all the time
        ({"cpu_s": 5.06}, True),
        ({"read_bytes": 11}, True),
        ({"faults": 2}, True),
        ({"memory_mib": 107}, False),
        ({"memory_mib": 108}, True),
        ({"memory_mib": 92}, True),
        ({"gpu_mib": 2}, True),
        ({"gpu_mib": None}, True),
        ({"compilers": 1}, True),
        ({"cpu_s": 1.0, "read_bytes": 0, "faults": 0}, False),  # a process that vanished lowers the sums
    ],
)
def test_a_sign_of_life_is_work_not_noise(change: dict[str, float], sign: bool) -> None:
    assert alive(STILL, replace(STILL, **change), 5.0) is sign  # type: ignore[arg-type]  # the fields of Life


def test_the_first_look_at_a_server_counts_as_a_sign_and_a_look_without_signs_does_not() -> None:
    first = take_signs(STARTED, Seen(began=1001.0, life=STILL))
    assert (first.lived, first.life_at) == (1001.0, 1001.0)
    assert take_signs(first, Seen(began=1006.0, life=STILL)).lived == 1001.0
    assert take_signs(first, Seen(began=1006.0, life=None)) == first
    assert take_signs(first, Seen(began=1006.0, life=replace(STILL, faults=2))).lived == 1006.0


def test_quiet_is_the_silence_of_the_log_and_stalled_the_absence_of_any_sign() -> None:
    told = [
        (judge(STARTED, 1000.0 + s, POLICY).quiet, judge(STARTED, 1000.0 + s, POLICY).stalled) for s in (119, 120, 900)
    ]
    assert told == [(False, False), (True, False), (True, True)]
    lived = replace(STARTED, lived=1800.0)
    assert (judge(lived, 1900.0, POLICY).quiet, judge(lived, 1900.0, POLICY).stalled) == (True, False)


def test_while_initializing_only_the_log_counts() -> None:
    spinning = replace(STARTED, steps=((Step.INITIALIZING, 1000.0),), lived=1599.0)
    assert judge(spinning, 1600.0, POLICY).stalled
    assert not judge(replace(spinning, heard=1100.0), 1600.0, POLICY).stalled


def test_the_next_word_comes_when_something_new_is_to_be_said() -> None:
    assert next_word(STARTED, 1000.0, POLICY) == 1120.0
    assert next_word(replace(STARTED, quiet=True), 1120.0, POLICY) == 1240.0
    assert next_word(replace(STARTED, quiet=True), 1850.0, POLICY) == 1900.0
    limited = replace(POLICY, start_limit_s=60)
    assert (limit_at(STARTED, limited), next_word(STARTED, 1000.0, limited)) == (1060.0, 1060.0)
    assert limit_at(STARTED, POLICY) is None
