"""`gpuagent log`: what the server wrote."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import click

from agent.cli.options import json_option, name_argument, print_json_line, the_agent
from agent.cli.text import plain

DEFAULT_LINES = 100  # a screen or two
MOST_LINES = 10_000  # the API's own limit
LINE_LIMIT = 1 << 20  # bytes; a line without an end is shown in pieces of this size


@click.command(short_help="Show the end of a server's log.")
@name_argument
@click.option(
    "-n", "lines", type=click.IntRange(0, MOST_LINES), default=DEFAULT_LINES, show_default=True, help="Lines."
)
@click.option("-f", "follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@json_option
@click.pass_context
def log(ctx: click.Context, name: str | None, lines: int, follow: bool, as_json: bool) -> None:
    """Show the end of the log of server NAME's present attempt.

    A terminal gets it without control characters; a pipe gets it as it is. With --json: {"line": ...} for each
    line. NAME may be left out where one server is defined.
    """
    agent = the_agent(ctx)
    pieces = agent.log(name or agent.only_server(), lines, follow)
    if not as_json and not sys.stdout.isatty():
        for piece in pieces:
            click.echo(piece, nl=False)
        return
    for line in _lines(pieces):
        text = line.decode(errors="replace")
        if as_json:
            print_json_line({"line": text})
        else:
            click.echo(plain(text))


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Pieces of any size -> whole lines without their ends."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
        if len(rest) >= LINE_LIMIT:
            yield rest
            rest = b""
    if rest:
        yield rest
