"""The client of the privileged helper: every answer, and every lack of one."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.edges import privileged
from agent.edges.privileged import Privileged
from agent.errors import EdgeError
from tests.edges.edges_house import nothing_more_than, until
from tests.fakes.privileged import FakeHelper, running_helper

pytestmark = pytest.mark.anyio


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeHelper]:
    """A helper that says yes."""
    async with running_helper(tmp_path / "helper.sock", {}) as helper:
        yield helper


async def test_each_verb_says_what_it_wants_and_no_more(fake: FakeHelper) -> None:
    helper = Privileged(fake.path)
    await helper.start("demo", "d1", "i1")
    await helper.terminate("demo", True, "u1")
    await helper.kill("demo", "")
    await helper.check("demo", "d1")
    await helper.ping()
    assert fake.asked == [
        {"verb": "start", "name": "demo", "digest": "d1", "invocation": "i1"},
        {"verb": "terminate", "name": "demo", "whole": True, "launch": "u1"},
        {"verb": "kill", "name": "demo", "launch": ""},
        {"verb": "check", "name": "demo", "digest": "d1"},
        {"verb": "ping"},
    ]


async def test_a_refusal_has_the_helpers_slug_and_sentence(fake: FakeHelper) -> None:
    fake.answer = b'{"ok": false, "slug": "policy_unreadable", "why": "run: chmod 644 /etc/x"}'
    with pytest.raises(EdgeError, match=r"helper: kill demo: run: chmod 644 /etc/x") as caught:
        await Privileged(fake.path).kill("demo", "")
    assert caught.value.slug == "policy_unreadable"


async def test_a_start_is_asked_for_again_while_the_last_end_is_under_way(fake: FakeHelper) -> None:
    fake.answer = b'{"ok": false, "slug": "still_ending", "why": "its unit is ending"}'
    starting = asyncio.create_task(Privileged(fake.path).start("demo", "d1", "i1"))

    async def asked_twice() -> bool:
        return len(fake.asked) > 1

    await until(asked_twice, "a second request")
    assert not starting.done()
    fake.answer = None
    await starting


async def test_an_end_that_never_comes_is_told(fake: FakeHelper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privileged, "ENDING_S", 0.1)
    fake.answer = b'{"ok": false, "slug": "still_ending", "why": "its unit is ending"}'
    with pytest.raises(EdgeError, match="its unit is ending") as caught:
        await Privileged(fake.path).start("demo", "d1", "i1")
    assert caught.value.slug == "still_ending"


@pytest.mark.parametrize("answer", [b"", b"\xff", b"[]", b"7", b'{"ok": 1}', b"{}"])
async def test_an_answer_that_is_none_is_an_error_without_a_slug(fake: FakeHelper, answer: bytes) -> None:
    fake.answer = answer
    with pytest.raises(EdgeError) as caught:
        await Privileged(fake.path).ping()
    assert caught.value.slug == ""


async def test_three_hundred_requests_at_once_are_all_answered(fake: FakeHelper) -> None:
    one, other = Privileged(fake.path), Privileged(fake.path)
    await asyncio.gather(*(helper.ping() for helper in (one, other) for _ in range(150)))
    assert len(fake.asked) == 300


async def test_a_queue_of_callers_that_is_full_is_waited_for(fake: FakeHelper) -> None:
    await asyncio.gather(*(Privileged(fake.path).ping() for _ in range(40)))
    assert len(fake.asked) == 40


async def test_a_helper_that_never_answers_costs_its_deadline_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(privileged, "LIMIT_S", 0.2)
    descriptors, threads = set(os.listdir("/proc/self/fd")), set(threading.enumerate())
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as mute:
        mute.bind(str(tmp_path / "helper.sock"))
        mute.listen(0)
        helper = Privileged(tmp_path / "helper.sock")
        for _ in range(4):  # the last ones do not even get into its queue
            with pytest.raises(EdgeError, match=r"no answer within 0.2 s"):
                await helper.ping()
    await nothing_more_than(descriptors, threads)


async def test_no_socket_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(EdgeError, match=r"helper.sock: No such file"):
        await Privileged(tmp_path / "helper.sock").ping()


async def test_a_kill_is_not_given_up_for_a_slow_hold_before_it(
    fake: FakeHelper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(privileged, "LIMIT_S", 2.0)
    fake.slow_s["hold"] = 3.0
    helper = Privileged(fake.path)
    hold = asyncio.create_task(helper.hold(frozenset({"vllm.service"})))
    await asyncio.sleep(0.1)
    await helper.kill("demo", "")
    assert [each["verb"] for each in fake.asked] == ["hold", "kill"]
    await hold
