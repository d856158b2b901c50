"""The types of a family: plain data, no behaviour."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.core.model import Health, Retry, Step
from agent.families.command import expanded


@dataclass(frozen=True, slots=True)
class StepRule:
    """A log line that says that a step has begun. `pattern` is searched, never matched at the start."""

    pattern: re.Pattern[str]
    step: Step


@dataclass(frozen=True, slots=True)
class CauseRule:
    """A log line that says why a server died.

    `specific` rules win over general ones, wherever they stand; a general one ("failed to load model") only
    speaks when nothing specific did. A `wrapper` says that something failed, not what: it only speaks when no exception
    does either.
    """

    slug: str
    pattern: re.Pattern[str]
    specific: bool = True
    wrapper: bool = False


def steps(*said: tuple[Step, str]) -> tuple[StepRule, ...]:
    """Rules from (step, regular expression) each."""
    return tuple(StepRule(re.compile(pattern), step) for step, pattern in said)


def bars(*said: tuple[Step, str]) -> tuple[StepRule, ...]:
    """Rules for the bars that tqdm draws, from (step, regular expression of what stands before its percent) each."""
    percent = r": +(?P<percent>\d{1,3})%(?: Completed)? ?\|"
    return tuple(StepRule(re.compile(pattern + percent), step) for step, pattern in said)


def causes(*said: tuple[str, str], specific: bool = True, wrapper: bool = False) -> tuple[CauseRule, ...]:
    """Rules of one rank, from (slug, regular expression) each, in the order in which they are tried on a line."""
    return tuple(CauseRule(slug, re.compile(pattern), specific, wrapper) for slug, pattern in said)


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
    clocks, log levels, process names). Each alternative at the top of a pattern must hold a literal of at least four
    characters (digits and blanks do not count) outside of any group, for the reader looks for that first. Only
    `progress` is free of this, for it counts in one step alone: its patterns begin with "^", match within a line
    (no \\s) and are ASCII (re.ASCII). What `bars` match must not depend on what stands behind it in its line.
    """

    name: str
    executables: frozenset[str] = frozenset()  # base names of program, script or module; lower case, "-" for "_"
    packages: frozenset[str] = frozenset()  # Python packages all of whose modules are this server
    default_host: str = "127.0.0.1"
    default_port: int | None = None
    host_flags: tuple[str, ...] = ("--host",)
    port_flags: tuple[str, ...] = ("--port",)
    model_flags: tuple[str, ...] = ()  # flags whose value is a file or folder that must be readable
    model_words: tuple[str, ...] = ()  # words behind which a model stands, as in "serve MODEL"
    hub: bool = False  # a model may be the name of a repository: only what looks like a path is a file
    list_flags: tuple[str, ...] = ()  # the same of several, "a,b" or "a:0.5,b:1" (a file with its scale)
    health_path: str = "/health"
    metrics_path: str | None = None  # on the same port, in Prometheus' format; None: there is none by default
    answers: Mapping[int, Health] = field(default_factory=lambda: {200: Health.OK, 503: Health.LOADING})
    probe_s: float = 5.0  # between two probes of a ready server
    probe_timeout_s: float = 10.0  # total, from connect to the last byte
    terms_s: tuple[float, ...] = (30.0,)  # patience after each SIGTERM
    clean_exits: frozenset[int] = frozenset({0, -15})  # of a stop that was asked for; -N: signal N
    workers: tuple[str, ...] = ()  # how the process titles of its workers begin
    steps: tuple[StepRule, ...] = ()
    bars: tuple[StepRule, ...] = ()  # progress bars, which begin a step as a line does; group "percent"
    progress: Mapping[Step, re.Pattern[str]] = field(default_factory=dict)  # group "percent", or "dots": one each
    # Lines that say so: "ready", "stopped", "crash" (it dies, and this is not why), "hang" (if it comes again and
    # again), "boot" (a start begins: what stands before it belongs to an earlier one)
    outcomes: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    facts: Mapping[str, re.Pattern[str]] = field(default_factory=dict)  # group 1: the value; group "of": whose
    noise: tuple[re.Pattern[str], ...] = ()  # lines that are never a cause
    recoveries: tuple[re.Pattern[str], ...] = ()  # lines that say that what failed before was got over
    causes: tuple[CauseRule, ...] = ()
    children: re.Pattern[str] | None = None  # matches the start of lines of children whose death the server survives
    signature: re.Pattern[str] | None = None  # lines that no other kind of server prints


_SCALE = re.compile(r":-?[\d.]+$")
_PATH = re.compile(r"/|\.{1,2}/")
_CHANGED = re.compile(r"[$`*?~\[]")  # by a shell


def listed_values(command: Sequence[str], flags: Sequence[str]) -> list[str]:
    """All files given to any of the list flags `flags`, each time that one stands there, without their scales."""
    return [
        _SCALE.sub("", file)
        for words in expanded(command)
        for i in range(len(words))
        if words[i].partition("=")[0] in flags
        for file in (_flag_value(words[i : i + 2], flags) or "").split(",")
        if file
    ]


def model_files(command: Sequence[str], family: Family) -> tuple[str, ...]:
    """The files and folders that a command names by the family's flags: those that must be readable.

    A shell may go to another folder first, and replace variables: of what it is given, only a plain path counts.
    """
    commands = expanded(command)
    named = (flag_value(command, (flag,)) for flag in family.model_flags)
    models = [value for value in (*named, *_behind_words(commands, family.model_words)) if value is not None]
    files = [value for value in models if not family.hub or _PATH.match(value)]
    files += listed_values(command, family.list_flags)
    if commands != [list(command)]:
        files = [value for value in files if value.startswith("/") and not _CHANGED.search(value)]
    return tuple(dict.fromkeys(files))


def _behind_words(commands: Sequence[Sequence[str]], before: Sequence[str]) -> list[str]:
    """The words behind any of `before`, options left out."""
    return [
        word
        for words in commands
        for at, word in enumerate(words[1:])
        if words[at] in before and not word.startswith("-")
    ]


def flag_value(command: Sequence[str], flags: Sequence[str]) -> str | None:
    """The last value given to any of `flags`, as `--flag value` or `--flag=value`; None if absent.

    What a shell puts there is not known.
    """
    commands = expanded(command)
    given = [value for words in commands if (value := _flag_value(words, flags)) is not None]
    if commands != [list(command)]:
        given = [value for value in given if not _CHANGED.search(value)]
    return given[-1] if given else None


def _flag_value(words: Sequence[str], flags: Sequence[str]) -> str | None:
    value: str | None = None
    for i, word in enumerate(words):
        name, eq, rest = word.partition("=")
        if name in flags and eq:
            value = rest
        elif word in flags and i + 1 < len(words):
            value = words[i + 1]
    return value
