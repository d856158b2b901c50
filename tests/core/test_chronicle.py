"""What is remembered of each attempt, told by lives that are driven by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.chronicle import Origin, Outcome, Start, follow, lost, rejoin
from agent.core.model import Ask, Booted, Effect, Event, Exit, Health, Launch, LogRead, Retry, Saved, Seen, Step, Want
from tests.core.script import MAIN, WORKER, Script, cause

ORIGIN = Origin(server="one", digest="d1", boot_id="b1")
UNIX_S = 1_700_000_000.0
"""The wall clock is so far ahead of the script's."""


class Told(Script):
    """A life of which every step is followed. `start`: the newest."""

    def __init__(self, start: Start | None = None) -> None:
        super().__init__()
        self.start_ = start
        self.past: list[Start] = []
        self.origin = ORIGIN

    def give(self, event: Event) -> tuple[Effect, ...]:
        before = self.state
        effects = super().give(event)
        known = self.start_
        self.start_ = follow(known, before, self.state, at=event.at, unix_s=UNIX_S + event.at, origin=self.origin)
        if known is not None and self.start_ is not None and self.start_.invocation != known.invocation:
            self.past.append(known)
        return effects

    def log(self, step: Step | None = None, progress: float | None = None, *, after_s: float = 1.0) -> None:
        """The log says so, a while later."""
        self.now += after_s
        self.give(LogRead(at=self.now, invocation=self.invocation, step=step, progress=progress))

    @property
    def record(self) -> Start:
        """The newest start."""
        assert self.start_ is not None
        return self.start_


def served() -> Told:
    life = Told()
    life.start()
    life.log(Step.LOADING_WEIGHTS, after_s=2.0)
    life.log(Step.WARMING_UP, after_s=3.0)
    life.serve()
    return life


def test_nothing_is_remembered_before_a_launch() -> None:
    life = Told()
    life.boot()
    life.asked(Ask.START)
    assert life.start_ is None


def test_a_start_has_its_launch_its_steps_and_when_it_became_ready() -> None:
    life = served()
    record = life.record
    assert (record.server, record.invocation, record.attempt) == ("one", "r-1", 1)
    assert (record.digest, record.boot_id) == ("d1", "b1")
    assert record.launched == UNIX_S + record.began
    assert [step for step, _ in record.steps] == [Step.LAUNCHED, Step.LOADING_WEIGHTS, Step.WARMING_UP]
    times = [at_s for _, at_s in record.steps]
    assert times[0] == 0.0
    assert times[2] - times[1] == pytest.approx(3.0)
    assert record.ready_s is not None
    assert record.ready_s > times[2]
    assert (record.outcome, record.ended_s, record.exit, record.watched) == (None, None, None, True)


def test_an_event_that_changes_nothing_leaves_the_same_record() -> None:
    life = served()
    record = life.record
    life.running()
    life.probe(Health.OK)
    assert life.record is record


def test_a_step_that_comes_again_is_no_news() -> None:
    life = Told()
    life.start()
    life.log(Step.LOADING_WEIGHTS)
    record = life.record
    life.log(Step.LOADING_WEIGHTS)
    assert life.record.steps == record.steps


def test_each_tenth_of_a_steps_progress_is_marked_once_with_the_time_it_was_reached() -> None:
    life = Told()
    life.start()
    life.log(Step.LOADING_WEIGHTS, 0.05)
    life.log(progress=0.21)
    life.log(progress=0.15)
    life.log(progress=0.34)
    life.log(Step.CAPTURING_GRAPHS, 0.1)
    assert [(step, tenths) for step, tenths, _ in life.record.marks] == [
        *((Step.LOADING_WEIGHTS, tenths) for tenths in (1, 2, 3)),
        (Step.CAPTURING_GRAPHS, 1),
    ]
    times = [at_s for _, _, at_s in life.record.marks]
    assert times[0] == times[1] < times[2] < times[3]


