"""The command line. Talks HTTP over the agent's unix socket.

A command's module is imported only when the command is named, and imports what is slow (the daemon, rich) only
where it is used: scripts ask `gpuagent stage` in loops.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import click

from agent.cli.exits import CLOSED_PIPE, INTERRUPTED

COMMANDS = {
    "run": "run:run",
    "status": "status:status",
    "stage": "stage:stage",
    "start": "change:start",
    "stop": "change:stop",
    "restart": "change:restart",
    "switch": "change:switch",
    "wait": "wait:wait",
    "log": "log:log",
    "why": "why:why",
    "starts": "starts:starts",
    "gpus": "gpus:gpus",
    "rivals": "rivals:rivals",
    "holds": "holds:holds",
    "hold": "holds:hold",
    "release": "holds:release",
    "explain": "explain:explain",
    "check-config": "check_config:check_config",
    "reload": "reload:reload",
    "ready": "ready:ready",
}
"""Command -> module of this package and name in it, in the order of the help."""


class LazyGroup(click.Group):
    """A group that imports a command when it is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table, which tells a story; not by letter."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(f"agent.cli.{module}"), name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; Ctrl-C and a reader that has seen enough (`| head`) end it quietly."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            # What is still buffered would raise again when Python flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(CLOSED_PIPE)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--socket",
    type=click.Path(path_type=Path, readable=False),
    help="The agent's socket. Default: $GPUAGENT_SOCKET, or the first that answers of /run/gpuagent/api.sock "
    "and $XDG_RUNTIME_DIR/gpuagent/api.sock.",
)
@click.version_option(package_name="gpuagent")
@click.pass_context
def gpuagent(ctx: click.Context, socket: Path | None) -> None:
    """Runs an LLM inference server on a GPU host, and tells the truth about it.

    \b
    Exit codes: 0 ok, 1 a bug, 2 wrong usage or configuration, 3 failed or not wanted,
    4 still progressing, 5 stalled, 6 the agent cannot be reached, 7 refused.
    """
    ctx.obj = socket
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def main() -> None:
    """The entry point of `gpuagent`."""
    for stream in (sys.stdout, sys.stderr):
        # What a server wrote may not fit the terminal's encoding; that must not end a command.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # typeshed: TextIO; it is a TextIOWrapper
    gpuagent.main(prog_name="gpuagent")
