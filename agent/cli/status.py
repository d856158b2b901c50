"""`gpuagent status`: one line a server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import click

from agent.cli import units, words
from agent.cli.client import Document
from agent.cli.options import json_option, print_json, the_agent
from agent.cli.text import utc_now


@click.command(short_help="Show every server: stage, progress, why.")
@click.option("--watch", is_flag=True, help="Go on showing what changes, until Ctrl-C.")
@json_option
@click.pass_context
def status(ctx: click.Context, watch: bool, as_json: bool) -> None:
    """Show every server: stage, step and progress, for how long, and why."""
    agent = the_agent(ctx)
    if watch:
        from agent.cli import watch as watching  # only here: a script's `status` should not pay for it

        watching.watch(agent, as_json)
    elif as_json:
        print_json(agent.status())
    else:
        for line in table(agent.status(), utc_now(), agent.rivals()["rivals"]):
            click.echo(line)


def table(document: Document, now: datetime, rivals: list[Document]) -> Iterator[str]:
    """`/status` as aligned lines; below them what is not as it should be."""
    servers = document["servers"]
    rows = [words.row(server, now) for server in servers]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for server, cells in zip(servers, rows, strict=True):
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        padded[1] = words.coloured(server, padded[1])
        # An empty column (no server has a step) is left out.
        yield "  ".join(cell for cell, width in zip(padded, widths, strict=True) if width).rstrip()
    troubles = units.troubles(document["holds"], rivals)
    yield from troubles.values()
    notes = [*words.marks(document, troubles)]
    if not servers and not notes:
        yield "no server is defined"
    yield from (click.style(note, fg="red") for note in notes)
