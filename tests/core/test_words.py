"""Sentences for people, and the diagram."""

from __future__ import annotations

from dataclasses import replace

from agent.core.machine import TABLE
from agent.core.model import Cause, Health, Retry, Saved, Stage, State, Step
from agent.core.words import DOING, diagram, say

STARTING = State(stage=Stage.STARTING, steps=((Step.LOADING_WEIGHTS, 1.0),), saved=Saved(attempt=1))


def test_every_step_has_words() -> None:
    assert set(DOING) == set(Step)


def test_a_start_says_its_step_and_how_it_is_doing() -> None:
    assert say(STARTING) == "loading weights"
    assert say(replace(STARTING, progress=0.42, saved=Saved(attempt=3))) == "loading weights 42%, attempt 3"
    assert say(replace(STARTING, quiet=True)) == "loading weights; the log is quiet"
    assert say(replace(STARTING, quiet=True, stalled=True)).endswith("STALLED: no sign of progress for long")
    assert say(replace(STARTING, health=Health.FOREIGN)).endswith("its port is answered by somebody else")


def test_a_launch_that_is_not_confirmed_says_so() -> None:
    assert say(State(stage=Stage.STARTING, why="launching", launching=True)) == "launching"


def test_a_ready_server_that_misses_probes_says_so() -> None:
    ready = State(stage=Stage.READY, why="answers")
    assert say(ready) == "answers"
    missed = say(replace(ready, misses=2, health=Health.TIMEOUT))
    assert missed == "answers; the last 2 probes had no good answer (timeout)"


def test_a_sentence_holds_no_text_of_the_log() -> None:
    quoted = Cause(slug="oom", text="secret prompt", remedy="more memory", retry=Retry.NO, quoted=True)
    for stage in Stage:
        assert "secret" not in say(State(stage=stage, cause=quoted, why="oom"))


def test_the_diagram_has_an_arrow_for_each_move_of_the_table_and_no_other() -> None:
    lines = diagram().splitlines()
    assert lines[0] == "stateDiagram-v2"
    moves = {(start, to) for (start, _), rule in TABLE.items() for to in rule.to if to is not start}
    drawn = [line for line in lines if "-->" in line and "[*]" not in line]
    assert len(drawn) == len(moves)
    assert any(line.strip().startswith("backing_off --> waiting : ") and "Tick" in line for line in drawn)
