"""The verbs: step(state, event, policy) -> Transition, and nothing else.

Every (stage, event) pair stands in TABLE, with the stages that its rule may lead to. After the rule, the level of
the stage (levels.SETTLE) runs until nothing changes. What is to be saved goes before every other effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent.core import gpus
from agent.core.deadlines import due, late_health, late_room, late_start, late_stop, wake
from agent.core.levels import SETTLE
from agent.core.model import (
    Answer,
    Asked,
    Booted,
    Closed,
    Event,
    Exited,
    Kill,
    Launch,
    Launched,
    LogRead,
    Looked,
    Policy,
    Probed,
    Reconfigured,
    Refused,
    Save,
    Stage,
    State,
    Stored,
    Terminate,
    Tick,
    Transition,
)
from agent.core.orders import ask, intended, stored_idle, stored_running, stored_stopping, stored_waiting
from agent.core.rules import (
    Handler,
    exited,
    exited_stopping,
    ignore,
    launched,
    launched_stopping,
    log_read,
    look,
    look_for_room,
    look_serving,
    look_starting,
    of_this_attempt,
    probe_ready,
    probe_starting,
    probe_unhealthy,
    refused,
    refused_stopping,
)
from agent.core.sessions import (
    boot,
    close_idle,
    close_running,
    close_stopping,
    reconfigured_idle,
    reconfigured_running,
)

TIMED = frozenset({Stage.WAITING, Stage.CLEARING, Stage.STARTING, Stage.UNHEALTHY, Stage.STOPPING, Stage.BACKING_OFF})
"""The stages that wait, and so have a deadline."""
SETTLE_MOST = 8
"""No event leads through more stages than this: more means that two levels undo each other."""


class LawBrokenError(AssertionError):
    """A law of the lifecycle does not hold: a bug in the core."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What an event does in a stage, and every stage that it may lead to, the levels that follow included."""

    run: Handler
    to: frozenset[Stage]


def step(state: State, event: Event, policy: Policy) -> Transition:
    """Apply one event, then settle."""
    done = TABLE[state.stage, type(event)].run(state, event, policy)
    for _ in range(SETTLE_MOST):
        more = SETTLE[done.state.stage](done.state, event.at, policy)
        if more is None:
            return _save_first(done)
        done = Transition(more.state, done.effects + more.effects)
    raise LawBrokenError(f"never settles: {done.state}")


def _save_first(done: Transition) -> Transition:
    """Put the Save of what is not on its way to the disk yet before the effects."""
    meant = intended(done.state)
    if meant == done.state.sent:
        return done
    return Transition(replace(done.state, sent=meant, saving=done.state.saving + 1), (Save(meant), *done.effects))


def check(before: State, event: Event, done: Transition, policy: Policy) -> None:
    """The laws that one step can show. Raises LawBrokenError."""
    now, effects = done.state, done.effects
    _law(now.stage in TABLE[before.stage, type(event)].to, f"{before.stage} may not lead to {now.stage}", now)
    _law((now.deadline is not None) == (now.stage in TIMED), "1: a stage that waits has a deadline", now)
    _law(bool(now.why), "every transition says why", now)
    _law(now.sent == intended(now), "2: what changed is given to be saved", now)
    _law(not any(isinstance(effect, Save) for effect in effects[1:]), "2: save before act", now)
    for effect in effects:
        match effect:
            case Answer(refused=None):
                _law(isinstance(event, Stored), "2: an operator is answered after the save", now)
            case Launch():
                _check_launch(now, policy)
            case Terminate() | Kill():
                _law(now.stage is Stage.STOPPING, "6: only a server that is stopping is signalled", now)
                _law(_may_end(now), "6: a wanted server is ended for a reason", now)
                _law(effect != Kill() or bool(now.main or now.seen.tree), "3: unknown never kills", now)
            case _:
                pass


def _check_launch(now: State, policy: Policy) -> None:
    """Laws 3 and 5."""
    _law(now.seen.tree == (), "3, 5: nothing is launched while a server is seen or cannot be looked for", now)
    _law(now.seen.needs == (), "3: nothing is launched while a need is not met or not known", now)
    _law(now.wanted and not now.closing, "nothing is launched that is not wanted", now)
    _law(now.seen.rivals == (), "3: nothing is launched beside a rival, or while it is not known to be off", now)
    _law(not now.seen.neighbours, "nothing is launched beside a server that shares its GPUs or its port", now)
    room = gpus.room(now, policy)
    _law(room.known and room.free, "3: nothing is launched without room on its GPUs", now)


def _may_end(now: State) -> bool:
    """Whether there is a reason to end a server: the operator's, the agent's own end, or a cause."""
    return not now.wanted or now.closing or now.cause is not None or now.after is not now.after.RETRY


def _law(holds: bool, law: str, state: State) -> None:
    if not holds:
        raise LawBrokenError(f"{law}: {state}")


# -- the table -------------------------------------------------------------------------------------


def _to(run: Handler, *stages: Stage) -> Rule:
    return Rule(run, frozenset(stages))


