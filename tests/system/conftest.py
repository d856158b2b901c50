from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.system.image import SUITES, image, why_not
from tests.system.installed import Installed, copy_clone, install
from tests.system.machine import Machine

Boot = Callable[..., Machine]


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The work tree as git would give it, readable by every user of a machine."""
    return copy_clone(tmp_path_factory.mktemp("clone") / "gpuagent")


@pytest.fixture(scope="session", params=SUITES)
def debian(request: pytest.FixtureRequest) -> Iterator[tuple[str, Path]]:
    """Each Debian that we support, bare."""
    if reason := why_not():
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with image(request.param) as root:
        yield request.param, root


@pytest.fixture(scope="session")
def installed(debian: tuple[str, Path], clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """`make install`, done once for all tests on that Debian."""
    suite, root = debian
    folder = tmp_path_factory.mktemp(f"{suite}-installed")
    yield install(suite, root, clone, folder)
    shutil.rmtree(folder)


def _boots(installed: Installed, factory: pytest.TempPathFactory) -> Iterator[Boot]:
    with ExitStack() as ended:

        def boot() -> Machine:
            folder = factory.mktemp(installed.suite)
            ended.callback(shutil.rmtree, folder)
            machine = Machine(folder, installed.layers, installed.clone)
            ended.callback(machine.close)
            return machine.boot()

        yield boot


@pytest.fixture(scope="module")
def boot(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boot]:
    """Boots fresh machines with gpuagent installed and not started; they end with the module."""
    yield from _boots(installed, tmp_path_factory)
