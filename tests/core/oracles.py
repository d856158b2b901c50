"""What must be true whatever the core believes: compared with the world after every step."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from agent.core.host import Taken
from agent.core.levels import GONE_S
from agent.core.model import (
    Answer,
    Asked,
    Booted,
    Effect,
    Exited,
    Health,
    Kill,
    Launch,
    Looked,
    Probed,
    Reconfigured,
    Saved,
    Seen,
    Stage,
    Stored,
    Terminate,
    Want,
)
from tests.core.asked import RUNS, Promises, TruthBrokenError, holds
from tests.core.world import NEED_MIB, PORT, Attempt, Host

NOTHING_RUNS = frozenset({Stage.DOWN, Stage.WAITING, Stage.CLEARING, Stage.BACKING_OFF, Stage.FAILED})
NEVER_S = float("inf")
STORM_STEPS = 150
"""Steps in one simulated second, all servers together. A busy second has about 40."""


@dataclass
class Knowledge:
    """What has been delivered about one server, in this run of the agent."""

    newest: Seen = field(default_factory=Seen)  # look with all its parts that a launch needs
    latest: float = 0.0  # when the newest look began
    attempt_at: float = 0.0  # when the present attempt began to wait for what it needs
    tree_looks: tuple[float, float] | None = None  # `began` of the first and the last since the first process died
    bad_since: float | None = None  # an answer that only a hung or broken server gives, none good since
    ok_invocation: str = ""
    excused: Attempt | None = None  # it was told to end for a reason
    served: tuple[float, float] = (0.0, 0.0)  # the present attempt's first good answer and its last


class Truth(Promises):
    """The oracles over one host."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.known = {name: Knowledge() for name in host.policies}
        self.recent: deque[float] = deque()
        self.short_since: dict[str, float | None] = dict.fromkeys(host.policies)

    def crashed(self) -> None:
        """The agent is gone: nothing that it knew counts any more, and nobody waits for an answer."""
        self.known = {name: Knowledge() for name in self.host.policies}

    def rebooted(self) -> None:
        """The host went down: what failed before is history."""
        for ledger in self.ledgers.values():
            ledger.gave_up, ledger.unsaved = False, True  # a crash before it is saved that they are
            ledger.slack += max(policy.attempts for policy in self.host.policies.values())

    # -- after each step -----------------------------------------------------------------------------

    def stepped(self, one: Taken) -> None:
        """Compare one step with the world."""
        self.recent.append(self.host.now)
        while self.recent[0] < self.host.now - 1.0:
            self.recent.popleft()
        holds(len(self.recent) <= STORM_STEPS, f"a storm: {len(self.recent)} steps in a second, the last {one.event}")
        self._learn(one)
        self._outside(one)
        for effect in one.effects:
            if isinstance(effect, Answer):
                self.answered(one, effect)
        for effect in one.effects:
            self._acted(one, effect)
        if isinstance(one.event, Booted):
            self._booted(one, one.event)
        if isinstance(one.event, Reconfigured) and one.before.stage in RUNS:
            holds(one.state.stage is one.before.stage, f"{one.name} is {one.state.stage} by another configuration")
        self._stage_is_true(one)
        served, mine = self.known[one.name].served, self.known[one.name].ok_invocation == one.before.saved.invocation
        self.counted(one, mine and served[1] - served[0] >= self.host.policies[one.name].steady_s)
        self.stages[one.name] = one.state.stage

    def _learn(self, one: Taken) -> None:
        known, event = self.known[one.name], one.event
        if one.state.stage is Stage.WAITING and one.before.stage not in (Stage.WAITING, Stage.CLEARING):
            known.attempt_at = self.host.now
        if isinstance(event, Asked):
            self.asked(one.name, event)
        if isinstance(event, Looked | Booted):
            self._learn_look(one.name, known, event.seen)
        if isinstance(event, Probed):
            self._learn_probe(one.name, known, event)

    def _unseen(self, name: str) -> bool:
        """Whether what runs was started by an administrator, and no look can have shown it yet."""
        attempt = self.host.attempts.get(name)
        return attempt is not None and not attempt.ordered and attempt.born >= self.known[name].latest

    def _outside(self, one: Taken) -> None:
        """What an administrator has done to its unit counts as an operator's word, once it is known."""
        before, now, event, name = one.before, one.state, one.event, one.name
        was = event.saved if isinstance(event, Booted) else before.saved
        if isinstance(event, Exited) and before.stage in RUNS and event.invocation == was.invocation:
            ends = now.stage in (Stage.STOPPING, Stage.DOWN) and now.cause is None
            obeyed = ends and now.saved.want is (Want.DOWN if event.exit.stopped else was.want)
            holds(
                obeyed or not (event.exit.stopped or event.exit.shutdown), f"{name}: {event.exit}, and is {now.stage}"
            )
        launched = any(isinstance(effect, Launch) for effect in one.effects)
        started = now.saved.invocation != was.invocation and not launched
        if started or now.saved.want is not was.want:
            waits = isinstance(event, Stored)  # for its save: an operator's
            self.taken(name, now.saved.want or Want.DOWN) if not waits else None

    def _learn_look(self, name: str, known: Knowledge, seen: Seen) -> None:
        if seen.tree is not None and seen.needs is not None and seen.began >= known.newest.began:
            known.newest = seen
        if seen.began < known.latest:
            return  # it comes late: a newer one is known
        known.latest = seen.began
        attempt = self.host.attempts.get(name)
        dead_since = attempt.died if attempt is not None else None
        if seen.tree is None or dead_since is None:
            return
        if known.tree_looks is None or known.tree_looks[0] <= dead_since:
            known.tree_looks = (seen.began, seen.began) if seen.began > dead_since else None
        elif seen.began > known.tree_looks[1]:
            known.tree_looks = (known.tree_looks[0], seen.began)

    def _learn_probe(self, name: str, known: Knowledge, event: Probed) -> None:
        attempt = self.host.attempts.get(name)
        if attempt is None or attempt.invocation != event.invocation:
            return
        if event.health is Health.OK:
            first = known.served[0] if known.ok_invocation == event.invocation else self.host.now
            known.bad_since, known.ok_invocation, known.served = None, event.invocation, (first, self.host.now)
        elif attempt.sick[2] in ("hung", "sick", "refused") and self.host.now >= attempt.sick[0] > 0:
            known.bad_since = self.host.now if known.bad_since is None else known.bad_since

    def _booted(self, one: Taken, event: Booted) -> None:
        """A running server goes on where it was; what ended while no agent ran is told."""
        name, state, saved, seen = one.name, one.state, event.saved, event.seen
        if seen.invocation != saved.invocation and (not seen.ordered or seen.main is not None):
            saved = replace(saved, running=saved.running and seen.ordered, served=False)
        if event.rebooted:
            saved = replace(saved, running=False, served=False, attempt=0, gave_up=None)
        if state.saved.want is not Want.UP:
            return
        if seen.main is not None:
            goes_on = Stage.UNHEALTHY if saved.served else Stage.STARTING
            goes_on = Stage.READY if event.health is Health.OK else goes_on
            holds(state.stage is goes_on, f"{name} is {state.stage} after a restart of the agent, not {goes_on}")
            since = event.ready is None or state.ready_since == event.ready
            holds(since, f"{name} is ready since {state.ready_since}, and it was since {event.ready}")
            return
        if state.stage is Stage.FAILED:
            gave_up = self.ledgers[name].gave_up or self.ledgers[name].unsaved
            holds(gave_up, f"{name} is given up, and since then it was asked for or changed")
        counts = saved.attempt > 0 and event.same is not False
        if seen.tree and saved.running and saved.attempt > 0:
            holds(state.cause is not None, f"{name} ended while no agent ran, and only left-overs are told of")
            return
        if seen.tree == () and saved.running and event.ended is not None and counts:
            told = state.stage is Stage.STOPPING and state.cause == event.ended
            holds(told, f"{name} ended while no agent ran, and is {state.stage} for {state.cause}")
        elif not seen.tree and not (saved.gave_up and event.same):
            holds(state.cause is None, f"{name} has {state.cause} for a launch that never came about")

    # -- effects -------------------------------------------------------------------------------------

    def _acted(self, one: Taken, effect: Effect) -> None:
        match effect:
            case Launch():
                self._launch(one)
            case Terminate():
                self._signal(one)
            case Kill():
                holds(bool(one.state.main or one.state.seen.tree), f"law 3: {one.name}: killed on unknown")
            case _:
                pass

    def _launch(self, one: Taken) -> None:
        """Nothing that the newest whole look must have shown stands in the way."""
        policy, looked, name = self.host.policies[one.name], self.known[one.name].newest.began, one.name
        self.launched(name)
        self.host.decided[name] = self.host.near(name)
        whole = self.known[name].newest.began >= self.known[name].attempt_at
        holds(whole, f"law 3: {name} is launched, and no look since has shown all that it needs")
        self._no_rival(name)
        holds(not self.host.live(name) or self._unseen(name), f"law 5: {name} is launched beside its own tree")
        for other in self.host.near(name):
            holds(not self.host.live(other) or self._unseen(other), f"{name} is launched beside {other}")
        if not policy.gpus or not one.state.saved.gpu_check or any(map(self._unseen, (name, *self.host.near(name)))):
            return
        for gpu in map(int, policy.gpus):
            taken = self.host.free_mib(gpu) < NEED_MIB and self.host.taken_from.get(gpu, 0.0) < looked
            holds(not taken, f"law 3: {name} is launched without room on GPU {gpu}")
            holds(not self.host.draining(gpu), f"{name} is launched while the memory of GPU {gpu} still drains")

    def _no_rival(self, name: str) -> None:
        """Every unit that is to be off is off, by a look of this run of the agent."""
        fight = self.host.fight
        for unit in sorted(self.host.listed):
            told = fight.told.get(unit, True) and (unit, False) not in fight.open.values()
            if unit in fight.disk.exempt or not told:
                continue
            one, looked = fight.units[unit], fight.looked
            if looked is None:
                raise TruthBrokenError(f"{name} is launched, and no look has shown whether {unit} is off")
            holds(not one.on or (one.on_since or 0) > looked, f"{name} is launched while rival {unit} runs")
            holds(one.in_force or one.held_at > looked, f"{name} is launched, and nothing keeps {unit} off")

    def _signal(self, one: Taken) -> None:
        """Law 6."""
        name, ledger, policy = one.name, self.ledgers[one.name], self.host.policies[one.name]
        attempt, known = self.host.attempts.get(name), self.known[one.name]
        if known.excused == attempt:
            return  # it is ending for a good reason, whatever has been asked since
        if attempt is None or attempt.leader is None or self._unseen(name):
            return
        known.excused = attempt if one.before.stage is not Stage.STOPPING else None
        down = ledger.told is Want.DOWN or (ledger.told is None and not policy.autostart)
        if down or ledger.restart or one.state.closing or self.host.disk.get(name, Saved()).want is not Want.UP:
            return
        if known.ok_invocation == attempt.invocation:
            holds(known.bad_since is not None, f"law 6: {name} is signalled, and it serves")
        else:
            stall_s = policy.stall_init_s if policy.on_stall == "restart" else NEVER_S
            start = self.host.history.get((name, attempt.invocation))
            born = start[1] if start else attempt.born
            excused = self.host.now - born + 1e-6 >= min(policy.start_limit_s or NEVER_S, stall_s)
            excused = excused or known.bad_since is not None
            holds(excused, f"law 6: {name} is signalled while it starts, and no limit was chosen")

    # -- stages --------------------------------------------------------------------------------------

    def _stage_is_true(self, one: Taken) -> None:
        name, state, stage = one.name, one.state, one.state.stage
        attempt, live = self.host.attempts.get(name), self.host.live(name)
        if stage in NOTHING_RUNS and live and attempt is not None and not self._unseen(name):
            left = one.before.stage is Stage.STOPPING and stage is not Stage.STOPPING
            holds(not left, f"{name} is {stage} right after stopping, and pid {live[0].id.pid} lives")
            seen = state.seen.tree is not None and state.seen.began > max(attempt.born, state.since)
            holds(not seen, f"{name} is {stage}, and a look has shown pid {live[0].id.pid}")
        event = one.event
        if stage is Stage.FAILED and one.before.stage is not stage and state.cause == PORT.cause:
            near = self.host.near(name)
            there = [other for other in near if self.host.live(other) and not self._unseen(other)]
            holds(not there, f"{name} is failed for its port, which {there} may hold")
        if isinstance(event, Reconfigured) and self.host.force[name].digest == self.host.config[name].digest:
            self.known[name].attempt_at = self.host.now  # what was seen before was seen for another definition
        if stage is Stage.FAILED and state.blocked and one.before.stage is stage and isinstance(event, Looked):
            met = event.seen.needs == () and event.seen.tree == () and event.seen.began > state.since
            holds(not met, f"{name} is failed for a need, and a look has shown that it is met")
        if stage is Stage.READY and one.before.stage is not Stage.READY:
            gone = attempt is None or attempt.ready_at is None or attempt.ready_at > self.host.now
            holds(not gone, f"{name} is ready, and it never answered")
        if stage in (Stage.READY, Stage.UNHEALTHY, Stage.STARTING) and state.main is not None:
            looks = self.known[name].tree_looks
            dead = attempt is None or attempt.died is not None
            lost = looks is not None and attempt is not None and looks[0] > max(attempt.died or 0, state.confirmed)
            late = lost and looks is not None and looks[1] - looks[0] > GONE_S and looks[0] > one.state.since
            holds(not (dead and late), f"{name} is {stage}, and looks have shown for {GONE_S:g} s that it is dead")
