"""Draws a start: each stage and step with the time that it took; bars on a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from agent.cli import words
from agent.cli.client import Document
from agent.cli.text import plain

BAR_WIDTH = 30  # characters
PERCENT_GRAIN = 25  # in a pipe, progress is worth a line only so often
RESTING = ("ready", "down", "failed")  # nothing goes on, so nothing spins


@dataclass(slots=True)
class Row:
    """A stage and step that the server was in. Seconds since the drawing began."""

    stage: str
    step: str
    began_s: float
    why: str
    progress: float | None
    ended_s: float | None = None

    def is_the_same(self, stage: str, step: str) -> bool:
        """Whether the server is still here."""
        return (self.stage, self.step) == (stage, step)


class Timeline:
    """What the server went through, row by row."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self.rows: list[Row] = []

    @property
    def now_s(self) -> float:
        """Seconds since the drawing began."""
        return self._clock() - self._began

    def add(self, server: Document) -> Row:
        """The row that `server` is in now: a new one when stage or step is another."""
        stage = words.stage(server)
        step = plain(server["step"]) if server["stage"] == "starting" and server["step"] else ""
        if not self.rows or not self.rows[-1].is_the_same(stage, step):
            now_s = self.now_s
            if self.rows:
                self.rows[-1].ended_s = now_s
            self.rows.append(Row(stage, step, now_s, "", None))
        row = self.rows[-1]
        row.why, row.progress = plain(server["why"]), server["progress"]
        if server["eta_s"] is not None:
            row.why += f"; ready in about {server['eta_s']:.1f} s"
        return row


class Lines:
    """For a pipe: a line when something changes."""

    def __init__(self) -> None:
        self._timeline = Timeline()
        self._shown: object = None

    def show(self, server: Document) -> None:
        """Print a line if stage, step or much of the progress is new."""
        row = self._timeline.add(server)
        percent = None if row.progress is None else int(row.progress * 100) // PERCENT_GRAIN * PERCENT_GRAIN
        if (row.stage, row.step, percent) == self._shown:
            return
        self._shown = (row.stage, row.step, percent)
        part = "" if percent is None else f" {percent} %"
        print(f"{self._timeline.now_s:6.1f} s  {row.stage:<12} {row.step + part:<22} {row.why}".rstrip(), flush=True)

    def close(self) -> None:
        """Nothing is left to draw."""


class Picture:
    """For a terminal: rows that grow in place."""

    def __init__(self, console: Console) -> None:
        self._timeline = Timeline()
        self._live = Live(console=console, refresh_per_second=10, transient=False)
        self._live.start()
        self._spinner = Spinner("line")

    def show(self, server: Document) -> None:
        """Redraw."""
        self._timeline.add(server)
        self._live.update(self._drawn())

    def close(self) -> None:
        """Leave the last picture standing, and the terminal as it was."""
        self._live.stop()

    def _drawn(self) -> Group:
        grid = Table.grid(padding=(0, 2))
        for row in self._timeline.rows:
            is_last = row is self._timeline.rows[-1]
            took_s = (row.ended_s or self._timeline.now_s) - row.began_s
            stage = row.stage.split()[0]
            colour = words.STAGE_COLOURS.get(stage, words.OTHER_COLOUR)
            grid.add_row(
                self._spinner if is_last and stage not in RESTING else Text("*", colour),
                Text(row.stage, f"bold {colour}" if is_last else colour),
                Text(row.step),
                self._bar(row, is_last),
                "" if is_last and stage in RESTING else Text(f"{took_s:.1f} s", "dim"),
            )
        return Group(grid, Text(self._timeline.rows[-1].why, "dim"))

    def _bar(self, row: Row, is_last: bool) -> ProgressBar | str:
        """Of a step that has said how far it is; whole when it is over."""
        if row.progress is None:
            return ""
        completed = row.progress if is_last else 1.0
        return ProgressBar(
            total=1.0, completed=completed, width=BAR_WIDTH, complete_style="yellow", finished_style="green"
        )


Drawing = Lines | Picture


def drawing() -> Drawing:
    """What suits stdout."""
    console = Console(highlight=False)
    return Picture(console) if sys.stdout.isatty() and console.is_terminal else Lines()
