"""When a start is expected to end, after the starts before it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.chronicle import MARKS, Start
from agent.core.forecast import RECENT, Expected, expect
from agent.core.model import Stage, State, Step
from agent.core.words import say

Plan = Sequence[tuple[Step, float]]
"""What a start does: its steps, each with how long it lasts."""

USUAL: Plan = (
    (Step.LAUNCHED, 2.0),
    (Step.INITIALIZING, 10.0),
    (Step.LOADING_WEIGHTS, 60.0),
    (Step.COMPILING, 20.0),
    (Step.WARMING_UP, 8.0),
)  # 100 s
MEASURED = frozenset({Step.LOADING_WEIGHTS, Step.CAPTURING_GRAPHS})
"""Steps whose log has a bar."""


def carried_out(plan: Plan, invocation: str = "past", digest: str = "d", watched: bool = True) -> Start:
    """A start that went by the plan, with bars that grow evenly."""
    steps, marks, at_s = [], [], 0.0
    for step, lasts_s in plan:
        steps.append((step, at_s))
        if step in MEASURED:
            marks += [(step, tenths, at_s + lasts_s * tenths / MARKS) for tenths in range(1, MARKS + 1)]
        at_s += lasts_s
    return Start(
        server="one",
        invocation=invocation,
        attempt=1,
        digest=digest,
        boot_id="b",
        launched=0.0,
        began=0.0,
        steps=tuple(steps),
        marks=tuple(marks),
        ready_s=at_s,
        watched=watched,
    )


def as_of(start: Start, elapsed_s: float) -> Start:
    """The start as it was known so long after its launch."""
    return replace(
        start,
        invocation="now",
        steps=tuple(each for each in start.steps if each[1] <= elapsed_s),
        marks=tuple(each for each in start.marks if each[2] <= elapsed_s),
        ready_s=None,
    )


def expected(past: Sequence[Start], now: Start, elapsed_s: float) -> Expected:
    found = expect(past, as_of(now, elapsed_s), elapsed_s)
    assert found is not None
    return found


def length_s(plan: Plan) -> float:
    return sum(lasts_s for _, lasts_s in plan)


def stretched(plan: Plan, times: float) -> Plan:
    return [(step, lasts_s * times) for step, lasts_s in plan]


def end_s(found: Expected, elapsed_s: float) -> float:
    """The expected end, in seconds after the launch."""
    assert found.eta_s is not None
    return elapsed_s + found.eta_s


# -- whom to compare with --------------------------------------------------------------------------


def test_the_first_start_has_nothing_to_compare_with() -> None:
    now = carried_out(USUAL)
    assert expect([], as_of(now, 5.0), 5.0) is None
    failed = replace(now, ready_s=None)
    assert expect([failed, failed], as_of(now, 5.0), 5.0) is None


def test_the_second_start_knows_already() -> None:
    past = [carried_out(USUAL)]
    found = expected(past, carried_out(USUAL), 30.0)
    assert found.eta_s == pytest.approx(70.0)
    assert found.usual_s == 100.0
    assert not found.slower


def test_starts_of_the_same_definition_go_before_others_and_others_before_none() -> None:
    other = carried_out(stretched(USUAL, 5.0), digest="other")
    same = carried_out(USUAL)
    assert expected([other, other, same], carried_out(USUAL), 0.0).usual_s == 100.0
    assert expected([other, other], carried_out(USUAL), 0.0).usual_s == 500.0


def test_a_start_that_was_watched_goes_before_one_whose_times_are_only_bounds() -> None:
    adopted = carried_out(stretched(USUAL, 3.0), watched=False)
    assert expected([adopted, carried_out(USUAL), adopted], carried_out(USUAL), 0.0).usual_s == 100.0
    assert expected([adopted], carried_out(USUAL), 0.0).usual_s == 300.0


def test_only_the_newest_starts_count() -> None:
    past = [*[carried_out(USUAL)] * RECENT, *[carried_out(stretched(USUAL, 9.0))] * 50]
    assert expected(past, carried_out(USUAL), 0.0).usual_s == 100.0


def test_one_outlier_among_three_changes_nothing() -> None:
    past = [carried_out(USUAL), carried_out(stretched(USUAL, 20.0)), carried_out(USUAL)]
    assert expected(past, carried_out(USUAL), 30.0).eta_s == pytest.approx(70.0)


def test_outliers_in_different_steps_do_not_add_up() -> None:
    """Each start was slow somewhere; no step is usually slow."""
    past = [
        carried_out([(step, lasts_s * (10 if place == slow else 1)) for place, (step, lasts_s) in enumerate(USUAL)])
        for slow in range(5)
    ]
    assert expected(past, carried_out(USUAL), 1.0).eta_s == pytest.approx(99.0)


# -- steps -----------------------------------------------------------------------------------------


def test_a_step_that_seldom_comes_is_not_waited_for_until_it_comes() -> None:
    download: Plan = (USUAL[0], (Step.DOWNLOADING, 300.0), *USUAL[1:])
    past = [carried_out(USUAL), carried_out(download), carried_out(USUAL)]
    assert expected(past, carried_out(USUAL), 1.0).eta_s == pytest.approx(99.0)
    found = expected(past, carried_out(download), 102.0)  # 100 s into the download, of which one is known
    assert found.eta_s == pytest.approx(200.0 + 98.0)


def test_a_step_that_is_skipped_this_time_is_not_waited_for() -> None:
    cached: Plan = [each for each in USUAL if each[0] is not Step.COMPILING]
    found = expected([carried_out(USUAL)], carried_out(cached), 75.0)  # warming up for 3 s
    assert found.eta_s == pytest.approx(5.0)
    assert not found.slower


def test_a_step_that_no_start_had_before_leaves_what_is_known_from_the_one_before_it() -> None:
    new: Plan = (USUAL[0], USUAL[1], (Step.TUNING, 5.0), *USUAL[2:])
    found = expected([carried_out(USUAL)], carried_out(new), 12.5)
    assert found.eta_s == pytest.approx(88.0, abs=1.0)


def test_steps_that_come_in_another_order_are_not_counted_twice() -> None:
    swapped: Plan = (USUAL[0], USUAL[2], USUAL[1], *USUAL[3:])
    found = expected([carried_out(USUAL)], carried_out(swapped), 65.0)  # initializing for 3 s
    assert found.eta_s == pytest.approx(7.0 + 28.0)


def test_a_step_goes_on_at_the_pace_that_its_progress_shows() -> None:
    slow: Plan = [(step, lasts_s * (2 if step is Step.LOADING_WEIGHTS else 1)) for step, lasts_s in USUAL]
    for part in (0.2, 0.5, 0.9):
        elapsed_s = 12.0 + 120.0 * part + 0.01
        found = expected([carried_out(USUAL)], carried_out(slow), elapsed_s)
        assert end_s(found, elapsed_s) == pytest.approx(160.0, rel=0.1)


def test_a_bar_that_is_always_slow_at_first_is_no_news() -> None:
    """The pace is compared with that of the same part before, never taken for even."""
    late = carried_out(USUAL)
    late = replace(late, marks=tuple((step, n, 12.0 + 60.0 * (n / MARKS) ** 0.2) for step, n, _ in late.marks))
    for elapsed_s in (20.0, 45.0, 55.0, 65.0, 71.0):
        assert end_s(expected([late], late, elapsed_s), elapsed_s) == pytest.approx(100.0)


def test_a_cold_start_among_cached_ones_is_known_once_its_load_is_slow() -> None:
    cold: Plan = [(step, lasts_s * (5 if step is Step.LOADING_WEIGHTS else 1)) for step, lasts_s in USUAL]
    found = expected([carried_out(USUAL)] * 3, carried_out(cold), 12.0 + 61.0)  # a fifth of the load
    assert end_s(found, 73.0) == pytest.approx(length_s(cold), rel=0.2)


# -- late ------------------------------------------------------------------------------------------


def test_an_overdue_step_leaves_what_is_to_come_after_it_and_then_nobody_knows() -> None:
    hung: Plan = (*USUAL[:3], (Step.COMPILING, 10_000.0))
    assert expected([carried_out(USUAL)], carried_out(hung), 95.0).eta_s == pytest.approx(8.0)
    assert expected([carried_out(USUAL)], carried_out(hung), 130.0).eta_s is None


def test_a_start_of_twice_the_usual_says_so_before_the_usual_time_and_a_half_is_over() -> None:
    slow = carried_out(stretched(USUAL, 2.0))
    past = [carried_out(USUAL)]
    assert not expected(past, slow, 10.0).slower
    assert expected(past, slow, 150.5).slower
    assert expected(past, slow, 199.0).slower
    assert any(expected(past, slow, elapsed_s).slower for elapsed_s in range(100, 150))


def test_a_start_that_takes_a_third_more_than_usual_is_not_called_slow() -> None:
    slow = carried_out(stretched(USUAL, 1.33))
    assert not any(expected([carried_out(USUAL)], slow, elapsed_s).slower for elapsed_s in range(133))


def test_the_noise_of_a_quick_start_is_not_called_slow() -> None:
    quick = carried_out(stretched(USUAL, 0.002))  # 0.2 s
    assert not expected([quick], carried_out(stretched(USUAL, 0.005)), 0.45).slower


def test_slower_than_usual_is_said_with_what_is_usual() -> None:
    state = State(stage=Stage.STARTING, steps=((Step.LOADING_WEIGHTS, 1.0),))
    for usual_s, words in ((2.345, "2.3 s"), (42.4, "42 s"), (119.0, "119 s"), (640.0, "11 min")):
        found = Expected(eta_s=1.0, usual_s=usual_s, slower=True)
        assert say(state, found) == f"loading weights; slower than usual (usually {words})"
    assert say(state, Expected(eta_s=1.0, usual_s=2.0, slower=False)) == "loading weights"


# -- whatever comes --------------------------------------------------------------------------------

lasts = st.floats(min_value=0.05, max_value=2000.0)
plans = st.lists(st.tuples(st.sampled_from(list(Step)), lasts), min_size=1, max_size=11, unique_by=lambda each: each[0])
anything = st.floats(allow_nan=True, allow_infinity=True)


@given(plans, st.integers(1, 12), st.floats(0.0, 1.0))
def test_equal_starts_are_foretold_within_a_fifth(plan: Plan, starts: int, part: float) -> None:
    plan = [(Step.LAUNCHED, 0.1), *(each for each in plan if each[0] is not Step.LAUNCHED)]
    now = carried_out(plan)
    elapsed_s = part * length_s(plan)
    found = expected([carried_out(plan)] * starts, now, elapsed_s)
    assert end_s(found, elapsed_s) == pytest.approx(length_s(plan), rel=0.2)
    assert not found.slower


@given(plans, st.data())
def test_nearly_equal_starts_are_foretold_within_a_fifth(plan: Plan, data: st.DataObject) -> None:
    """Of the whole, when each step takes up to a twentieth more or less."""
    plan = [(Step.LAUNCHED, 0.1), *(each for each in plan if each[0] is not Step.LAUNCHED)]

    def noisy() -> Start:
        near = st.floats(0.95, 1.05)
        return carried_out([(step, lasts_s * data.draw(near)) for step, lasts_s in plan])

    past, now = [noisy() for _ in range(data.draw(st.integers(1, 4)))], noisy()
    assert now.ready_s is not None
    elapsed_s = data.draw(st.floats(0.0, 1.0)) * now.ready_s
    found = expected(past, now, elapsed_s)
    assert end_s(found, elapsed_s) == pytest.approx(now.ready_s, rel=0.2)
    assert not found.slower or now.ready_s < 1.0


@given(plans, st.integers(1, 4), st.floats(1.5, 2.0, exclude_min=True))
def test_twice_the_usual_says_slower_at_the_latest_after_one_and_a_half(plan: Plan, starts: int, at: float) -> None:
    plan = [(Step.LAUNCHED, 1.0), *(each for each in plan if each[0] is not Step.LAUNCHED)]
    found = expected([carried_out(plan)] * starts, carried_out(stretched(plan, 2.0)), at * length_s(plan) + 0.01)
    assert found.slower


strange_steps = st.lists(st.tuples(st.sampled_from(list(Step)), anything), max_size=6).map(tuple)
strange_marks = st.lists(st.tuples(st.sampled_from(list(Step)), st.integers(-3, 30), anything), max_size=6).map(tuple)


@st.composite
def strange_starts(draw: st.DrawFn) -> Start:
    """As nobody would write them down."""
    return replace(
        carried_out(USUAL, invocation=draw(st.sampled_from("ab"))),
        steps=draw(strange_steps),
        marks=draw(strange_marks),
        ready_s=draw(st.none() | anything),
        digest=draw(st.sampled_from("de")),
        watched=draw(st.booleans()),
    )


@given(st.lists(strange_starts() | plans.map(carried_out), max_size=6), strange_starts(), anything)
def test_what_is_foretold_is_never_negative_and_always_a_number(
    past: list[Start], now: Start, elapsed_s: float
) -> None:
    found = expect(past, now, elapsed_s)
    if found is not None:
        assert math.isfinite(found.usual_s)
        assert found.usual_s > 0
        assert found.eta_s is None or (math.isfinite(found.eta_s) and found.eta_s >= 0)
