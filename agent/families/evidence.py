"""What a log says of how its server fared: the little that must be kept of all its lines."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

EXCEPTION = re.compile(
    r"^\S*Error: |^\S*Exception: |what\(\):  |GGML_ASSERT\(|^panic: |^fatal error: |^Fatal Python error: "
    r"|: Assertion .{0,400}' failed|^\S*Error\s*$"
)
"""A line that names an error of a program, of whatever kind."""

_MOST_EXCEPTIONS = 64  # of which the places are remembered
_NEAR_LINES = 100  # between two tellings of one exception: a traceback, of one process after another
_HANGS = 3  # times the same complaint: once or twice is said by a server that only is slow


@dataclass(frozen=True, slots=True)
class Finding:
    """A line that may be the cause. `slug` is "unknown" for an exception that no rule knows."""

    slug: str
    line: int  # from 1
    text: str


@dataclass(slots=True)
class Evidence:
    """The findings since the last sign that all went well. The earliest is nearest to the cause; of exceptions,
    which tend to wrap one another, the last, where it was said first."""

    outcome: str | None = None  # the last that a line claimed: "ready", "stopped" or "crash"
    specific: Finding | None = None
    general: Finding | None = None
    exception: Finding | None = None
    wrapper: Finding | None = None
    earlier: Finding | None = None  # the last specific one that a new step made doubtful: another rank's, or got over
    complaints: int = 0  # of one that waits for another, with no sign of life between
    exception_last: int = 0  # the line in which it was said last
    _told: dict[str, tuple[int, int]] = field(default_factory=dict)  # exceptions: where each was said first, and last

    @property
    def empty(self) -> bool:
        """Whether nothing was found."""
        found = self.specific or self.general or self.exception or self.wrapper
        return found is None and self.outcome != "crash" and not self.complaints

    @property
    def hangs(self) -> bool:
        """Whether it complained again and again."""
        return self.complaints >= _HANGS

    def forget(self) -> None:
        """All that failed until now was got over."""
        self.specific = self.general = self.exception = self.wrapper = self.earlier = None
        self.complaints = 0
        self._told.clear()

    def recover(self) -> None:
        """A sign that all goes well: means nothing when it is known to be dying."""
        if self.outcome != "crash":
            self.forget()

    def step(self) -> None:
        """A new step has begun, so whatever went wrong was got over, or it went wrong in another rank."""
        if self.outcome == "crash":
            return
        earlier = self.specific or self.earlier
        self.forget()
        self.earlier = earlier
        self.outcome = None  # what only now takes its next step was not ready: it listened before it loaded

    def claim(self, outcome: str) -> None:
        """A line says how the server fares. What is told to stop does not crash, and what crashes is not stopped."""
        if outcome == "ready":
            self.forget()
            self.outcome = outcome
        elif outcome == "hang":
            self.complaints += 1
        elif self.outcome not in ("crash", "stopped"):
            self.outcome = outcome

    def note_exception(self, found: Finding) -> None:
        """The same one is told by each process that it reaches. When the cause is known it says nothing more."""
        if self.specific is not None:
            return
        first, last = self._told.get(found.text, (found.line, found.line))
        if found.line - last > _NEAR_LINES:
            first = found.line
        if found.text in self._told or len(self._told) < _MOST_EXCEPTIONS:
            self._told[found.text] = first, found.line
        self.exception, self.exception_last = Finding(found.slug, first, found.text), found.line

    def best(self) -> Finding | None:
        """What names the cause, if the log does."""
        return self.specific or (self.earlier if self.outcome == "crash" else None) or self.general
