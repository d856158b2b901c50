"""Distributions, and the table that shows them beside the aims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Aim:
    """What a quantile of a figure should keep to: at most `limit`, or with `at_least` at least that."""

    quantile: float
    limit: float
    at_least: bool = False

    def words(self) -> str:
        """`p99 <= 100`"""
        return f"{_named(self.quantile)} {'>=' if self.at_least else '<='} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured, many times over, in one unit. A figure without samples is one that could not be measured."""

    what: str
    unit: str
    samples: Sequence[float]
    aims: tuple[Aim, ...] = ()
    note: str = ""

    def missed(self) -> list[Aim]:
        """The aims that the samples do not keep to."""
        return [aim for aim in self.aims if not self.samples or self._misses(aim)]

    def _misses(self, aim: Aim) -> bool:
        reached = quantile(self.samples, aim.quantile)
        return reached < aim.limit if aim.at_least else reached > aim.limit


@dataclass
class Table:
    """Figures in the order in which they were measured."""

    figures: list[Figure] = field(default_factory=list)

    def rows(self) -> list[str]:
        """The table as lines of text, aligned."""
        head = ["", "n", "median", "p90", "p99", "max", "unit", "aim", ""]
        cells = [head, *(_cells(figure) for figure in self.figures)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
        return ["  ".join(_aligned(row, widths)).rstrip() for row in cells]


def quantile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least `share` of all do not exceed: never a value that was not measured."""
    return sorted(samples)[max(0, math.ceil(share * len(samples)) - 1)]


def _cells(figure: Figure) -> list[str]:
    aims = ", ".join(aim.words() for aim in figure.aims)
    missed = "MISSED: " + ", ".join(aim.words() for aim in figure.missed()) if figure.missed() else ""
    marks = "; ".join(text for text in (missed, figure.note) if text)
    if not figure.samples:
        return [figure.what, "0", "-", "-", "-", "-", figure.unit, aims, marks]
    numbers = [_number(quantile(figure.samples, share)) for share in (0.5, 0.9, 0.99, 1.0)]
    return [figure.what, str(len(figure.samples)), *numbers, figure.unit, aims, marks]


def _aligned(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Numbers to the right, words to the left."""
    return [
        cell.rjust(w) if 1 <= i <= 5 else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
    ]


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _named(share: float) -> str:
    return {0.5: "median", 1.0: "max"}.get(share, f"p{share * 100:g}")
