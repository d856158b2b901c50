"""`gpuagent holds`, `hold`, `release`: units that are kept off."""

from __future__ import annotations

import click

from agent.cli import units
from agent.cli.client import Document
from agent.cli.options import json_option, print_json, the_agent
from agent.cli.text import utc_now


@click.command(short_help="Show the units that are kept off, and whether that is in force.")
@json_option
@click.pass_context
def holds(ctx: click.Context, as_json: bool) -> None:
    """Show the units that are kept off, since when, and whether that is in force."""
    document = the_agent(ctx).holds()
    held = document["holds"]
    if as_json:
        print_json(document)
    elif not held:
        click.echo("no unit is held: those in [rivals] of the configuration are when a server is first wanted")
    else:
        for line in units.rows(held, {each["unit"]: _word(each) for each in held}, utc_now()):
            click.echo(line)


def _word(hold: Document) -> tuple[str, str]:
    return ("in force", "green") if hold["in_force"] else ("not in force", "red")


@click.command(short_help="Turn a unit off, and keep it off.")
@units.unit_argument
@json_option
@click.pass_context
def hold(ctx: click.Context, unit: str, as_json: bool) -> None:
    """Turn UNIT off and keep it off, over reboots, timers and sockets. It must be listed in [rivals].

    ".service" may be left out.
    """
    answer = the_agent(ctx).hold(unit, "hold")
    _say(answer, as_json, f"{unit} is kept off from now on; how it goes: gpuagent rivals")


@click.command(short_help="Keep a unit off no more.")
@units.unit_argument
@json_option
@click.pass_context
def release(ctx: click.Context, unit: str, as_json: bool) -> None:
    """Give UNIT back as it was before it was held, and keep it off no more. Nothing is started.

    ".service" may be left out.
    """
    answer = the_agent(ctx).hold(unit, "release")
    said = f"{unit} is being given back as it was, and is not started; how it goes: gpuagent rivals"
    _say(answer, as_json, f"{said}. To hold it again: gpuagent hold {unit}")


def _say(answer: Document, as_json: bool, sentence: str) -> None:
    if as_json:
        print_json(answer)
    else:
        click.echo(sentence)
