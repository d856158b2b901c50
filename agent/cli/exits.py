"""How a command ends: exit codes, and the errors that carry them."""

from __future__ import annotations

from typing import IO, Any

import click

OK = 0
BUG = 1
USAGE = 2
FAILED = 3  # or not wanted
PROGRESSING = 4
STALLED = 5
UNREACHABLE = 6
REFUSED = 7
INTERRUPTED = 130  # 128 + SIGINT, as a shell says it
CLOSED_PIPE = 141  # 128 + SIGPIPE


class Fault(click.ClickException):
    """An end that is no success: what is wrong, where, what to do; shown on stderr."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Write it to stderr."""
        click.echo(f"gpuagent: {self.message}", file=file, err=file is None)


class WrongUsage(Fault):
    """The command asks for what there is not."""

    exit_code = USAGE


class Unreachable(Fault):
    """No agent answers, or what answers is none."""

    exit_code = UNREACHABLE


class Away(Unreachable):
    """No agent answers now: it is gone, or it begins or ends. It may come back."""


class Refused(Fault):
    """The agent says no."""

    exit_code = REFUSED


class AgentFault(Fault):
    """The agent answered what it never should."""

    exit_code = BUG
