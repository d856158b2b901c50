"""A real API thread on real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.api.api_house import House, running


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with running(tmp_path) as house:
        yield house


@pytest.fixture
def local(house: House) -> Iterator[httpx2.Client]:
    """Over the unix socket."""
    with house.over_socket() as client:
        yield client


@pytest.fixture
def tcp(house: House) -> Iterator[httpx2.Client]:
    """Over TCP."""
    with house.over_tcp() as client:
        yield client
