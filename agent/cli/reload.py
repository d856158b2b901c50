"""`gpuagent reload`: the configuration anew."""

from __future__ import annotations

from collections.abc import Iterator

import click

from agent.cli.client import Document
from agent.cli.options import json_option, print_json, the_agent
from agent.cli.text import plain


@click.command(short_help="Read the configuration again.")
@json_option
@click.pass_context
def reload(ctx: click.Context, as_json: bool) -> None:
    """Let the agent read its configuration again, and say what that changes.

    Ends with 2 when the file is wrong: every fault is named, and the last good configuration stays in force.
    """
    changes = the_agent(ctx).reload()
    if as_json:
        print_json(changes)
        return
    for line in _lines(changes):
        click.echo(line)


def _lines(changes: Document) -> Iterator[str]:
    sayings = {
        "added": "added: {}",
        "removed": "removed: {}",
        "changed": "changed: {}; takes effect when it is next launched",
        "later": "changed: {}; takes effect when the agent is next started",
        "listed": "listed: {}; turned off now, or when a server is first wanted: gpuagent rivals",
        "unlisted": "not listed any more: {}; what is held stays held: gpuagent release UNIT",
    }
    for key, saying in sayings.items():
        if changes[key]:
            yield saying.format(", ".join(map(plain, changes[key])))
    if not any(changes.values()):
        yield "nothing has changed"
