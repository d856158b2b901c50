"""What is shown of the GPUs, made of a reading."""

from __future__ import annotations

import json

from agent.api.gpu_schema import GpusDocument
from agent.api.schema import GpusBriefDocument
from agent.core.gpu_seen import (
    REMEDY,
    Fabric,
    Fault,
    GpuDevice,
    GpuHealth,
    GpuMemory,
    GpuPart,
    GpuReading,
    GpuState,
    GpuUse,
    HolderKind,
    MemoryKind,
    ProcessOwner,
)
from agent.view_gpus import marks, show

MEMORY = GpuMemory(kind=MemoryKind.OWN_V1, total_mib=143_771, used_mib=75_811, free_mib=67_960, reserved_mib=None)
WELL = GpuDevice(
    index=0,
    uuid="GPU-a",
    name="NVIDIA H200",
    memory=MEMORY,
    uses=(GpuUse(7, 75_000), GpuUse(8, None)),
    health=GpuHealth(celsius=41, watts=112.5, fabric=Fabric.COMPLETED, rows_pending=False),
    faults=(Fault("ecc", 3, "not supported"),),
)
LOST = GpuDevice(index=1, uuid="GPU-b", state=GpuState.GPU_LOST, why="GPU is lost")
OWNER = ProcessOwner(
    pid=7, kind=HolderKind.UNIT, owner="vllm.service", name="python3", user="vllm", since=1_767_323_045.678, started=9
)


def reading(*devices: GpuDevice, state: GpuState = GpuState.OK) -> GpuReading:
    return GpuReading(began=1.0, state=state, devices=devices, driver="580.1", owners=(OWNER,))


def test_all_that_is_known_is_in_the_document_and_what_is_not_is_null() -> None:
    page = show(reading(WELL, LOST))
    assert page.full is not None
    GpusDocument.model_validate_json(page.full)
    well, lost = json.loads(page.full)["devices"]
    assert (well["used_mib"], well["free_mib"], well["memory"], well["reserved_mib"]) == (
        75_811,
        67_960,
        "own_v1",
        None,
    )
    assert (well["celsius"], well["fabric"], well["rows_pending"], well["mig"]) == (41, "completed", False, None)
    assert well["faults"] == [{"field": "ecc", "code": 3, "text": "not supported"}]
    known, unknown = well["holders"]
    assert (known["owner"], known["kind"], known["since"]) == ("vllm.service", "unit", "2026-01-02T03:04:05.678Z")
    assert (unknown["pid"], unknown["mib"], unknown["owner"], unknown["since"]) == (8, None, "", None)
    assert (lost["state"], lost["remedy"], lost["holders"]) == ("gpu_lost", REMEDY[GpuState.GPU_LOST], None)


def test_in_short_figures_are_rounded_and_nobody_is_named() -> None:
    summary = show(reading(WELL)).summary
    GpusBriefDocument.model_validate_json(json.dumps(summary))
    assert (summary["devices"][0]["used_mib"], summary["devices"][0]["free_mib"]) == (75_776, 67_968)
    assert "vllm" not in json.dumps(summary)


def test_who_is_on_a_part_of_a_gpu_is_on_the_gpu() -> None:
    divided = GpuDevice(index=0, uuid="GPU-a", parts=(GpuPart(uuid="MIG-a", uses=(GpuUse(7, 5),)),))
    full = show(reading(divided)).full
    assert full is not None
    assert [each["pid"] for each in json.loads(full)["devices"][0]["holders"]] == [7]


def test_while_nobody_reads_them_that_is_said() -> None:
    page = show(None)
    assert (page.full, page.summary["state"]) == (None, "not_read")
    GpusBriefDocument.model_validate_json(json.dumps(page.summary))


def test_a_mark_tells_what_is_wrong_with_the_gpus_that_servers_name_and_of_no_other() -> None:
    both = reading(WELL, LOST)
    assert marks(both, {"0", "GPU-a"}) == []
    told = [f"gpus: GPU 1: gpu_lost: {REMEDY[GpuState.GPU_LOST]}"]
    assert marks(both, {"1"}) == marks(both, {"1", "GPU-b"}) == told
    assert marks(both, {"0", "7"}) == ["gpus: GPU 7 is not there"]
    hung = reading(state=GpuState.HUNG)
    assert marks(hung, {"0"}) == [f"gpus: hung: {REMEDY[GpuState.HUNG]}"]
    assert marks(hung, set()) == marks(None, {"0"}) == marks(reading(state=GpuState.OPENING), {"0"}) == []
