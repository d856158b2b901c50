"""`gpuagent status --watch`: redrawn on a terminal, a line a change elsewhere."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from agent.cli import units, words
from agent.cli.client import Client, Document
from agent.cli.event_stream import Event
from agent.cli.exits import Away
from agent.cli.options import print_json_line
from agent.cli.text import plain, utc_now

if TYPE_CHECKING:
    from rich.console import RenderableType

RECONNECT_S = 0.25
DRAWS_PER_S = 4  # the age of a stage counts in seconds
BAR_WIDTH = 20  # characters
PERCENT_GRAIN = 10  # in a pipe, progress is worth a line only so often


@dataclass(frozen=True, slots=True)
class Look:
    """What there is to see after an event. With neither a document nor a reason, the agent is only there again."""

    document: Document | None = None  # `/status`
    gone: str | None = None  # why no agent is there
    missed: str | None = None  # why some changes before this look were not seen


@dataclass(slots=True)
class Picture:
    """`/status`, put together from events."""

    about: Document | None = None
    servers: dict[str, Document] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        """Bring it up to date."""
        if event.kind == "status":
            self.about = event.data
        elif event.kind == "server":
            self.servers[event.data["name"]] = event.data
        elif event.kind == "missed":
            self.about, self.servers = None, {}

    def document(self) -> Document | None:
        """None while parts of it have not come yet."""
        if self.about is None or not all(name in self.servers for name in self.about["servers"]):
            return None
        return {**self.about, "servers": [self.servers[name] for name in self.about["servers"]]}


def watch(agent: Client, as_json: bool) -> None:
    """Show the status until Ctrl-C. Away if no agent answers the first time."""
    if as_json:
        _print_documents(agent)
    elif sys.stdout.isatty():
        _draw(agent)
    else:
        _print_changes(agent)


def _looks(agent: Client) -> Iterator[Look]:
    """A look at each event, without end. An agent that goes away is waited for, and asked for what was missed."""
    picture, last_id, missed = Picture(), "", None
    while True:
        try:
            for event in agent.events(last_id):
                if event.kind == "open":
                    yield Look()  # whether the picture still holds, only the next event can tell
                    continue
                last_id = event.id or last_id
                picture.take(event)
                missed = event.data["why"] if event.kind == "missed" else missed
                if (document := picture.document()) is not None:
                    yield Look(document, missed=missed)
                    missed = None
        except Away as fault:
            if not last_id:
                raise
            yield Look(gone=fault.message.splitlines()[0])
        time.sleep(RECONNECT_S)


def _print_documents(agent: Client) -> None:
    """`/status`, one document a line, at each change; of the agent itself on stderr."""
    seen: object = None
    for look in _told(agent, err=True):
        if look.document is not None and _news(look.document) != seen:
            seen = _news(look.document)
            print_json_line(look.document)


def _print_changes(agent: Client) -> None:
    """A line for each server that changed, and for the agent when it goes or comes."""
    seen: dict[str, object] = {}
    for look in _told(agent, err=False):
        if look.document is None:
            continue
        for server in look.document["servers"]:
            if seen.get(server["name"]) != _grain(server):
                seen[server["name"]] = _grain(server)
                click.echo(_line(server))
        troubles = _troubles(look.document)
        degraded = [plain(mark) for mark in look.document["degraded"] if not words.is_told(mark, troubles)]
        if seen.get("degraded:", []) != degraded:  # the colon: no server can have this name
            seen["degraded:"] = degraded
            click.echo(f"degraded: {', '.join(degraded) or 'no more'}")
        if seen.get("holds:", {}) != troubles:
            seen["holds:"] = troubles
            for line in troubles.values() or ["every hold is in force"]:
                click.echo(line)


def _told(agent: Client, err: bool) -> Iterator[Look]:
    """The looks; says when the agent goes and comes, and when changes were not seen."""
    gone, who = False, "gpuagent: " if err else ""
    for look in _looks(agent):
        if look.gone is not None and not gone:
            click.echo(f"{who}the agent is gone: {look.gone}", err=err)
        if look.gone is None and gone:
            click.echo(f"{who}the agent is back", err=err)
        gone = look.gone is not None
        if look.missed is not None:
            click.echo(f"{who}some changes were not seen: {plain(look.missed)}", err=err)
        yield look


def _news(document: Document) -> object:
    """What must differ for `/status` to be worth a line."""
    return [_grain(server) for server in document["servers"]], document["degraded"], document["holds"]


def _troubles(document: Document) -> dict[str, str]:
    """What of the holds is not as it should be; of units that are up, `/status` tells only by them."""
    return units.troubles(document["holds"], [])


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
    last: Document = {"servers": [], "degraded": [], "holds": []}
    gone: str | None = None
    # Drawn by a clock: the age of a stage grows without an event, and a burst of events is no reason to flicker.
    with Live(get_renderable=lambda: _picture(last, gone), refresh_per_second=DRAWS_PER_S):
        for look in _looks(agent):
            last, gone = look.document or last, look.gone


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
    troubles = _troubles(document)
    notes = [Text(click.unstyle(line), "red") for line in (*troubles.values(), *words.marks(document, troubles))]
    if gone is not None:
        notes.append(Text(f"the agent is gone, this is the last that it said: {gone}", "red"))
    return Group(grid, *notes)
