"""`gpuagent explain`: what a server's log says, without an agent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from agent.cli.client import Document
from agent.cli.exits import WrongUsage
from agent.cli.options import json_option, print_json
from agent.cli.text import plain
from agent.holed import pieces

STDIN = "-"
_UNTOLD = {
    "crash": "the log does not tell why; how it ended may: journalctl -k, and the exit of its first process",
    "hang": "its processes wait for one another; look for one that is gone, and at the kernel log",
}
"""Outcomes of which a log may tell no cause."""


@click.command(short_help="Read a server's log, offline: steps, facts, root cause.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--family", metavar="NAME", help="The kind of server. Default: told from the log.")
@json_option
def explain(files: tuple[str, ...], family: str | None, as_json: bool) -> None:
    """Read server logs, offline, and say what they tell: steps, facts, root cause.

    "-" is the standard input. Ends with 0 when every file could be read, whatever is in it.
    """
    stories = [_story(file, family) for file in files]
    if as_json:
        print_json(stories[0] if len(stories) == 1 else stories)
        return
    for number, story in enumerate(stories):
        if number:
            click.echo()
        for line in _lines(story):
            click.echo(line)


def _story(file: str, family: str | None) -> Document:
    """One file, explained. WrongUsage when it cannot be read, or there is no such family."""
    from agent.families import FAMILIES  # only here: compiles every family's patterns
    from agent.families.explain import explain as explained

    if family is not None and family not in FAMILIES:
        raise WrongUsage(f"no family is named {family!r}. There are: {', '.join(FAMILIES)}")
    try:
        if file == STDIN:
            return {"file": file, **explained(pieces(sys.stdin.buffer), FAMILIES.get(family or ""))}
        with Path(file).open("rb") as log:
            return {"file": file, **explained(pieces(log), FAMILIES.get(family or ""))}
    except OSError as error:
        raise WrongUsage(f"cannot read {file}: {error.strerror}") from error


def _lines(story: Document) -> Iterator[str]:
    """For a person."""
    yield f"{story['file']}: {plain(story['family'])}, {plain(story['outcome'])}"
    for step in story["steps"]:
        at = "" if step["at"] is None else f"  {plain(str(step['at']))}"
        yield f"  {step['step']:<18}line {step['line']}{at}"
    for name, value in story["facts"].items():
        yield f"  {plain(name)}: {plain(str(value))}"
    cause = story["cause"]
    if cause is None and story["outcome"] in _UNTOLD:
        yield f"  cause:  {_UNTOLD[story['outcome']]}"
    if cause is not None:
        where = "" if cause["line"] is None else f" (line {cause['line']})"
        yield f"  cause:  {plain(cause['slug'])}{where}"
        yield f"          {plain(cause['text'])}"
        yield f"  remedy: {plain(cause['remedy'])}"
