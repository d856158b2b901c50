"""What a reading of the GPUs says: the driver as a whole, each GPU, and whose its processes are. Frozen data only.

Memory is in MiB. Unknown is `None`, and `faults` says why: each field may fail alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class GpuState(StrEnum):
    """How it is with the driver as a whole, or with one GPU. Anything but OK says nothing of what is free."""

    OK = "ok"
    OPENING = "opening"  # the driver has been asked and has not answered for the first time yet
    NO_LIBRARY = "no_library"
    NO_DRIVER = "no_driver"
    NO_DEVICES = "no_devices"
    NO_PERMISSION = "no_permission"
    GPU_LOST = "gpu_lost"
    VERSION_MISMATCH = "version_mismatch"
    HUNG = "hung"
    ERROR = "error"


REMEDY = {
    GpuState.OK: "",
    GpuState.OPENING: "wait: without nvidia-persistenced the driver wakes each GPU anew, which can take a minute",
    GpuState.NO_LIBRARY: "install the NVIDIA driver, which brings libnvidia-ml.so.1; in a container: give it the GPUs",
    GpuState.NO_DRIVER: "load the driver (modprobe nvidia) and read what the kernel says of it (dmesg | grep -i nvrm)",
    GpuState.NO_DEVICES: "see whether the GPUs are on the bus (lspci -d 10de:) and the driver has taken them (dmesg)",
    GpuState.NO_PERMISSION: "let the agent's user open /dev/nvidia* (see DeviceAllow=); a container must be given GPUs",
    GpuState.GPU_LOST: "reset the GPU (nvidia-smi --gpu-reset, once nobody uses it) or reboot; dmesg has the Xid",
    GpuState.VERSION_MISMATCH: "reboot, or reload the driver: its library was upgraded and its kernel module was not",
    GpuState.HUNG: "look for Xid messages (dmesg | grep -i xid); a hung driver mostly needs a reboot",
    GpuState.ERROR: "see whether nvidia-smi fails in the same way, and what dmesg says (grep -i nvrm)",
}
"""What a person can do, in one sentence for each state."""


class MemoryKind(StrEnum):
    """Where a GPU's memory is, and how its figures are to be read."""

    OWN = "own"
    OWN_V1 = "own_v1"  # by an old call, which counts the driver's reserve as used
    UNIFIED = "unified"  # the host's: total and available, as the kernel tells


class Fabric(StrEnum):
    """Whether an NVSwitch host has joined the GPU to the others; CUDA does not begin before."""

    NOT_STARTED = "not_started"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """Of one GPU, or of one part of a GPU that is divided (MIG)."""

    kind: MemoryKind
    total_mib: int
    used_mib: int
    free_mib: int
    reserved_mib: int | None = None  # by the driver; neither used nor free


@dataclass(frozen=True, slots=True)
class GpuUse:
    """One process on one GPU, by the driver's word: the number may be another's by now. See `ProcessOwner`."""

    pid: int
    mib: int | None


@dataclass(frozen=True, slots=True)
class Fault:
    """One field that could not be read. `code`: NVML's; None: it was no error of NVML's."""

    field: str
    code: int | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPart:
    """One part of a divided GPU, which CUDA sees as a GPU of its own."""

    uuid: str
    memory: GpuMemory | None = None
    uses: tuple[GpuUse, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHealth:
    """How one GPU is doing. But for heat and power it changes slowly, and may be some seconds old."""

    celsius: int | None = None
    watts: float | None = None
    ecc_corrected: int | None = None  # since the driver was loaded
    ecc_uncorrected: int | None = None
    rows_remapped: int | None = None  # for errors that were corrected, or not, together
    rows_pending: bool | None = None  # rows that are remapped at the next reset
    rows_failed: bool | None = None  # no spare row was left: the GPU is to be replaced
    mig: bool | None = None
    persistent: bool | None = None
    fabric: Fabric | None = None  # None: this GPU has none, or does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDevice:
    """One GPU. The index may be another after a reboot; the UUID stays. It is "" while the GPU does not tell it."""

    index: int
    uuid: str
    state: GpuState = GpuState.OK
    why: str = ""  # what was answered, when the state is not OK
    name: str | None = None
    memory: GpuMemory | None = None
    uses: tuple[GpuUse, ...] | None = None  # None: not known, which is not "nobody"
    busy_percent: int | None = None
    health: GpuHealth = GpuHealth()
    parts: tuple[GpuPart, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def remedy(self) -> str:
        """For a person; "" while all is well."""
        return REMEDY[self.state]


@dataclass(frozen=True, slots=True)
class Xid:
    """An error that the driver has told of: its number in NVIDIA's catalogue, and the GPU ("": it did not say)."""

    uuid: str
    number: int


class HolderKind(StrEnum):
    """What a process on a GPU belongs to: whoever wants it away acts on that, not on the process."""

    OURS = "ours"  # a server of this agent
    SIBLING = "sibling"  # ... another one than the one in question; see `as_seen_by`
    UNIT = "unit"
    USER_UNIT = "user_unit"
    CONTAINER = "container"
    STRAY = "stray"  # a process that nothing would start again
    GHOST = "ghost"  # no such process here, or one that has got the number since


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOwner:
    """One process that holds GPU memory, and whose it is."""

    pid: int
    kind: HolderKind
    owner: str = ""  # server, unit, "ENGINE ID", or the control group of a stray; for a person
    engine: str = ""  # of a container: docker, podman, kubernetes, containerd, lxc, machine; "container": not known
    container: str = ""  # its id or name, whole
    started: int | None = None  # clock ticks since boot; with the pid it is this process for as long as the host is up
    since: float | None = None  # the same in Unix seconds
    user: str = ""
    uid: int | None = None
    name: str = ""  # as it calls itself, 15 bytes: shown, never believed
    gone: bool = False  # it has ended (a zombie), and the driver lists it all the same
    protected: str = ""  # why it is never signalled; "": the policy decides


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One reading of all GPUs. `began`: monotonic seconds, just before the driver was asked."""

    began: float
    state: GpuState
    why: str = ""
    devices: tuple[GpuDevice, ...] = ()
    driver: str = ""  # version of the kernel module
    library: str = ""  # file of the library that answered
    namespaced: bool = False  # we live in a PID namespace of our own: some drivers tell numbers of another one then
    xids: tuple[Xid, ...] = ()  # since the reading before
    owners: tuple[ProcessOwner, ...] = ()  # one for each pid, once they are resolved

    @property
    def remedy(self) -> str:
        """For a person; "" while all is well."""
        return REMEDY[self.state]

    def device(self, name: str) -> GpuDevice | None:
        """By UUID or index."""
        return next((gpu for gpu in self.devices if name in (gpu.uuid, str(gpu.index))), None)

    def pids(self) -> frozenset[int]:
        """Every pid on any GPU or part of one."""
        return frozenset(use.pid for gpu in self.devices for use in all_uses(gpu))


def all_uses(gpu: GpuDevice) -> tuple[GpuUse, ...]:
    """Of the GPU, and of its parts."""
    return (*(gpu.uses or ()), *(use for part in gpu.parts for use in part.uses or ()))


def as_seen_by(server: str, owner: ProcessOwner) -> HolderKind:
    """The kind from the point of view of one of our servers."""
    other = owner.kind is HolderKind.OURS and owner.owner != server
    return HolderKind.SIBLING if other else owner.kind
