"""The world around simulated servers: what is true, not what the core believes. Times are simulated seconds.

Kinder than the real one it must not be: processes ignore, swallow and outlive signals, replies come late, memory
drains slowly, looks miss parts, exits go untold. It never lies: a look shows what was so after it began.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from agent.core.model import Cause, Exit, Gpu, Health, Holder, Life, Need, Policy, Process, Retry, Saved, Seen
from tests.core.rivals import Rivalry

TOTAL_MIB = 80_000
NEED_MIB = 60_000
FREE_SPEED_MIB_S = 12_000  # so fast that two looks 0.05 s apart tell it from steady memory

CAUSES = tuple(
    Cause(slug=slug, text=f"it said {slug}", remedy="mend it", retry=retry)
    for slug, retry in (("oom", Retry.FEW), ("crash", Retry.YES), ("flag", Retry.NO), ("taken", Retry.WAIT))
)
REFUSAL = Cause(slug="launch_failed", text="it could not be done", remedy="see why", retry=Retry.FEW)
PORT = Need(
    name="port", cause=Cause(slug="port_taken", text="its port is taken", remedy="", retry=Retry.NO), heals=False
)
NEEDS = (
    Need(name="mount", cause=Cause(slug="mount", text="not mounted", remedy="mount it", retry=Retry.WAIT), heals=True),
    Need(name="model", cause=Cause(slug="model", text="no model", remedy="fetch it", retry=Retry.NO), heals=False),
)


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A server as the configuration has it. `digest` changes with what is launched."""

    policy: Policy
    port: int
    digest: int = 0
    lists: bool = field(default=False, compare=False)  # its operator lists the units that fight over the GPUs

    def beside(self, others: frozenset[str]) -> Definition:
        """The same, and these share something with it."""
        return replace(self, policy=replace(self.policy, overlaps=others))


@dataclass
class Weather:
    """How bad it is. Each is a probability of one thing going wrong, once; `clear()` makes all of them 0."""

    crash: float = 0.0  # of the agent, before each effect and after each step
    lost_exit: float = 0.0
    late_exit: float = 0.0
    blind: float = 0.0  # a part of a look is missing
    stray: float = 0.0  # a look of somebody else's pace, that may come late
    slow: float = 0.0  # an effect, a look or a probe takes seconds
    refuse: float = 0.0
    no_disk: bool = False

    def clear(self) -> None:
        """From now on everything works."""
        self.__init__()  # type: ignore[misc]  # a dataclass has no other way to its defaults


@dataclass
class Proc:
    """One process of a server's tree."""

    id: Process
    deaf: bool = False  # ignores SIGTERM
    swallows: int = 0  # ... the first few
    stuck_s: float = 0.0  # in the kernel, for so long after SIGKILL
    stuck: bool = False


@dataclass
class Attempt:
    """One launch: its processes, and how its server fares."""

    invocation: str
    born: float
    leader: Proc | None
    children: list[Proc]
    ready_at: float | None  # None: never
    code: Exit
    cause: Cause
    gpus: tuple[str, ...] = ()  # these three as it was launched
    port: int = 0
    digest: int = 0
    died: float | None = None  # when the leader did
    sick: tuple[float, float, str] = (0.0, 0.0, "")  # from, until, how
    hung_from: float | None = None  # no sign of life since
    ordered: bool = True  # False: an administrator has started it
    stopping: bool = False  # an administrator has told systemd to stop it
    asked: bool = False  # this run of the agent has told it to end

    @property
    def procs(self) -> list[Proc]:
        """Every live process."""
        return ([self.leader] if self.leader else []) + self.children


