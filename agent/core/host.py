"""All servers of one host: who shares a GPU or a port with whom. Pure.

A server's own step() knows nothing of the others; here each look is given what the others are at that moment, and
those that share something are told at once when it changes, so that two of them never launch on the same news.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from agent.core.machine import step
from agent.core.model import (
    Ask,
    Asked,
    Booted,
    Effect,
    Event,
    Looked,
    NotOff,
    Policy,
    Reconfigured,
    Seen,
    Stage,
    State,
    Want,
)

PRESENT = frozenset({Stage.STARTING, Stage.READY, Stage.UNHEALTHY, Stage.STOPPING})


def present(state: State) -> bool:
    """Whether a server has or may have processes. Not looked at yet: it may."""
    return state.stage in PRESENT or state.seen.tree is None or bool(state.seen.tree)


def claimed(state: State) -> bool:
    """Whether a server is wanted, or is about to be: the change is being saved. Not booted yet: it may be.

    One whose stop could not be saved would be wanted again after a crash.
    """
    about_to_be = state.proposed is not None and state.proposed.want is Want.UP
    return not state.run or state.wanted or about_to_be or state.degraded


def sharers(name: str, policies: Mapping[str, Policy]) -> frozenset[str]:
    """The servers that share something with this one: one that runs by an older definition knows it alone."""
    return policies[name].overlaps | {other for other, policy in policies.items() if name in policy.overlaps}


def neighbours(seen: Seen, states: Mapping[str, State], overlaps: Iterable[str]) -> Seen:
    """The look, with the servers that are in the way of this one."""
    near = {name: states[name] for name in overlaps if name in states}
    return replace(
        seen,
        neighbours=frozenset(name for name, state in near.items() if present(state)),
        wanted_neighbours=frozenset(name for name, state in near.items() if claimed(state)),
        asks=max(map(_asks, near.values()), default=0),
    )


def _asks(state: State) -> int:
    """How much it has been asked, with what is being saved."""
    return (state.proposed or state.saved).asks


@dataclass(frozen=True, slots=True)
class Taken:
    """One step that was taken: whose, on what, and what it led to."""

    name: str
    event: Event
    before: State
    state: State
    effects: tuple[Effect, ...]


def advance(
    states: Mapping[str, State], name: str, event: Event, policies: Mapping[str, Policy], rivals: NotOff
) -> tuple[Mapping[str, State], list[Taken]]:
    """Apply one event to one server, and tell those that share something with it if that changed for them."""
    return _advance(states, [(name, event)], policies, rivals)


def tell_of_rivals(
    states: Mapping[str, State], at: float, policies: Mapping[str, Policy], rivals: NotOff
) -> tuple[Mapping[str, State], list[Taken]]:
    """Another unit is off, or is not off any more: news for every server that waits."""
    return _advance(states, [(n, _news(n, at, states)) for n in sorted(states) if states[n].run], policies, rivals)


def _advance(
    states: Mapping[str, State], queue: list[tuple[str, Event]], policies: Mapping[str, Policy], rivals: NotOff
) -> tuple[Mapping[str, State], list[Taken]]:
    now, taken = dict(states), list[Taken]()
    while queue:
        who, what = queue.pop(0)
        at, what = what.at, _informed(who, what, now, policies, rivals)
        before = now[who]
        done = step(before, what, policies[who])
        now[who] = done.state
        taken.append(Taken(who, what, before, done.state, done.effects))
        queue += [(other, _news(other, what.at, now)) for other in _touched(who, what, before, now, policies)]
        if not queue:
            queue += _follows(at, now, policies)
    return now, taken


def _follows(at: float, states: Mapping[str, State], policies: Mapping[str, Policy]) -> Iterator[tuple[str, Event]]:
    """What a switch asks of the other servers: to give way, and to come back when the new one has failed.

    A level, not an edge: it stands in what is saved of the new server, so a crash between two saves loses nothing.
    """
    for name, state in states.items():
        if not state.wanted or state.closing:
            continue
        for other in sorted(state.saved.over & states.keys()):
            if states[other].wanted and _may_be_asked(states[other]) and not _outdone(name, other, states):
                yield other, Asked(at=at, ask=Ask.STOP, reason=f"switched to {name}")
        near = state.saved.back in sharers(name, policies)  # a newer configuration may let both run
        back = states.get(state.saved.back or "") if near else None
        if state.stage is Stage.FAILED and back is not None and not claimed(back) and _may_be_asked(back):
            slug = state.cause.slug if state.cause else "unknown"
            yield state.saved.back or "", Asked(at=at, ask=Ask.SWITCH, reason=f"switched back: {name} failed ({slug})")


def _outdone(name: str, other: str, states: Mapping[str, State]) -> bool:
    """Whether each of the two is to give way to the other, and the switch to the other is the later one."""
    mine, theirs = states[name].saved, states[other].saved
    return name in theirs.over and (theirs.asks, other) > (mine.asks, name)


def _may_be_asked(state: State) -> bool:
    """Not before its boot, nor while another change is being saved, nor while none can be."""
    return bool(state.run) and state.pending is None and not state.closing and not state.degraded


def _informed(
    who: str, event: Event, states: Mapping[str, State], policies: Mapping[str, Policy], rivals: NotOff
) -> Event:
    """A look as it comes from outside knows nothing of the other servers, and of the units that are to be off."""
    if isinstance(event, Looked | Booted):
        seen = replace(event.seen, rivals=rivals)
        return replace(event, seen=neighbours(seen, states, sharers(who, policies)))
    return event


def _touched(
    who: str, event: Event, before: State, states: Mapping[str, State], policies: Mapping[str, Policy]
) -> list[str]:
    """The servers for which this step changed who is in the way."""
    if isinstance(event, Reconfigured):  # it may share something with others now
        return sorted(states)
    after = states[who]
    if all(of(before) == of(after) for of in (present, claimed, _asks)):
        return []
    return [name for name in sorted(sharers(who, policies)) if name in states]


def _news(name: str, at: float, states: Mapping[str, State]) -> Looked:
    """The server's last look again, with what has changed around it."""
    return Looked(at=at, seen=states[name].seen)
