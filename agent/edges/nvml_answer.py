"""From the lines of the GPU reader's process to a reading. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.core.gpu_seen import (
    Fabric,
    Fault,
    GpuDevice,
    GpuHealth,
    GpuMemory,
    GpuPart,
    GpuReading,
    GpuState,
    GpuUse,
    MemoryKind,
    Xid,
)

WHOLE = {
    1: GpuState.ERROR,  # uninitialized: the driver has been taken away under the library
    9: GpuState.NO_DRIVER,
    12: GpuState.NO_LIBRARY,
    18: GpuState.VERSION_MISMATCH,
}
"""Codes of NVML that concern all GPUs, whichever call answers them."""
LOST = {15: GpuState.GPU_LOST, 16: GpuState.GPU_LOST}
"""... and one GPU: lost, or in need of a reset."""
OTHER = {
    4: GpuState.NO_PERMISSION,
    6: GpuState.NO_DEVICES,
    17: GpuState.NO_PERMISSION,  # "the operating system has blocked the request": its control group may not
    28: GpuState.NO_DEVICES,
}
"""... where they come from a call that all others need."""
NOT_SUPPORTED = 3
NEEDED = ("handle", "uuid", "memory")
"""A GPU that fails in one of these cannot be used; memory that is not supported is merely not known."""
SIGNS = ("celsius", "milliwatts", "busy")
"""A GPU that answers one of these is there: without own memory, then, and not lost."""
FABRICS = {1: Fabric.NOT_STARTED, 2: Fabric.IN_PROGRESS, 3: Fabric.COMPLETED}

Answer = Mapping[str, Any]


def reading_of(answer: Answer, began: float) -> GpuReading:
    """What it means. KeyError, TypeError, ValueError: it is no answer of ours."""
    said = GpuReading(
        began=began, state=GpuState.OK, driver=answer.get("driver", ""), library=answer.get("library", "")
    )
    if "fault" in answer:
        call, code, text = answer["fault"]
        return replace(said, state=_state(code), why=f"{call}: {text}{_stub(said.library)}")
    devices = tuple(_device(each) for each in answer["devices"])
    if not devices:
        return _no_devices(said, answer["on_bus"])
    xids = tuple(Xid(uuid, number) for uuid, number in answer["xids"])
    return _judged(replace(said, devices=devices, xids=xids), answer.get("on_disk", ""))


def _state(code: int | None) -> GpuState:
    return GpuState.ERROR if code is None else {**WHOLE, **LOST, **OTHER}.get(code, GpuState.ERROR)


def _stub(library: str) -> str:
    return f" ({library} is the CUDA toolkit's stub, not the driver's library)" if "/stubs/" in library else ""


def _no_devices(said: GpuReading, on_bus: int) -> GpuReading:
    if on_bus:
        why = f"the driver shows no GPU, though {on_bus} are on the bus"
        return replace(said, state=GpuState.NO_PERMISSION, why=why)
    return replace(said, state=GpuState.NO_DEVICES, why="the driver has no GPU")


def _judged(said: GpuReading, on_disk: str) -> GpuReading:
    """The state of the whole: what concerns all, or what each single GPU has."""
    faults = [fault for gpu in said.devices for fault in gpu.faults if fault.code in WHOLE]
    if faults:
        return replace(said, state=WHOLE[faults[0].code or 0], why=f"{faults[0].field}: {faults[0].text}")
    if on_disk:
        why = f"library {on_disk} has been installed, driver {said.driver} is loaded: no new process can use the GPUs"
        return replace(said, state=GpuState.VERSION_MISMATCH, why=why)
    states = {gpu.state for gpu in said.devices}
    if len(states) == 1 and GpuState.OK not in states:
        return replace(said, state=said.devices[0].state, why=f"every GPU: {said.devices[0].why}")
    return said


def _device(said: Answer) -> GpuDevice:
    faults = tuple(Fault(field, code, text) for field, (code, text) in said["faults"].items())
    state, why = _device_state(faults)
    return GpuDevice(
        index=said["index"],
        uuid=said["uuid"],
        state=state,
        why=why,
        name=said.get("name"),
        memory=_memory(said, bool(faults) and _unified(said, faults)),
        uses=_uses(said),
        busy_percent=said.get("busy"),
        health=_health(said),
        parts=tuple(_part(each) for each in said.get("parts", ())),
        faults=faults,
    )


def _device_state(faults: tuple[Fault, ...]) -> tuple[GpuState, str]:
    for fault in faults:
        if fault.code in WHOLE or fault.code in LOST:
            return _state(fault.code), f"{fault.field}: {fault.text}"
    for fault in faults:
        if fault.field in NEEDED and (fault.field, fault.code) != ("memory", NOT_SUPPORTED):
            return _state(fault.code), f"{fault.field}: {fault.text}"
    return GpuState.OK, ""


def _unified(said: Answer, faults: tuple[Fault, ...]) -> bool:
    """Strictly: no call tells of own memory, the GPU is there in every other way, and is not divided."""
    codes = {fault.field: fault.code for fault in faults}
    there = codes.get("memory") == NOT_SUPPORTED and not codes.keys() & {"handle", "uuid", "name"}
    sound = not any(code in WHOLE or code in LOST for code in codes.values())
    divided = bool(said.get("mig") and said["mig"][0]) or codes.get("mig", NOT_SUPPORTED) != NOT_SUPPORTED
    return there and sound and not divided and any(said.get(sign) is not None for sign in SIGNS)


def _memory(said: Answer, unified: bool) -> GpuMemory | None:
    if unified:
        total, available = said["host_memory"]
        return GpuMemory(kind=MemoryKind.UNIFIED, total_mib=total, used_mib=total - available, free_mib=available)
    if said.get("memory") is None:
        return None
    total, used, free, reserved = said["memory"]
    kind = MemoryKind.OWN if reserved is not None else MemoryKind.OWN_V1
    return GpuMemory(kind=kind, total_mib=total, used_mib=used, free_mib=free, reserved_mib=reserved)


def _uses(said: Answer) -> tuple[GpuUse, ...] | None:
    uses = said.get("uses")
    return None if uses is None else tuple(GpuUse(pid, mib) for pid, mib in uses)


def _part(said: Answer) -> GpuPart:
    return GpuPart(uuid=said["uuid"], memory=_memory(said, unified=False), uses=_uses(said))


def _health(said: Answer) -> GpuHealth:
    if "ecc" not in said:  # it was not asked: there is no handle
        return GpuHealth()
    corrected, uncorrected = said["ecc"]
    remapped = said["rows"] or (None, None, None, None)
    milliwatts, mig, persistent = said["milliwatts"], said["mig"], said["persistent"]
    return GpuHealth(
        celsius=said["celsius"],
        watts=None if milliwatts is None else milliwatts / 1000,
        ecc_corrected=corrected,
        ecc_uncorrected=uncorrected,
        rows_remapped=None if remapped[0] is None else remapped[0] + remapped[1],
        rows_pending=None if remapped[2] is None else bool(remapped[2]),
        rows_failed=None if remapped[3] is None else bool(remapped[3]),
        mig=None if mig is None else bool(mig[0]),
        persistent=None if persistent is None else bool(persistent),
        fabric=_fabric(said["fabric"]),
    )


def _fabric(said: list[int] | None) -> Fabric | None:
    state, status = said or (0, 0)
    return Fabric.FAILED if state == 3 and status else FABRICS.get(state)