@dataclass
class Host:
    """What is there: processes, memory, units, files."""

    rng: random.Random
    config: dict[str, Definition]  # as it is written
    now: float = 0.0
    pids: Iterator[int] = field(default_factory=lambda: iter(range(1000, 10_000_000)))
    force: dict[str, Definition] = field(default_factory=dict)  # ... and as the agent has taken it
    policies: dict[str, Policy] = field(default_factory=dict)
    disk: dict[str, Saved] = field(default_factory=dict)
    decided: dict[str, list[str]] = field(default_factory=dict)  # who shared something when a launch was decided
    boot_no: int = 0
    saved_in: int = 0  # the boot in which the disk was last written
    history: dict[tuple[str, str], tuple[int, float, float | None]] = field(
        default_factory=dict
    )  # digest, launched, ready
    attempts: dict[str, Attempt | None] = field(default_factory=dict)
    freed: dict[int, tuple[float, float]] = field(default_factory=dict)  # GPU -> (MiB held, since when they drain)
    taken_until: dict[int, float] = field(default_factory=dict)  # by strangers
    taken_from: dict[int, float] = field(default_factory=dict)
    fight: Rivalry = field(default_factory=lambda: Rivalry(random.Random(0)))
    unmet: dict[str, tuple[Need, ...]] = field(default_factory=dict)
    kind: float = 0.0  # how often a launch goes well: 0..1
    curse: Cause | None = None  # each attempt answers soon, and dies of this soon after
    outlive: bool = False  # servers are units of systemd, and outlive the agent
    evidence: dict[str, tuple[str, Exit]] = field(default_factory=dict)  # invocation, how it ended: the last of each
    doomed: str = ""  # each attempt of this server dies at once, of a cause that no attempt mends

    def __post_init__(self) -> None:
        for name, definition in self.config.items():
            self.put_in_force(name, definition)

    def put_in_force(self, name: str, definition: Definition) -> None:
        """From now on the agent takes a server for this."""
        self.force[name], self.policies[name] = definition, definition.policy

    def reboot(self) -> None:
        """Every process is gone, and nobody sees how."""
        self.boot_no += 1
        for attempt in self.attempts.values():
            if attempt is not None:
                attempt.died = self.now if attempt.died is None else attempt.died
                attempt.leader, attempt.children = None, []
        self.freed.clear()
        self.evidence.clear()
        self.fight.reboot(self.now)

    @property
    def listed(self) -> frozenset[str]:
        """The units that the configuration names."""
        return frozenset(self.fight.names if any(each.lists for each in self.config.values()) else ())

    def near(self, name: str) -> list[str]:
        """The servers that share something with this one, by what the agent has taken."""
        return [
            other for other, p in self.policies.items() if other in self.policies[name].overlaps or name in p.overlaps
        ]

    def live(self, name: str) -> list[Proc]:
        """The live processes of a server."""
        attempt = self.attempts.get(name)
        return attempt.procs if attempt else []

    # -- processes -----------------------------------------------------------------------------------

    def spawn(self, name: str, invocation: str, *, leader: bool = True, outside: bool = False) -> Attempt:
        """A launch. Breaks off when law 5, or the peace between servers that share something, is broken.

        `outside`: by somebody who knows nothing of these.
        """
        if self.live(name) and not outside:
            raise AssertionError(f"law 5: {name} is launched beside its own tree")
        for other in self.decided.get(name, []):
            if self.live(other) and not outside:
                raise AssertionError(f"{name} is launched beside {other}, with which it shares something")
        r, good = self.rng, self.rng.random() < self.kind
        attempt = Attempt(
            invocation=invocation,
            born=self.now,
            leader=self._proc(good) if leader else None,
            children=[self._proc(good) for _ in range(r.choice((0, 0, 1, 2)) or (not leader))],
            ready_at=self.now + r.uniform(5, 60) if good or r.random() < 0.6 else None,
            code=r.choice((Exit(code=0), Exit(code=1), Exit(code=1), Exit(signal=9, oom=True), Exit(signal=11))),
            cause=r.choice(CAUSES),
            died=None if leader else self.now,
            gpus=self.force[name].policy.gpus,
            port=self.force[name].port,
            digest=self.force[name].digest,
            ordered=not outside,
        )
        if attempt.ready_at is None and r.random() < 0.7:
            attempt.hung_from = self.now + r.uniform(0, 30)
        if attempt.ready_at is not None and self.kind < 1 and r.random() < 0.6:
            start = attempt.ready_at + r.expovariate(1 / 60)
            hows = ("busy", "foreign") if good else ("busy", "hung", "sick", "foreign", "refused")
            attempt.sick = (start, start + r.choice((20, 150, 500)), r.choice(hows))
        if self.curse is not None and self.kind < 1:
            attempt.ready_at, attempt.cause, attempt.hung_from = self.now + 3, self.curse, None
        if name == self.doomed:
            attempt.ready_at, attempt.cause = None, CAUSES[2]
        self.attempts[name] = attempt
        return attempt

    def _proc(self, good: bool) -> Proc:
        r = self.rng
        pid = next(self.pids)
        if good:
            return Proc(Process(pid, pid))
        return Proc(
            Process(pid, pid),
            deaf=r.random() < 0.15,
            swallows=r.random() < 0.2,
            stuck_s=r.choice((3.0, 60.0)) if r.random() < 0.1 else 0.0,
        )

    def end_proc(self, name: str, proc: Proc) -> bool:
        """A process ends; True if it was the leader. When the last one does, its GPU memory begins to drain."""
        attempt = self.attempts[name]
        if attempt is None or proc not in attempt.procs:
            return False
        was_leader = proc is attempt.leader
        if was_leader:
            attempt.leader, attempt.died = None, self.now
        else:
            attempt.children.remove(proc)
        if not attempt.procs:
            for gpu in attempt.gpus:
                self.freed[int(gpu)] = (NEED_MIB, self.now + self.rng.choice((0.0, 0.1, 2.0)))
        return was_leader

    # -- looks ---------------------------------------------------------------------------------------

    def free_mib(self, gpu: int) -> int:
        """What is truly free on one GPU."""
        free = TOTAL_MIB - 500
        for attempt in self.attempts.values():
            if attempt is not None and attempt.procs and str(gpu) in attempt.gpus:
                free -= NEED_MIB
        held, since = self.freed.get(gpu, (0.0, 0.0))
        free -= int(max(0.0, min(held, held - FREE_SPEED_MIB_S * (self.now - since))))
        if self.now < self.taken_until.get(gpu, 0.0):
            free -= 50_000
        return max(0, free)

    def draining(self, gpu: int) -> bool:
        """Whether memory of a tree that is gone is still coming back."""
        held, since = self.freed.get(gpu, (0.0, 0.0))
        return bool(held) and since < self.now < since + held / FREE_SPEED_MIB_S

    def seen(self, name: str, began: float, blind: float, *, checked: bool) -> Seen:
        """One look. `checked`: needs are looked at too."""
        r, attempt = self.rng, self.attempts.get(name)
        procs = self.live(name)
        tree = tuple(proc.id for proc in procs)
        can_see = r.random() >= blind
        return Seen(
            began=began,
            tree=tree if can_see else None,
            main=attempt.leader.id if can_see and attempt and attempt.leader else None,
            invocation=attempt.invocation if can_see and attempt and procs else None,
            ordered=not (can_see and attempt and procs) or attempt.ordered,
            unkillable=tuple(proc.id.pid for proc in procs if proc.stuck) if can_see else (),
            needs=self._needs(name) if checked and r.random() >= blind else None,
            gpus=self._gpus() if r.random() >= blind else None,
            life=self._life(attempt) if can_see and r.random() >= blind / 2 else None,
        )

    def _needs(self, name: str) -> tuple[Need, ...]:
        others = [attempt for other, attempt in self.attempts.items() if other != name]
        taken = any(each is not None and each.procs and each.port == self.force[name].port for each in others)
        return (*self.unmet.get(name, ()), *((PORT,) if taken else ()))

    def _gpus(self) -> tuple[Gpu, ...]:
        holder = (Holder(pid=7, mib=50_000, kind="stranger"),)
        return tuple(
            Gpu(uuid=f"GPU-{i}", index=i, total_mib=TOTAL_MIB, free_mib=self.free_mib(i) - self.rng.randrange(9),
                holders=holder if self.now < self.taken_until.get(i, 0.0) else ())
            for i in (0, 1)
        )  # fmt: skip

    def _life(self, attempt: Attempt | None) -> Life | None:
        if attempt is None or not attempt.procs:
            return None
        start, until, how = attempt.sick
        dead = [t for t in (attempt.hung_from, start if how == "hung" else None) if t is not None]
        stop = min([self.now, *dead])
        if how == "hung" and self.now > until and attempt.hung_from is None:
            stop = self.now
        return Life(cpu_s=(stop - attempt.born) * 0.5, memory_mib=1000)

    def health(self, name: str, invocation: str) -> Health:
        """What the server's port says."""
        attempt = self.attempts.get(name)
        if attempt is None or attempt.leader is None or attempt.invocation != invocation:
            return Health.FOREIGN if self.rng.random() < 0.3 else Health.REFUSED
        if attempt.ready_at is None or self.now < attempt.ready_at:
            return self.rng.choice((Health.REFUSED, Health.LOADING, Health.FOREIGN, Health.TIMEOUT))
        start, until, how = attempt.sick
        if not start <= self.now < until:
            return Health.OK
        return {
            "busy": Health.TIMEOUT, "hung": Health.TIMEOUT, "sick": Health.SICK,
            "foreign": Health.FOREIGN, "refused": Health.REFUSED,
        }[how]  # fmt: skip

    def answering(self, name: str) -> bool:
        """Whether the server truly serves."""
        attempt = self.attempts.get(name)
        return attempt is not None and self.health(name, attempt.invocation) is Health.OK
