"""Whether there is room on the GPUs of one server."""

from __future__ import annotations

import pytest

from agent.core.gpus import SAMPLES, STEADY_MIB, remember, room
from agent.core.model import Gpu, Holder, Policy, Saved, Seen, State
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
        ([59_999] * SAMPLES, "59999 MiB free, 60000 MiB are needed"),
        ([70_000, None, 70_000], "does not say"),
    ],
)
def test_what_is_lacking_is_said(readings: list[int | None], why: str) -> None:
    verdict = room(after(*[(gpu(free),) for free in readings]), ONE)
    assert (verdict.known, verdict.free) == (True, False)
    assert why in verdict.why


def test_a_gpu_that_is_not_there_or_no_longer_there_is_no_room() -> None:
    assert "GPU 1 is not there" in room(after(*[(gpu(70_000),)] * 3), Policy(gpus=("1",))).why
    assert "GPU 0 is not there" in room(after((gpu(70_000),), (gpu(70_000),), ()), ONE).why


def test_each_gpu_must_have_room_whether_named_by_uuid_or_index() -> None:
    both = (gpu(70_000, 0), gpu(10, 1))
    assert room(after(both, both, both), Policy(gpus=("GPU-0",), need_mib=60_000)).free
    assert "GPU GPU-1 has 10 MiB" in room(after(both, both, both), Policy(gpus=("0", "GPU-1"), need_mib=60_000)).why


def test_the_largest_holders_are_named() -> None:
    holders = tuple(Holder(pid=i, mib=i * 1000, kind="stranger", owner="ann" if i == 5 else "") for i in range(1, 6))
    full = Gpu(
        uuid="GPU-0", index=0, total_mib=80_000, free_mib=10, holders=(*holders, Holder(pid=9, mib=None, kind="ghost"))
    )
    why = room(after((full,)), ONE).why
    assert why.endswith(
        ": pid 5 (ann) holds 5000 MiB; pid 4 (stranger) holds 4000 MiB; pid 3 (stranger) holds 3000 MiB"
    )


def test_a_missing_reading_forgets_those_before_it() -> None:
    state = after((gpu(1),), (gpu(2),))
    assert remember(state, Seen(gpus=(gpu(3),))) == ((gpu(1),), (gpu(2),), (gpu(3),))
    assert remember(state, Seen(gpus=None)) == ()
