"""The host's holds in the loop: their one State, the eyes on the units, the hands, and who is answered.

A part of loop.py, and of its thread: nobody else holds a HoldState.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace

import structlog

from agent.core.hold_words import faults, not_off, pace_s
from agent.core.holding import keep
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
from agent.core.model import NotOff
from agent.errors import EdgeError
from agent.keeping import wait
from agent.ports import Rivals, Store

LOOK_LIMIT_S = 10.0
ACT_LIMIT_S = 120.0
"""For one batch: systemd reads all its files once, which takes seconds on a busy host."""
BETWEEN_LOOKS_S = 0.05
"""At least: a unit that changes all the time must not keep the agent busy."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Fight:
    """The units that the configuration names, and who keeps them off; None: nobody can."""

    listed: frozenset[str] = frozenset()
    port: Rivals | None = None


NO_FIGHT = Fight()


class KeepingOff:
    """`tell` is called when what is known or meant has changed: with who is in the way, and whether that is news."""

    def __init__(self, fight: Fight, store: Store, tell: Callable[[NotOff, bool], None]) -> None:
        self.state = HoldState()
        self.in_the_way: NotOff = not_off(self.state)
        """The units that keep every server from being launched; None: nobody knows."""
        self._port = fight.port
        self._store = store
        self._listed = fight.listed
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._look_now = asyncio.Event()
        self._saves: asyncio.Queue[SaveHolds] = asyncio.Queue()
        self._acts: asyncio.Queue[HoldUnits | ReleaseUnits] = asyncio.Queue()
        self._answers: dict[int, Future[str | None]] = {}
        self._asks = itertools.count(1)
        if fight.port is not None:
            fight.port.on_change(self._look_now.set)

    @property
    def faults(self) -> list[str]:
        """What is not as it should be, for a person."""
        return faults(self.state)

    @property
    def warnings(self) -> list[str]:
        """What a person should know beside it."""
        return [] if self._port is None else self._port.warnings()

    # -- from the loop ---------------------------------------------------------------------------------

    def boot(self, saved: Holds) -> None:
        """Go on from what was saved. Before any server is looked at: until the units are, none is launched."""
        able = self._port is not None
        self._take(
            HoldsBooted(saved=self._whole(saved), listed=self._listed, able=able, at=self._now(), wall=time.time())
        )

    def _whole(self, saved: Holds) -> Holds:
        """With the holds of which root alone still knows: the state was lost, and they keep units off all the same."""
        if self._port is None:
            return saved
        try:
            found = self._port.held()
        except EdgeError as error:
            log.warning("what is held is not known but from the state", why=str(error))
            return saved
        if lost := {unit: since for unit, since in found.items() if unit not in saved.held}:
            log.warning("held, and not in the state", units=sorted(lost))
        return replace(saved, held={**lost, **saved.held})

    def name(self, units: frozenset[str]) -> None:
        """The configuration names these from now on."""
        if units != self._listed:
            self._listed = units
            self._take(Listed(units=units, at=self._now(), wall=time.time()))

    def want(self) -> None:
        """A server is wanted: if it is the first one, holds begin."""
        if self.state.able and not self.state.want.begun:
            self._take(Wanted(at=self._now(), wall=time.time()))

    def ask(self, unit: str, keep_off: bool, answer: Future[str | None]) -> None:
        """An operator asks to hold a unit, or to release it."""
        number = next(self._asks)
        self._answers[number] = answer
        self._take(UnitAsked(id=number, unit=unit, keep_off=keep_off, at=self._now(), wall=time.time()))

    async def run(self) -> None:
        """Look and work until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._save_forever())
                if self._port is not None:
                    tasks.create_task(self._look_forever(self._port))
                    tasks.create_task(self._act_forever(self._port))
        finally:
            if self._alarm is not None:
                self._alarm.cancel()

    async def drained(self) -> None:
        """Until everything that was decided is saved. A batch that is under way is not waited for: looks go on."""
        await self._saves.join()

    def close(self) -> None:
        """The agent ends: nobody is answered any more."""
        for answer in self._answers.values():
            answer.set_result("the agent is ending")
        self._answers.clear()
        if self._port is not None:
            self._port.close()

    # -- the turn --------------------------------------------------------------------------------------

    def _take(self, event: HoldEvent) -> None:
        """One event: decide, tell, act: who is answered finds it published. Nothing in here waits."""
        before, stood = self.state, self.in_the_way
        self.state, effects = keep(before, event)
        self.in_the_way = not_off(self.state)
        self._set_alarm(self.state.deadline)
        if replace(self.state, began=before.began) != before:
            self._tell(self.in_the_way, self.in_the_way != stood)
        for effect in effects:
            self._act(effect)

    def _act(self, effect: HoldEffect) -> None:
        match effect:
            case SaveHolds():
                self._saves.put_nowait(effect)
            case HoldUnits(units) | ReleaseUnits(units):
                log.info("turning off" if isinstance(effect, HoldUnits) else "releasing", units=sorted(units))
                self._acts.put_nowait(effect)
            case LookAtUnits():
                self._look_now.set()
            case Answer(number, refused):
                self._answers.pop(number).set_result(refused)

    def _set_alarm(self, deadline: float | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None if deadline is None else self._loop.call_at(deadline, self._ring, deadline)

    def _ring(self, deadline: float) -> None:
        self._take(HoldsTick(at=max(self._now(), deadline), wall=time.time()))

    # -- hands and eyes --------------------------------------------------------------------------------

    async def _save_forever(self) -> None:
        while True:
            holds, why = (await self._saves.get()).holds, None
            try:
                await self._store.save_holds(holds)
            except EdgeError as error:
                log.error("the holds could not be saved", why=str(error))
                why = error.why
            self._take(HoldsStored(holds=holds, why=why, at=self._now(), wall=time.time()))
            self._saves.task_done()

    async def _act_forever(self, port: Rivals) -> None:
        while True:
            effect = await self._acts.get()
            why = await self._carry_out(port, effect)
            self._take(CarriedOut(effect=effect, why=why, at=self._now(), wall=time.time()))

    async def _carry_out(self, port: Rivals, effect: HoldUnits | ReleaseUnits) -> str | None:
        do = port.hold if isinstance(effect, HoldUnits) else port.release
        try:
            async with asyncio.timeout(ACT_LIMIT_S):
                await do(effect.units)
        except EdgeError as error:
            log.warning("refused", effect=str(effect), why=str(error))
            return error.why
        except TimeoutError:
            return f"no answer within {ACT_LIMIT_S:g} s"
        return None

    async def _look_forever(self, port: Rivals) -> None:
        while True:
            if self.state.watched:
                await self._look(port)
            await wait(self._look_now, pace_s(self.state, self._now()))
            await asyncio.sleep(BETWEEN_LOOKS_S)
            self._look_now.clear()

    async def _look(self, port: Rivals) -> None:
        began = self._now()
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                rivals = await port.look(self.state.watched)
        except EdgeError as error:
            self._take(LookFailed(why=error.why, at=self._now(), wall=time.time()))
        except TimeoutError:
            self._take(LookFailed(why=f"no answer within {LOOK_LIMIT_S:g} s", at=self._now(), wall=time.time()))
        else:
            self._take(UnitsLooked(began=began, rivals=rivals, at=self._now(), wall=time.time()))

    def _now(self) -> float:
        return self._loop.time()
