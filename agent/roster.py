"""Which servers there are: the definition of each that is in force, its edges, eyes and hands, and their tasks."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

from agent.core.model import Event, Policy, State
from agent.ports import Store
from agent.records import Records
from agent.watch import Outside, Watch
from agent.worker import Worker


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
        """Whether it makes no difference which of the two is in force."""
        return (self.policy, self.source) == (other.policy, other.source)


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
    ) -> None:
        self.members: dict[str, Member] = {}
        self._store = store
        self._records = records
        self._state = state
        self._tell = tell
        self._tasks = tasks

    @property
    def policies(self) -> dict[str, Policy]:
        """Those in force."""
        return {name: member.defined.policy for name, member in self.members.items()}

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
        self.members[name] = Member(defined, outside, self._eyes(name, outside), worker)

    def _eyes(self, name: str, outside: Outside) -> Watch:
        return Watch(outside, lambda: self._state(name), lambda event: self._tell(name, event))

    def set_to_work(self, name: str) -> None:
        """Its watch, in place of the one before, and its worker."""
        member = self.members[name]
        if member.watching is not None:
            member.watching.cancel()
        member.watching = self._tasks.create_task(member.watch.run())
        if member.working is None:
            member.working = self._tasks.create_task(member.worker.run())

    def put_in_force(self, name: str, defined: Defined) -> None:
        """From now on the server is what this says. Nothing of it may run."""
        member = self.members[name]
        self._records.define(name, defined.digest)
        member.defined, member.next, member.outside = defined, None, defined.open()
        member.watch = self._eyes(name, member.outside)
        self.set_to_work(name)

    def put_off(self, name: str, defined: Defined) -> None:
        """The server is what this says from its next launch on. Who its rivals are counts at once."""
        member = self.members[name]
        member.next = defined
        policy = replace(member.defined.policy, overlaps=defined.policy.overlaps)
        member.defined = replace(member.defined, policy=policy)

    def drop(self, name: str) -> None:
        """Nothing of it runs, and nobody wants it."""
        member = self.members.pop(name)
        for task in (member.watching, member.working):
            if task is not None:
                task.cancel()

    async def drained(self) -> None:
        """Until every effect is carried out."""
        await asyncio.gather(*(member.worker.drained() for member in self.members.values()))

    def rest(self) -> None:
        """End the tasks of all."""
        for task in itertools.chain(*((member.watching, member.working) for member in self.members.values())):
            if task is not None:
                task.cancel()
