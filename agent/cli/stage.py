"""`gpuagent stage`: one word, for scripts."""

from __future__ import annotations

import click

from agent.cli.options import json_option, name_argument, print_json, the_agent


@click.command(short_help="Print a server's stage: one word.")
@name_argument
@json_option
@click.pass_context
def stage(ctx: click.Context, name: str | None, as_json: bool) -> None:
    """Print the stage of server NAME: one word.

    NAME may be left out where one server is defined.
    """
    agent = the_agent(ctx)
    name = name or agent.only_server()
    word = agent.stage(name)
    if as_json:
        print_json({"name": name, "stage": word})
    else:
        click.echo(word)