def test_a_stop_is_stopped_with_the_exit_and_without_a_cause() -> None:
    life = served()
    life.asked(Ask.STOP)
    assert life.record.outcome is None  # it still lives
    life.after(4.0).exited(Exit(code=0), cause("whatever"))
    record = life.record
    assert (record.outcome, record.cause_slug) == (Outcome.STOPPED, None)
    assert record.exit == Exit(code=0, asked=True)
    assert record.ended_s == pytest.approx(life.now - record.began)


def test_a_restart_and_the_end_of_the_agent_are_stops_too() -> None:
    for tell in (lambda life: life.asked(Ask.RESTART), Script.close):
        life = served()
        tell(life)
        life.exited(Exit(signal=15))
        assert life.record.outcome is Outcome.STOPPED


def test_an_end_before_it_was_ready_is_a_failed_start_with_its_cause() -> None:
    life = Told()
    life.start()
    life.after(3.0).exited(Exit(code=1), replace(cause("bad_flag"), quoted=True))
    record = life.record
    assert (record.outcome, record.cause_slug, record.cause_quoted) == (Outcome.FAILED_START, "bad_flag", True)
    assert (record.ready_s, record.exit) == (None, Exit(code=1))


def test_an_end_after_it_was_ready_is_a_crash() -> None:
    life = served()
    life.after(60.0).exited(Exit(signal=9, oom=True), cause("oom"))
    record = life.record
    assert (record.outcome, record.cause_slug, record.exit) == (Outcome.CRASHED, "oom", Exit(signal=9, oom=True))


def test_a_hung_server_that_we_end_is_a_crash_with_the_reason_why() -> None:
    life = served()
    for _ in range(3):
        life.after(5.0).probe(Health.SICK)
    life.running(life.policy.unhealthy_s - 1)
    life.ring()
    life.exited(Exit(signal=15), cause("said on its way out"))
    assert (life.record.outcome, life.record.cause_slug) == (Outcome.CRASHED, "unhealthy")


def test_a_launch_that_is_refused_is_a_failed_start_without_an_exit() -> None:
    life = Told()
    life.boot()
    life.asked(Ask.START)
    life.look()
    life.refuse(Launch(life.invocation), cause("exec_missing"))
    record = life.record
    assert (record.outcome, record.cause_slug, record.exit) == (Outcome.FAILED_START, "exec_missing", None)
    assert record.ended_s is not None


def test_the_next_attempt_is_a_new_start_and_the_last_one_is_over() -> None:
    life = Told()
    life.start()
    life.fail(cause("crash"))
    life.ring()
    life.relaunch()
    assert [(start.invocation, start.outcome) for start in life.past] == [("r-1", Outcome.FAILED_START)]
    assert (life.record.invocation, life.record.attempt, life.record.outcome) == ("r-2", 2, None)


def test_an_exit_that_comes_after_a_look_has_shown_the_end_is_still_taken() -> None:
    life = served()
    life.asked(Ask.STOP)
    life.look(tree=(WORKER,))  # the first process is gone, nobody has told yet
    assert (life.record.outcome, life.record.exit) == (Outcome.STOPPED, None)
    life.exited(Exit(code=3))
    assert life.record.exit is not None
    assert life.record.exit.code == 3


# -- another run of the agent ----------------------------------------------------------------------


def back(record: Start, *, origin: Origin = ORIGIN, **seen: object) -> Told:
    """The agent was killed and comes back 30 s later, with the start that history holds."""
    life = Told(record)
    life.origin = origin
    life.now = record.began + 30.0
    saved = Saved(want=Want.UP, invocation=record.invocation, attempt=record.attempt, running=True)
    look = Seen(**{"began": life.now - 0.1, "tree": (), **seen})  # type: ignore[arg-type]
    life.give(Booted(at=life.now, saved=saved, run="r2", seen=look))
    return life


def loading() -> Start:
    life = Told()
    life.start()
    life.log(Step.LOADING_WEIGHTS, 0.2, after_s=2.0)
    return life.record


