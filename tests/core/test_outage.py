"""How long a wanted server was away, told by lives that are driven by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core import outage
from agent.core.chronicle import Start, shut_down
from agent.core.model import Ask, Booted, Exit, Health, Saved, Seen, Want
from agent.core.outage import Outage
from tests.core.script import cause
from tests.core.test_chronicle import ORIGIN, UNIX_S, Told, served

SEEN = 150.0 + UNIX_S
"""When the agent before was last known to be there."""


def rebooted(record: Start, *, seen: float = SEEN, want: Want = Want.UP, run: str = "r2") -> Told:
    """The host had no power; the agent is there again 300 s after the start before began."""
    life = Told(record)
    life.origin = replace(ORIGIN, boot_id="b2", seen=seen)
    life.now = record.began + 300.0
    saved = Saved(want=want, invocation=record.invocation, attempt=record.attempt, running=True)
    life.give(Booted(at=life.now, saved=saved, run=run, seen=Seen(began=life.now, tree=()), rebooted=True))
    return life


def ready_again(life: Told) -> Outage:
    life.relaunch()
    life.serve()
    assert life.record.outage is not None
    return life.record.outage


def test_a_first_start_ends_no_outage_however_many_attempts_it_takes() -> None:
    life = Told()
    life.start()
    life.fail(cause())
    life.ring()
    life.relaunch()
    life.serve()
    assert life.record.outage is None


def test_a_crash_begins_an_outage_that_ends_when_it_serves_again() -> None:
    life = served()
    life.fail(cause())
    since = life.now
    life.ring()
    away = ready_again(life)
    assert away.since == pytest.approx(UNIX_S + since, abs=2)
    assert away.lasted_s == pytest.approx(life.now - since, abs=2)
    assert away.tries == 1


def test_attempts_that_fail_are_counted_and_the_outage_goes_on() -> None:
    life = served()
    life.fail(cause("first"))
    since = life.record.missed
    for slug in ("second", "third"):
        life.ring()
        life.relaunch()
        life.fail(cause(slug))
    life.ring()
    away = ready_again(life)
    assert (away.since, away.tries) == (since, 3)


def test_a_server_that_had_ceased_to_answer_was_away_from_its_last_answer_on() -> None:
    life = served()
    answered = life.now
    for _ in range(life.policy.misses):
        life.after(5.0).probe(Health.SICK)
    life.running(life.policy.unhealthy_s - 1)
    life.ring()
    life.fail(cause(), Exit(signal=15))
    assert life.record.missed == pytest.approx(UNIX_S + answered)


def test_a_power_cut_begins_it_when_the_agent_was_last_there() -> None:
    life = rebooted(served().record)
    away = ready_again(life)
    assert (away.since, away.tries) == (SEEN, 1)
    assert away.lasted_s == pytest.approx(UNIX_S + life.now - SEEN)


def test_without_a_trace_of_the_agent_it_begins_when_the_server_was_first_ready() -> None:
    record = served().record
    assert record.ready_s is not None
    assert ready_again(rebooted(record, seen=0.0)).since == record.launched + record.ready_s


def test_a_clock_that_was_set_back_makes_its_length_unknown_and_nothing_else() -> None:
    away = ready_again(rebooted(served().record, seen=UNIX_S + 1e6))
    assert (away.since, away.lasted_s, outage.words(away)) == (UNIX_S + 1e6, None, "")


def test_power_cuts_one_after_the_other_are_one_outage() -> None:
    life = rebooted(served().record)
    life.relaunch()
    again = rebooted(life.record, seen=SEEN + 1000, run="r3")
    away = ready_again(again)
    assert (away.since, away.tries) == (SEEN, 2)


def test_a_shutdown_begins_it_when_the_host_went_down() -> None:
    away = ready_again(rebooted(shut_down(served().record, UNIX_S + 140.0)))
    assert away.since == UNIX_S + 140.0


def test_an_agents_own_end_that_takes_its_server_along_begins_it() -> None:
    life = served()
    life.close()
    life.fail(cause(), Exit(signal=15, asked=True))
    assert life.record.missed == pytest.approx(UNIX_S + life.now, abs=2)


@pytest.mark.parametrize("ask", [Ask.STOP, Ask.RESTART])
def test_what_an_operator_has_chosen_is_no_outage(ask: Ask) -> None:
    life = served()
    life.asked(ask)
    life.exited(Exit(signal=15, asked=True))
    life.look()
    assert life.record.missed is None


def test_a_stop_while_it_is_away_ends_the_outage_for_good() -> None:
    life = served()
    life.fail(cause())
    assert life.record.missed is not None
    life.asked(Ask.STOP)
    life.asked(Ask.START)
    life.relaunch()
    life.serve()
    assert (life.past[-1].missed, life.record.outage) == (None, None)


def test_a_server_that_is_not_wanted_after_a_boot_is_not_missed() -> None:
    assert rebooted(served().record, want=Want.DOWN).record.missed is None


def test_a_restart_by_an_operator_while_it_is_away_leaves_the_outage_one() -> None:
    life = served()
    life.fail(cause())
    since = life.record.missed
    life.asked(Ask.RESTART)
    assert ready_again(life).since == since


@pytest.mark.parametrize(
    ("lasted_s", "tries", "words"),
    [
        (432.4, 2, "back after 7 min 12 s, 2 attempts"),
        (3.14, 1, "back after 3.1 s, 1 attempt"),
        (7300.0, 1, "back after 2 h 1 min, 1 attempt"),
        (None, 1, ""),
    ],
)
def test_it_is_said_in_words(lasted_s: float | None, tries: int, words: str) -> None:
    assert outage.words(Outage(since=0.0, tries=tries, lasted_s=lasted_s)) == words
