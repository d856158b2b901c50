"""One simulated life from a seed: a layout, bad weather, then good weather in which all that is asked comes true."""

from __future__ import annotations

import argparse
import random
import time
from itertools import combinations

from agent.core.machine import TABLE
from agent.core.model import Ask, Stage, Want
from tests.core.asked import TruthBrokenError, holds
from tests.core.mishaps import STORMY_S, clear, layout, plan, weather
from tests.core.rivals import NAMES
from tests.core.sim import Arrow, Sim
from tests.core.world import CAUSES, Host

UNITS = (1, 2)
"""Seeds that end in these: lives in which servers are units of systemd."""
SETTLE_S = 500.0  # the longest pause, a start, the patience with an unhealthy server and with an ending agent


class Failed(AssertionError):  # noqa: N818  # the name reads as a sentence in pytest's summary
    """A simulated life that broke a law; says its seed and its last words."""


def live(seed: int) -> Sim:
    """One whole life. Raises Failed."""
    sim = build(seed)
    try:
        _live(sim)
    except AssertionError as broken:
        last = "\n".join(sim.transcript[-25:])
        raise Failed(f"seed {seed}: {broken}\n{last}\nreplay: python -m tests.core.sim --replay {seed}") from broken
    return sim


def build(seed: int) -> Sim:
    """A host before its first boot."""
    r = random.Random(seed)
    host = Host(rng=r, config=layout(r), kind=r.choice((0.1, 0.5, 0.9)))
    host.fight.luck = random.Random(seed)
    host.fight.names = NAMES if seed % 2 else ()
    if r.random() < 0.5:
        host.fight.start("comfyui", 0.0)
    if r.random() < 0.2:
        host.curse = r.choice(CAUSES)
    host.outlive = seed % 10 in UNITS
    return Sim(host, weather(r))


def _live(sim: Sim) -> None:
    plan(sim)
    sim.boot()
    sim.run(STORMY_S)
    clear(sim)
    sim.run(SETTLE_S)
    _settled(sim)
    for name in sim.host.config:
        sim.ask(name, Ask.STOP)
    sim.run(120)
    for name in sim.host.config:
        _is(sim, name, Stage.DOWN)
    _switches(sim)
    for name in sim.host.config:
        sim.ask(name, Ask.STOP)
    sim.run(120)
    if sim.host.outlive:
        _by_systemctl(sim, sim.rng.choice(list(sim.host.config)))
    chosen = [name for name in sim.host.config if name in sim.rng.choice(("acd", "bd"))]
    for name in [name for i, name in enumerate(chosen) if not {*sim.host.near(name)} & {*chosen[:i]}]:
        sim.ask(name, Ask.START)
        sim.run(200)
        _is(sim, name, Stage.READY)
        sim.ask(name, Ask.RESTART)
        sim.run(200)
        _is(sim, name, Stage.READY)
    sim.close()
    sim.run(60)


def _kept_off(sim: Sim) -> None:
    """Every unit is as operators and the configuration want it."""
    fight = sim.fight
    holds(fight.disk == sim.holding.want, f"the disk has {fight.disk}, and not {sim.holding.want}")
    for name, unit in fight.units.items():
        if name in fight.disk.exempt:
            holds(fight.told.get(name) is not True and not unit.held, f"{name} was released, and is {unit}")
        elif name in sim.holding.listed and fight.disk.begun:
            off = unit.in_force and not unit.on and fight.told.get(name) is not False
            holds(off, f"{name} is not off: {unit} {sim.holding.care.get(name)}")


def _settled(sim: Sim) -> None:
    """Every wait has come to its end, of itself, and what operators were told holds."""
    _kept_off(sim)
    wanted = {name for name in sim.states if sim.truth.saved(name).want is Want.UP}
    for a, b in combinations(sorted(wanted), 2):
        both = b not in sim.host.near(a) or {a, b} in sim.truth.both
        holds(both, f"{a} and {b} are both to be up, and share something")
    for name, state in sim.states.items():
        ledger, saved = sim.truth.ledgers[name], sim.truth.saved(name)
        holds(saved == state.saved, f"{name}: the disk does not have {state.saved}")
        told = ledger.told in (None, saved.want) or ledger.unsure
        holds(told, f"{name}: told {ledger.told}, and {saved.want} on the disk")
        if name not in wanted:
            _is(sim, name, Stage.DOWN)
        elif state.seen.wanted_neighbours:
            continue  # two that were both wanted before
        elif state.stage is Stage.CLEARING and _is_old_one_there(sim, name):
            continue  # adopted by an agent that knows its new definition only: the GPU tells
        elif state.stage is Stage.FAILED and not state.blocked:  # it gave up, and says so
            back = ledger.back in sim.host.near(name)
            holds(not back, f"{name} has failed, and {ledger.back} is not back")
        else:
            _is(sim, name, Stage.READY)


def _is_old_one_there(sim: Sim, name: str) -> bool:
    """Whether a server that runs by an older definition holds a GPU that this one needs: only the GPU can tell."""
    old = [each for other, each in sim.host.attempts.items() if each and each.digest != sim.host.config[other].digest]
    return any(each.procs and {*each.gpus} & {*sim.host.policies[name].gpus} for each in old)


