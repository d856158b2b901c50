"""The table and the laws: complete, frozen, and as the documents draw it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import agent
from agent.core import machine, model, words
from agent.core.levels import SETTLE
from agent.core.machine import EVENTS, TABLE, LawBrokenError, check, step
from agent.core.model import (
    STAGE_CODE,
    After,
    Answer,
    Asked,
    Booted,
    Effect,
    Event,
    Kill,
    Launch,
    Look,
    Looked,
    Policy,
    Save,
    Saved,
    Seen,
    Stage,
    State,
    Stored,
    Terminate,
    Tick,
    Transition,
    Want,
)
from tests.core.script import MAIN, UP, Script, need

POLICY = Policy()


def test_every_event_has_a_rule_in_every_stage() -> None:
    named = {each for each in vars(model).values() if isinstance(each, type) and issubclass(each, Event)}
    assert set(EVENTS) == named - {Event}
    assert set(TABLE) == {(stage, event) for stage in Stage for event in EVENTS}


def test_every_stage_has_its_level() -> None:
    assert set(SETTLE) == set(Stage)


def test_every_target_is_a_stage_and_every_stage_can_be_reached_and_left() -> None:
    assert all(to in Stage for rule in TABLE.values() for to in rule.to)
    for stage in Stage:
        assert any(stage in rule.to for (start, _), rule in TABLE.items() if start is not stage)
        assert any(to is not stage for (start, _), rule in TABLE.items() if start is stage for to in rule.to)


def test_an_event_that_changes_nothing_may_leave_the_stage_as_it_is() -> None:
    for (stage, event), rule in TABLE.items():
        leaves = {(Stage.WAITING, "Closed"), (Stage.CLEARING, "Closed"), (Stage.BACKING_OFF, "Closed")}
        leaves |= {(Stage.FAILED, "Closed"), (Stage.STARTING, "Closed"), (Stage.READY, "Closed")}
        leaves |= {(Stage.UNHEALTHY, "Closed"), (Stage.FAILED, "Reconfigured")}
        assert stage in rule.to or (stage, event.__name__) in leaves, (stage, event)


def test_the_numbers_of_the_stages_never_change() -> None:
    assert {str(stage): code for stage, code in STAGE_CODE.items()} == {
        "down": 0,
        "waiting": 10,
        "clearing": 20,
        "starting": 30,
        "ready": 40,
        "unhealthy": 50,
        "stopping": 60,
        "backing-off": 70,
        "failed": 90,
    }


def test_the_diagram_in_the_documents_is_drawn_from_the_table() -> None:
    text = (Path(agent.__file__).parent / "ARCHITECTURE.md").read_text()
    drawn = text.split("<!-- diagram -->")[1].split("<!-- /diagram -->")[0]
    lines = [line for line in drawn.strip().splitlines() if not line.startswith("```")]
    assert "\n".join(lines).strip() == words.diagram().strip()


# -- the laws, each broken by hand -----------------------------------------------------------------


def broken(now: State, *effects: Effect, event: Event | None = None, before: State | None = None) -> str:
    """Which law `check` finds broken."""
    event = event or Looked(at=1.0, seen=Seen())
    with pytest.raises(LawBrokenError) as law:
        check(before or now, event, Transition(replace(now, sent=now.saved), effects), POLICY)
    return str(law.value).split(": State(")[0]


LAUNCHING = State(stage=Stage.STARTING, deadline=9.0, saved=UP, seen=Seen(tree=(), needs=()))
STOPPING = State(stage=Stage.STOPPING, deadline=9.0, main=MAIN)


def test_a_stage_that_waits_has_a_deadline_and_one_that_rests_has_none() -> None:
    assert broken(State(stage=Stage.WAITING)).startswith("1:")
    assert broken(State(stage=Stage.READY, deadline=5.0)).startswith("1:")


def test_an_undeclared_move_is_found() -> None:
    assert "may not lead to" in broken(State(stage=Stage.READY), before=State())


def test_a_save_that_is_not_first_is_found() -> None:
    assert broken(State(), Look(), Save(Saved())).startswith("2:")


def test_an_answer_before_the_save_is_found() -> None:
    assert broken(State(), Answer(1), event=Asked(at=1.0, ask="start")).startswith("2:")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "law"),
    [
        (Seen(tree=None, needs=()), "3, 5"),
        (Seen(tree=(MAIN,), needs=()), "3, 5"),
        (Seen(tree=(), needs=None), "3:"),
        (Seen(tree=(), needs=(need("port", heals=True),)), "3:"),
        (Seen(tree=(), needs=(), rivals=(), neighbours=frozenset({"b"})), "nothing is launched beside a server"),
        (Seen(tree=(), needs=(), rivals=("unit comfyui.service",)), "3: nothing is launched beside a rival"),
        (Seen(tree=(), needs=(), rivals=None), "3: nothing is launched beside a rival"),
    ],
)
def test_a_launch_on_what_is_there_or_unknown_is_found(seen: Seen, law: str) -> None:
    assert broken(replace(LAUNCHING, seen=seen), Launch("r-1")).startswith(law)


def test_a_launch_of_what_is_not_wanted_is_found() -> None:
    assert "not wanted" in broken(replace(LAUNCHING, saved=Saved()), Launch("r-1"))
    assert "not wanted" in broken(replace(LAUNCHING, closing=True), Launch("r-1"))


def test_a_signal_to_a_server_that_is_not_stopping_or_without_a_reason_is_found() -> None:
    assert broken(State(stage=Stage.READY, main=MAIN), Terminate()).startswith("6:")
    assert broken(replace(STOPPING, saved=UP, after=After.RETRY), Terminate()).startswith("6:")


def test_a_kill_of_nothing_that_is_known_is_found() -> None:
    assert broken(replace(STOPPING, main=None), Kill()).startswith("3:")


def test_two_levels_that_undo_each_other_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    there = lambda s, at, p: Transition(replace(s, stage=Stage.FAILED))  # noqa: E731  # the other half of a pair
    back = lambda s, at, p: Transition(replace(s, stage=Stage.DOWN))  # noqa: E731
    monkeypatch.setattr(machine, "SETTLE", {**SETTLE, Stage.DOWN: there, Stage.FAILED: back})
    with pytest.raises(LawBrokenError, match="never settles"):
        step(State(), Tick(at=1.0), POLICY)


def test_a_tick_before_the_deadline_means_nothing() -> None:
    life = Script()
    life.boot(UP)
    before = life.state
    life.give(Tick(at=life.now))
    assert (life.state, life.effects) == (before, ())


def test_events_and_effects_are_plain_data_that_can_be_compared() -> None:
    one = Booted(at=1.0, saved=Saved(want=Want.UP), seen=Seen(), run="r")
    assert one == replace(one)
    assert Stored(at=1.0, saved=Saved()) != Stored(at=1.0, saved=Saved(), why="full")
    assert Terminate(whole=True) != Terminate()
