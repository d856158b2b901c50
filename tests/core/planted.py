"""Bugs planted in the core, in memory: what the simulation and the laws must catch. A check of the checkers.

A bug is a context: inside it, the code under test is another program, with one thing wrong. The bugs themselves stand
in planted_launches.py, planted_truth.py, planted_switches.py and planted_units.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, cast

from agent.core.levels import SETTLE
from agent.core.machine import TABLE, Rule
from agent.core.model import Event, Stage

Bug = Callable[[ExitStack], None]
BUGS: dict[str, Bug] = {}


def bug(plant: Bug) -> Bug:
    """Its name, in words, is the name of the function."""
    BUGS[plant.__name__.replace("_", " ")] = plant
    return plant


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The core with that bug."""
    with ExitStack() as stack:
        BUGS[name](stack)
        yield


# -- how to plant ----------------------------------------------------------------------------------


def everywhere(stack: ExitStack, old: object, new: object) -> None:
    """Wherever the core holds a function or a number by its name."""
    found = 0
    for name, module in list(sys.modules.items()):
        if not name.startswith("agent.core"):
            continue
        for key, value in list(vars(module).items()):
            if value is old:
                setattr(module, key, new)
                stack.callback(setattr, module, key, old)
                found += 1
    change_levels(stack, lambda level: new if level is old else level)
    change_rules(stack, lambda cell, rule: replace(rule, run=new) if rule.run is old else rule)
    assert found, f"nothing to plant: {old}"


def change_levels(stack: ExitStack, change: Callable[[Any], Any]) -> None:
    """Each level, as `change` makes it."""
    _change(stack, cast("dict[Any, Any]", SETTLE), lambda key, level: change(level))


def change_rules(stack: ExitStack, change: Callable[[Any, Rule], Rule]) -> None:
    """Each rule, as `change` makes it."""
    _change(stack, cast("dict[Any, Any]", TABLE), change)


def _change(stack: ExitStack, mapping: dict[Any, Any], change: Callable[[Any, Any], Any]) -> None:
    for key, value in list(mapping.items()):
        if (new := change(key, value)) is not value:
            mapping[key] = new
            stack.callback(mapping.__setitem__, key, value)


def in_cells(stack: ExitStack, event: type[Event], run: Callable[[Any], Any], stages: Any = Stage) -> None:
    """The cells of one event: `run(old handler)` gives the new one."""
    change_rules(
        stack, lambda cell, rule: replace(rule, run=run(rule.run)) if cell[1] is event and cell[0] in stages else rule
    )
