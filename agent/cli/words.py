"""A server's document (`/servers/NAME`) in words for a person."""

from __future__ import annotations

import signal
from collections.abc import Container, Iterable, Iterator
from datetime import datetime

import click

from agent.cli.client import Document
from agent.cli.text import age, duration, plain

STAGE_COLOURS = {"ready": "green", "failed": "red", "unhealthy": "red", "down": "bright_black"}
OTHER_COLOUR = "yellow"  # on the way

NO_SERVER = "no-server: "
"""Begins the mark of an agent that has nothing to do: nothing is broken."""
HOLD = "hold: "
"""Begins the mark of a unit that is not kept off as it should be; its name comes next."""

_RETRIES = {
    "no": "not retried: the same again would fail the same way",
    "few": "retried a few times, with growing pauses",
    "yes": "retried",
    "wait": "waited for, at no cost in attempts",
}


def marks(document: Document, told: Container[str] = ()) -> Iterator[str]:
    """What `/status` says of the agent itself, a line each. `told`: units of which all is told already."""
    for mark in document["degraded"]:
        if mark.startswith(NO_SERVER):
            yield plain(mark.removeprefix(NO_SERVER))
        elif not is_told(mark, told):
            yield f"degraded: {plain(mark)}"


def is_told(mark: str, units: Container[str]) -> bool:
    """Whether a mark is of one of these units."""
    return mark.startswith(HOLD) and mark.removeprefix(HOLD).partition(":")[0] in units


def row(server: Document, now: datetime) -> tuple[str, str, str, str, str]:
    """Name, stage with its marks, step with progress, age of the stage, why."""
    return plain(server["name"]), stage(server), step(server), age(server["since"], now), plain(server["why"])


def stage(server: Document) -> str:
    """The stage, and whether it is quiet or stalled (stalled says more)."""
    mark = "stalled" if server["stalled"] else "quiet" if server["quiet"] else ""
    return plain(server["stage"]) + (f" ({mark})" if mark else "")


def step(server: Document) -> str:
    """The step, its progress and what is left; empty but while starting."""
    if server["stage"] != "starting" or server["step"] is None:
        return ""
    words = plain(server["step"])
    if server["progress"] is not None:
        words += f" {percent(server)} %"
    if server["eta_s"] is not None:
        words += f", {duration(server['eta_s'])} left"
    return words


def percent(server: Document) -> int:
    """Progress of the step; 100 only when it is whole."""
    return int(server["progress"] * 100)


def coloured(server: Document, text: str) -> str:
    """`text` in the colour of the server's stage; click takes it out again where no terminal shows it."""
    return click.style(text, fg=STAGE_COLOURS.get(server["stage"], OTHER_COLOUR))


def sentence(server: Document) -> str:
    """One line: name, stage, why."""
    return f"{plain(server['name'])}: {coloured(server, stage(server))}: {plain(server['why'])}"


def story(server: Document, now: datetime, rivals: Iterable[Document] = ()) -> Iterator[str]:
    """All that is known about why the server is where it is, a line each. `rivals`: those that it waits for."""
    yield sentence(server)
    facts = [f"for {age(server['since'], now)}"] if server["since"] is not None else []
    if server["step"] is not None:
        facts.append(f"step {step(server) or plain(server['step'])}")
    if server["pid"] is not None:
        facts.append(f"pid {server['pid']}")
    if server["attempt"]:
        facts.append(f"attempt {server['attempt']}")
    if facts:
        yield f"  {', '.join(facts)}; {'wanted' if _is_wanted(server) else 'not wanted'}"
    told = server["cause"]["text"] if server["cause"] is not None else None
    for need in server.get("needs", ()):  # not there before agents told of each
        if need["text"] != told:
            yield from _need(need, now)
    yield from (f"  rival:   {plain(each['unit'])}: {plain(each['why'])}" for each in rivals)
    yield from (_disk(disk) for disk in server.get("storage", ()) if disk["state"] != "ok")
    yield from failure(server)


def _disk(disk: Document) -> str:
    """A disk that gets full, or that nobody can look at."""
    if disk["state"] == "unknown":
        return f"  disk:    {plain(disk['path'])}: cannot be looked at"
    free = f"{disk['free_mib']:.0f} MiB" if disk["free_mib"] is not None else "space"
    inodes = f" and {disk['free_inodes']:.0f} inodes" if disk["free_inodes"] is not None else ""
    lasts = f", full in {duration(disk['lasts_s'])} at the present rate" if disk["lasts_s"] is not None else ""
    return f"  disk:    {plain(disk['path'])}: {free}{inodes} free{lasts}"


def _need(need: Document, now: datetime) -> Iterator[str]:
    """A precondition that is not met."""
    what = "waits for:" if need["heals"] else "lacks:"
    yield f"  {what} {plain(need['name'])} (for {age(need['since'], now)})"
    yield f"           {plain(need['text'])}"
    yield f"  remedy:  {plain(need['remedy'])}"


def failure(server: Document) -> Iterator[str]:
    """Cause, remedy, exit and the end of the log, as far as there are any."""
    cause = server["cause"]
    if cause is not None:
        where = "" if cause["line"] is None else f" (line {cause['line']} of the log)"
        yield f"  cause:   {plain(cause['slug'])}{where}"
        yield f"           {plain(cause['text'])}"
        yield f"  remedy:  {plain(cause['remedy'])}"
        yield f"  retry:   {_RETRIES.get(cause['retry'], plain(cause['retry']))}"
    if server["exit"] is not None:
        yield f"  exit:    {exit_words(server['exit'])}"
    if server["tail"]:
        yield "  the log ends:"
        yield from (f"    {plain(line)}" for line in server["tail"])


def exit_words(end: Document) -> str:
    """How the first process ended."""
    if end["signal"] is not None:
        words = f"killed by {_signal_name(end['signal'])}"
    elif end["code"] is not None:
        words = f"code {end['code']}"
    else:
        words = "ended unseen"
    if end["oom"]:
        words += ", for memory (the kernel's OOM killer)"
    if end.get("stopped"):  # not there before agents knew of units
        return words + ", stopped by systemctl"
    return words + (", as asked" if end["asked"] else ", by itself")


def _signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} ({number})"
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"


def _is_wanted(server: Document) -> bool:
    return bool(server["want"] == "up")
