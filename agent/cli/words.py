"""A server's document (`/servers/NAME`) in words for a person."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import datetime

import click

from agent.cli.client import Document
from agent.cli.text import age, duration, plain

STAGE_COLOURS = {"ready": "green", "failed": "red", "unhealthy": "red", "down": "bright_black"}
OTHER_COLOUR = "yellow"  # on the way

_RETRIES = {
    "no": "not retried: the same again would fail the same way",
    "few": "retried a few times, with growing pauses",
    "yes": "retried",
    "wait": "waited for, at no cost in attempts",
}


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


def story(server: Document, now: datetime) -> Iterator[str]:
    """All that is known about why the server is where it is, a line each."""
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
    yield from failure(server)


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
