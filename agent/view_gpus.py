"""What is shown of the GPUs: GET /gpus, and the part of GET /status."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass

from agent.core.gpu_seen import GpuDevice, GpuReading, GpuState, GpuUse, ProcessOwner, all_uses
from agent.view import Document, dump, rfc3339

NOT_READ = "not_read"
GRID_MIB = 128
"""Memory in /status is rounded to it: drivers move a few MiB all the time, and that is no news."""


@dataclass(frozen=True, slots=True)
class GpuPage:
    """The document of GET /gpus (None: they are not being read), and what /status has of it."""

    full: bytes | None
    summary: Document


def show(reading: GpuReading | None) -> GpuPage:
    """The last reading; None: there is none, as nobody needs any."""
    if reading is None:
        return GpuPage(None, {"state": NOT_READ, "why": "", "remedy": "", "devices": []})
    owners = {owner.pid: owner for owner in reading.owners}
    head = {"state": reading.state, "why": reading.why, "remedy": reading.remedy}
    full = {**head, "driver": reading.driver, "devices": [_device(gpu, owners) for gpu in reading.devices]}
    return GpuPage(dump(full), {**head, "devices": [_brief(gpu) for gpu in reading.devices]})


def marks(reading: GpuReading | None, names: Collection[str]) -> list[str]:
    """What does not work, for a person. `names`: GPUs that servers name. That the driver wakes up is no fault."""
    if reading is None or not names or reading.state is GpuState.OPENING:
        return []
    if reading.state is not GpuState.OK:
        return [f"gpus: {reading.state}: {reading.remedy}"]
    found = {name: reading.device(name) for name in sorted(names)}
    lost = [f"gpus: GPU {name} is not there" for name, gpu in found.items() if gpu is None]
    sick = {gpu.index: gpu for gpu in found.values() if gpu is not None and gpu.state is not GpuState.OK}
    return [*lost, *(f"gpus: GPU {index}: {gpu.state}: {gpu.remedy}" for index, gpu in sick.items())]


def _brief(gpu: GpuDevice) -> Document:
    memory = gpu.memory
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "state": gpu.state,
        "total_mib": memory.total_mib if memory else None,
        "used_mib": _rough(memory.used_mib) if memory else None,
        "free_mib": _rough(memory.free_mib) if memory else None,
    }


def _rough(mib: int) -> int:
    return round(mib / GRID_MIB) * GRID_MIB


def _device(gpu: GpuDevice, owners: Mapping[int, ProcessOwner]) -> Document:
    memory = gpu.memory
    known = gpu.uses is not None or gpu.parts
    return {
        **_brief(gpu),
        "why": gpu.why,
        "remedy": gpu.remedy,
        "memory": memory.kind if memory else None,
        "used_mib": memory.used_mib if memory else None,
        "free_mib": memory.free_mib if memory else None,
        "reserved_mib": memory.reserved_mib if memory else None,
        "holders": [_holder(use, owners.get(use.pid)) for use in all_uses(gpu)] if known else None,
        "busy_percent": gpu.busy_percent,
        **asdict(gpu.health),
        "faults": [asdict(fault) for fault in gpu.faults],
    }


def _holder(use: GpuUse, owner: ProcessOwner | None) -> Document:
    since = owner.since if owner else None
    return {
        "pid": use.pid,
        "mib": use.mib,
        "kind": owner.kind if owner else "stray",
        "owner": owner.owner if owner else "",
        "name": owner.name if owner else "",
        "user": owner.user if owner else "",
        "since": None if since is None else rfc3339(since),
        "protected": owner.protected if owner else "",
    }
