"""`gpuagent ready`: the process of gpuagent-ready@NAME.service, which is active while the server is ready."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click
import sdnotify  # type: ignore[import-untyped]  # it ships no types

from agent.cli import words
from agent.cli.client import Client, Document
from agent.cli.exits import FAILED, AgentFault, Refused, Unreachable
from agent.cli.options import name_argument, the_agent

RECONNECT_S = 0.25


@click.command(short_help="Last as long as a server is ready (for gpuagent-ready@.service).")
@name_argument
@click.pass_context
def ready(ctx: click.Context, name: str | None) -> None:
    """Wait until server NAME is ready, tell systemd so, and end (3) when it is not ready any more.

    Goes on while the agent cannot be reached, or fails to answer: that says nothing about the server. Ends, too, when
    the server was launched anew meanwhile: what depends on it has lost it. NAME may be left out where one server is
    defined.
    """
    agent = the_agent(ctx)
    systemd, serving = sdnotify.SystemdNotifier(), None
    for server in _looks(agent, name or agent.only_server(), systemd):
        attempt = server["invocation"] if server is not None and server["stage"] == "ready" else None
        sentence = click.unstyle(words.sentence(server)) if server is not None else "it is not defined"
        if serving is not None and attempt != serving:
            click.echo(f"gpuagent: not ready any more: {sentence}", err=True)
            ctx.exit(FAILED)
        if attempt is not None and serving is None:
            serving = attempt
            _say(systemd, "READY=1")
        _say(systemd, f"STATUS={sentence}")


def _say(systemd: sdnotify.SystemdNotifier, state: str) -> None:
    """The library encodes as Latin-1, and systemd reads UTF-8: this makes the bytes UTF-8."""
    systemd.notify(state.encode().decode("latin-1"))


def _looks(agent: Client, name: str, systemd: sdnotify.SystemdNotifier) -> Iterator[Document | None]:
    """The server's document at each change, without end, over every restart of the agent. None: it is not defined."""
    last_id, told = "", False
    while True:
        try:
            for event in agent.events(last_id):
                last_id, told = event.id or last_id, False
                if event.kind == "server" and event.data["name"] == name:
                    yield event.data
                elif event.kind == "status" and name not in event.data["servers"]:
                    yield None
        except (Unreachable, Refused, AgentFault) as fault:
            if not told:  # it may be away for hours
                why = fault.message.splitlines()[0]
                click.echo(f"gpuagent: {why}; asking until it answers", err=True)
                _say(systemd, f"STATUS=the agent is away, and what it said last still counts: {why}")
            told = True
        time.sleep(RECONNECT_S)
