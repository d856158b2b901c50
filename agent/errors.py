"""The families of errors that are no bugs."""

from __future__ import annotations


class ConfigError(Exception):
    """The configuration is wrong. `faults`: each with its file and TOML path, and what to do."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class EdgeError(Exception):
    """Something outside did not do what was asked of it. Becomes an event or a degraded mark, never ends the loop.

    `slug` names the cause where one of our own fits ("exec_missing"); "" otherwise.
    """

    def __init__(self, edge: str, what: str, why: str, slug: str = "") -> None:
        super().__init__(f"{edge}: {what}: {why}")
        self.edge = edge
        self.what = what
        self.why = why
        self.slug = slug
