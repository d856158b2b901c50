"""How often something may be done: the usual bucket of tokens."""

from __future__ import annotations

import time


class Bucket:
    """`burst` times at once, `per_s` in the long run."""

    def __init__(self, burst: float, per_s: float) -> None:
        self._burst, self._per_s = burst, per_s
        self._left, self._at = burst, time.monotonic()

    def take(self) -> bool:
        """False: too often."""
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
