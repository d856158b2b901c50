"""Sentences for people: a State -> one line; the table -> the diagram in the documents. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from agent.core.forecast import Expected
from agent.core.machine import ROWS, Rule
from agent.core.model import Event, Stage, State, Step

DOING: Mapping[Step, str] = {
    Step.LAUNCHED: "launched",
    Step.INITIALIZING: "initializing",
    Step.DOWNLOADING: "downloading weights",
    Step.LOADING_WEIGHTS: "loading weights",
    Step.COMPILING: "compiling",
    Step.PROFILING: "profiling memory",
    Step.ALLOCATING_KV: "allocating the KV cache",
    Step.TUNING: "tuning kernels",
    Step.CAPTURING_GRAPHS: "capturing CUDA graphs",
    Step.WARMING_UP: "warming up",
    Step.LISTENING: "listening",
}


def say(state: State, expected: Expected | None = None) -> str:
    """Where the server is and why, in one sentence. Holds no text of the server's log: it is shown to anybody.

    `expected`: what earlier starts say of a start. Of it only what seldom changes is told: a sentence is news.
    """
    changed = "; its definition has changed, takes effect at restart" if state.changed else ""
    if state.stage is Stage.STARTING and state.step is not None:
        slower = _slower(expected.usual_s) if expected and expected.slower else ""
        return f"{_start(state, state.step)}{slower}{changed}"
    if state.stage is Stage.READY and state.misses:
        return f"{state.why}; the last {state.misses} probes had no good answer ({state.health}){changed}"
    return f"{state.why}{changed}"


def _start(state: State, step: Step) -> str:
    """How a start is doing."""
    progress = "" if state.progress is None else f" {state.progress:.0%}"
    flag = ""
    if state.stalled:
        flag = "; STALLED: no sign of progress for long"
    elif state.quiet:
        flag = "; the log is quiet"
    foreign = "; its port is answered by somebody else" if state.health == "foreign" else ""
    attempt = f", attempt {state.saved.attempt}" if state.saved.attempt > 1 else ""
    return f"{DOING[step]}{progress}{attempt}{flag}{foreign}"


def _slower(usual_s: float) -> str:
    usual = f"{usual_s:.1f} s" if usual_s < 10 else f"{usual_s:.0f} s" if usual_s < 120 else f"{usual_s / 60:.0f} min"
    return f"; slower than usual (usually {usual})"


def diagram() -> str:
    """The table as a Mermaid state diagram: each arrow is labelled with the events that may lead there."""
    arrows: dict[tuple[Stage, Stage], list[str]] = {}
    for stage, row in ROWS.items():
        for event, rule in row.items():
            _add_arrows(arrows, stage, event, rule)
    lines = ["stateDiagram-v2", *(f"    {_id(stage)} : {stage}" for stage in Stage if "-" in stage)]
    lines += [f"    [*] --> {_id(Stage.DOWN)}"]
    lines += [f"    {_id(a)} --> {_id(b)} : {', '.join(events)}" for (a, b), events in arrows.items()]
    return "\n".join(lines)


def _add_arrows(arrows: dict[tuple[Stage, Stage], list[str]], stage: Stage, event: type[Event], rule: Rule) -> None:
    for to in Stage:
        if to in rule.to and to is not stage:
            arrows.setdefault((stage, to), []).append(event.__name__)


def _id(stage: Stage) -> str:
    return stage.replace("-", "_")
