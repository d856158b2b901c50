"""The one loop: event -> step -> save, publish, act. Nobody else holds a State.

Everything here runs in one thread. An event is delivered whole before the next: step, publish, hand the effects to
the worker of that server, which carries them out in their order, one at a time. Other threads come in by `ask` only.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future

import structlog

from agent.board import Board, Snapshot
from agent.core.host import Taken, advance
from agent.core.model import (
    Answer,
    Ask,
    Asked,
    Booted,
    Cause,
    Closed,
    Effect,
    Event,
    Hold,
    Kill,
    Launch,
    Launched,
    Look,
    Looked,
    Policy,
    Refused,
    Retry,
    Save,
    Saved,
    Stage,
    State,
    Stored,
    Terminate,
    Tick,
)
from agent.errors import EdgeError
from agent.families.cause import CATALOG
from agent.ports import Store
from agent.view import Document, Face, Shown, dump, show, status
from agent.watch import Outside, Watch

BEAT_S = 0.5
UNLAUNCHED = frozenset({Stage.WAITING, Stage.CLEARING})
"""Stages of an attempt that has no log yet: the last attempt's lines would mislead."""
SLACK_S = 30.0
"""Beyond the servers' own patience, before an ending agent gives up on them."""

log = structlog.get_logger()


class Loop:
    """The servers of one agent, from its start to its end."""

    def __init__(
        self,
        *,
        outsides: Mapping[str, Outside],
        policies: Mapping[str, Policy],
        urls: Mapping[str, str],
        store: Store,
        board: Board,
        run: str,
        about: tuple[Document, Document],
        on_beat: Callable[[str], None] = lambda why: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`run` names this run of the agent; `about`: the agent and the host, as /status shows them.

        `on_beat` is called twice a second with the sentence of the moment, from the loop itself.
        """
        self._policies = policies
        self._urls = urls
        self._store = store
        self._board = board
        self._run = run
        self._about = about
        self._on_beat = on_beat
        self._wall = wall
        self._loop = asyncio.get_running_loop()
        self._states: Mapping[str, State] = {name: State() for name in outsides}
        self._outsides = outsides
        self._watches = {name: Watch(each, self._state_of(name), self._told(name)) for name, each in outsides.items()}
        self._queues: dict[str, asyncio.Queue[Effect]] = {name: asyncio.Queue() for name in outsides}
        self._alarms: dict[str, asyncio.TimerHandle] = {}
        self._shown: dict[str, Shown] = {}
        self._answers: dict[int, Future[str | None]] = {}
        self._asks = itertools.count(1)
        self._early: list[Callable[[], None]] | None = []  # commands that came before the boot; None: booted
        self._save_fault: str | None = None
        self._quiescent = asyncio.Event()

    # -- from the start to the end -------------------------------------------------------------------

    async def run(self, closing: asyncio.Event) -> None:
        """Go on from what is there, until `closing` is set and every server has ended. A bug ends it by an exception."""
        saved = self._store.load()
        async with asyncio.TaskGroup() as tasks:
            seen = await asyncio.gather(*(watch.look() for watch in self._watches.values()))
            for name, look in zip(self._watches, seen, strict=True):
                self._deliver(name, Booted(saved=saved.get(name, Saved()), seen=look, run=self._run, at=self._now()))
            early, self._early = self._early or [], None
            for command in early:
                command()
            forever = [self._work(name) for name in self._queues]
            forever += [watch.run() for watch in self._watches.values()]
            owned = [tasks.create_task(each) for each in (*forever, self._beat())]
            await closing.wait()
            await self._end_servers()
            await self._drain()
            for task in owned:
                task.cancel()
        for answer in self._answers.values():
            answer.set_result("the agent is ending")

    async def _end_servers(self) -> None:
        """End every server, whole tree, and wait until each is gone; what survives is named, not waited for."""
        patience_s = max(
            (sum(p.terms_s) + p.sweep_s + p.launch_s + 2 * p.kill_s for p in self._policies.values()), default=0.0
        )
        for name in self._states:
            self._deliver(name, Closed(at=self._now()))
        try:
            async with asyncio.timeout(patience_s + SLACK_S):
                await self._quiescent.wait()
        except TimeoutError:
            left = {name: state.why for name, state in self._states.items() if state.stage is not Stage.DOWN}
            log.error("ending without these servers being gone", servers=left)

    async def _drain(self) -> None:
        """Carry out what is still to be done: the last saves."""
        try:
            async with asyncio.timeout(SLACK_S):
                await asyncio.gather(*(queue.join() for queue in self._queues.values()))
        except TimeoutError:
            log.error("ending with effects that were not carried out")

    async def _beat(self) -> None:
        while True:
            self._board.beat(time.monotonic())
            self._on_beat("; ".join(f"{name}: {each.full['why']}" for name, each in self._shown.items()))
            await asyncio.sleep(BEAT_S)

    # -- from outside --------------------------------------------------------------------------------

    def ask(self, name: str, ask: Ask, gpu_check: bool) -> Future[str | None]:
        """Post an operator's command; from any thread. The result: None once it is made and saved, or why it is not."""
        answer: Future[str | None] = Future()
        try:
            self._loop.call_soon_threadsafe(self._take, name, ask, gpu_check, answer)
        except RuntimeError:  # the loop is closed
            answer.set_result("the agent has ended")
        return answer

    def _take(self, name: str, ask: Ask, gpu_check: bool, answer: Future[str | None]) -> None:
        if self._early is not None:  # a State before its boot would be forgotten by it
            self._early.append(lambda: self._take(name, ask, gpu_check, answer))
            return
        number = next(self._asks)
        self._answers[number] = answer
        self._deliver(name, Asked(ask=ask, id=number, gpu_check=gpu_check, at=self._now()))

    # -- the turn --------------------------------------------------------------------------------------

    def _deliver(self, name: str, event: Event) -> None:
        """One event: step, publish, act. Nothing in here waits."""
        self._states, taken = advance(self._states, name, event, self._policies)
        for one in taken:
            self._record(one)
        if any(one.state != one.before for one in taken):
            self._publish({one.name for one in taken})
        for one in taken:
            for effect in one.effects:
                self._act(one.name, effect)
        if all(state.closing and state.stage is Stage.DOWN for state in self._states.values()):
            self._quiescent.set()

    def _record(self, one: Taken) -> None:
        """What a step means for the log, the timer and the watchers of that server."""
        if one.state.deadline != one.before.deadline or isinstance(one.event, Tick):
            self._set_alarm(one.name, one.state.deadline)
        if one.state.stage is not one.before.stage:
            cause = one.state.cause.slug if one.state.cause else None
            log.info(one.state.why, server=one.name, stage=one.state.stage, cause=cause)
            self._watches[one.name].stir()
        if one.state.stage is Stage.STARTING and one.state.saved.invocation:
            self._watches[one.name].follow(one.state.saved.invocation)  # to be launched, or adopted

    def _set_alarm(self, name: str, deadline: float | None) -> None:
        if (alarm := self._alarms.pop(name, None)) is not None:
            alarm.cancel()
        if deadline is not None:
            self._alarms[name] = self._loop.call_at(deadline, self._ring, name, deadline)

    def _ring(self, name: str, deadline: float) -> None:
        # asyncio may ring within its clock's resolution too early, and a Tick before the deadline means nothing
        self._deliver(name, Tick(at=max(self._now(), deadline)))

    def _act(self, name: str, effect: Effect) -> None:
        match effect:
            case Answer(number, refused):
                self._answers.pop(number).set_result(refused)
            case Look():
                self._watches[name].look_now()
            case _:
                self._queues[name].put_nowait(effect)

    def _publish(self, changed: set[str]) -> None:
        for name in changed:
            watch, state = self._watches[name], self._states[name]
            tail = () if state.blocked or state.stage in UNLAUNCHED else watch.tail
            face = Face(url=self._urls[name], log=watch.log, tail=tail, title=_title)
            self._shown[name] = show(name, state, face, self._to_wall)
        shown = [self._shown[name] for name in self._states if name in self._shown]
        degraded = self._degraded()
        self._board.publish(
            Snapshot(
                version=self._board.read().version + 1,
                servers={each.page.name: each.page for each in shown},
                full=dump(status(*self._about, [each.full for each in shown], degraded)),
                public=dump(status(*self._about, [each.public for each in shown], degraded)),
            )
        )

    def _degraded(self) -> list[str]:
        """What does not work, for a person."""
        marks = [f"state-not-saved: {self._save_fault}"] if self._save_fault else []
        marks += [f"state: {fault}" for fault in self._store.faults]
        for name, watch in self._watches.items():
            marks += [f"{edge}-not-seen: {name}: {why}" for edge, why in watch.faults.items()]
        return marks

    # -- acting ----------------------------------------------------------------------------------------

    async def _work(self, name: str) -> None:
        """Carry out the effects of one server, in their order."""
        while True:
            effect = await self._queues[name].get()
            if (news := await self._carry_out(name, effect)) is not None:
                self._deliver(name, news)
            self._queues[name].task_done()

    async def _carry_out(self, name: str, effect: Effect) -> Event | None:
        outside = self._outsides[name]
        try:
            match effect:
                case Save(saved):
                    return await self._save(name, saved)
                case Launch(invocation):
                    main = await outside.server.launch(invocation, outside.log_path(invocation))
                    return Launched(invocation=invocation, main=main, at=self._now())
                case Terminate(whole):
                    await outside.server.terminate(whole)
                case Kill():
                    await outside.server.kill()
                case Hold(unit):
                    raise EdgeError("units", f"hold {unit}", "needs systemd", slug="launch_failed")
        except EdgeError as error:
            log.warning("refused", server=name, effect=str(effect), why=str(error))
            return Refused(effect=effect, cause=_refusal(error), at=self._now())
        return None

    async def _save(self, name: str, saved: Saved) -> Stored:
        """Save. The mark stands in /status until a later save succeeds."""
        try:
            await self._store.save(name, saved)
        except EdgeError as error:
            self._save_fault = error.why
            log.error("the state could not be saved", server=name, why=str(error))
            return Stored(saved=saved, why=error.why, at=self._now())
        self._save_fault = None
        return Stored(saved=saved, at=self._now())

    # -- small -----------------------------------------------------------------------------------------

    def _state_of(self, name: str) -> Callable[[], State]:
        return lambda: self._states[name]

    def _told(self, name: str) -> Callable[[Event], None]:
        return lambda event: self._deliver(name, event)

    def _now(self) -> float:
        return self._loop.time()

    def _to_wall(self, at: float) -> float:
        return self._wall() - (self._now() - at)


def _title(slug: str) -> str:
    return CATALOG[slug].text if slug in CATALOG else CATALOG["unknown"].text


def _refusal(error: EdgeError) -> Cause:
    """An edge's error as the cause of a failure."""
    known = CATALOG.get(error.slug) or CATALOG["launch_failed"]
    text = f"{error.what}: {error.why}"
    return Cause(slug=error.slug, text=text, remedy=known.remedy, retry=known.retry or Retry.FEW)
