"""What must be true whatever the core believes: compared with the world after every step."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from agent.core.host import Taken
from agent.core.levels import GONE_S
from agent.core.model import (
    After,
    Answer,
    Ask,
    Asked,
    Booted,
    Effect,
    Health,
    Hold,
    Kill,
    Launch,
    Looked,
    Probed,
    Retry,
    Saved,
    Seen,
    Stage,
    Stored,
    Terminate,
    Want,
)
from tests.core.world import NEED_MIB, Attempt, Host

RUNS = frozenset({Stage.STARTING, Stage.READY, Stage.UNHEALTHY})
NOTHING_RUNS = frozenset({Stage.DOWN, Stage.WAITING, Stage.CLEARING, Stage.BACKING_OFF, Stage.FAILED})
NEVER_S = float("inf")
STORM_STEPS = 150
"""Steps in one simulated second, all servers together. A busy second has about 40."""


class TruthBrokenError(AssertionError):
    """The core claims or does what the world does not bear out."""


@dataclass
class Ledger:
    """What operators have asked of one server, and what they were told."""

    told: Want | None = None
    open: dict[int, Asked] = field(default_factory=dict)
    restart: bool = False  # one was promised for the present attempt
    unsure: bool = False  # a stop was promised while nothing could be saved
    launches: int = 0  # since it was asked for or served for long, less those that somebody else was in the way of
    boots: int = 0  # of the agent since: each may forget how the attempt before it ended


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


class Truth:
    """The oracles over one host."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.ledgers = {name: Ledger() for name in host.policies}
        self.known = {name: Knowledge() for name in host.policies}
        self.recent: deque[float] = deque()
        self.short_since: dict[str, float | None] = dict.fromkeys(host.policies)

    def crashed(self) -> None:
        """The agent is gone: nothing that it knew counts any more, and nobody waits for an answer."""
        self.known = {name: Knowledge() for name in self.host.policies}

    def booted(self, name: str, saved: Saved) -> None:
        """Law 2: what an operator was told is on the disk."""
        ledger = self.ledgers[name]
        if not ledger.open and not ledger.unsure and ledger.told is not None:
            _holds(saved.want is ledger.told, f"law 2: {name}: told {ledger.told}, and on the disk is {saved.want}")
        ledger.told = saved.want
        ledger.boots += 1 if not ledger.open else self.host.policies[name].attempts  # saved, and not answered any more
        ledger.open.clear()
        ledger.restart = ledger.unsure = False

    # -- after each step -----------------------------------------------------------------------------

    def stepped(self, one: Taken) -> None:
        """Compare one step with the world."""
        self.recent.append(self.host.now)
        while self.recent[0] < self.host.now - 1.0:
            self.recent.popleft()
        _holds(len(self.recent) <= STORM_STEPS, f"a storm: {len(self.recent)} steps in a second, the last {one.event}")
        self._learn(one)
        for effect in one.effects:
            self._answered(one, effect)
        for effect in one.effects:
            self._acted(one, effect)
        self._stage_is_true(one)
        self._counts(one)

    def _learn(self, one: Taken) -> None:
        known, event = self.known[one.name], one.event
        if one.state.stage is Stage.WAITING and one.before.stage not in (Stage.WAITING, Stage.CLEARING):
            known.attempt_at = self.host.now
        if isinstance(event, Asked):
            self.ledgers[one.name].open[event.id] = event
        if isinstance(event, Looked | Booted):
            self._learn_look(one.name, known, event.seen)
        if isinstance(event, Probed):
            self._learn_probe(one.name, known, event)

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

    def _counts(self, one: Taken) -> None:
        """How an attempt ended, for the number of attempts that are left."""
        ledger, policy, served = self.ledgers[one.name], self.host.policies[one.name], self.known[one.name].served
        if one.before.stage is Stage.FAILED and one.before.blocked and one.state.stage is Stage.WAITING:
            ledger.launches = 0
        if one.state.closing and one.state.stage is Stage.DOWN:
            ledger.boots += policy.attempts  # the count may begin anew, if that still comes to the disk
        if one.before.stage is not Stage.STOPPING or one.state.stage not in (Stage.BACKING_OFF, Stage.FAILED):
            return
        cause = one.before.cause
        mine = self.known[one.name].ok_invocation == one.before.saved.invocation
        if mine and served[1] - served[0] >= policy.steady_s:
            ledger.launches, ledger.boots = 1, 0
        if cause is not None and cause.retry is Retry.WAIT:
            ledger.launches -= 1
            _holds(one.state.stage is not Stage.FAILED, f"{one.name} gave up, and only somebody else was in the way")
        gave_up = one.state.stage is Stage.FAILED and one.before.after is After.RETRY and cause is not None
        if gave_up and cause is not None and cause.retry in (Retry.FEW, Retry.YES):
            enough = min(policy.attempts, policy.few_attempts, policy.same_failures)
            _holds(
                ledger.launches + ledger.boots >= enough,
                f"{one.name} gave up after {ledger.launches} of {enough} attempts",
            )

    # -- effects -------------------------------------------------------------------------------------

    def _answered(self, one: Taken, effect: Effect) -> None:
        if not isinstance(effect, Answer):
            return
        ledger = self.ledgers[one.name]
        asked = ledger.open.pop(effect.id, None)
        _holds(asked is not None, f"{one.name}: an answer that nobody waits for: {effect}")
        if effect.refused is not None or asked is None:
            return
        if asked.ask is not Ask.STOP and one.before.saved.want is not Want.UP:
            for other in sorted(self.host.policies[one.name].overlaps):
                _holds(self.ledgers[other].told is not Want.UP, f"{one.name} and {other} are both to be up")
        want = Want.DOWN if asked.ask is Ask.STOP else Want.UP
        saved = self.host.disk.get(one.name, Saved()).want
        failed = isinstance(one.event, Stored) and one.event.why is not None
        ledger.unsure = want is Want.DOWN and failed and saved is not want
        _holds(saved is want or ledger.unsure, f"law 2: {one.name}: told {want} while {saved} is on the disk")
        ledger.told, ledger.restart = want, ledger.restart or asked.ask is Ask.RESTART
        ledger.launches = int(asked.ask is Ask.START and one.before.stage in RUNS)
        ledger.boots = self.host.policies[one.name].attempts if failed else 0  # a crash may bring the old count back

    def _acted(self, one: Taken, effect: Effect) -> None:
        match effect:
            case Launch():
                self._launch(one)
            case Terminate():
                self._signal(one)
            case Kill():
                _holds(bool(one.state.main or one.state.seen.tree), f"law 3: {one.name}: killed on unknown")
            case Hold(unit):
                disk = self.host.disk.get(one.name, Saved())
                _holds(unit in disk.holds, f"law 4: {unit} is turned off, and is not in holds on the disk")
            case _:
                pass

    def _launch(self, one: Taken) -> None:
        """Nothing that the newest whole look must have shown stands in the way."""
        policy, looked, name = self.host.policies[one.name], self.known[one.name].newest.began, one.name
        ledger = self.ledgers[name]
        ledger.restart, ledger.launches = False, ledger.launches + 1
        whole = self.known[name].newest.began >= self.known[name].attempt_at
        _holds(whole, f"law 3: {name} is launched, and no look since has shown all that it needs")
        tries = ledger.launches - ledger.boots
        _holds(tries <= policy.attempts, f"{name} is launched for the {tries}th time, {policy.attempts} are allowed")
        for unit in sorted(policy.rivals):
            since = self.host.units.get(unit)
            _holds(since is None or since > looked, f"{name} is launched while rival {unit} runs")
        _holds(not self.host.live(name), f"law 5: {name} is launched beside its own tree")
        for other in sorted(policy.overlaps):
            _holds(not self.host.live(other), f"{name} is launched beside {other}")
        if not policy.gpus or not one.state.saved.gpu_check:
            return
        for gpu in map(int, policy.gpus):
            taken = self.host.free_mib(gpu) < NEED_MIB and self.host.taken_from.get(gpu, 0.0) < looked
            _holds(not taken, f"law 3: {name} is launched without room on GPU {gpu}")
            _holds(not self.host.draining(gpu), f"{name} is launched while the memory of GPU {gpu} still drains")

    def _signal(self, one: Taken) -> None:
        """Law 6."""
        name, ledger, policy = one.name, self.ledgers[one.name], self.host.policies[one.name]
        attempt, known = self.host.attempts.get(name), self.known[one.name]
        if known.excused == attempt:
            return  # it is ending for a good reason, whatever has been asked since
        if attempt is None or attempt.leader is None:
            return
        known.excused = attempt if one.before.stage is not Stage.STOPPING else None
        down = ledger.told is Want.DOWN or (ledger.told is None and not policy.autostart)
        if down or ledger.restart or one.state.closing or self.host.disk.get(name, Saved()).want is not Want.UP:
            return
        if known.ok_invocation == attempt.invocation:
            _holds(known.bad_since is not None, f"law 6: {name} is signalled, and it serves")
        else:
            stall_s = policy.stall_init_s if policy.on_stall == "restart" else NEVER_S
            excused = self.host.now - attempt.born >= min(policy.start_limit_s or NEVER_S, stall_s)
            excused = excused or known.bad_since is not None
            _holds(excused, f"law 6: {name} is signalled while it starts, and no limit was chosen")

    # -- stages --------------------------------------------------------------------------------------

    def _stage_is_true(self, one: Taken) -> None:
        name, state, stage = one.name, one.state, one.state.stage
        attempt, live = self.host.attempts.get(name), self.host.live(name)
        if stage in NOTHING_RUNS and live and attempt is not None:
            left = one.before.stage is Stage.STOPPING and stage is not Stage.STOPPING
            _holds(not left, f"{name} is {stage} right after stopping, and pid {live[0].id.pid} lives")
            seen = state.seen.tree is not None and state.seen.began > max(attempt.born, state.since)
            _holds(not seen, f"{name} is {stage}, and a look has shown pid {live[0].id.pid}")
        event = one.event
        if stage is Stage.FAILED and state.blocked and one.before.stage is stage and isinstance(event, Looked):
            met = event.seen.needs == () and event.seen.tree == () and event.seen.began > state.since
            _holds(not met, f"{name} is failed for a need, and a look has shown that it is met")
        if stage is Stage.READY and one.before.stage is not Stage.READY:
            gone = attempt is None or attempt.ready_at is None or attempt.ready_at > self.host.now
            _holds(not gone, f"{name} is ready, and it never answered")
        if stage in (Stage.READY, Stage.UNHEALTHY, Stage.STARTING) and state.main is not None:
            looks = self.known[name].tree_looks
            dead = attempt is None or attempt.died is not None
            lost = looks is not None and attempt is not None and looks[0] > max(attempt.died or 0, state.confirmed)
            late = lost and looks is not None and looks[1] - looks[0] > GONE_S and looks[0] > one.state.since
            _holds(not (dead and late), f"{name} is {stage}, and looks have shown for {GONE_S:g} s that it is dead")


def _holds(true: bool, what: str) -> None:
    if not true:
        raise TruthBrokenError(what)
