"""What a log says of why its server died: the little that must be kept of all its lines."""

from __future__ import annotations

import re
from dataclasses import dataclass

EXCEPTION = re.compile(
    r"^\S*Error: |^\S*Exception: |what\(\):  |GGML_ASSERT\(|^panic: |^fatal error: |^Fatal Python error: "
    r"|: Assertion .{0,400}' failed"
)
"""A line that names an error of a program, of whatever kind."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A line that may be the cause. `slug` is "unknown" for an exception that no rule knows."""

    slug: str
    line: int  # from 1
    text: str


@dataclass(slots=True)
class Evidence:
    """The findings since the last sign that all went well. The earliest is nearest to the cause; of exceptions,
    which tend to wrap one another, the last."""

    specific: Finding | None = None
    general: Finding | None = None
    exception: Finding | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing was found."""
        return self.specific is None and self.general is None and self.exception is None

    def forget(self) -> None:
        """All that failed until now was got over."""
        self.specific = self.general = self.exception = None

    def best(self) -> Finding | None:
        """The finding to believe, if the log alone is asked."""
        return self.specific or self.general or self.exception
