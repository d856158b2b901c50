"""One simulated life from a seed: a layout, bad weather, then good weather in which all that is asked comes true."""

from __future__ import annotations

import argparse
import random
import time
from functools import partial

from agent.core.machine import TABLE
from agent.core.model import Ask, Policy, Saved, Stage, Tick, Want
from tests.core.asked import TruthBrokenError
from tests.core.sim import Arrow, Sim
from tests.core.world import CAUSES, NEED_MIB, NEEDS, Host, Weather

LAYOUTS = (("a",), ("a", "b"), ("a", "b", "c"), ("a", "b", "c", "d"))
GPUS = {"a": ("0",), "b": ("0", "1"), "c": ("1",), "d": ()}
OVERLAPS = {"a": {"b"}, "b": {"a", "c"}, "c": {"b"}, "d": set[str]()}
ASKS = (Ask.START, Ask.STOP, Ask.RESTART)
IN_BETWEEN = frozenset(Stage) - {Stage.DOWN, Stage.READY}
STORMY_S = 1000.0
SETTLE_S = 500.0  # the longest pause, a start, the patience with an unhealthy server and with an ending agent


class Failed(AssertionError):  # noqa: N818  # the name reads as a sentence in pytest's summary
    """A simulated life that broke a law; says its seed and its last words."""


def layout(r: random.Random) -> dict[str, Policy]:
    """The definitions of one host."""
    names, both = r.choice(LAYOUTS), r.random() < 0.2
    return {
        name: Policy(
            name=name,
            gpus=GPUS[name],
            need_mib=NEED_MIB if GPUS[name] else 0,
            rivals=frozenset({"comfyui"}) if name in "ac" and r.random() < 0.5 else frozenset(),
            overlaps=frozenset(OVERLAPS[name] & set(names)),
            autostart=name in "ab" and (both or r.random() < 0.2),
            start_limit_s=r.choice((None, None, 80.0)),
            on_stall=r.choice(("report", "restart")),
            clear_s=20.0,
            quiet_s=30.0,
            stall_s=90.0,
            stall_init_s=60.0,
            busy_s=40.0,
            unhealthy_s=40.0,
            terms_s=r.choice(((10.0,), (5.0, 10.0))),
            sweep_s=3.0,
            kill_s=5.0,
            launch_s=2.0,
            pauses_s=(1.0, 5.0, 20.0),
            attempts=r.choice((3, 6)),
            steady_s=120.0,
        )
        for name in names
    }


def weather(r: random.Random) -> Weather:
    """How bad it is in one life."""
    return Weather(
        crash=r.choice((0.0, 0.01, 0.05)),
        lost_exit=r.choice((0.0, 0.3)),
        late_exit=r.choice((0.0, 0.2)),
        blind=r.choice((0.0, 0.05, 0.4)),
        stray=r.choice((0.0, 0.2)),
        slow=r.choice((0.0, 0.05, 0.3)),
        refuse=r.choice((0.0, 0.02, 0.2)),
    )


def plan(sim: Sim) -> None:
    """What befalls the host while the weather is bad."""
    r, host, names = sim.rng, sim.host, list(sim.host.policies)
    for _ in range(r.randrange(3, 14)):
        name, ask = r.choice(names), r.choice((Ask.START, Ask.START, Ask.START, Ask.STOP, Ask.RESTART))
        waive, twice = r.random() < 0.2, r.random() < 0.2
        at = r.uniform(1, STORMY_S)
        sim.after(at, partial(sim.ask, name, ask, gpu_check=not waive))
        if twice:
            sim.after(at + 0.001, partial(sim.ask, r.choice(names), Ask.START))
    for name in names:
        for _ in range(r.choice((0, 1, 3))):
            at = r.uniform(0, STORMY_S)
            sim.after(at, partial(host.unmet.update, {name: (r.choice(NEEDS),)}))
            sim.after(at + r.uniform(5, 300), partial(host.unmet.update, {name: ()}))
    for gpu in (0, 1):
        if r.random() < 0.4:
            sim.after(r.uniform(0, STORMY_S), partial(_take, host, gpu, r.uniform(5, 300)))
    for _ in range(r.choice((0, 1, 4))):
        sim.after(r.uniform(0, STORMY_S), lambda: _rival(host))
    for _ in range(r.choice((0, 0, 1, 3))):
        at = r.uniform(0, STORMY_S)
        sim.after(at, lambda: setattr(sim.weather, "no_disk", True))
        sim.after(at + r.uniform(1, 100), lambda: setattr(sim.weather, "no_disk", False))
    if r.random() < 0.25:
        sim.after(r.uniform(0, STORMY_S), sim.close)
    hasty = r.choice((0.2, 1.0))
    for second in range(1, int(STORMY_S), 3):
        if r.random() < hasty:
            sim.after(second, lambda: _hasty(sim))


