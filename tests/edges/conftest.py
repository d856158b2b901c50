"""The fixtures of the edges' tests."""

from __future__ import annotations

from tests.edges.edges_house import attempt, port
from tests.edges.unit_house import host

__all__ = ["attempt", "host", "port"]
