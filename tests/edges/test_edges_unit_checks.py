"""UnitChecks against a helper on a real socket and records on a real disk."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agent.edges import unit_checks
from agent.edges.owners import ByDescriptors
from agent.edges.privileged import Privileged
from agent.edges.unit_checks import UnitChecks
from agent.errors import EdgeError

pytestmark = pytest.mark.anyio

NEED = {
    "name": "model", "slug": "missing_weights", "text": "Model /m is empty", "remedy": "Copy it.", "subject": "/m",
    "heals": False,
}  # fmt: skip


class Root:
    """In the place of the helper: one SEQPACKET socket, one answer a request, and what it does before it answers."""

    def __init__(self, path: Path, records: Path) -> None:
        self.path = path
        self.records = records
        self.asked: list[dict[str, object]] = []
        self.reply: dict[str, object] = {"ok": True}
        self.does: Callable[[], None] = lambda: None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.setblocking(False)
        self._listener.bind(str(path))
        self._listener.listen()

    async def serve(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        with self._listener:
            while True:
                caller, _ = await loop.sock_accept(self._listener)
                with caller:
                    self.asked.append(json.loads(await loop.sock_recv(caller, 4096)))
                    self.does()
                    await loop.sock_sendall(caller, json.dumps(self.reply).encode())

    def writes(self, needs: list[dict[str, object]], *, ago_s: float = 0.0, digest: str = "d1") -> Callable[[], None]:
        """The record of a look that began `ago_s` before now."""

        def write() -> None:
            at = time.clock_gettime(time.CLOCK_BOOTTIME) - ago_s
            (self.records / "demo.check.json").write_text(json.dumps({"at": at, "digest": digest, "needs": needs}))

        return write


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port: int = trial.getsockname()[1]
        return port


def checks(root: Root, port: int | None = None) -> UnitChecks:
    return UnitChecks(
        "demo",
        "d1",
        Privileged(root.path),
        "127.0.0.1",
        port or free_port(),
        ByDescriptors(),
        root.records,
        root.records,
    )


@pytest.fixture
async def root(tmp_path: Path) -> AsyncIterator[Root]:
    made = Root(tmp_path / "helper.sock", tmp_path)
    serving = asyncio.create_task(made.serve())
    yield made
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_what_the_servers_own_user_finds_missing_is_a_need(root: Root) -> None:
    root.does = root.writes([NEED])
    (need,) = await checks(root).needs(frozenset())
    assert (need.name, need.cause.slug, need.cause.text, need.heals) == (
        "model",
        "missing_weights",
        NEED["text"],
        False,
    )
    assert root.asked == [{"verb": "check", "name": "demo", "digest": "d1"}]


async def test_nothing_missing_is_no_need(root: Root) -> None:
    root.does = root.writes([])
    assert await checks(root).needs(frozenset()) == ()


async def test_a_taken_port_is_found_without_the_helper(root: Root) -> None:
    root.does = root.writes([])
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        (need,) = await checks(root, squatter.getsockname()[1]).needs(frozenset())
    assert need.cause.slug == "port_taken"


@pytest.mark.parametrize(
    "wrong", [{"ago_s": 3.0}, {"digest": "d2"}], ids=["of an earlier look", "of another definition"]
)
async def test_a_record_that_does_not_answer_this_question_is_not_believed(
    root: Root, wrong: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_checks, "LIMIT_S", 0.3)
    root.does = root.writes([], **wrong)  # type: ignore[arg-type]
    with pytest.raises(EdgeError, match=r"gpuagent-check@demo\.service has not answered"):
        await checks(root).needs(frozenset())


async def test_a_configuration_that_is_newer_on_the_disk_is_waited_for_by_name(root: Root) -> None:
    root.reply = {"ok": False, "slug": "digest_differs", "why": "it has changed"}
    (need,) = await checks(root).needs(frozenset())
    assert need.heals
    assert "gpuagent reload" in need.cause.remedy


async def test_a_helper_that_refuses_or_is_away_is_an_edge_error(root: Root, tmp_path: Path) -> None:
    root.reply = {"ok": False, "slug": "policy_unreadable", "why": "the file is not root's"}
    with pytest.raises(EdgeError, match="not root's"):
        await checks(root).needs(frozenset())
    away = UnitChecks(
        "demo", "d1", Privileged(tmp_path / "no.sock"), "127.0.0.1", free_port(), ByDescriptors(), tmp_path, tmp_path
    )
    with pytest.raises(EdgeError, match=r"no\.sock"):
        await away.needs(frozenset())
