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
from dataclasses import replace

import structlog

from agent.board import Board, Snapshot
from agent.booting import look_back
from agent.core.chronicle import runs
from agent.core.host import Taken, advance, present
from agent.core.model import (
    Answer,
    Ask,
    Asked,
    Closed,
    Effect,
    Event,
    Look,
    Reconfigured,
    Saved,
    Stage,
    State,
    Tick,
)
from agent.ending import leave_them, see_them_end
from agent.errors import ConfigError, EdgeError
from agent.ports import Store
from agent.records import Records
from agent.roster import Defined, Roster
from agent.view import Document, Face, Shown, dump, show, status

BEAT_S = 1.0
UNLAUNCHED = frozenset({Stage.WAITING, Stage.CLEARING})
"""Stages of an attempt that has no log yet: the last attempt's lines would mislead."""

log = structlog.get_logger()


class Loop:
    """The servers of one agent, from its start to its end."""

    def __init__(
        self,
        *,
        servers: Mapping[str, Defined],
        store: Store,
        records: Records,
        board: Board,
        run: str,
        about: tuple[Document, Document],
        more_faults: Callable[[], list[str]] = list,
        on_beat: Callable[[str], None] = lambda why: None,
        ends_servers: bool = True,
        shutting_down: Callable[[], bool] = lambda: False,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`run` names this run of the agent; `about`: the agent and the host, as /status shows them.

        `more_faults`: what does not work beside the servers. `on_beat` is called once a second, from the loop itself.
        `ends_servers`: whether they end with the agent. `shutting_down`: whether the host goes down.
        """
        self._store = store
        self._records = records
        self._board = board
        self._run = run
        self._about = about
        self._more_faults = more_faults
        self._on_beat = on_beat
        self._ends_servers = ends_servers
        self._shutting_down = shutting_down
        self._wall = wall
        self._loop = asyncio.get_running_loop()
        self._tasks = asyncio.TaskGroup()
        self._states: Mapping[str, State] = {name: State() for name in servers}
        self._saved: dict[str, Saved] = {}  # as of the agent's start, or of a server's removal
        self._roster = Roster(store, records, lambda name: self._states[name], self._deliver, self._tasks)
        self._alarms: dict[str, asyncio.TimerHandle] = {}
        self._shown: dict[str, Shown] = {}
        self._answers: dict[int, Future[str | None]] = {}
        self._asks = itertools.count(1)
        self._early: list[Callable[[], None]] | None = []  # commands that came before the boot; None: booted
        self._closing = False
        self._quiescent = asyncio.Event()
        for name, defined in servers.items():
            self._roster.add(name, defined)

    # -- from the start to the end -------------------------------------------------------------------

    async def run(self, closing: asyncio.Event) -> bool:
        """Go on from what is there, until `closing` is set and every server that is to end has; False: one has not.

        A bug raises out of it. EdgeError: the state cannot be read.
        """
        self._saved = self._store.load()
        async with self._tasks:
            await self._records.load()
            await self._boot(list(self._states))
            owned = [self._records.run(lambda: self._publish(set())), self._beat()]
            running = [self._tasks.create_task(each) for each in owned]
            early, self._early = self._early or [], None
            for command in early:
                command()
            await closing.wait()
            self._closing = True
            gone = await self._part()
            self._roster.rest()
            for task in running:
                task.cancel()
        if self._shutting_down():
            self._records.shut_down()
        await self._records.finish()
        for answer in self._answers.values():
            answer.set_result("the agent is ending")
        return gone

    async def _boot(self, names: list[str]) -> None:
        """Look at each of these servers, then go on with it."""
        members, rebooted = self._roster.members, bool(self._store.rebooted)
        looks = (
            look_back(n, members[n], self._saved.get(n, Saved()), self._records, run=self._run, rebooted=rebooted)
            for n in names
        )
        for name, event in zip(names, await asyncio.gather(*looks), strict=True):
            if not self._closing:
                self._deliver(name, event)
        for name in names:
            self._roster.set_to_work(name)

    async def _part(self) -> bool:
        """End every server, or leave all as they are. False: one was to end, and has not."""
        if not self._ends_servers:
            return await leave_them(self._roster)
        for name in self._states:
            self._deliver(name, Closed(at=self._now()))
        return await see_them_end(self._roster, self._quiescent, lambda: self._states)

    async def _beat(self) -> None:
        while True:
            self._board.beat(time.monotonic())
            self._publish_starts()
            self._on_beat("; ".join(f"{name}: {each.full['why']}" for name, each in self._shown.items()))
            await asyncio.sleep(BEAT_S)

    # -- another configuration -------------------------------------------------------------------------

    async def redefine(self, servers: Mapping[str, Defined]) -> None:
        """Take a new configuration, whole. ConfigError: it would take away a server that runs or is wanted."""
        if self._closing or self._early is not None:
            raise EdgeError("agent", "reload", "it is ending" if self._closing else "it is starting; ask again")
        gone = self._states.keys() - servers.keys()
        if busy := [name for name in sorted(gone) if present(now := self._states[name]) or now.wanted or now.pending]:
            raise ConfigError([f"servers.{name}: is wanted or runs; stop it before it is taken away" for name in busy])
        for name in gone:
            self._drop(name)
        old = [name for name in servers if name in self._states]
        new = [name for name in servers if name not in self._states]
        for name in new:  # all of them before anything is told: a change of one is news for its neighbours
            self._roster.add(name, servers[name])
        self._states = {name: self._states.get(name, State()) for name in servers}
        for name in old:
            self._change(name, servers[name])
        await self._boot(new)
        self._publish(set())

    def _drop(self, name: str) -> None:
        self._saved[name] = self._states[name].saved
        self._states = {each: state for each, state in self._states.items() if each != name}
        self._set_alarm(name, None)
        self._shown.pop(name, None)
        self._roster.drop(name)

    def _change(self, name: str, defined: Defined) -> None:
        """Now, or when what runs has ended."""
        member, state = self._roster.members[name], self._states[name]
        if member.next is None and member.defined.same(defined):
            self._roster.overlap(name, defined.policy.overlaps)
            return
        if present(state):
            self._roster.put_off(name, defined)
        else:
            self._roster.put_in_force(name, defined, state.saved.invocation)
        self._deliver(name, Reconfigured(at=self._now()))

    # -- from outside --------------------------------------------------------------------------------

    def ask(self, name: str, ask: Ask, gpu_check: bool = True, back: bool = False) -> Future[str | None]:
        """Post an operator's command; from any thread. The result: None once it is made and saved, or why it is not."""
        answer: Future[str | None] = Future()
        try:
            asked = Asked(ask=ask, gpu_check=gpu_check, back=back, at=0.0)
            self._loop.call_soon_threadsafe(self._take, name, asked, answer)
        except RuntimeError:  # the loop is closed
            answer.set_result("the agent has ended")
        return answer

    def _take(self, name: str, asked: Asked, answer: Future[str | None]) -> None:
        if self._early is not None:  # a State before its boot would be forgotten by it
            self._early.append(lambda: self._take(name, asked, answer))
            return
        leaving = self._closing and not self._ends_servers  # where they end with it, the machines say so
        if leaving or name not in self._states:
            answer.set_result("the agent is ending" if leaving else f"{name} is not defined any more")
            return
        number = next(self._asks)
        self._answers[number] = answer
        self._deliver(name, replace(asked, id=number, at=self._now()))

    def publish(self) -> None:
        """Show what is true now of the agent itself."""
        self._publish(set())

    # -- the turn --------------------------------------------------------------------------------------

    def _deliver(self, name: str, event: Event) -> None:
        """One event: step, publish, act. Nothing in here waits."""
        if name not in self._states:  # the last words of a server that is not defined any more
            return
        self._states, taken = advance(self._states, name, event, self._roster.policies)
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
        """What a step means for the history, the log, the timer and the watchers of that server."""
        member = self._roster.members[one.name]
        self._records.take(one, self._to_wall(one.event.at))
        if one.state.deadline != one.before.deadline or isinstance(one.event, Tick):
            self._set_alarm(one.name, one.state.deadline)
        if one.state.stage is not one.before.stage:
            cause = one.state.cause.slug if one.state.cause else None
            log.info(one.state.why, server=one.name, stage=one.state.stage, cause=cause)
            member.watch.stir()
        if member.next is not None and not present(one.state):
            self._roster.put_in_force(one.name, member.next, one.state.saved.invocation)
        if one.state.stage is not one.before.stage and runs(one.state) and one.state.saved.invocation:
            member.watch.follow(one.state.saved.invocation)  # to be launched, or adopted

    def _set_alarm(self, name: str, deadline: float | None) -> None:
        if (alarm := self._alarms.pop(name, None)) is not None:
            alarm.cancel()
        if deadline is not None:
            self._alarms[name] = self._loop.call_at(deadline, self._ring, name, deadline)

    def _ring(self, name: str, deadline: float) -> None:
        # asyncio may ring too early, within its clock's resolution, and a Tick before the deadline means nothing
        self._deliver(name, Tick(at=max(self._now(), deadline)))

    def _act(self, name: str, effect: Effect) -> None:
        match effect:
            case Answer(0, _):
                return  # asked by a switch, not by an operator
            case Answer(number, refused):
                self._answers.pop(number).set_result(refused)
            case Look():
                self._roster.members[name].watch.look_now()
            case _:
                self._roster.members[name].worker.put(effect)

    def _publish(self, changed: set[str]) -> None:
        for name in changed & self._states.keys():
            member, state = self._roster.members[name], self._states[name]
            tail = () if state.blocked or state.stage in UNLAUNCHED else member.watch.tail
            expected = self._records.expected(name, state, self._now())
            face = Face(member.defined.url, member.watch.log, tail, self._records.shown(name), expected)
            self._shown[name] = show(name, state, face, self._to_wall)
        if self._early is not None and len(self._shown) < len(self._states):
            return  # booting: what is not shown yet would be taken for not defined
        shown = [self._shown[name] for name in self._states if name in self._shown]
        degraded = self._degraded()
        marks = list(dict.fromkeys(mark.partition(":")[0] for mark in degraded))  # the rest may name a file
        self._board.publish(
            Snapshot(
                version=self._board.read().version + 1,
                servers={each.page.name: each.page for each in shown},
                full=dump(status(*self._about, [each.full for each in shown], degraded)),
                public=dump(status(*self._about, [each.public for each in shown], marks)),
                about=dump(status(*self._about, [each.page.name for each in shown], degraded)),
            )
        )

    def _publish_starts(self) -> None:
        """The expected end of a start comes nearer while nothing happens."""
        if names := {n for n, state in self._states.items() if self._records.expected(n, state, self._now())}:
            self._publish(names)

    def _degraded(self) -> list[str]:
        """What does not work, for a person."""
        members = self._roster.members
        unsaved = (member.worker.unsaved for member in members.values() if member.worker.unsaved)
        marks = [f"state-not-saved: {why}" for why in dict.fromkeys(unsaved)]
        marks += [f"state: {fault}" for fault in self._store.faults] + self._records.faults + self._more_faults()
        lost = [name for name, saved in self._saved.items() if saved.running and name not in self._states]
        marks += [f"undefined-server: {name} ran when it was last seen, and is not defined any more" for name in lost]
        for name, member in members.items():
            marks += [f"{mark}: {name}: {why}" for mark, why in member.watch.marks.items()]
        return marks

    def _now(self) -> float:
        return self._loop.time()

    def _to_wall(self, at: float) -> float:
        return self._wall() - (self._now() - at)
