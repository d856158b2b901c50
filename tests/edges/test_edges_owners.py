"""Whose a listener is, by its control group: no right to look at the process itself is needed."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from agent.core.model import Health
from agent.edges import cgroup, port_check, sockets
from agent.edges.cgroup import Cgroup
from agent.edges.owners import ByCgroup
from agent.edges.probe import HttpProbe
from agent.edges.sockets import Endpoint
from tests.edges.edges_house import background


def own_group() -> Path | None:
    """The folder of our control group, version 2, which may be mounted anywhere; None: it is not."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    root = next((Path(words[1]) for words in mounts if words[2] == "cgroup2"), None)
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    group = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    return root / group if root is not None and group is not None and (root / group).is_dir() else None


OURS = own_group()
needs_groups = pytest.mark.skipif(OURS is None, reason="no control groups of version 2 are mounted here")
NOBODY: frozenset[int] = frozenset()


@needs_groups
def test_the_kernel_tells_the_group_of_a_listener(port: int) -> None:
    assert OURS is not None
    with socket.create_server(("127.0.0.1", port)):
        (end,) = sockets.listeners(port)
    assert end.cgroup == OURS.stat().st_ino


@needs_groups
def test_a_listener_of_the_group_is_ours_though_no_process_is_named(port: int) -> None:
    assert OURS is not None
    owner = ByCgroup(Cgroup(OURS))
    with socket.create_server(("127.0.0.1", port)):
        ends = sockets.listeners(port)
    assert owner.proved(ends, NOBODY)
    assert owner.strangers(ends, NOBODY) == ""


@needs_groups
def test_a_listener_of_a_group_below_is_ours(tmp_path: Path, port: int) -> None:
    below = tmp_path / "unit" / "workers"
    below.mkdir(parents=True)
    end = Endpoint("127.0.0.1", port, 1, 1000, False, below.stat().st_ino)
    assert ByCgroup(Cgroup(tmp_path / "unit")).proved((end,), NOBODY)


def test_a_listener_of_another_group_is_named_with_it(tmp_path: Path, port: int) -> None:
    (tmp_path / "unit").mkdir()
    owner = ByCgroup(Cgroup(tmp_path / "unit"))
    other = Endpoint("127.0.0.1", port, 1, 1000, False, 2**60)
    assert not owner.proved((other,), frozenset({os.getpid()}))
    assert owner.strangers((other,), NOBODY) == "a process of user id 1000"


def test_the_name_of_a_group_is_found_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "system.slice" / "ollama.service").mkdir(parents=True)
    number = (tmp_path / "system.slice" / "ollama.service").stat().st_ino
    assert cgroup.name_of(number, tmp_path) == "system.slice/ollama.service"
    assert cgroup.name_of(0, tmp_path) is None


def test_a_kernel_that_does_not_tell_proves_nothing(tmp_path: Path, port: int) -> None:
    owner = ByCgroup(Cgroup(tmp_path))
    ends = (Endpoint("127.0.0.1", port, 1, 1000, False),)
    assert not owner.proved(ends, NOBODY)
    assert "not provably ours" in owner.strangers(ends, NOBODY)


def test_a_group_that_is_gone_owns_nothing(tmp_path: Path, port: int) -> None:
    owner = ByCgroup(Cgroup(tmp_path / "gone"))
    assert not owner.proved((Endpoint("127.0.0.1", port, 1, 1000, False, 1),), NOBODY)


@needs_groups
@pytest.mark.anyio
async def test_a_probe_asks_a_server_of_the_group_and_no_other(port: int, tmp_path: Path) -> None:
    assert OURS is not None
    with background("--port", str(port), first="listening"):
        for group, expected in ((OURS, Health.OK), (tmp_path, Health.FOREIGN)):
            owner = ByCgroup(Cgroup(group))
            probe = HttpProbe("127.0.0.1", port, "/health", {200: Health.OK}, 20.0, owner)
            health, words = await probe.ask(NOBODY)
            await probe.close()
            assert health is expected, words
            need = port_check.port("127.0.0.1", port, frozenset({1}), owner)
            assert (need is None) == (expected is Health.OK)
