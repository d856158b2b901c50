"""`gpuagent why`: the whole story."""

from __future__ import annotations

import click

from agent.cli import units, words
from agent.cli.options import json_option, name_argument, print_json, the_agent
from agent.cli.text import utc_now

WAITS = ("waiting", "clearing")
"""Stages before a launch."""


@click.command(short_help="Say why a server is where it is: cause, remedy, exit, end of the log.")
@name_argument
@json_option
@click.pass_context
def why(ctx: click.Context, name: str | None, as_json: bool) -> None:
    """Say why server NAME is where it is: cause, remedy, exit, end of the log.

    NAME may be left out where one server is defined.
    """
    agent = the_agent(ctx)
    server = agent.server(name or agent.only_server())
    if as_json:
        print_json(server)
        return
    rivals = units.waited_for(agent.rivals()["rivals"]) if server["stage"] in WAITS else ()
    for line in words.story(server, utc_now(), rivals):
        click.echo(line)
