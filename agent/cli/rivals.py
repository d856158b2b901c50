"""`gpuagent rivals`: the units that are to be kept off, as they are now."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import click

from agent.cli import units
from agent.cli.client import Document
from agent.cli.options import json_option, print_json, the_agent
from agent.cli.text import plain, utc_now


@click.command(short_help="Show the units that are to be kept off: state, why.")
@json_option
@click.pass_context
def rivals(ctx: click.Context, as_json: bool) -> None:
    """Show the units that are to be kept off the GPUs, as they are now, and what a hold may disturb.

    They are named in [rivals] of the configuration, and turned off when a server is first wanted.
    """
    document = the_agent(ctx).rivals()
    if as_json:
        print_json(document)
        return
    for line in _lines(document, utc_now()):
        click.echo(line)


def _lines(document: Document, now: datetime) -> Iterator[str]:
    known = document["rivals"]
    if known:
        yield from units.rows(known, {each["unit"]: units.word(each) for each in known}, now)
    else:
        yield "no unit is listed: name those to keep off in [rivals] of the configuration, then: gpuagent reload"
    for warning in document["warnings"]:
        yield click.style(f"warning: {plain(warning)}", fg="yellow")
