"""NVML, held open, in the GPU reader's process: what it says, as plain lists. Judges nothing; `nvml_answer` does."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml  # type: ignore[import-untyped]  # nvidia-ml-py brings no types

from agent.edges import nvml_calls
from agent.edges.nvml_calls import Faults, fault_of, tried

SLOW_S = 10.0
"""How old what changes slowly may be: some of its calls take 0.2 ms for each GPU."""
XIDS = 64  # in one answer at most


def failure(error: Exception) -> dict[str, Any]:
    """The answer of a reader that could not open NVML."""
    return {"fault": ["nvmlInit", *fault_of(error)], "library": loaded_library()}


def loaded_library() -> str:
    """The file of the library that is loaded; "": none is."""
    found = re.search(r"(/\S*libnvidia-ml\.so\S*)", Path("/proc/self/maps").read_text(errors="replace"))
    return found[1] if found else ""


class Session:
    """NVML opened once. Raises what nvmlInit raises."""

    def __init__(self) -> None:
        if Path(pynvml.__file__).name != "pynvml.py":  # an old package of that name, which the old "pynvml" brings
            raise ImportError(f"{pynvml.__file__} is not nvidia-ml-py's; take it out: pip uninstall pynvml")
        pynvml.nvmlInit()
        self._library = loaded_library()
        self._link = Path(self._library).with_name("libnvidia-ml.so.1")
        self._file = _identity(self._link)
        self._driver = tried({}, "", pynvml.nvmlSystemGetDriverVersion) or ""
        self._devices: list[Device] = []
        self._events: Any = None
        self._slow_at = float("-inf")

    def answer(self) -> dict[str, Any]:
        """All of it, as of now."""
        said: dict[str, Any] = {"driver": self._driver, "library": self._library}
        try:
            count = pynvml.nvmlDeviceGetCount()
        except Exception as error:
            return {**said, "fault": ["nvmlDeviceGetCount", *fault_of(error)]}
        if not count:
            return {**said, "devices": [], "on_bus": nvml_calls.on_bus()}
        if len(self._devices) != count:
            self._open(count)
        due = time.monotonic() - self._slow_at >= SLOW_S
        said["devices"] = [device.answer(due) for device in self._devices]
        said["xids"] = list(self._xids())
        if due:
            self._slow_at = time.monotonic()
        return {**said, **self._upgraded()}

    def _open(self, count: int) -> None:
        self._devices = [Device(index) for index in range(count)]
        self._slow_at = float("-inf")
        self._events = tried({}, "", pynvml.nvmlEventSetCreate)
        for device in self._devices:
            device.open(self._events)

    def _xids(self) -> Iterator[list[Any]]:
        """Those that the driver has kept for us since the last question. Waits for none."""
        for _ in range(XIDS if self._events is not None else 0):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
            except Exception:  # none is there; or the GPU is lost, which its other fields tell
                return
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                known = {each.address: each.uuid for each in self._devices}
                yield [known.get(nvml_calls.address_of(event.device), ""), event.eventData]

    def _upgraded(self) -> dict[str, Any]:
        """Whether another library lies on the disk by now, which a new process would load, and we do not."""
        now = _identity(self._link)
        if now is None or now == self._file:
            return {}
        version = self._link.resolve().name.removeprefix("libnvidia-ml.so.")
        known = re.fullmatch(r"\d+\.[\d.]+", version) and self._driver
        return {"on_disk": version} if known and version != self._driver else {"renew": True}


class Device:
    """One GPU of a session."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.uuid = ""
        self.address: int | None = None
        self._handle: Any = None
        self._parts: list[Any] = []
        self._slow: dict[str, Any] = {}
        self._slow_faults: Faults = {}

    def open(self, events: Any) -> None:
        """Have its errors told in `events`, where the GPU and the driver can."""
        handle = tried({}, "", pynvml.nvmlDeviceGetHandleByIndex, self.index)
        self.address = nvml_calls.address_of(handle) if handle is not None else None
        if handle is None or events is None:
            return
        able = tried({}, "", pynvml.nvmlDeviceGetSupportedEventTypes, handle) or 0
        if able & pynvml.nvmlEventTypeXidCriticalError:
            tried({}, "", pynvml.nvmlDeviceRegisterEvents, handle, pynvml.nvmlEventTypeXidCriticalError, events)

    def answer(self, due: bool) -> dict[str, Any]:
        """All of it; `due`: with what changes slowly asked anew."""
        faults: Faults = {}
        said: dict[str, Any] = {"index": self.index, "uuid": self.uuid, "faults": faults}
        self._handle = tried(faults, "handle", pynvml.nvmlDeviceGetHandleByIndex, self.index)
        if self._handle is None:
            return said
        self.uuid = said["uuid"] = tried(faults, "uuid", nvml_calls.uuid_of, self._handle) or self.uuid
        if due:
            self._slow_faults = {}
            self._slow = self._asked_slowly(self._slow_faults)
        faults.update(self._slow_faults)
        busy = tried(faults, "busy", pynvml.nvmlDeviceGetUtilizationRates, self._handle)
        celsius = tried(faults, "temperature", pynvml.nvmlDeviceGetTemperature, self._handle, 0)
        milliwatts = tried(faults, "power", pynvml.nvmlDeviceGetPowerUsage, self._handle)
        return {
            **said,
            **self._slow,
            **nvml_calls.memory_and_uses(self._handle, faults),
            "busy": busy and busy.gpu,
            "celsius": celsius,
            "milliwatts": milliwatts,
            "parts": [nvml_calls.part(handle) for handle in self._parts],
        }

    def _asked_slowly(self, faults: Faults) -> dict[str, Any]:
        handle = self._handle
        said = {
            "name": tried(faults, "name", nvml_calls.text_of, "nvmlDeviceGetName", handle),
            "ecc": [tried(faults, "ecc", pynvml.nvmlDeviceGetTotalEccErrors, handle, kind, 0) for kind in (0, 1)],
            "rows": tried(faults, "rows", pynvml.nvmlDeviceGetRemappedRows, handle),
            "mig": tried(faults, "mig", pynvml.nvmlDeviceGetMigMode, handle),
            "persistent": tried(faults, "persistence", pynvml.nvmlDeviceGetPersistenceMode, handle),
            "fabric": tried(faults, "fabric", nvml_calls.fabric, handle),
        }
        divided = said["mig"] is not None and said["mig"][0] == 1
        self._parts = list(nvml_calls.part_handles(handle, faults)) if divided else []
        return said


def _identity(path: Path) -> tuple[int, ...] | None:
    """Of the file that it leads to now."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
