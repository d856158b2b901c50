"""`gpuagent check-config`: every fault of a configuration at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent.cli.exits import OK, USAGE
from agent.cli.options import json_option, print_json
from agent.cli.text import plain

if TYPE_CHECKING:
    from agent.config import Config, ServerConfig

DEFAULT_FILE = Path("/etc/gpuagent/gpuagent.toml")


@click.command(short_help="Check a configuration file.")
@click.argument("file", type=click.Path(path_type=Path, readable=False), default=DEFAULT_FILE)
@json_option
@click.pass_context
def check_config(ctx: click.Context, file: Path, as_json: bool) -> None:
    """Check the configuration FILE (/etc/gpuagent/gpuagent.toml), and name every fault with its place.

    Ends with 0 when it is good, with 2 when it is not.
    """
    from agent import config  # only here: pydantic is slow to import
    from agent.errors import ConfigError

    try:
        found, faults = config.load(file), []
    except ConfigError as error:
        found, faults = None, [plain(fault) for fault in error.faults]
    if as_json:
        print_json({"file": str(file), "faults": faults, "servers": sorted(found.servers) if found else []})
    elif found is None:
        for fault in faults:
            click.echo(f"gpuagent: {fault}", err=True)
    else:
        _say_good(file, found)
    ctx.exit(USAGE if faults else OK)


def _say_good(file: Path, found: Config) -> None:
    """What the file defines. Of a command only the program: its arguments may hold secrets."""
    click.echo(f"{file}: good")
    if not found.servers:
        click.echo("  no server is defined: add a table [servers.NAME] with its command, then: gpuagent reload")
    for name, server in found.servers.items():
        click.echo(f"  {name}: {', '.join(_words(server))}")


def _words(server: ServerConfig) -> list[str]:
    words = [plain(server.command[0])]
    if server.family is not None:
        words.append(server.family)
    if server.port is not None:
        words.append(f"port {server.port}")
    words.append(f"GPUs {', '.join(map(str, server.gpus))}" if server.gpus else "no GPU")
    return [*words, "starts by itself" if server.autostart else "starts when told"]
