"""These run as root, for they test what root does. Elsewhere they are skipped, and in CI that is a failure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.privileged.privileged_house import HelperProcess, running


@pytest.fixture(autouse=True)
def _root() -> None:
    if os.geteuid() != 0:
        if os.environ.get("CI"):
            pytest.fail("tests/privileged need root, and CI must not skip them")
        pytest.skip("needs root: run these with sudo")


@pytest.fixture
def helper(tmp_path: Path) -> Iterator[HelperProcess]:
    """A real one, before a stand-in systemctl and stand-in control groups."""
    with running(tmp_path) as process:
        yield process
