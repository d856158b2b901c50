from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.system.image import ROOT, SUITES, image, why_not
from tests.system.machine import SOURCE, Machine

INSTALL_S = 300.0
OFFLINE = ("env", "PIP_NO_INDEX=1", "PIP_FIND_LINKS=/wheels")
CONTAINER = """[Service]
ProtectKernelTunables=no
ProtectControlGroups=no
"""
"""For all services: under systemd 252 these two lay a /proc over the container's, which shows the boot of the host."""
Boot = Callable[..., Machine]


class Installed(NamedTuple):
    """A Debian with gpuagent installed, switched off: what a machine begins with."""

    suite: str
    layers: list[Path]
    clone: Path
    said: str
    """What `make install` printed."""


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The work tree as git would give it, readable by every user of a machine."""
    folder = tmp_path_factory.mktemp("clone") / "gpuagent"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    for name in listed.stdout.decode().rstrip("\0").split("\0"):
        if (ROOT / name).is_file():  # one that is deleted, and not committed, is listed too
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True, timeout=60)
    return folder


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
    machine = Machine(folder, [root], clone)
    try:
        machine.boot().write("/etc/systemd/system/service.d/container.conf", CONTAINER)
        said = machine.run(*OFFLINE, "make", "-C", SOURCE, "install", deadline_s=INSTALL_S)
        machine.power_off()
    finally:
        machine.close()
    yield Installed(suite, [folder / "upper", root], clone, said)
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