def _hasty(sim: Sim) -> None:
    """Somebody asks, or ends the agent, or starts the server by hand, just then: when it is least convenient."""
    r, name = sim.rng, sim.rng.choice(list(sim.host.policies))
    state, policy = sim.states[name], sim.host.policies[name]
    if state.stage in IN_BETWEEN and r.random() < (0.5 if state.launching else 0.08):
        sim.ask(name, r.choice(ASKS), gpu_check=r.random() < 0.5)
    if state.stage in IN_BETWEEN and r.random() < (0.1 if state.launching else 0.002):
        sim.close()
    chance = {Stage.DOWN: 0.01, Stage.FAILED: 0.2}.get(state.stage, 0.0) if state.pending is None else 0.0
    if not sim.host.live(name) and not policy.overlaps and r.random() < chance:
        sim.host.spawn(name, f"by-hand-{sim.steps}", leader=r.random() < 0.5)
    if r.random() < 0.05:
        sim.deliver(name, Tick(at=sim.host.now))  # an alarm that rings too early


def _take(host: Host, gpu: int, for_s: float) -> None:
    host.taken_from[gpu], host.taken_until[gpu] = host.now, host.now + for_s


def _rival(host: Host) -> None:
    if host.units.get("comfyui") is None:
        host.units["comfyui"] = host.now


def clear(sim: Sim) -> None:
    """From now on the world is kind; what runs, runs well."""
    sim.weather.clear()
    sim.host.kind = 1.0
    sim.host.unmet.clear()
    sim.host.taken_until.clear()
    for attempt in sim.host.attempts.values():
        if attempt is not None:
            attempt.sick, attempt.hung_from = (0.0, 0.0, ""), None
            attempt.ready_at = attempt.ready_at or sim.host.now + 30
            for proc in attempt.procs:
                proc.deaf, proc.swallows = False, 0


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
    host = Host(rng=r, policies=layout(r), kind=r.choice((0.1, 0.5, 0.9)))
    if r.random() < 0.5:
        host.units["comfyui"] = 0.0
    if r.random() < 0.2:
        host.curse = r.choice(CAUSES)
    return Sim(host, weather(r))


def _live(sim: Sim) -> None:
    plan(sim)
    sim.boot()
    sim.run(STORMY_S)
    clear(sim)
    sim.run(SETTLE_S)
    _settled(sim)
    for name in sim.host.policies:
        sim.ask(name, Ask.STOP)
    sim.run(120)
    for name in sim.host.policies:
        _is(sim, name, Stage.DOWN)
    chosen = [name for name in sim.host.policies if name in sim.rng.choice(("acd", "bd"))]
    for name in [name for i, name in enumerate(chosen) if not sim.host.policies[name].overlaps & set(chosen[:i])]:
        sim.ask(name, Ask.START)
        sim.run(200)
        _is(sim, name, Stage.READY)
        sim.ask(name, Ask.RESTART)
        sim.run(200)
        _is(sim, name, Stage.READY)
    sim.close()
    sim.run(60)


def _settled(sim: Sim) -> None:
    """Every wait has come to its end, of itself."""
    for name, state in sim.states.items():
        want = sim.host.disk.get(name, Saved()).want
        if sim.host.disk.get(name, Saved()) != state.saved:
            raise TruthBrokenError(f"{name}: the disk does not have {state.saved}")
        if want is not Want.UP:
            _is(sim, name, Stage.DOWN)
        elif state.seen.wanted_neighbours or (state.stage is Stage.FAILED and not state.blocked):
            continue  # two that were both wanted before; or it gave up, and says so
        else:
            _is(sim, name, Stage.READY)


def _is(sim: Sim, name: str, stage: Stage) -> None:
    state, true = sim.states[name], bool(sim.host.live(name))
    if not sim.up or state.stage is not stage or true is not (stage is Stage.READY):
        raise TruthBrokenError(f"good weather for long, and {name} is not {stage}, but {state.stage}: {state.why}")
    want = Want.UP if stage is Stage.READY else Want.DOWN
    saved = sim.host.disk.get(name, Saved()).want
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
