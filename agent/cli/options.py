"""What several commands share: arguments, options, and how a document is printed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from agent.cli.client import Client, client

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


def _checked(_ctx: click.Context, _param: click.Parameter, name: str | None) -> str | None:
    """A name that a server can have, as it is."""
    if name is not None and not _NAME.fullmatch(name):
        raise click.BadParameter(f"no server can be named {name!r}: small letters, digits and dashes, at most 32")
    return name


name_argument = click.argument("name", callback=_checked, required=False)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def the_agent(ctx: click.Context) -> Client:
    """The agent that the global --socket names, or the default one."""
    socket: Path | None = ctx.find_root().obj
    return client(socket)


def print_json(value: Any) -> None:
    """For a program, and readable for a person. ASCII only, so that no terminal is harmed."""
    click.echo(json.dumps(value, indent=2))


def print_json_line(value: Any) -> None:
    """One of a stream of values: one line each."""
    click.echo(json.dumps(value))
