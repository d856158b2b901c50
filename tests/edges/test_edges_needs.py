"""The preconditions on disks that hang: the look is told as a need, and the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent.core.model import Need
from agent.edges import checks, unit_checks
from agent.edges.checks import FileChecks
from agent.edges.owners import ByDescriptors
from agent.edges.privileged import Privileged
from agent.edges.unit_checks import UnitChecks
from agent.preconditions import Preconditions
from tests import weights
from tests.disks import Disk, disk
from tests.edges.test_edges_unit_checks import Root, free_port

pytestmark = pytest.mark.anyio


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Disk]:
    with disk(tmp_path, apart=True) as made:
        yield made


@pytest.fixture
async def root(tmp_path: Path) -> AsyncIterator[Root]:
    made = Root(tmp_path / "helper.sock", tmp_path)
    serving = asyncio.create_task(made.serve())
    yield made
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


def embedded(tmp_path: Path, **keys: Any) -> FileChecks:
    given: dict[str, Any] = {"command": ["true"], "environment": lambda: {"PATH": "/bin"}, "log_folder": tmp_path / "l"}
    return FileChecks(**{**given, **keys})


async def until_thawed(made: FileChecks | UnitChecks) -> None:
    with anyio.fail_after(30):
        while await made.needs(frozenset()) != ():  # noqa: ASYNC110 - a thread ends, and tells nobody here
            await anyio.sleep(0.05)


def is_stalled(needs: tuple[Need, ...], path: Path) -> bool:
    (need,) = needs
    assert need.cause.text.startswith(f"Storage stalled: {path} does not answer since ")
    return need.heals and (need.cause.slug, need.subject) == ("storage_stalled", str(path))


@pytest.mark.parametrize("what", ["model", "log"])
async def test_a_look_that_hangs_is_a_need_with_the_place_and_is_met_once_that_answers(
    tmp_path: Path, volume: Disk, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "LIMIT_S", 1.0)
    weights.sharded(volume.kept)
    keys: dict[str, Any] = {"files": [volume.kept]} if what == "model" else {"log_folder": volume.kept}
    made = embedded(tmp_path, **keys)
    assert await made.needs(frozenset()) == ()
    volume.freeze()
    first = await made.needs(frozenset())
    assert is_stalled(first, volume.kept)
    assert await made.needs(frozenset()) == first, "at once, and since the same time"
    volume.thaw()
    await until_thawed(made)


async def test_what_the_definition_needs_is_looked_at_in_embedded_mode_too(tmp_path: Path) -> None:
    conditions = Preconditions(mounts=(str(tmp_path),), files=("/no/such/file",))
    (need,) = await embedded(tmp_path, preconditions=conditions).needs(frozenset())
    assert (need.cause.slug, need.heals) == ("mount_missing", True)
    (need,) = await embedded(tmp_path, preconditions=Preconditions(files=("/no/such/file",))).needs(frozenset())
    assert (need.cause.slug, need.heals) == ("file_missing", False)


async def test_a_launch_whose_log_could_not_be_written_is_kept_back(
    tmp_path: Path, volume: Disk, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_checks, "WRITE_LIMIT_S", 1.0)
    log, owner = volume.kept / "demo", ByDescriptors()
    made = UnitChecks("demo", "d1", Privileged(root.path), "127.0.0.1", free_port(), owner, log, root.records)
    root.does = root.writes([])
    assert await made.needs(frozenset()) == (), "though the folder is not there yet"
    volume.freeze()
    first = await made.needs(frozenset())
    assert is_stalled(first, log)
    assert await made.needs(frozenset()) == first
    volume.thaw()
    await until_thawed(made)
