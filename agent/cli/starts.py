"""`gpuagent starts`: earlier starts, and how each ended."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import click

from agent.cli.client import Document
from agent.cli.options import json_option, name_argument, print_json, the_agent
from agent.cli.text import duration, plain

DEFAULT_COUNT = 20
LONGEST = 500  # the API's own limit: more are not kept
HEADER = ("LAUNCHED", "ATTEMPT", "READY AFTER", "BACK AFTER", "ENDED AFTER", "OUTCOME", "CAUSE")
OUTCOME = HEADER.index("OUTCOME")
OUTCOME_COLOURS = {"failed-start": "red", "crashed": "red", "lost": "yellow"}


@click.command(short_help="Show earlier starts: how long each took, how it ended.")
@name_argument
@click.option(
    "-n",
    "count",
    type=click.IntRange(1, LONGEST),
    default=DEFAULT_COUNT,
    show_default=True,
    metavar="COUNT",
    help="How many.",
)
@json_option
@click.pass_context
def starts(ctx: click.Context, name: str | None, count: int, as_json: bool) -> None:
    """Show the last starts of server NAME, newest first: how long each took, and how it ended.

    A time with "<" was not watched, as the agent was away: it may have been shorter. BACK AFTER tells how long the
    server had been away, since it last served, and in how many attempts it came back. NAME may be left out where one
    server is defined.
    """
    agent = the_agent(ctx)
    document = agent.starts(name or agent.only_server(), count)
    if as_json:
        print_json(document)
        return
    for line in table(document["starts"]):
        click.echo(line)


def table(found: list[Document]) -> Iterator[str]:
    """The starts as aligned lines."""
    if not found:
        yield "it was never started"
        return
    rows = [HEADER, *map(row, found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[-1] = 0  # the cause may be long, and nothing stands behind it
    for start, cells in zip([None, *found], rows, strict=True):
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        if start is not None:
            coloured = click.style(cells[OUTCOME], fg=OUTCOME_COLOURS.get(start["outcome"]))
            # The blanks stay outside, to be cut off at the end.
            padded[OUTCOME] = padded[OUTCOME].replace(cells[OUTCOME], coloured)
        yield "  ".join(padded).rstrip()


def row(start: Document) -> tuple[str, str, str, str, str, str, str]:
    """One start: when, which attempt, time to ready, the outage that it ended, time to its end, how it ended, why."""
    late = "" if start["watched"] else "<"
    ready = "" if start["ready_s"] is None else late + seconds(start["ready_s"])
    ended = "" if start["ended_s"] is None else seconds(start["ended_s"])
    cause = start["cause"]
    return (
        datetime.fromisoformat(start["launched"]).astimezone().strftime("%Y-%m-%d %H:%M:%S"),
        str(start["attempt"]),
        ready,
        _outage(start),
        ended,
        plain(start["outcome"] or _present(start)),
        f"{plain(cause['slug'])}: {plain(cause['text'])}" if cause else "",
    )


def _outage(start: Document) -> str:
    """Empty where there was none, or it is not over."""
    outage = start.get("outage")  # an agent that was not started again since an upgrade does not say it
    if outage is None or outage["lasted_s"] is None:
        return ""
    return f"{seconds(outage['lasted_s'])}, {outage['attempts']} attempt{'s' if outage['attempts'] > 1 else ''}"


def _present(start: Document) -> str:
    """A start that has not ended."""
    return "starting" if start["ready_s"] is None else "serving"


def seconds(number: float) -> str:
    """For a person; a tenth counts where a start takes seconds."""
    return f"{number:.1f} s" if number < 60 else duration(number)