HERE = {"tree": (MAIN,), "main": MAIN, "invocation": "r-1"}


def test_an_adopted_server_goes_on_with_its_start_and_the_true_times_of_its_steps() -> None:
    record = loading()
    life = back(record, **HERE)
    life.log(Step.LOADING_WEIGHTS, 0.9)  # the log is read again from its first byte
    life.log(Step.WARMING_UP)
    life.serve()
    now = life.record
    assert (now.invocation, now.attempt, now.began, now.launched) == ("r-1", 1, record.began, record.launched)
    assert now.steps[:2] == record.steps
    assert now.steps[2] == (Step.WARMING_UP, pytest.approx(32.0))
    assert now.ready_s is not None
    assert now.ready_s > 32.0


def test_times_of_a_start_that_was_not_watched_to_its_end_are_marked() -> None:
    assert not back(loading(), **HERE).record.watched


def test_an_adopted_server_that_was_ready_before_keeps_the_time_of_that() -> None:
    record = served().record
    life = back(record, **HERE)
    life.serve()
    assert (life.record.ready_s, life.record.watched) == (record.ready_s, True)


def test_an_adopted_server_that_nobody_wrote_down_begins_when_it_was_found() -> None:
    life = Told()
    saved = Saved(want=Want.UP, invocation="r-1", attempt=3)
    life.give(Booted(at=100.0, saved=saved, run="r2", seen=Seen(**{"began": 99.0, **HERE})))  # type: ignore[arg-type]
    assert (life.record.invocation, life.record.attempt, life.record.began) == ("r-1", 3, 100.0)
    assert not life.record.watched


def test_what_ended_while_no_agent_ran_is_lost_and_says_so() -> None:
    record = back(served().record).record
    assert (record.outcome, record.cause_slug, record.ended_s) == (Outcome.LOST, "agent_away", None)


def test_what_ended_while_no_agent_ran_has_the_cause_that_its_log_gives() -> None:
    life = Told(served().record)
    saved = Saved(want=Want.UP, invocation="r-1", attempt=1, running=True)
    ended = cause("cuda_oom", Retry.FEW)
    life.give(Booted(at=200.0, saved=saved, run="r2", seen=Seen(began=199.0, tree=()), ended=ended))
    assert (life.record.outcome, life.record.cause_slug) == (Outcome.LOST, "cuda_oom")


def test_what_went_down_with_the_host_says_so() -> None:
    record = back(served().record, origin=replace(ORIGIN, boot_id="b2")).record
    assert (record.outcome, record.cause_slug) == (Outcome.LOST, "host_rebooted")


def test_a_server_that_cannot_be_looked_for_is_not_lost_and_may_yet_be_found() -> None:
    record = served().record
    life = back(record, tree=None)
    assert life.record is record
    life.look(**HERE)
    assert (life.record.outcome, life.record.steps) == (None, record.steps)


def test_a_server_that_was_taken_for_lost_and_is_found_lives_again() -> None:
    life = back(lost(served().record, ORIGIN), **HERE)
    assert (life.record.outcome, life.record.cause_slug, life.record.invocation) == (None, None, "r-1")


def test_a_history_that_is_read_late_knows_the_beginning_of_what_was_found() -> None:
    known = loading()
    life = Told()
    life.now = known.began + 30.0
    saved = Saved(want=Want.UP, invocation="r-1", attempt=1)
    look = Seen(**{"began": life.now - 0.1, **HERE})  # type: ignore[arg-type]
    life.give(Booted(at=life.now, saved=saved, run="r2", seen=look))
    life.log(Step.LOADING_WEIGHTS)
    life.log(Step.WARMING_UP)
    joined = rejoin(known, life.record)
    assert (joined.began, joined.launched, joined.digest) == (known.began, known.launched, known.digest)
    assert joined.steps == (*known.steps, (Step.WARMING_UP, pytest.approx(32.0)))
    assert not joined.watched
