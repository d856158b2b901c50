"""What a host has, and what befalls it: definitions, weather, operators, strangers, power cuts."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from agent.core.model import Ask, Policy, Stage, Tick
from tests.core.rivals import NAMES
from tests.core.sim import Sim
from tests.core.world import NEED_MIB, NEEDS, Definition, Host, Weather

LAYOUTS = (("a",), ("a", "b"), ("a", "b", "c"), ("a", "b", "c", "d"))
GPUS = {"a": ("0",), "b": ("0", "1"), "c": ("1",), "d": ()}
OTHER_GPUS = (("0",), ("1",), ("0", "1"), ())
ASKS = (Ask.START, Ask.STOP, Ask.RESTART, Ask.SWITCH)
OFTEN = (Ask.START, Ask.START, Ask.START, Ask.STOP, Ask.RESTART, Ask.SWITCH, Ask.SWITCH)
IN_BETWEEN = frozenset(Stage) - {Stage.DOWN, Stage.READY}
STORMY_S = 1000.0


def layout(r: random.Random) -> dict[str, Definition]:
    """The definitions of one host."""
    names, both, one_port = r.choice(LAYOUTS), r.random() < 0.2, r.random() < 0.4
    return shared(
        {
            name: Definition(
                lists=name in "ac" and r.random() < 0.5,
                policy=_policy(r, name, both=both),
                port=8000 if one_port else 8000 + i,
            )
            for i, name in enumerate(names)
        }
    )


def _policy(r: random.Random, name: str, *, both: bool) -> Policy:
    return Policy(
        name=name,
        gpus=GPUS[name],
        need_mib=NEED_MIB if GPUS[name] else 0,
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


def shared(config: Mapping[str, Definition]) -> dict[str, Definition]:
    """The same, and each knows who shares a GPU or the port with it."""

    def near(a: str, b: str) -> bool:
        return a != b and (
            config[a].port == config[b].port or bool({*config[a].policy.gpus} & {*config[b].policy.gpus})
        )

    return {
        name: replace(
            each, policy=replace(each.policy, overlaps=frozenset(other for other in config if near(name, other)))
        )
        for name, each in config.items()
    }


def changed(r: random.Random, config: Mapping[str, Definition]) -> dict[str, Definition]:
    """Another configuration: some servers have other GPUs, another port, or another patience."""
    new = dict(config)
    for name in [name for name in config if r.random() < 0.5]:
        was, gpus = new[name], r.choice(OTHER_GPUS)
        patience = replace(was.policy, start_limit_s=r.choice((None, 80.0)), attempts=r.choice((3, 6)))
        new[name] = replace(was, policy=patience)
        if r.random() < 0.7:
            policy = replace(patience, gpus=gpus, need_mib=NEED_MIB if gpus else 0)
            new[name] = Definition(policy=policy, port=r.choice((8000, was.port)), digest=was.digest + 1)
    return shared(new)


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
    r, names = sim.rng, list(sim.host.config)
    for _ in range(r.randrange(3, 14)):
        name, ask, back = r.choice(names), r.choice(OFTEN), r.random() < 0.5
        waive, twice = r.random() < 0.2, r.random() < 0.2
        at = r.uniform(1, STORMY_S)
        sim.after(at, partial(sim.ask, name, ask, gpu_check=not waive, back=back))
        if twice:
            sim.after(at + 0.001, partial(sim.ask, r.choice(names), r.choice((Ask.START, Ask.SWITCH))))
    for _ in range(r.choice((0, 0, 1, 3))):
        sim.after(r.uniform(0, STORMY_S), lambda: sim.redefine(changed(r, sim.host.config)))
    for _ in range(r.choice((0, 0, 0, 1, 2))):
        sim.after(r.uniform(0, STORMY_S), sim.reboot)
    _plan_strangers(sim)
    _plan_rivals(sim)
    if sim.host.outlive:
        _plan_administrators(sim)
    hasty = r.choice((0.2, 1.0))
    for second in range(1, int(STORMY_S), 3):
        if r.random() < hasty:
            sim.after(second, lambda: _hasty(sim))


def _plan_administrators(sim: Sim) -> None:
    """What is done with systemctl, at any moment."""
    r, does = sim.rng, (sim.systemctl_start, sim.systemctl_stop, sim.systemctl_restart)
    for _ in range(r.choice((2, 5, 10))):
        sim.after(r.uniform(1, STORMY_S), partial(r.choice(does), r.choice(list(sim.host.config))))


def _plan_rivals(sim: Sim) -> None:
    """What befalls the units that fight over the GPUs: timers, packages, operators, who holds them being down."""
    fight, host, r = sim.fight, sim.host, sim.fight.luck
    fight.blind, fight.half = r.choice((0.0, 0.0, 0.2)), r.choice((0.0, 0.0, 0.3))
    for name in NAMES:
        fight.units[name].enabled = r.random() < 0.7
        if (every_s := r.choice((0, 0, 7, 60))) > 0:  # a timer
            for at in range(every_s, int(STORMY_S), every_s):
                sim.after(at, lambda name=name: fight.start(name, host.now))
        for _ in range(r.choice((0, 0, 1, 2))):
            at, for_s = r.uniform(0, STORMY_S), r.choice((1, 40, 400))
            sim.after(at, lambda name=name: fight.meddle(name, host.now, defeated=True))
            sim.after(at + for_s, lambda name=name: fight.meddle(name, host.now, defeated=False))
        for _ in range(r.choice((0, 0, 2))):
            sim.after(r.uniform(0, STORMY_S), lambda name=name: fight.meddle(name, host.now, held=False))
        for _ in range(r.choice((0, 0, 1, 4))):
            at, word = r.uniform(0, STORMY_S), partial(sim.ask_unit, name, keep_off=r.random() < 0.5)
            sim.after(at, word)
            if r.random() < 0.3:  # the disk is full from then on
                sim.after(at + 0.06, lambda: setattr(sim.weather, "no_disk", True))
                sim.after(at + r.choice((3, 100)), lambda: setattr(sim.weather, "no_disk", False))
    if r.random() < 0.4:  # a hold that is not in force, and a timer: a fight without an end
        sim.after(10, lambda: fight.meddle("vllm", host.now, defeated=True))
        for at in range(10, int(STORMY_S), 5):
            sim.after(at, lambda: fight.start("vllm", host.now))
    for _ in range(r.choice((0, 0, 1))):
        at = r.uniform(0, STORMY_S)
        sim.after(at, lambda: setattr(fight, "deaf", True))
        sim.after(at + r.choice((3, 100, 400)), lambda: setattr(fight, "deaf", False))


def _plan_strangers(sim: Sim) -> None:
    """What others do to the host's files, GPUs, units and disk."""
    r, host = sim.rng, sim.host
    for name in host.config:
        for _ in range(r.choice((0, 1, 3))):
            at = r.uniform(0, STORMY_S)
            sim.after(at, partial(host.unmet.update, {name: (r.choice(NEEDS),)}))
            sim.after(at + r.uniform(5, 300), partial(host.unmet.update, {name: ()}))
    for gpu in (0, 1):
        if r.random() < 0.4:
            sim.after(r.uniform(0, STORMY_S), partial(_take, host, gpu, r.uniform(5, 300)))
    for _ in range(r.choice((0, 1, 4))):
        sim.after(r.uniform(0, STORMY_S), lambda: host.fight.start("comfyui", host.now))
    for _ in range(r.choice((0, 0, 1, 3))):
        at = r.uniform(0, STORMY_S)
        sim.after(at, lambda: setattr(sim.weather, "no_disk", True))
        sim.after(at + r.uniform(1, 100), lambda: setattr(sim.weather, "no_disk", False))
    if r.random() < 0.2:
        sim.after(STORMY_S - r.uniform(1, 60), lambda: setattr(sim.weather, "no_disk", True))  # ... until it clears up
    if r.random() < 0.25:
        sim.after(r.uniform(0, STORMY_S), sim.close)


