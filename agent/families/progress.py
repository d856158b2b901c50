"""How far the present step is, as its bars, percents or dots show it."""

from __future__ import annotations

import re

from agent.core.model import Step
from agent.families.family import Family
from agent.families.lines import behind_prefixes

_MOST_RANKS = 256


class Progress:
    """Of the last step that was entered. Of several ranks it is that of the slowest."""

    def __init__(self, family: Family) -> None:
        self.value: float | None = None  # 0..1
        self.looked_for: re.Pattern[bytes] | None = None  # lines that may show it, bars left out
        self._patterns = family.progress
        self._behind_prefixes = {step: behind_prefixes(pattern) for step, pattern in family.progress.items()}
        self._pattern: re.Pattern[str] | None = None
        self._dots = 0
        self._ranks: dict[str, float] = {}

    def begin(self, step: Step | None) -> None:
        """That of another step, or of none, counts from now on."""
        self.value, self._dots = None, 0
        self._ranks.clear()
        self._pattern = self._patterns.get(step) if step else None
        self.looked_for = self._behind_prefixes.get(step) if step else None

    def draw(self, rank: str, percent: int) -> None:
        """The bar of one rank. One that is drawn anew, for another part of the step, shows how far that part is."""
        if rank in self._ranks or len(self._ranks) < _MOST_RANKS:
            self._ranks[rank] = min(1.0, percent / 100)
            self.value = min(self._ranks.values())

    def look(self, text: str, ended: bool) -> None:
        """`ended`: a newline stands behind `text`, so that dots alone are all the dots there will be."""
        match = self._pattern.match(text) if self._pattern else None
        if match is None:
            return
        found = match.groupdict()
        if found.get("percent"):
            done = int(found["percent"]) / 100
        else:
            dots = self._dots + len(found["dots"])
            done = 1.0 if ended and match.end() == len(text.rstrip()) else dots / 100
            self._dots = dots if ended else self._dots
        self.value = min(1.0, max(done, self.value or 0.0))