def _mine(run: Handler, *stages: Stage) -> Rule:
    """For news of one attempt."""
    return Rule(of_this_attempt(run), frozenset(stages))


Row = Mapping[type[Event], Rule]


def _row(stage: Stage, live: Row, *dead: type[Event]) -> Row:
    """The row of a stage: its live cells, and by name the events that mean nothing in it."""
    return {**live, **{event: _to(ignore, stage) for event in dead}}


D, W, C, S, R, U, P, B, F = Stage
EVENTS: tuple[type[Event], ...] = (
    Booted,
    Asked,
    Stored,
    Closed,
    Reconfigured,
    Looked,
    Launched,
    Refused,
    Exited,
    LogRead,
    Probed,
    Tick,
)
OF_A_PROCESS = (Launched, Refused, Exited, LogRead, Probed)
"""What means nothing while nothing of ours runs: it comes late, from an attempt that is over."""

ROWS: Mapping[Stage, Row] = {
    D: _row(
        D,
        {
            Booted: _to(boot, D, W, S, R, U, P, F),
            Asked: _to(ask, D),
            Stored: _to(stored_idle, D, W),
            Closed: _to(close_idle, D),
            Reconfigured: _to(reconfigured_idle, D),
            Looked: _to(look, D, S, P),
        },
        *OF_A_PROCESS,
        Tick,
    ),
    W: _row(
        W,
        {
            Asked: _to(ask, W),
            Stored: _to(stored_waiting, D, W, C, S),
            Closed: _to(close_idle, D),
            Reconfigured: _to(reconfigured_idle, W, C),
            Looked: _to(look_for_room, W, C, S, P, F),
            Tick: _to(due(late_room), W),
        },
        Booted,
        *OF_A_PROCESS,
    ),
    C: _row(
        C,
        {
            Asked: _to(ask, C),
            Stored: _to(stored_waiting, D, C, W, S),
            Closed: _to(close_idle, D),
            Reconfigured: _to(reconfigured_idle, C),
            Looked: _to(look_for_room, C, W, S, P, F),
            Tick: _to(due(late_room), C),
        },
        Booted,
        *OF_A_PROCESS,
    ),
    S: _row(
        S,
        {
            Asked: _to(ask, S),
            Stored: _to(stored_running, S, P),
            Closed: _to(close_running, P),
            Reconfigured: _to(reconfigured_running, S),
            Looked: _to(look_starting, S, P),
            Launched: _mine(launched, S),
            Refused: _to(refused, S, P),
            Exited: _mine(exited, S, P),
            LogRead: _mine(log_read, S),
            Probed: _mine(probe_starting, S, R),
            Tick: _to(due(late_start), S, P),
        },
        Booted,
    ),
    R: _row(
        R,
        {
            Asked: _to(ask, R),
            Stored: _to(stored_running, R, P),
            Closed: _to(close_running, P),
            Reconfigured: _to(reconfigured_running, R),
            Looked: _to(look_serving, R, P),
            Exited: _mine(exited, R, P),
            Probed: _mine(probe_ready, R, U),
        },
        *(Booted, Launched, Refused, LogRead, Tick),
    ),
    U: _row(
        U,
        {
            Asked: _to(ask, U),
            Stored: _to(stored_running, U, P),
            Closed: _to(close_running, P),
            Reconfigured: _to(reconfigured_running, U),
            Looked: _to(look_serving, U, P),
            Exited: _mine(exited, U, P),
            Probed: _mine(probe_unhealthy, U, R),
            Tick: _to(due(late_health), U, P),
        },
        *(Booted, Launched, Refused, LogRead),
    ),
    P: _row(
        P,
        {
            Asked: _to(ask, P),
            Stored: _to(stored_stopping, P),
            Closed: _to(close_stopping, P),
            Reconfigured: _to(reconfigured_running, P),
            Looked: _to(look, P, D, W, S, B, F),
            Launched: _mine(launched_stopping, P),
            Refused: _to(refused_stopping, P),
            Exited: _mine(exited_stopping, P),
            Tick: _to(due(late_stop), P),
        },
        *(Booted, LogRead, Probed),
    ),
    B: _row(
        B,
        {
            Asked: _to(ask, B),
            Stored: _to(stored_idle, D, W, B),
            Closed: _to(close_idle, D),
            Reconfigured: _to(reconfigured_idle, B),
            Looked: _to(look, B, S, P),
            Tick: _to(due(wake), B, W),
        },
        Booted,
        *OF_A_PROCESS,
    ),
    F: _row(
        F,
        {
            Asked: _to(ask, F),
            Stored: _to(stored_idle, D, W, F),
            Closed: _to(close_idle, D),
            Reconfigured: _to(reconfigured_idle, W),
            Looked: _to(look, F, W, S, P),
        },
        *(Booted, Tick),
        *OF_A_PROCESS,
    ),
}
TABLE: Mapping[tuple[Stage, type[Event]], Rule] = {
    (stage, event): rule for stage, row in ROWS.items() for event, rule in row.items()
}