def _hasty(sim: Sim) -> None:
    """Somebody asks, or ends the agent, or starts the server by hand, just then: when it is least convenient."""
    r, name = sim.rng, sim.rng.choice(list(sim.host.config))
    state = sim.states[name]
    if state.stage in IN_BETWEEN and r.random() < (0.5 if state.launching else 0.08):
        sim.ask(name, r.choice(ASKS), gpu_check=r.random() < 0.5, back=r.random() < 0.5)
    if state.stage in IN_BETWEEN and r.random() < (0.1 if state.launching else 0.002):
        sim.close()
    if r.random() < (0.03 if state.stage in (Stage.WAITING, Stage.CLEARING) else 0.002):
        sim.redefine(changed(r, sim.host.config))
    chances = {Stage.DOWN: 0.01, Stage.FAILED: 0.2, Stage.BACKING_OFF: 0.5}
    chance = chances.get(state.stage, 0.0) if state.pending is None else 0.0
    if not sim.host.live(name) and not sim.host.near(name) and r.random() < chance:
        sim.host.decided.pop(name, None)
        sim.host.spawn(name, f"by-hand-{sim.steps}", leader=r.random() < 0.5)
    if r.random() < 0.05:
        sim.deliver(name, Tick(at=sim.host.now))  # an alarm that rings too early


def _take(host: Host, gpu: int, for_s: float) -> None:
    host.taken_from[gpu], host.taken_until[gpu] = host.now, host.now + for_s


def clear(sim: Sim) -> None:
    """From now on the world is kind; what runs, runs well."""
    sim.weather.clear()
    sim.host.kind = 1.0
    sim.host.unmet.clear()
    fight = sim.fight
    fight.deaf, fight.blind, fight.half = False, 0.0, 0.0
    for name in NAMES:
        fight.meddle(name, sim.host.now, defeated=False)
    for at in (30, 120):  # of what comes up again and again, the agent says that it waits for an operator
        sim.after(at, sim.hold_again)
    sim.host.taken_until.clear()
    for attempt in sim.host.attempts.values():
        if attempt is not None:
            attempt.sick, attempt.hung_from = (0.0, 0.0, ""), None
            attempt.ready_at = attempt.ready_at or sim.host.now + 30
            for proc in attempt.procs:
                proc.deaf, proc.swallows = False, 0
