"""`gpuagent status --watch`: redrawn on a terminal, a line a change elsewhere."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from agent.cli import words
from agent.cli.client import Client, Document
from agent.cli.exits import Unreachable
from agent.cli.options import print_json_line
from agent.cli.text import plain, utc_now

if TYPE_CHECKING:
    from rich.console import RenderableType

POLL_S = 0.25
BAR_WIDTH = 20  # characters
PERCENT_GRAIN = 10  # in a pipe, progress is worth a line only so often


@dataclass(frozen=True, slots=True)
class Look:
    """What one poll saw: `/status`, or why there is none."""

    document: Document | None
    gone: str | None = None


def watch(agent: Client, as_json: bool) -> None:
    """Show the status until Ctrl-C. Unreachable if no agent answers the first time."""
    if as_json:
        _print_documents(agent)
    elif sys.stdout.isatty():
        _draw(agent)
    else:
        _print_changes(agent)


def _looks(agent: Client) -> Iterator[Look]:
    """A look every POLL_S, without end. An agent that goes away is waited for."""
    yield Look(agent.status())
    while True:
        time.sleep(POLL_S)
        try:
            yield Look(agent.status())
        except Unreachable as fault:
            yield Look(None, fault.message.splitlines()[0])


def _print_documents(agent: Client) -> None:
    """`/status`, one document a line, at each change."""
    seen: object = None
    for look in _looks(agent):
        news = _news(look)
        if news == seen:
            continue
        seen = news
        if look.document is None:
            click.echo(f"gpuagent: the agent is gone: {look.gone}", err=True)
        else:
            print_json_line(look.document)


def _print_changes(agent: Client) -> None:
    """A line for each server that changed, and for the agent when it goes or comes."""
    seen: dict[str, object] = {}
    gone = False
    for look in _looks(agent):
        if look.document is None:
            if not gone:
                click.echo(f"the agent is gone: {look.gone}")
            gone = True
            continue
        if gone:
            click.echo("the agent is back")
        gone = False
        for server in look.document["servers"]:
            if seen.get(server["name"]) != _grain(server):
                seen[server["name"]] = _grain(server)
                click.echo(_line(server))
        degraded = [plain(str(mark)) for mark in look.document["degraded"]]
        if seen.get("degraded:", []) != degraded:  # the colon: no server can have this name
            seen["degraded:"] = degraded
            click.echo(f"degraded: {', '.join(degraded) or 'no more'}")


def _news(look: Look) -> object:
    """What must differ for a look to be worth a line."""
    if look.document is None:
        return None
    return [_grain(server) for server in look.document["servers"]], look.document["degraded"]


def _grain(server: Document) -> object:
    """What must differ for a server to be worth a line. While a step is measured, the sentence counts along with it."""
    if server["stage"] == "starting" and server["progress"] is not None:
        return words.stage(server), server["step"], words.percent(server) // PERCENT_GRAIN
    return words.stage(server), server["step"], server["why"]


def _line(server: Document) -> str:
    return "  ".join(cell for cell in words.row(server, utc_now()) if cell)


def _draw(agent: Client) -> None:
    """Redraw one table in place."""
    from rich.live import Live  # only here: slow to import, and of use on a terminal alone

    # Live hides the cursor; an end by SIGTERM must bring it back, so it ends like any other.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    last: Document = {"servers": [], "degraded": []}
    with Live(auto_refresh=False) as live:
        for look in _looks(agent):
            last = look.document or last
            live.update(_picture(last, look.gone), refresh=True)


def _picture(document: Document, gone: str | None) -> RenderableType:
    """A line a server with a bar while it starts; below it what is wrong with the agent."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    now = utc_now()
    grid = Table.grid(padding=(0, 2))
    for _ in range(5):  # all but the sentence, which alone may take another line
        grid.add_column(no_wrap=True)
    grid.add_column()
    for server in document["servers"]:
        name, stage, step, age, why = words.row(server, now)
        colour = words.STAGE_COLOURS.get(server["stage"], words.OTHER_COLOUR)
        is_measured = server["stage"] == "starting" and server["progress"] is not None
        bar = ProgressBar(total=1.0, completed=server["progress"], width=BAR_WIDTH) if is_measured else ""
        grid.add_row(Text(name, "bold"), Text(stage, colour), bar, Text(step), Text(age), Text(why))
    notes = [Text(f"degraded: {plain(str(mark))}", "red") for mark in document["degraded"]]
    if gone is not None:
        notes.append(Text(f"the agent is gone, this is the last that it said: {gone}", "red"))
    return Group(grid, *notes)
