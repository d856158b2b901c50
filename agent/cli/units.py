"""Units that are kept off, in words for a person; and the argument that names one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

import click
from click.shell_completion import CompletionItem

from agent.cli.client import Document, client
from agent.cli.exits import Fault
from agent.cli.text import age, plain

_UNIT = re.compile(r"[A-Za-z0-9:_.@\\-]{1,247}\.(service|socket|timer|path)")
_RESTING = ("inactive", "failed")


def _checked(_ctx: click.Context, _param: click.Parameter, unit: str) -> str:
    """A unit that can be kept off, as it is; as with systemctl, ".service" may be left out."""
    whole = unit if re.search(r"\.[a-z]+$", unit) else f"{unit}.service"
    if not _UNIT.fullmatch(whole):
        raise click.BadParameter(f"{unit!r} is no service, socket, timer or path unit, as in vllm.service")
    return whole


def _completed(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The units that the agent knows; none while it cannot be asked."""
    try:
        known = client(ctx.find_root().params.get("socket")).rivals()["rivals"]  # no command has run: no ctx.obj
    except Fault:
        return []
    return [CompletionItem(plain(each["unit"])) for each in known if each["unit"].startswith(incomplete)]


unit_argument = click.argument("unit", callback=_checked, shell_complete=_completed)


def rows(units: list[Document], words: dict[str, tuple[str, str]], now: datetime) -> Iterator[str]:
    """Aligned lines: the unit, its word in its colour, since when, why. `words`: by unit."""
    cells = [(plain(each["unit"]), words[each["unit"]], age(each["since"], now), plain(each["why"])) for each in units]
    widths = [max(map(len, column)) for column in zip(*((a, b[0], c) for a, b, c, _ in cells), strict=True)]
    for unit, (word, colour), since, why in cells:
        shown = [unit.ljust(widths[0]), click.style(word.ljust(widths[1]), fg=colour), since.ljust(widths[2]), why]
        yield "  ".join(each for each, width in zip(shown, [*widths, 1], strict=True) if width).rstrip()


def is_up(rival: Document) -> bool:
    """Whether it runs, or is on its way."""
    return bool(rival["pids"]) or rival["active"] not in (None, *_RESTING)


def word(rival: Document) -> tuple[str, str]:
    """How it is with a rival in a word, and its colour."""
    if rival["off"]:
        return "off", "green"
    state = plain(rival["active"] or "not seen yet")
    if rival["exempt"]:
        return f"{state} (released)", "yellow" if is_up(rival) else "bright_black"
    return (state, "red") if rival["held"] else (f"{state} (not held)", "yellow")


def troubles(holds: list[Document], rivals: list[Document]) -> dict[str, str]:
    """What of the holds is not as it should be: those that are not in force, and units that are up all the same.

    Unit -> a line in its colour.
    """
    told = {
        rival["unit"]: click.style(f"rival up: {plain(rival['unit'])}: {plain(rival['why'])}", fg=word(rival)[1])
        for rival in rivals
        if is_up(rival)
    }
    for hold in holds:
        if not hold["in_force"]:
            words = f"hold not in force: {plain(hold['unit'])}: {plain(hold['why'])}"
            told[hold["unit"]] = click.style(words, fg="red")
    return told


def waited_for(rivals: list[Document]) -> Iterator[Document]:
    """Those whose end a launch waits for. Where no unit can be turned off, none is held and none waited for."""
    return (each for each in rivals if each["listed"] and each["held"] and not each["off"])
