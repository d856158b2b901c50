"""The fixtures of the edges' tests."""

from __future__ import annotations

from tests.edges.edges_house import attempt, port

__all__ = ["attempt", "port"]
