"""Single calls of NVML, in the GPU reader's process; those that nvidia-ml-py does not fit are made here.

A fault is `[code, text]`: NVML's code, or None for an exception of another kind (of those nvidia-ml-py has several).
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml  # type: ignore[import-untyped]  # nvidia-ml-py brings no types

MIB = 1 << 20
NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE, FUNCTION_NOT_FOUND, OTHER_VERSION = 3, 6, 7, 13, 25
UNKNOWN_BYTES = (1 << 64) - 1
LISTS = ("Compute", "Graphics", "MPSCompute")
ENTRIES = (("_v3", "@IQII"), ("_v2", "@IQII"), ("", "@IQ"))
"""By release of the driver: what ends the call's name, and an entry of its list: pid, bytes, parts of a divided GPU."""
SLACK = 2  # drivers 535.43 to 535.97 write longer entries under the same name
PID_MAX = 1 << 22  # the kernel's own limit

Fault = list[Any]
Faults = dict[str, Fault]


def fault_of(error: Exception) -> Fault:
    """See above. Without str(error): nvidia-ml-py asks the library for the words of a code that it does not know."""
    if not isinstance(error, pynvml.NVMLError):
        return [None, f"{type(error).__name__}: {error}"]
    words = pynvml.NVMLError._errcode_to_string.get(error.value)
    return [error.value, words or f"NVML code {error.value}"]


def tried(faults: Faults, field: str, call: Callable[..., Any], *args: Any) -> Any:
    """What it returns; None: `faults` says why."""
    try:
        return call(*args)
    except Exception as error:
        faults[field] = fault_of(error)
        return None


def text_of(name: str, handle: Any) -> str:
    """Of a call that fills a buffer: nvidia-ml-py raises where the text is no UTF-8."""
    buffer = ctypes.create_string_buffer(96)  # NVML_DEVICE_NAME_V2_BUFFER_SIZE, which is that of a UUID too
    code = _function(name)(handle, buffer, ctypes.c_uint(len(buffer)))
    if code:
        raise pynvml.NVMLError(code)
    return buffer.value.decode(errors="backslashreplace")


def uuid_of(handle: Any) -> str:
    """Of a GPU, or of a part of one."""
    return text_of("nvmlDeviceGetUUID", handle)


def _function(name: str) -> Any:
    try:
        return getattr(pynvml.nvmlLib, name)
    except AttributeError:
        raise pynvml.NVMLError(FUNCTION_NOT_FOUND) from None


def address_of(handle: Any) -> int | None:
    """By which two handles can be compared."""
    return ctypes.cast(handle, ctypes.c_void_p).value


def memory_and_uses(handle: Any, faults: Faults) -> dict[str, Any]:
    """Of a GPU, or of a part of one."""
    memory = tried(faults, "memory", _memory, handle)
    said = {"memory": memory, "uses": tried(faults, "uses", _uses, handle, faults)}
    if memory is None and faults["memory"][0] == NOT_SUPPORTED:
        said["host_memory"] = host_memory()
    return said


def _memory(handle: Any) -> list[int | None]:
    """Total, used, free, reserved, in MiB; the last None by the old call, which counts the reserve as used."""
    try:
        got = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        reserved = got.reserved // MIB
    except pynvml.NVMLError as error:
        if error.value not in (FUNCTION_NOT_FOUND, OTHER_VERSION, NOT_SUPPORTED):
            raise
        got, reserved = pynvml.nvmlDeviceGetMemoryInfo(handle), None
    if not got.total:  # some drivers say so instead of "not supported"
        raise pynvml.NVMLError(NOT_SUPPORTED)
    return [got.total // MIB, got.used // MIB, got.free // MIB, reserved]


def host_memory() -> list[int]:
    """Total and available, in MiB, as the kernel tells."""
    fields = dict(re.findall(r"^(\w+):\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE))
    return [int(fields["MemTotal"]) >> 10, int(fields["MemAvailable"]) >> 10]


def _uses(handle: Any, faults: Faults) -> list[list[int | None]]:
    """Each process with its MiB. A process in two lists has the same figure in both: that of the process."""
    found: dict[int, int | None] = {}
    for name in LISTS:
        try:
            listed = _listed(name, handle)
        except pynvml.NVMLError as error:
            if name == LISTS[0]:
                raise
            if error.value not in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
                faults[f"uses, {name}"] = fault_of(error)
            continue
        for pid, used in listed:
            mib = None if used == UNKNOWN_BYTES else used // MIB
            found[pid] = max(found.get(pid) or 0, mib) if mib is not None else found.get(pid)
    real = {pid: mib for pid, mib in found.items() if 0 < pid <= PID_MAX}
    if len(real) < len(found):
        faults["uses, pids"] = [None, f"{len(found) - len(real)} impossible process numbers were left out"]
    return [[pid, mib] for pid, mib in real.items()]


def _listed(name: str, handle: Any) -> list[tuple[int, int]]:
    for ending, entry in ENTRIES:
        try:
            call = _function(f"nvmlDeviceGet{name}RunningProcesses{ending}")
        except pynvml.NVMLError:
            continue
        return [(each[0], each[1]) for each in _entries(call, handle, entry)]
    raise pynvml.NVMLError(FUNCTION_NOT_FOUND)


def _entries(call: Any, handle: Any, entry: str) -> list[tuple[int, ...]]:
    """The list grows while it is asked for: tried again with more room, some times."""
    size, room = struct.calcsize(entry), 32
    for _ in range(4):
        buffer, count = ctypes.create_string_buffer(room * size * SLACK), ctypes.c_uint(room)
        code = call(handle, ctypes.byref(count), buffer)
        if code == 0:
            return list(struct.iter_unpack(entry, buffer.raw[: min(count.value, room) * size]))
        if code != INSUFFICIENT_SIZE:
            break
        room = min(count.value * 2 + 5, 1 << 16)
    raise pynvml.NVMLError(code)


def fabric(handle: Any) -> list[int]:
    """State and status of its joining the other GPUs of an NVSwitch host."""
    try:
        info = pynvml.c_nvmlGpuFabricInfo_v2_t()
        pynvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
    except pynvml.NVMLError as error:
        if error.value not in (FUNCTION_NOT_FOUND, OTHER_VERSION):
            raise
        info = pynvml.c_nvmlGpuFabricInfo_t()
        pynvml.nvmlDeviceGetGpuFabricInfo(handle, ctypes.byref(info))
    return [info.state, info.status]


def part_handles(handle: Any, faults: Faults) -> Iterator[Any]:
    """Of the parts of a divided GPU (MIG)."""
    for index in range(tried(faults, "parts", pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        try:
            yield pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except pynvml.NVMLError as error:
            if error.value != NOT_FOUND:  # that part is not made
                faults["parts"] = fault_of(error)


def part(handle: Any) -> dict[str, Any]:
    """What one of them says."""
    faults: Faults = {}
    return {
        "uuid": tried(faults, "uuid", uuid_of, handle) or "",
        **memory_and_uses(handle, faults),
        "faults": faults,
    }


def on_bus(devices: Path = Path("/sys/bus/pci/devices")) -> int:
    """How many GPUs of NVIDIA's the kernel sees, whatever the driver says."""
    found = 0
    for device in devices.glob("*"):
        try:
            vendor, kind = (device / "vendor").read_text(), (device / "class").read_text()
        except OSError:
            continue
        found += vendor.strip() == "0x10de" and kind.startswith("0x03")
    return found
