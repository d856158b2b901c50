"""The types of a family: plain data, no behaviour."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.core.model import Health, Retry, Step


@dataclass(frozen=True, slots=True)
class StepRule:
    """A log line that says that a step has begun. `pattern` is searched, never matched at the start."""

    pattern: re.Pattern[str]
    step: Step


@dataclass(frozen=True, slots=True)
class CauseRule:
    """A log line that says why a server died.

    `specific` rules win over general ones, wherever they stand; a general one ("failed to load model") only
    speaks when nothing specific did.
    """

    slug: str
    pattern: re.Pattern[str]
    specific: bool = True


@dataclass(frozen=True, slots=True)
class Remedy:
    """What a slug means for a person: `text` when no log line is to be quoted, what to do, whether to retry."""

    text: str
    remedy: str
    retry: Retry


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """One kind of server.

    Log lines reach the patterns decoded, without colours, control characters and foreign prefixes (docker, journald,
    clocks). Each alternative at the top of a pattern must hold a literal of at least four characters (digits and
    blanks do not count) outside of any group, for the reader looks for that first. Only `progress` is free of this, for
    it counts in one step alone: its patterns begin with "^", match within a line (no \\s) and are ASCII (re.ASCII).
    """

    name: str
    executables: frozenset[str] = frozenset()  # base names of program, script or module; lower case, "-" for "_"
    default_host: str = "127.0.0.1"
    default_port: int | None = None
    host_flags: tuple[str, ...] = ("--host",)
    port_flags: tuple[str, ...] = ("--port",)
    model_flags: tuple[str, ...] = ()  # flags whose value is a file or folder that must be readable
    list_flags: tuple[str, ...] = ()  # the same of several, "a,b" or "a:0.5,b:1" (a file with its scale)
    health_path: str = "/health"
    answers: Mapping[int, Health] = field(default_factory=lambda: {200: Health.OK, 503: Health.LOADING})
    probe_s: float = 5.0  # between two probes of a ready server
    probe_timeout_s: float = 10.0  # total, from connect to the last byte
    terms_s: tuple[float, ...] = (30.0,)  # patience after each SIGTERM
    clean_exits: frozenset[int] = frozenset({0, -15})  # of a stop that was asked for; -N: signal N
    steps: tuple[StepRule, ...] = ()
    progress: Mapping[Step, re.Pattern[str]] = field(default_factory=dict)  # group "percent", or "dots": one each
    outcomes: Mapping[str, re.Pattern[str]] = field(default_factory=dict)  # "ready", "stopped": lines that say so
    facts: Mapping[str, re.Pattern[str]] = field(default_factory=dict)  # group 1: the value; group "of": whose
    noise: tuple[re.Pattern[str], ...] = ()  # lines that are never a cause
    recoveries: tuple[re.Pattern[str], ...] = ()  # lines that say that what failed before was got over
    causes: tuple[CauseRule, ...] = ()
    children: re.Pattern[str] | None = None  # matches the start of lines of children whose death the server survives
    signature: re.Pattern[str] | None = None  # lines that no other kind of server prints


_SCALE = re.compile(r":-?[\d.]+$")


def listed_values(command: Sequence[str], flags: Sequence[str]) -> list[str]:
    """All files given to any of the list flags `flags`, each time that one stands there, without their scales."""
    given = [
        flag_value(command[i : i + 2], flags) for i in range(len(command)) if command[i].partition("=")[0] in flags
    ]
    return [_SCALE.sub("", file) for value in given if value is not None for file in value.split(",") if file]


def model_files(command: Sequence[str], family: Family) -> tuple[str, ...]:
    """The files and folders that a command names by the family's flags: those that must be readable."""
    named = (flag_value(command, (flag,)) for flag in family.model_flags)
    files = [value for value in named if value is not None] + listed_values(command, family.list_flags)
    return tuple(dict.fromkeys(files))


def flag_value(command: Sequence[str], flags: Sequence[str]) -> str | None:
    """The last value given to any of `flags`, as `--flag value` or `--flag=value`; None if absent."""
    value: str | None = None
    for i, word in enumerate(command):
        name, eq, rest = word.partition("=")
        if name in flags and eq:
            value = rest
        elif word in flags and i + 1 < len(command):
            value = command[i + 1]
    return value
