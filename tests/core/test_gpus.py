"""Whether there is room on the GPUs of one server."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from agent.core.gpus import SAMPLES, STEADY_MIB, Room, remember, room
from agent.core.model import Cause, Gpu, Holder, Policy, Retry, Saved, Seen, State
from tests.core.script import gpu

ONE = Policy(gpus=("0",), need_mib=60_000)


def after(*readings: tuple[Gpu, ...], saved: Saved = Saved()) -> State:  # noqa: B008  # frozen
    """A state with these readings."""
    return State(readings=readings, saved=saved)


def test_a_definition_without_gpus_needs_no_look() -> None:
    assert room(State(), Policy()).free


def test_the_operator_may_waive_the_look() -> None:
    assert room(State(saved=Saved(gpu_check=False)), ONE).free
    assert not room(State(), ONE).known


def test_enough_memory_that_is_steady_is_room() -> None:
    readings = [(gpu(70_000 + STEADY_MIB * i // SAMPLES),) for i in range(SAMPLES)]
    assert room(after(*readings), ONE).free


@pytest.mark.parametrize(
    ("readings", "why"),
    [
        ([70_000] * (SAMPLES - 1), "not steady"),
        ([70_000, 70_000, 70_000 + STEADY_MIB + 1], "not steady"),
        ([59_999] * SAMPLES, "GPU 0: 58.5 GiB free, 58.6 GiB needed: the driver names nobody who holds the rest"),
    ],
)
def test_what_is_lacking_is_said(readings: list[int], why: str) -> None:
    verdict = room(after(*[(gpu(free),) for free in readings]), ONE)
    assert (verdict.known, verdict.free) == (True, False)
    assert why in verdict.why


LOST = Gpu(uuid="GPU-0", index=0, total_mib=80_000, free_mib=None, fault="gpu lost: Xid 79; reset it")


@pytest.mark.parametrize(
    ("readings", "why"),
    [
        (((gpu(70_000, 1),),) * 3, "GPU 0 is not there"),
        (((gpu(70_000),), (gpu(70_000),), ()), "GPU 0 is not there"),
        (((gpu(70_000),), (gpu(None),), (gpu(70_000),)), "GPU 0 does not say how much memory is free"),
        (((gpu(70_000),), (LOST,)), "GPU 0: gpu lost: Xid 79; reset it"),
    ],
)
def test_a_gpu_of_which_nothing_is_known_is_waited_for_as_a_need_is(
    readings: tuple[tuple[Gpu, ...], ...], why: str
) -> None:
    assert room(after(*readings), ONE) == Room(known=False, free=False, why=why)


def test_another_gpu_that_is_lost_is_none_of_the_servers_business() -> None:
    assert room(after(*[(LOST, gpu(70_000, 1))] * 3), Policy(gpus=("1",), need_mib=60_000)).free


def test_why_the_gpus_cannot_be_read_is_said_with_what_to_do() -> None:
    cause = Cause(slug="gpus_unread", text="GPU driver hung: pid 7 is stuck", remedy="reboot", retry=Retry.WAIT)
    state = State(seen=Seen(gpus_unread=cause))
    assert room(state, ONE) == Room(known=False, free=False, why="GPU driver hung: pid 7 is stuck; reboot")
    assert room(state, Policy()).free


def test_each_gpu_must_have_room_whether_named_by_uuid_or_index() -> None:
    both = (gpu(70_000, 0), gpu(10, 1))
    assert room(after(both, both, both), Policy(gpus=("GPU-0",), need_mib=60_000)).free
    assert "GPU GPU-1: 0.0 GiB" in room(after(both, both, both), Policy(gpus=("0", "GPU-1"), need_mib=60_000)).why


def test_figures_that_are_close_never_look_the_same() -> None:
    for free_mib in range(59_800, 60_000):
        said = room(after((gpu(free_mib),)), ONE).why
        free, needed = re.findall(r"([\d.]+) GiB", said)
        assert float(free) < float(needed)


def test_the_largest_holders_are_named() -> None:
    holders = tuple(Holder(pid=i, mib=i * 1024, kind="stray", owner="ann" if i == 5 else "") for i in range(1, 6))
    full = Gpu(
        uuid="GPU-0", index=0, total_mib=80_000, free_mib=10, holders=(*holders, Holder(pid=9, mib=None, kind="ghost"))
    )
    assert room(after((full,)), ONE).why == (
        "GPU 0: 0.0 GiB free, 58.6 GiB needed: 5.0 GiB held by ann, pid 5; 4.0 GiB held by stray, pid 4; "
        "3.0 GiB held by stray, pid 3; and 3 more"
    )
    since = Holder(pid=4123, mib=62_669, kind="unit", owner="vllm.service", since="2026-01-02 03:04:05 UTC")
    assert "61.2 GiB held by vllm.service, pid 4123, since 2026-01-02 03:04:05 UTC" in (
        room(after((replace(full, holders=(since,)),)), ONE).why
    )
    unknown = replace(full, holders=(Holder(pid=9, mib=None, kind="ghost"),))
    assert "an unknown amount held by ghost, pid 9" in room(after((unknown,)), ONE).why


def test_a_missing_reading_forgets_those_before_it() -> None:
    state = after((gpu(1),), (gpu(2),))
    assert remember(state, Seen(gpus=(gpu(3),))) == ((gpu(1),), (gpu(2),), (gpu(3),))
    assert remember(state, Seen(gpus=None)) == ()
