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

from agent.board import Board
from agent.booting import look_back
from agent.core.chronicle import runs
from agent.core.host import Taken, advance, present, tell_of_rivals
from agent.core.model import (
    Answer,
    Ask,
    Asked,
    Closed,
    Effect,
    Event,
    Look,
    NotOff,
    Reconfigured,
    Saved,
    Stage,
    State,
    Tick,
)
from agent.ending import leave_them, see_them_end
from agent.errors import ConfigError, EdgeError
from agent.gpu_watch import GpuWatch
from agent.keeping_off import NO_FIGHT, Fight, KeepingOff
from agent.ports import Store
from agent.records import Records
from agent.roster import Defined, Roster
from agent.showing import Showing
from agent.view import Document

BEAT_S = 1.0
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
        fight: Fight = NO_FIGHT,
        gpus: GpuWatch | None = None,
    ) -> None:
        """`run` names this run of the agent; `about`: the agent and the host, as /status shows them.

        `more_faults`: what does not work beside the servers. `on_beat` is called once a second, from the loop itself.
        `ends_servers`: whether they end with the agent. `shutting_down`: whether the host goes down.
        """
        self._store = store
        self._records = records
        self._run = run
        self._on_beat = on_beat
        self._ends_servers = ends_servers
        self._shutting_down = shutting_down
        self._loop = asyncio.get_running_loop()
        self._tasks = asyncio.TaskGroup()
        self._states: Mapping[str, State] = {name: State() for name in servers}
        self._saved: dict[str, Saved] = {}  # as of the agent's start, or of a server's removal
        self._gpus = gpus or GpuWatch()
        self._roster = Roster(store, records, lambda name: self._states[name], self._deliver, self._tasks, self._gpus)
        self._keeping_off = KeepingOff(fight, store, self._tell_of_rivals)
        shown = (self._roster, records, store, self._keeping_off, self._gpus)
        self._showing = Showing(board, about, *shown, more_faults, lambda: self._saved, self._to_wall)
        self._alarms: dict[str, asyncio.TimerHandle] = {}
        self._answers: dict[int, Future[str | None]] = {}
        self._asks = itertools.count(1)
        self._early: list[Callable[[], None]] | None = []  # commands that came before the boot; None: booted
        self._closing = False
        self._quiescent = asyncio.Event()
        self._roster.add_each(servers)
        self._gpus.attend(self._roster.gpu_pace_s, self._roster.processes, lambda: self._showing.refresh(self._states))

    # -- from the start to the end -------------------------------------------------------------------

    async def run(self, closing: asyncio.Event) -> bool:
        """Go on from what is there, until `closing` is set and every server that is to end has; False: one has not.

        A bug raises out of it. EdgeError: the state cannot be read.
        """
        self._saved = self._store.load()
        self._keeping_off.boot(self._store.holds)
        async with self._tasks:
            running = [self._tasks.create_task(self._keeping_off.run())]
            await self._records.load()
            await self._boot(list(self._states))
            owned = [self._records.run(lambda: self._publish(set())), self._beat(), self._gpus.run()]
            running += [self._tasks.create_task(each) for each in owned]
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
            self._records.shut_down(time.time())
        await self._records.finish()
        self._keeping_off.close()
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
            return await leave_them(self._roster, self._keeping_off)
        for name in self._states:
            self._deliver(name, Closed(at=self._now()))
        return not self._states or await see_them_end(self._roster, self._quiescent, lambda: self._states)

    async def _beat(self) -> None:
        while True:
            self._showing.beat()
            self._showing.refresh(self._states)
            self._on_beat(self._showing.sentence)
            await asyncio.sleep(BEAT_S)

    # -- another configuration -------------------------------------------------------------------------

    async def redefine(self, servers: Mapping[str, Defined], listed: frozenset[str] = frozenset()) -> None:
        """Take a new configuration, whole. ConfigError: it would take away a server that runs or is wanted."""
        if self._closing or self._early is not None:
            raise EdgeError("agent", "reload", "it is ending" if self._closing else "it is starting; ask again")
        gone = self._states.keys() - servers.keys()
        if busy := [name for name in sorted(gone) if present(now := self._states[name]) or now.wanted or now.pending]:
            way_out = "is wanted or runs: stop it (gpuagent stop), then reload again"
            raise ConfigError([f"servers.{name}: {way_out}" for name in busy])
        self._keeping_off.name(listed)
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
        self._showing.forget(name)
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
        asked = Asked(ask=ask, gpu_check=gpu_check, back=back, at=0.0)
        return self._post(lambda answer: self._take(name, asked, answer))

    def hold(self, unit: str, keep_off: bool) -> Future[str | None]:
        """Post an operator's word on a unit: hold it, or release it. As `ask`."""
        return self._post(lambda answer: self._take_unit(unit, keep_off, answer))

    def _post(self, take: Callable[[Future[str | None]], None]) -> Future[str | None]:
        answer: Future[str | None] = Future()
        try:
            self._loop.call_soon_threadsafe(take, answer)
        except RuntimeError:  # the loop is closed
            answer.set_result("the agent has ended")
        return answer

    def _take_unit(self, unit: str, keep_off: bool, answer: Future[str | None]) -> None:
        if self._early is not None:
            self._early.append(lambda: self._take_unit(unit, keep_off, answer))
        elif self._closing:
            answer.set_result("the agent is ending")
        else:
            self._keeping_off.ask(unit, keep_off, answer)

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
        self._told(*advance(self._states, name, event, self._roster.policies, self._keeping_off.in_the_way))

    def _tell_of_rivals(self, in_the_way: NotOff, news: bool) -> None:
        """What is known of the units that are to be off, or meant with them, has changed; `news`: for servers, too."""
        if news:
            self._told(*tell_of_rivals(self._states, self._now(), self._roster.policies, in_the_way))
        self._publish(set())

    def _told(self, states: Mapping[str, State], taken: list[Taken]) -> None:
        """What these steps mean for everything outside. Nothing in here waits."""
        self._states = states
        for one in taken:
            self._record(one)
        if any(one.state != one.before for one in taken):
            self._publish({one.name for one in taken})
        for one in taken:
            for effect in one.effects:
                self._act(one.name, effect)
        if any(state.wanted for state in self._states.values()):
            self._keeping_off.want()
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
        self._showing.publish(self._states, changed, booting=self._early is not None)

    def _now(self) -> float:
        return self._loop.time()

    def _to_wall(self, at: float) -> float:
        return time.time() - (self._now() - at)
