"""What operators have asked for and were told, and what must come of it: switches and returns too."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

from agent.core.host import Taken
from agent.core.model import Answer, Ask, Asked, Booted, Retry, Saved, Stage, Stored, Want
from tests.core.world import Definition, Host

RUNS = frozenset({Stage.STARTING, Stage.READY, Stage.UNHEALTHY})


class TruthBrokenError(AssertionError):
    """The core claims or does what the world does not bear out."""


def holds(true: bool, what: str) -> None:
    """Break off when it is not true."""
    if not true:
        raise TruthBrokenError(what)


@dataclass(frozen=True)
class Open:
    """A change that was asked for and is not answered yet."""

    asked: Asked
    number: int  # which of all that was asked on this host
    asks: int  # as the disk had it
    gave: frozenset[str]  # the servers that were in the way


@dataclass
class Ledger:
    """What operators have asked of one server, and what they were told."""

    told: Want | None = None
    open: dict[int, Open] = field(default_factory=dict)  # 0: asked by the core itself
    switch: int = 0  # the number of the last switch that was answered
    restart: bool = False  # one was promised for the present attempt
    unsure: bool = False  # a stop was promised while nothing could be saved
    gives_way: str = ""  # to this one, and that is not on the disk yet
    over: frozenset[str] = frozenset()  # the servers that the last switch to it was to displace
    resumed: bool = False  # a switch to it is on the disk, and the agent crashed before it was answered
    backs: frozenset[str] = frozenset()  # the servers of which it may return to one
    back: str = ""  # ... and it must return to this one
    gave_up: bool = False
    unsaved: bool = False  # what was asked last is not on the disk, and the agent goes on with it as long as it lives
    launches: int = 0  # since it was asked for or served for long, less those that somebody else was in the way of
    waited: str = ""  # the last attempt that somebody else was in the way of
    slack: int = 0  # attempts that a crash or the disk may have made the agent forget, or count for nothing


class Promises:
    """The ledgers of one host."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.ledgers = {name: Ledger() for name in host.config}
        self.both = set[frozenset[str]]()  # pairs that share something and that are both to be up, by no switch
        self.stages: dict[str, Stage] = {}
        self.number = 0

    def saved(self, name: str) -> Saved:
        """What is on the disk."""
        return self.host.disk.get(name, Saved())

    def may_be_wanted(self, name: str) -> bool:
        """As far as anybody can have been told."""
        ledger, want = self.ledgers[name], self.saved(name).want
        start = any(one.asked.ask is not Ask.STOP for one in ledger.open.values())
        new = want is None and self.host.config[name].policy.autostart
        return start or new or ledger.told is Want.UP or want is Want.UP

    # -- the agent and its configuration -------------------------------------------------------------

    def booted(self, name: str, saved: Saved, event: Booted) -> None:
        """Law 2: what an operator was told is on the disk."""
        ledger = self.ledgers[name]
        if not ledger.open and not ledger.unsure and ledger.told is not None:
            still = bool(ledger.gives_way) and self.saved(ledger.gives_way).want is Want.UP
            kept = saved.want is ledger.told or (still and saved.want is Want.UP)
            holds(kept, f"law 2: {name}: told {ledger.told}, and on the disk is {saved.want}")
        if saved.want is None and self.host.config[name].policy.autostart:
            near = self.host.near(name)
            self.both |= {frozenset({name, other}) for other in near if self.may_be_wanted(other)}
        self._count_at_boot(name, saved, event)
        for one in ledger.open.values():
            if one.asked.ask is Ask.SWITCH:
                ledger.resumed, ledger.back = saved.want is Want.UP, ""
                ledger.backs |= one.gave if one.asked.back else frozenset()
        if not (ledger.gives_way and saved.want is Want.UP):
            ledger.told, ledger.gives_way = saved.want, ""
        ledger.open.clear()
        ledger.restart = ledger.unsure = False

    def _count_at_boot(self, name: str, saved: Saved, event: Booted) -> None:
        ledger, policy = self.ledgers[name], self.host.config[name].policy
        untold = saved.running and (event.seen.tree is None or event.ended is None)
        anew = event.rebooted or event.same is False
        ledger.slack += int(untold or saved.attempt < ledger.launches)
        if ledger.open:  # saved, and not answered any more
            ledger.slack += policy.attempts
        saved_since = any(saved.asks > one.asks for one in ledger.open.values())
        again = saved_since or anew or event.same is None
        ledger.unsaved |= event.same is None
        ledger.gave_up = ledger.gave_up and not again and saved.gave_up is not None
        if anew:
            ledger.slack += policy.attempts

    def redefined(self, old: dict[str, Definition]) -> None:
        """Who shares something only now, and is wanted already, is not in the wrong."""
        for a, b in combinations(self.host.config, 2):
            shares = b in self.host.config[a].policy.overlaps and b not in old[a].policy.overlaps
            if shares and self.may_be_wanted(a) and self.may_be_wanted(b):
                self.both.add(frozenset({a, b}))
        for name, ledger in self.ledgers.items():
            if self.host.config[name].beside(frozenset()) != old[name].beside(frozenset()):
                ledger.gave_up, ledger.unsaved, ledger.slack = (
                    False,
                    True,
                    ledger.slack + self.host.config[name].policy.attempts,
                )

    # -- asked and answered --------------------------------------------------------------------------

    def asked(self, name: str, event: Asked) -> None:
        """A change is asked for, by an operator or by what is saved of a switch."""
        ledger = self.ledgers[name]
        self.number += 1
        near = frozenset(other for other in self.host.near(name) if self.may_be_wanted(other))
        ledger.open[event.id] = Open(event, self.number, self.saved(name).asks, near)
        if event.id == 0 and event.ask is Ask.STOP:
            to = event.reason.removeprefix("switched to ")
            holds(self.saved(to).want is Want.UP, f"{name} is to give way, and {to} is not wanted on the disk")
            known = ledger.gives_way == to or self.ledgers[to].resumed or name in self.ledgers[to].over
            holds(known, f"{name} is to give way to {to}, and nobody has switched")
            later = self.ledgers[to].gives_way == name
            holds(not later, f"{name} is to give way to {to}, which gives way to it by a later switch")
        if event.id == 0 and event.ask is Ask.SWITCH:
            failed = event.reason.removeprefix("switched back: ").partition(" ")[0]
            holds(self.stages[failed] is Stage.FAILED, f"back to {name}, and {failed} has not failed")
            holds(name in self.ledgers[failed].backs, f"back to {name} from {failed} once more, or unasked")

    def answered(self, one: Taken, effect: Answer) -> None:
        """What an answer promises."""
        name, ledger = one.name, self.ledgers[one.name]
        was = ledger.open.pop(effect.id, None)
        holds(was is not None, f"{name}: an answer that nobody waits for: {effect}")
        if effect.refused is not None or was is None:
            return
        asked = was.asked
        if asked.ask is Ask.SWITCH:
            self._switched(name, was)
        if asked.ask is not Ask.STOP and one.before.saved.want is not Want.UP and not ledger.gives_way:
            for other in self.host.near(name):
                both = self.ledgers[other].told is Want.UP and frozenset({name, other}) not in self.both
                holds(not both, f"{name} and {other} are both to be up")
        self._told(one, was)

    def _switched(self, name: str, was: Open) -> None:
        """Who was in the way gives way; who has come back does not go back again."""
        ledger, asked = self.ledgers[name], was.asked
        gave = [other for other in was.gave if self.may_be_wanted(other)]
        ledger.over = frozenset(gave)
        gave = [other for other in gave if self._last_switch(other) < was.number]  # the later one counts
        ledger.switch = was.number
        for other in gave:
            self.ledgers[other].told = Want.DOWN
            self.ledgers[other].gives_way = name
            self.both.discard(frozenset({name, other}))
            if asked.id == 0:
                self.ledgers[other].backs, self.ledgers[other].back = frozenset(), ""
        ledger.resumed = False
        ledger.backs = was.gave if asked.back else frozenset()
        ledger.back = gave[0] if asked.back and len(was.gave) == len(gave) == 1 else ""

    def _last_switch(self, name: str) -> int:
        """The number of the last switch that was answered, to this server or to one that it gives way to."""
        to = self.ledgers[name].gives_way
        return max(self.ledgers[each].switch for each in (name, to) if each)

    def _told(self, one: Taken, was: Open) -> None:
        name, ledger, asked = one.name, self.ledgers[one.name], was.asked
        want = Want.DOWN if asked.ask is Ask.STOP else Want.UP
        saved = self.saved(name).want
        failed = isinstance(one.event, Stored) and one.event.why is not None
        ledger.unsure = want is Want.DOWN and failed and saved is not want
        holds(saved is want or ledger.unsure, f"law 2: {name}: told {want} while {saved} is on the disk")
        later = ledger.gives_way and self.ledgers[ledger.gives_way].switch > was.number
        if asked.ask in (Ask.STOP, Ask.SWITCH) and not (later and asked.ask is Ask.SWITCH):
            ledger.gives_way = "" if not (asked.id == 0 and ledger.unsure) else ledger.gives_way
        if want is Want.DOWN:
            ledger.backs, ledger.back, ledger.over, ledger.resumed = frozenset(), "", frozenset(), False
            for other in self.ledgers.values():
                other.unsure |= other.gives_way == name  # it need not any more, if nobody has told it yet
                other.gives_way = "" if other.gives_way == name else other.gives_way
        ledger.told = ledger.told if ledger.gives_way else want
        ledger.restart |= asked.ask is Ask.RESTART
        ledger.gave_up, ledger.unsaved = False, failed
        ledger.launches = int(asked.ask in (Ask.START, Ask.SWITCH) and one.before.stage in RUNS)
        # A crash may bring the old count back.
        ledger.slack = self.host.policies[name].attempts if failed else 0

    def taken(self, name: str, want: Want) -> None:
        """An administrator has started or stopped its unit, and the core has taken that for an operator's word."""
        ledger = self.ledgers[name]
        ledger.told, ledger.unsure, ledger.gives_way = want, True, ""  # a crash may come before the save
        ledger.gave_up, ledger.unsaved = False, True
        ledger.launches, ledger.slack = 1, self.host.policies[name].attempts
        if want is Want.UP:
            return
        ledger.backs, ledger.back, ledger.over, ledger.resumed = frozenset(), "", frozenset(), False
        for other in self.ledgers.values():
            other.unsure |= other.gives_way == name
            other.gives_way = "" if other.gives_way == name else other.gives_way

    # -- attempts --------------------------------------------------------------------------------------

    def counted(self, one: Taken, steady: bool) -> None:
        """How an attempt ended, for the number of attempts that are left. `steady`: it had served for long."""
        name, ledger, policy = one.name, self.ledgers[one.name], self.host.policies[one.name]
        before, now = one.before, one.state
        by_new = before.stage is Stage.STOPPING and before.changed
        if (before.stage is Stage.FAILED or by_new) and now.stage in (Stage.WAITING, *RUNS):
            ledger.gave_up = False
            ledger.launches, ledger.slack = (0, 0) if now.saved.attempt == 0 else (ledger.launches, ledger.slack)
        if now.closing and now.stage is Stage.DOWN:
            ledger.slack += policy.attempts  # the count may begin anew, if that still comes to the disk
        if isinstance(one.event, Stored) and one.event.why is not None:
            ledger.slack += policy.attempts  # nor does the disk know of what has failed since
        if before.stage is not Stage.STOPPING or now.stage not in (Stage.BACKING_OFF, Stage.FAILED):
            return
        cause = before.cause
        if steady:
            ledger.launches, ledger.slack = 1, 0
        if cause is not None and cause.retry is Retry.WAIT:
            ledger.launches -= ledger.waited != before.saved.invocation  # a crash may tell it once more
            ledger.waited = before.saved.invocation or ""
            holds(now.stage is not Stage.FAILED, f"{name} gave up, and only somebody else was in the way")
        elif cause is not None and before.after is before.after.RETRY:
            holds(bool(now.saved.failures), f"{name}: a failure is not counted: {cause.slug}")
        if now.stage is Stage.FAILED and not now.blocked and before.after is before.after.RETRY:
            self._gave_up(name, before.saved.invocation or "", cause.retry if cause else Retry.NO)

    def _gave_up(self, name: str, invocation: str, retry: Retry) -> None:
        ledger, policy, start = self.ledgers[name], self.host.policies[name], self.host.history.get((name, invocation))
        ledger.gave_up = True
        mine = start is None or start[0] == self.host.config[name].digest
        holds(mine, f"{name} gave up, and what failed was launched by an older definition")
        if retry in (Retry.FEW, Retry.YES):
            enough = min(policy.attempts, policy.few_attempts, policy.same_failures)
            tries = ledger.launches + ledger.slack
            holds(tries >= enough, f"{name} gave up after {ledger.launches} of {enough} attempts")

    def launched(self, name: str) -> None:
        """One more attempt."""
        ledger, policy = self.ledgers[name], self.host.policies[name]
        ledger.restart, ledger.launches = False, ledger.launches + 1
        holds(not ledger.gave_up, f"{name} is launched, and it was given up")
        tries = ledger.launches - ledger.slack
        holds(tries <= policy.attempts, f"{name} is launched for the {tries}th time, {policy.attempts} are allowed")
