"""`gpuagent start`, `stop`, `restart`, `switch`: what an operator wants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from agent.cli import words
from agent.cli.client import Client, Document
from agent.cli.options import json_option, name_argument, print_json, the_agent
from agent.cli.wait import timeout_option, until


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The arguments that all but `switch` share."""
    waiting = click.option("--wait", "and_wait", is_flag=True, help="Return only when it is done, or has failed.")
    return name_argument(waiting(timeout_option(json_option(click.pass_context(command)))))


@click.command(short_help="Start a server, and keep it up.")
@_options
@click.option("--without-gpu-check", is_flag=True, help="Launch even if the state of the GPUs is not known.")
def start(
    ctx: click.Context, name: str | None, and_wait: bool, timeout_s: float, as_json: bool, without_gpu_check: bool
) -> None:
    """Start server NAME, and keep it up from now on.

    NAME may be left out where one server is defined.
    """
    body = {"gpu_check": False} if without_gpu_check else {}
    _change(ctx, name, "start", body, "ready" if and_wait else None, timeout_s, as_json)


@click.command(short_help="End a server, and start it again.")
@_options
def restart(ctx: click.Context, name: str | None, and_wait: bool, timeout_s: float, as_json: bool) -> None:
    """End server NAME, and start it again.

    NAME may be left out where one server is defined.
    """
    _change(ctx, name, "restart", {}, "ready" if and_wait else None, timeout_s, as_json)


@click.command(short_help="End a server, and keep it down.")
@_options
def stop(ctx: click.Context, name: str | None, and_wait: bool, timeout_s: float, as_json: bool) -> None:
    """End server NAME with all its processes, and keep it down from now on.

    NAME may be left out where one server is defined.
    """
    _change(ctx, name, "stop", {}, "down" if and_wait else None, timeout_s, as_json)


@click.command(short_help="Start a server in place of another.")
@click.argument("name")
@click.option("--back", is_flag=True, help="Return to the server that gave way if this one fails.")
@click.option("--wait", "and_wait", is_flag=True, help="Return only when it is ready, or has failed.")
@timeout_option
@json_option
@click.pass_context
def switch(ctx: click.Context, name: str, back: bool, and_wait: bool, timeout_s: float, as_json: bool) -> None:
    """Start server NAME; those that share a GPU or the port with it are stopped first, and stay down."""
    agent = the_agent(ctx)
    _finish(ctx, agent, agent.switch(name, back), "ready" if and_wait else None, timeout_s, as_json)


def _change(
    ctx: click.Context,
    name: str | None,
    verb: str,
    body: dict[str, bool],
    goal: str | None,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Ask for the change."""
    agent = the_agent(ctx)
    _finish(ctx, agent, agent.change(name or agent.only_server(), verb, body), goal, timeout_s, as_json)


def _finish(
    ctx: click.Context, agent: Client, server: Document, goal: str | None, timeout_s: float, as_json: bool
) -> None:
    """Say what the change led to, and wait for `goal` if there is one. JSON: one document, as it is at the end."""
    waits = goal is not None and server["stage"] != goal
    if not as_json:
        click.echo(words.sentence(server))
    elif not waits:
        print_json(server)
    if goal is not None and waits:
        ctx.exit(until(agent, server["name"], goal, timeout_s, as_json))