def _switches(sim: Sim) -> None:
    """From one to the other of two that share something, in good weather; back from one that fails; and no further."""
    pairs = [(a, b) for a in sim.host.config for b in sim.host.near(a)]
    if not pairs:
        return
    one, other = sim.rng.choice(pairs)
    sim.ask(one, Ask.START)
    sim.run(200)
    _is(sim, one, Stage.READY)
    sim.ask(other, Ask.SWITCH, back=sim.rng.random() < 0.5)
    if sim.rng.random() < 0.5:
        sim.run(sim.rng.choice((0.01, 0.1, 1.0)))
        sim.crash() if sim.truth.saved(other).want is Want.UP else None
    sim.run(300)
    _is(sim, other, Stage.READY)
    _is(sim, one, Stage.DOWN)
    sim.host.doomed, back = one, sim.rng.random() < 0.7
    sim.ask(one, Ask.SWITCH, back=back)
    sim.run(300)
    _is(sim, one, Stage.DOWN if back else Stage.FAILED)
    _is(sim, other, Stage.READY if back else Stage.DOWN)
    if sim.rng.random() < 0.5:
        _restarted(sim)
        _rebooted(sim)
    sim.host.doomed = ""


def _by_systemctl(sim: Sim, name: str) -> None:
    """In good weather an administrator's word counts, whether an agent is there or not."""
    sim.systemctl_start(name)
    sim.run(100)
    _is(sim, name, Stage.READY)
    sim.rng.choice((sim.crash, sim.close))()
    sim.run(100)
    _goes_on(sim, name)
    for other in sim.host.near(name)[:1]:
        sim.systemctl_start(other)
        sim.run(100)
        _is(sim, other, Stage.DOWN)
        _goes_on(sim, name)
    for away in (False, True, True):
        sim.crash() if away else None
        sim.systemctl_stop(name)
        sim.run(100)
        _is(sim, name, Stage.DOWN)
        sim.crash() if away else None
        sim.systemctl_start(name)
        sim.run(100)
        _goes_on(sim, name)
    sim.systemctl_restart(name)
    sim.run(100)
    _goes_on(sim, name)
    sim.reboot()
    sim.run(100)
    _is(sim, name, Stage.READY)
    sim.ask(name, Ask.STOP)
    sim.run(120)


def _goes_on(sim: Sim, name: str) -> None:
    """What an administrator has started serves, and was never told to end."""
    _is(sim, name, Stage.READY)
    attempt = sim.host.attempts[name]
    holds(attempt is not None and not attempt.ordered, f"{name} is not what was started by systemctl")


def _restarted(sim: Sim) -> None:
    """A restart of the agent changes nothing: what has failed is not tried again."""
    stages = {name: state.stage for name, state in sim.states.items()}
    sim.crash()
    sim.run(100)
    for name, stage in stages.items():
        _is(sim, name, stage)
    launches = sum(state.launches for state in sim.states.values())
    holds(launches == 0, "a server is launched because the agent was restarted")


def _rebooted(sim: Sim) -> None:
    """Another boot makes earlier failures history: what is wanted is tried again."""
    failed = [name for name, state in sim.states.items() if state.stage is Stage.FAILED and not state.blocked]
    sim.reboot()
    sim.run(100)
    for name in failed:
        holds(sim.states[name].launches > 0, f"the host has booted anew, and {name} is not tried again")


def _is(sim: Sim, name: str, stage: Stage) -> None:
    state, true = sim.states[name], bool(sim.host.live(name))
    if not sim.up or state.stage is not stage or true is not (stage is Stage.READY):
        raise TruthBrokenError(f"good weather for long, and {name} is not {stage}, but {state.stage}: {state.why}")
    want = Want.DOWN if stage is Stage.DOWN else Want.UP
    saved = sim.truth.saved(name).want
    if saved is not want and (saved or want) is Want.UP:
        raise TruthBrokenError(f"{name}: {saved} on the disk for {stage}")
    if stage is Stage.READY and not sim.host.answering(name):
        raise TruthBrokenError(f"{name} does not answer")


def declared() -> set[Arrow]:
    """Every arrow of the table."""
    return {(stage, event, to) for (stage, event), rule in TABLE.items() for to in rule.to}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.core.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--replay", type=int)
    chosen = parser.parse_args()
    if chosen.replay is not None:
        _replay(chosen.replay)
        return
    started, steps, hours, arrows = time.perf_counter(), 0, 0.0, set[Arrow]()
    failed = []
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        try:
            sim = live(seed)
        except Failed as failure:
            print(failure)
            failed.append(seed)
            continue
        steps, hours, arrows = steps + sim.steps, hours + sim.host.now / 3600, arrows | sim.arrows
    took_s = time.perf_counter() - started
    print(f"seeds {chosen.first}..{chosen.first + chosen.seeds - 1}: {hours:,.0f} simulated hours, {steps:,} steps,")
    print(f"{took_s:.1f} s, {steps / took_s:,.0f} steps/s. Failed: {failed or 'none'}")
    for stage, event, to in sorted(declared() - arrows, key=lambda arrow: (arrow[0], arrow[1].__name__, arrow[2])):
        print(f"  never taken: {stage} --{event.__name__}--> {to}")
    raise SystemExit(bool(failed))


def _replay(seed: int) -> None:
    sim = build(seed)
    try:
        _live(sim)
    except AssertionError as broken:
        print("\n".join(sim.transcript))
        raise SystemExit(f"seed {seed}: {broken}") from broken
    print("\n".join(sim.transcript))
