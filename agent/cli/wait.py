"""`gpuagent wait`: until a server is ready, or it is certain that it will not be."""

from __future__ import annotations

import math
import time

import click

from agent.cli import words
from agent.cli.client import Client, Document
from agent.cli.exits import FAILED, OK, PROGRESSING, STALLED, Away
from agent.cli.options import json_option, name_argument, print_json, the_agent
from agent.cli.text import duration, plain

DEFAULT_TIMEOUT_S = 900.0
LONGEST_S = 86_400.0  # the API's own limit
GRACE_S = 30.0  # an agent starts in a second, and a service manager may pause before it starts one again
RETRY_S = 0.25

_HOW_IT_IS = {STALLED: "it shows no sign of life", PROGRESSING: "it still makes progress"}


def _number(_ctx: click.Context, _param: click.Parameter, seconds: float) -> float:
    """Not NaN, which lies in no range and passes every check of one."""
    if math.isnan(seconds):
        raise click.BadParameter("nan is no number of seconds")
    return seconds


timeout_option = click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0, LONGEST_S),
    callback=_number,
    default=DEFAULT_TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait.",
)


@click.command(short_help="Wait until a server is ready.")
@name_argument
@timeout_option
@json_option
@click.pass_context
def wait(ctx: click.Context, name: str | None, timeout_s: float, as_json: bool) -> None:
    """Wait until server NAME is ready.

    Returns at once when it has failed or nobody wants it (3). When the time is over, says whether it still
    makes progress (4) or is stalled (5). Goes on when the agent is restarted meanwhile. NAME may be left out where
    one server is defined.
    """
    agent = the_agent(ctx)
    ctx.exit(until(agent, name or agent.only_server(), "ready", timeout_s, as_json))


def until(agent: Client, name: str, goal: str, timeout_s: float, as_json: bool = False) -> int:
    """Wait until the server is "ready" or "down", say how it ended, and return the exit code."""
    code, server, detail = _outlasting_restarts(agent, name, goal, timeout_s)
    if as_json:
        print_json(server)
    elif code == OK:
        click.echo(words.sentence(server))
    else:
        too_late = f"not {goal} after {duration(timeout_s)}; {_HOW_IT_IS.get(code)}: {plain(server['why'])}"
        _say_why_not(server, detail if code == FAILED else too_late)
    return code


def _outlasting_restarts(agent: Client, name: str, goal: str, timeout_s: float) -> tuple[int, Document, str]:
    """As _asked, but an agent that goes away meanwhile is waited for: as long as we wait, but GRACE_S at most.

    Away: it has not come back, or there was none to begin with.
    """
    begin = gone_since = time.monotonic()
    end, left_s, told = begin + timeout_s, timeout_s, False
    while True:
        asked_at = time.monotonic()
        try:
            return _asked(agent, name, goal, left_s)
        except Away as fault:
            now = time.monotonic()
            if agent.reached_at is None:
                raise
            if agent.reached_at >= asked_at:  # it was there just now
                gone_since = now
            if now >= end or now - gone_since > GRACE_S:
                raise
            if not told:
                click.echo(f"gpuagent: {fault.message.splitlines()[0]}; waiting for it to come back", err=True)
            told = True
        time.sleep(RETRY_S)
        left_s = max(0.0, end - time.monotonic())


def _asked(agent: Client, name: str, goal: str, timeout_s: float) -> tuple[int, Document, str]:
    """Wait once. The exit code, the server, and what the agent says about it."""
    reply = agent.wait(name, goal, timeout_s)
    document = reply.document()
    if reply.status == 200:
        return OK, document, ""
    detail, server = plain(document["detail"]), agent.server(name)
    if reply.status == 409:
        return FAILED, server, detail
    return STALLED if document["progress"] == "stalled" else PROGRESSING, server, detail


def _say_why_not(server: Document, sentence: str) -> None:
    """On stderr: how it ended, and what is known about it. Of a server that was only stopped, no more is to be told."""
    click.echo(f"gpuagent: {sentence}", err=True)
    if server["want"] == "up":
        for line in words.failure(server):
            click.echo(line, err=True)
