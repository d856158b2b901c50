"""Written lives of holds: what happened goes in, what is to be done comes out. Each step is checked."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from agent.core.hold_laws import check_holds
from agent.core.hold_words import faults, not_off, pace_s, say
from agent.core.holding import MOST_TRIES, PAUSES_S, SAVE_AGAIN_S, keep
from agent.core.holds import (
    Answer,
    CarriedOut,
    HoldEffect,
    HoldEvent,
    Holds,
    HoldsBooted,
    HoldsStored,
    HoldState,
    HoldsTick,
    HoldUnits,
    Listed,
    LookAtUnits,
    LookFailed,
    ReleaseUnits,
    SaveHolds,
    UnitAsked,
    UnitsLooked,
    Wanted,
)
from agent.core.machine import LawBrokenError
from agent.core.model import Rival

VLLM, OLLAMA = "vllm.service", "ollama.service"
HELD = Holds(begun=True, held={VLLM: 5.0})


class Life:
    """Drives `keep`. The clock moves only with `after`, `look` and `ring`."""

    def __init__(self, *listed: str, saved: Holds = HELD, able: bool = True) -> None:
        self.now = 100.0
        self.state = HoldState()
        self.effects: tuple[HoldEffect, ...] = ()
        units = frozenset(listed or (VLLM,))
        self.give(HoldsBooted(at=self.now, wall=1000.0, saved=saved, listed=units, able=able))

    def give(self, event: HoldEvent) -> tuple[HoldEffect, ...]:
        before = self.state
        done = keep(before, event)
        check_holds(before, event, done)
        self.state, self.effects = done
        return self.effects

    def look(self, *rivals: Rival, began: float | None = None) -> tuple[HoldEffect, ...]:
        self.now += 0.2
        began = self.now - 0.1 if began is None else began
        return self.give(UnitsLooked(at=self.now, wall=1000.0, began=began, rivals=rivals))

    def store(self, why: str | None = None) -> tuple[HoldEffect, ...]:
        (save,) = (effect for effect in self.effects if isinstance(effect, SaveHolds))
        return self.give(HoldsStored(at=self.now, wall=1000.0, holds=save.holds, why=why))

    def carried(self, why: str | None = None) -> tuple[HoldEffect, ...]:
        (act,) = (effect for effect in self.effects if isinstance(effect, HoldUnits | ReleaseUnits))
        return self.give(CarriedOut(at=self.now, wall=1000.0, effect=act, why=why))

    def ask(self, unit: str, *, keep_off: bool) -> tuple[HoldEffect, ...]:
        return self.give(UnitAsked(at=self.now, wall=1000.0, id=7, unit=unit, keep_off=keep_off))

    def want(self) -> tuple[HoldEffect, ...]:
        return self.give(Wanted(at=self.now, wall=1000.0))

    def ring(self) -> tuple[HoldEffect, ...]:
        assert self.state.deadline is not None
        self.now = max(self.now, self.state.deadline)
        return self.give(HoldsTick(at=self.now, wall=1000.0))


def up(unit: str = VLLM, **more: object) -> Rival:
    return replace(Rival(unit=unit, active="active", pids=(12,)), **more)  # type: ignore[arg-type]  # its own fields


def off(unit: str = VLLM, **more: object) -> Rival:
    return replace(Rival(unit=unit, held=True), **more)  # type: ignore[arg-type]  # its own fields


def hold(*units: str) -> HoldUnits:
    return HoldUnits(frozenset(units or (VLLM,)))


# -- the way there -------------------------------------------------------------------------------


def test_nothing_is_held_before_a_server_is_wanted() -> None:
    life = Life(saved=Holds())
    assert life.look(up()) == ()
    assert say(life.state, VLLM) == "not held yet: no server has been wanted; is active, pid 12"


def test_what_is_listed_is_written_down_then_turned_off_then_looked_at() -> None:
    life = Life(VLLM, OLLAMA, saved=Holds())
    life.look(up(), Rival(unit=OLLAMA))
    assert life.want() == (SaveHolds(Holds(begun=True, held={OLLAMA: 1000.0, VLLM: 1000.0})),)
    assert say(life.state, VLLM) == "being written down"
    assert life.store() == (hold(VLLM, OLLAMA),)
    assert say(life.state, VLLM) == "being turned off"
    assert life.carried() == (LookAtUnits(),)
    life.look(up(held=True, active="deactivating"), off(OLLAMA))
    assert not_off(life.state) == (f"unit {VLLM} (is deactivating, pid 12; waiting for it to end)",)
    life.look(off(), off(OLLAMA))
    assert (not_off(life.state), say(life.state, VLLM)) == ((), "off")


def test_what_is_off_and_held_already_is_left_alone() -> None:
    life = Life()
    assert life.look(off()) == ()
    assert life.state.deadline is None


def test_until_a_look_since_the_boot_nobody_knows_and_nothing_is_done() -> None:
    life = Life()
    assert not_off(life.state) == (f"unit {VLLM} (not looked at yet)",)
    assert life.give(LookFailed(at=life.now, why="no bus")) == ()
    assert not_off(life.state) == (f"unit {VLLM} (not known: no bus)",)
    assert not_off(HoldState()) is None


def test_an_absent_unit_is_held_and_in_nobodys_way() -> None:
    life = Life()
    assert life.look(off(load="not-found")) == ()
    assert say(life.state, VLLM) == "not installed; kept off when it comes"


def test_while_nothing_can_be_saved_nothing_is_turned_off_and_it_is_tried_again() -> None:
    life = Life(saved=Holds())
    life.look(up())
    life.want()
    for _ in range(3):
        assert life.store(why="disk full") == ()
        assert life.state.deadline == life.now + SAVE_AGAIN_S
        assert say(life.state, VLLM) == "could not be written down: disk full"
        life.ring()
    assert life.store() == (hold(),)


# -- drift -----------------------------------------------------------------------------------------


def spent() -> tuple[Life, list[float]]:
    """Turned off as often as is allowed, and when."""
    life, at = Life(), []
    while life.look(up(held=True)) or life.state.deadline is not None:
        if life.effects or life.ring():
            at.append(life.now)
            life.carried()
    return life, at


def test_a_unit_that_comes_up_again_is_turned_off_again_with_growing_pauses_and_then_no_more() -> None:
    life, at = spent()
    assert len(at) == MOST_TRIES
    assert [b - a for a, b in itertools.pairwise(at)] == pytest.approx(PAUSES_S)
    assert life.state.care[VLLM].repairs == MOST_TRIES
    life.look(up(held=True, revivers=("foo.timer",)))
    assert "comes up again and again: brought up by foo.timer" in say(life.state, VLLM)
    assert faults(life.state)[0].startswith(f"hold: {VLLM}: comes up again and again")


def test_an_operators_hold_ends_the_truce() -> None:
    life, _ = spent()
    assert life.ask(VLLM, keep_off=True) == (Answer(7), LookAtUnits(), hold())
    assert not life.state.care[VLLM].spent


def test_what_is_off_by_itself_ends_the_truce_and_the_bound_stands() -> None:
    life, _ = spent()
    life.look(off())
    assert life.look(up(held=True)) == ()
    assert life.state.care[VLLM].spent
    life.now += 600
    life.look(off())
    assert life.look(up(held=True)) == (hold(),)


def test_the_first_hold_is_no_repair() -> None:
    life = Life(saved=Holds())
    life.look(up())
    life.want()
    life.store()
    life.carried()
    life.look(off())
    assert life.state.care[VLLM].repairs == 0
    life.now += 10
    assert life.look(up()) == (hold(),)
    assert life.state.care[VLLM].repairs == 1


def test_a_unit_that_is_ending_is_not_told_again() -> None:
    life = Life()
    life.look(up())
    life.carried()
    for _ in range(100):
        assert life.look(up(held=True, active="deactivating")) == ()


def test_a_hold_that_is_defeated_is_told_with_the_file() -> None:
    life = Life()
    life.look(up(fault="a later file empties its conditions: /etc/systemd/system/vllm.service.d/zzz.conf"))
    life.carried()
    life.look(up(fault="a later file empties its conditions: /etc/systemd/system/vllm.service.d/zzz.conf"))
    assert "zzz.conf" in say(life.state, VLLM)
    assert "zzz.conf" in faults(life.state)[0]


def test_a_look_from_before_a_hold_was_carried_out_tells_nothing() -> None:
    life = Life()
    life.look(up())
    began = life.now
    life.now += 5
    life.carried()
    life.look(off(), began=began)
    assert not_off(life.state) == (f"unit {VLLM} (not looked at yet)",)


def test_a_unit_that_was_released_and_is_held_again_is_off_by_a_new_look_only() -> None:
    life = Life()
    life.look(off())
    life.ask(VLLM, keep_off=False)
    assert life.store() == (Answer(7), ReleaseUnits(frozenset({VLLM})))
    release = ReleaseUnits(frozenset({VLLM}))
    life.ask(VLLM, keep_off=True)
    life.store()
    assert not_off(life.state) == (f"unit {VLLM} (being turned off)",)
    life.give(CarriedOut(at=life.now, effect=release))
    assert life.state.want.held == HELD.held
    assert not_off(life.state) == (f"unit {VLLM} (not looked at yet)",)
    assert life.look(up()) == (hold(),)


# -- who carries it out ------------------------------------------------------------------------------


def test_a_refusal_is_no_try_and_is_tried_again_without_end() -> None:
    life = Life()
    life.look(up())
    for _ in range(50):
        life.carried(why="the helper is down")
        life.look(up())
        assert say(life.state, VLLM) == "is active, pid 12; could not be turned off: the helper is down"
        assert life.ring() == (hold(),)
    assert not life.state.care[VLLM].spent


def test_after_a_refusal_each_unit_goes_alone() -> None:
    life = Life(VLLM, OLLAMA, saved=Holds(begun=True, held={VLLM: 5.0, OLLAMA: 5.0}))
    assert life.look(up(), up(OLLAMA)) == (hold(VLLM, OLLAMA),)
    life.carried(why="the folder of ollama.service is a symbolic link")
    life.look(up(), up(OLLAMA))
    told = []
    while len(told) < 4:
        if not (acts := [effect for effect in life.effects if isinstance(effect, HoldUnits)]):
            life.look(up(held=True, active="deactivating"), up(OLLAMA)) if told else life.ring()
            acts = [effect for effect in life.effects if isinstance(effect, HoldUnits)]
        if acts:
            told.append(acts[0].units)
            life.carried(why="a symbolic link" if OLLAMA in acts[0].units else None)
        elif told:
            life.ring()
    assert told[:2] == [frozenset({OLLAMA}), frozenset({VLLM})]
    assert set(told[2:]) == {frozenset({OLLAMA})}


# -- operators -------------------------------------------------------------------------------------


def test_a_release_is_saved_then_answered_and_carried_out_then_forgotten() -> None:
    life = Life()
    life.look(off())
    exempt = replace(HELD, exempt=frozenset({VLLM}))
    assert life.ask(VLLM, keep_off=False) == (SaveHolds(exempt),)
    assert say(life.state, VLLM) == "its release is being written down"
    assert not_off(life.state) == ()
    assert life.store() == (Answer(7), ReleaseUnits(frozenset({VLLM})))
    assert life.carried() == (SaveHolds(replace(exempt, held={})), LookAtUnits())
    life.store()
    assert life.look(up()) == ()
    assert (say(life.state, VLLM), not_off(life.state)) == ("released: not kept off", ())


def test_a_release_that_a_crash_cut_short_is_carried_out_by_the_next_run() -> None:
    life = Life(saved=replace(HELD, exempt=frozenset({VLLM})))
    assert life.effects == (ReleaseUnits(frozenset({VLLM})),)


def test_a_release_that_is_refused_is_tried_again() -> None:
    life = Life(saved=replace(HELD, exempt=frozenset({VLLM})))
    life.carried(why="the helper is down")
    assert say(life.state, VLLM) == "could not be released: the helper is down"
    assert life.ring() == (ReleaseUnits(frozenset({VLLM})),)


def test_a_change_that_cannot_be_saved_is_refused_and_is_none() -> None:
    life = Life()
    life.look(off())
    life.ask(VLLM, keep_off=False)
    assert life.store(why="disk full") == (Answer(7, "it could not be saved: disk full"),)
    assert life.state.want == life.state.disk == HELD


def test_a_release_of_a_unit_that_is_in_the_way_counts_once_it_is_saved() -> None:
    life = Life()
    life.look(up())
    life.carried()
    life.look(up(held=True, active="deactivating"))
    life.ask(VLLM, keep_off=False)
    assert not_off(life.state) != ()
    life.store()
    assert not_off(life.state) == ()


def test_a_hold_by_name_needs_no_server_that_is_wanted() -> None:
    life = Life(VLLM, OLLAMA, saved=Holds())
    life.look(up(), up(OLLAMA))
    assert life.ask(VLLM, keep_off=True) == (SaveHolds(Holds(held={VLLM: 1000.0})),)
    assert life.store() == (Answer(7), hold())


def test_what_is_not_listed_is_refused_with_what_to_do() -> None:
    life = Life()
    for keep_off in (True, False):
        (answer,) = life.ask("foo.service", keep_off=keep_off)
        assert isinstance(answer, Answer)
        assert answer.refused is not None
        assert answer.refused.startswith("foo.service is not listed: add it to [rivals] units in")


def test_a_second_change_waits_for_the_first() -> None:
    life = Life(VLLM, OLLAMA)
    life.ask(VLLM, keep_off=False)
    (answer,) = life.ask(OLLAMA, keep_off=False)
    assert answer == Answer(7, f"release {VLLM} is under way; ask again when it is answered")


def test_a_unit_taken_out_of_the_list_stays_held_and_is_in_nobodys_way_until_it_is_released() -> None:
    life = Life()
    life.look(off())
    assert life.give(Listed(at=life.now, units=frozenset())) == (LookAtUnits(),)
    assert life.state.want == HELD
    assert say(life.state, VLLM) == f"off; held, and not listed any more: gpuagent release {VLLM}"
    assert faults(life.state) == [f"hold: {VLLM}: {say(life.state, VLLM)}"]
    assert life.look(up()) == ()
    assert not_off(life.state) == ()
    life.ask(VLLM, keep_off=False)
    assert life.store() == (Answer(7), ReleaseUnits(frozenset({VLLM})))


def test_a_unit_that_is_listed_later_is_held_at_once() -> None:
    life = Life()
    life.look(off())
    life.give(Listed(at=life.now, wall=1000.0, units=frozenset({VLLM, OLLAMA})))
    life.store()
    assert life.look(off(), up(OLLAMA)) == (hold(OLLAMA),)


def test_where_nobody_can_turn_units_off_that_is_told_and_nothing_waits_for_it() -> None:
    life = Life(saved=Holds(), able=False)
    life.want()
    assert (life.state.want, not_off(life.state)) == (Holds(), ())
    assert faults(life.state)[0].startswith("rivals-not-held: ")
    (answer,) = life.ask(VLLM, keep_off=True)
    assert isinstance(answer, Answer)
    assert answer.refused is not None


def test_units_are_looked_at_often_only_while_something_is_going_off() -> None:
    life = Life()
    life.look(off())
    assert pace_s(life.state, life.now) == 5.0
    life.look(up())
    life.carried()
    assert pace_s(life.state, life.now) < 1.0
    assert pace_s(life.state, life.now + 100) == 1.0


# -- the laws themselves -----------------------------------------------------------------------------


def test_the_laws_find_what_breaks_them() -> None:
    held = HoldState(able=True, booted=True, listed=frozenset({VLLM}), want=HELD, disk=HELD)
    tick = HoldsTick(at=1.0)
    broken = [
        (tick, (replace(held, disk=Holds()), (hold(),))),
        (tick, (replace(held, want=replace(HELD, exempt=frozenset({VLLM}))), (hold(),))),
        (tick, (replace(held, listed=frozenset()), (hold(),))),
        (tick, (held, (ReleaseUnits(frozenset({VLLM})),))),
        (tick, (held, (LookAtUnits(), SaveHolds(HELD)))),
        (tick, (replace(held, want=Holds(begun=True)), ())),
        (tick, (held, (Answer(1),))),
        (UnitAsked(at=1.0, id=1, unit=OLLAMA, keep_off=True), (held, (Answer(1),))),
    ]
    for event, done in broken:
        with pytest.raises(LawBrokenError):
            check_holds(held, event, done)
