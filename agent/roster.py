"""Which servers there are: the definition of each that is in force, its edges, eyes and hands, and their tasks."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from agent.core.model import Event, Policy, Process, Stage, State
from agent.gpu_watch import CLOSE_S, IDLE_S, GpuWatch
from agent.ports import Store
from agent.records import Records
from agent.watch import Outside, Watch
from agent.worker import Worker

MOVES = frozenset({Stage.CLEARING, Stage.STARTING, Stage.STOPPING})
"""Stages in which a server's memory on its GPUs comes or goes."""


@dataclass(frozen=True, slots=True)
class Defined:
    """A server as it is defined: what the loop needs of it.

    `digest`: of what is launched; starts of one digest are compared. `source`: all that the operator wrote, compared
    with `==`. `open` makes its edges.
    """

    policy: Policy
    url: str
    digest: str
    source: object
    open: Callable[[], Outside]

    def same(self, other: Defined) -> bool:
        """Whether the operator wrote the same. Who else is defined is no part of it."""
        return self.source == other.source


@dataclass(slots=True)
class Member:
    """One server. `next`: its definition from its next launch on, while it runs by an older one."""

    defined: Defined
    outside: Outside
    watch: Watch
    worker: Worker
    next: Defined | None = None
    watching: asyncio.Task[None] | None = None
    working: asyncio.Task[None] | None = None


class Roster:
    """`state` is the present State of a server; `tell` hands an event of it to the loop."""

    def __init__(
        self,
        store: Store,
        records: Records,
        state: Callable[[str], State],
        tell: Callable[[str, Event], None],
        tasks: asyncio.TaskGroup,
        gpus: GpuWatch,
    ) -> None:
        self.members: dict[str, Member] = {}
        self._store = store
        self._records = records
        self._state = state
        self._tell = tell
        self._tasks = tasks
        self._gpus = gpus
        self.policies: dict[str, Policy] = {}  # those in force

    def _settle(self) -> None:
        """Who overlaps with whom, as seen from both: one of the two may run by an older definition."""
        said = {name: member.defined.policy for name, member in self.members.items()}
        for name, policy in said.items():
            others = {other for other, its in said.items() if name in its.overlaps}
            said[name] = replace(policy, overlaps=policy.overlaps | others)
        self.policies = said

    @property
    def patience_s(self) -> float:
        """How long the most patient stop takes, to its last SIGKILL."""
        stops = (sum(p.terms_s) + p.sweep_s + p.launch_s + 2 * p.kill_s for p in self.policies.values())
        return max(stops, default=0.0)

    def add(self, name: str, defined: Defined) -> None:
        """One more server. Its tasks begin with `set_to_work`."""
        self._records.define(name, defined.digest)
        outside = defined.open()
        worker = Worker(name, lambda: self.members[name].outside, self._store, lambda event: self._tell(name, event))
        self.members[name] = Member(defined, outside, self._eyes(name, defined, outside), worker)
        self._settle()

    def add_each(self, servers: Mapping[str, Defined]) -> None:
        """Those, too."""
        for name, defined in servers.items():
            self.add(name, defined)

    def _eyes(self, name: str, defined: Defined, outside: Outside) -> Watch:
        gpus = self._gpus if defined.policy.gpus else None
        return Watch(outside, lambda: self._state(name), lambda event: self._tell(name, event), gpus)

    def gpu_pace_s(self) -> float | None:
        """Between two readings of the GPUs; None: no server names any."""
        stages = {self._state(name).stage for name, policy in self.policies.items() if policy.gpus}
        return (CLOSE_S if stages & MOVES else IDLE_S) if stages else None

    def processes(self) -> Mapping[Process, str]:
        """Those of each server, as last seen, with its name."""
        return {process: name for name in self.members for process in self._state(name).seen.tree or ()}

    def set_to_work(self, name: str) -> None:
        """Its watch, in place of the one before, and its worker."""
        member = self.members[name]
        if member.watching is not None:
            member.watching.cancel()
        member.watching = self._tasks.create_task(member.watch.run())
        if member.working is None:
            member.working = self._tasks.create_task(member.worker.run())

    def put_in_force(self, name: str, defined: Defined, last: str | None) -> None:
        """From now on the server is what this says. Nothing of it may run; `last` is its last invocation."""
        member = self.members[name]
        self._records.define(name, defined.digest)
        self._let_go(member.outside)
        member.defined, member.next, member.outside = defined, None, defined.open()
        member.watch = self._eyes(name, defined, member.outside)
        if last is not None:
            member.watch.recall(last)
        self.set_to_work(name)
        self._settle()

    def overlap(self, name: str, overlaps: frozenset[str]) -> None:
        """The server is as it was, but not those beside it."""
        member = self.members[name]
        member.defined = replace(member.defined, policy=replace(member.defined.policy, overlaps=overlaps))
        self._settle()

    def _let_go(self, outside: Outside) -> None:
        """Of descriptors and threads."""
        outside.server.close()
        self._tasks.create_task(outside.probe.close())

    def put_off(self, name: str, defined: Defined) -> None:
        """The server is what this says from its next launch on. Until then it has what it had, and may be in the way
        of more servers than before."""
        member = self.members[name]
        member.next = defined
        self.overlap(name, member.defined.policy.overlaps | defined.policy.overlaps)

    def drop(self, name: str) -> None:
        """Nothing of it runs, and nobody wants it."""
        member = self.members.pop(name)
        for task in (member.watching, member.working):
            if task is not None:
                task.cancel()
        self._let_go(member.outside)
        self._settle()

    async def drained(self) -> None:
        """Until every effect is carried out."""
        await asyncio.gather(*(member.worker.drained() for member in self.members.values()))

    def rest(self) -> None:
        """End the tasks of all."""
        for task in itertools.chain(*((member.watching, member.working) for member in self.members.values())):
            if task is not None:
                task.cancel()
