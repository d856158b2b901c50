"""A file of KEY=VALUE lines, for secrets. No fault ever repeats what stands in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from agent.errors import ConfigError

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What an environment variable may be called."""


def read_environment_file(path: Path) -> dict[str, str]:
    """The variables in `path`. ConfigError: every line that is wrong, as "PATH: line N: what; what to do".

    One KEY=VALUE a line; empty lines and those that begin with # are skipped. A value in single or double quotes
    is taken without them; nothing else is special: no escapes, no variables, no comments after a value.
    """
    if path.exists() and not path.is_file():
        raise ConfigError([f"{path}: is no regular file; name a file of KEY=VALUE lines"])
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}; let the agent's user read it"]) from error
    return parse_environment(path, content)


def parse_environment(path: Path, content: bytes) -> dict[str, str]:
    """The variables in what stands in `path`; ConfigError as `read_environment_file` has it."""
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8"]) from error
    variables: dict[str, str] = {}
    faults: list[str] = []
    for number, key, value, fault in _parsed(lines):
        if fault is None and key in variables:
            fault = "sets a variable for the second time; leave one of them out"
        if fault is not None:
            faults.append(f"{path}: line {number}: {fault}")
        else:
            variables[key] = value
    if faults:
        raise ConfigError(faults)
    return variables


def _parsed(lines: list[str]) -> Iterator[tuple[int, str, str, str | None]]:
    """Line number (from 1), key, value and what is wrong with it."""
    for number, raw in enumerate(lines, start=1):
        line = raw.strip()
        if line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            bare, fault = _unquoted(value.strip())
            yield number, key.strip(), bare, _key_fault(key.strip(), equals) or fault


def _key_fault(key: str, equals: str) -> str | None:
    if not equals:
        return "has no =; write KEY=VALUE"
    if key.startswith("export "):
        return "is written for a shell; leave out export"
    if not NAME.fullmatch(key):
        return "has no variable's name before the =; use letters, digits and _, and begin with no digit"
    return None


def _unquoted(value: str) -> tuple[str, str | None]:
    if "\0" in value:
        return value, "has a NUL character; remove it"
    if value[:1] in ("'", '"'):
        if len(value) < 2 or value[-1] != value[0]:
            return value, "has a quote that is not closed; close it at the end of the line"
        return value[1:-1], None
    return value, None
