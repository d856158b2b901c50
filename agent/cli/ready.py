"""`gpuagent ready`: the process of gpuagent-ready@NAME.service, which is active while the server is ready."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click
import sdnotify  # type: ignore[import-untyped]  # it ships no types

from agent.cli import words
from agent.cli.client import Client, Document
from agent.cli.exits import FAILED, Unreachable
from agent.cli.options import name_argument, the_agent
from agent.cli.text import plain

RECONNECT_S = 0.25


@click.command(short_help="Last as long as a server is ready (for gpuagent-ready@.service).")
@name_argument
@click.pass_context
def ready(ctx: click.Context, name: str | None) -> None:
    """Wait until server NAME is ready, tell systemd so, and end (3) when it is not ready any more.

    Goes on while the agent cannot be reached: that says nothing about the server. Ends, too, when the server was
    launched anew meanwhile: what depends on it has lost it. NAME may be left out where one server is defined.
    """
    agent = the_agent(ctx)
    systemd, serving = sdnotify.SystemdNotifier(), None
    for server in _looks(agent, name or agent.only_server()):
        is_ready, attempt = server["stage"] == "ready", server["invocation"]
        if serving is not None and (not is_ready or attempt != serving):
            click.echo(f"gpuagent: not ready any more: {words.sentence(server)}", err=True)
            ctx.exit(FAILED)
        if is_ready and serving is None:
            serving = attempt
            _say(systemd, "READY=1")
        _say(systemd, f"STATUS={' '.join(plain(server['why']).split())}")


def _say(systemd: sdnotify.SystemdNotifier, state: str) -> None:
    """The library encodes as Latin-1, and systemd reads UTF-8: this makes the bytes UTF-8."""
    systemd.notify(state.encode().decode("latin-1"))


def _looks(agent: Client, name: str) -> Iterator[Document]:
    """The server's document at each change, without end, over every restart of the agent."""
    last_id = ""
    while True:
        try:
            for event in agent.events(last_id):
                last_id = event.id or last_id
                if event.kind == "server" and event.data["name"] == name:
                    yield event.data
                elif event.kind == "missed":
                    yield agent.server(name)
        except Unreachable as fault:
            click.echo(f"gpuagent: {fault.message.splitlines()[0]}; asking again", err=True)
        time.sleep(RECONNECT_S)
