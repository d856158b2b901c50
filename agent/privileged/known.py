"""What was read of files that have not changed since: a look a second must not read a model's headers each time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any


class Known:
    """`told`: what an earlier look knew, as `kept` of it: plain data, of whoever the looks are made for."""

    def __init__(self, told: Mapping[str, Any] | None = None) -> None:
        self._told = told or {}
        self.kept: dict[str, Any] = {}
        """What this look has asked for, and nothing else: so it does not grow."""

    def of(self, path: str, what: str, read: Callable[[], Any]) -> Any:
        """`read()`, plain data, unless the file is the same as when it was read. OSError."""
        state = os.stat(path)
        mark = [state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns]
        key = f"{what} {path}"
        match self._told.get(key):
            case [seen, answer] if seen == mark:
                pass
            case _:
                answer = read()
        self.kept[key] = [mark, answer]
        return answer
