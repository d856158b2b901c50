"""The document of GET /gpus. What is not known is null."""

from __future__ import annotations

from pydantic import AwareDatetime, Field

from agent.api.schema import Document, GpuBriefDocument


class HolderDocument(Document):
    """A process that holds memory of a GPU, and whose it is."""

    pid: int
    mib: int | None
    kind: str = Field(description="ours, unit, user_unit, container, stray or ghost (no such process here)")
    owner: str = Field(description="the server, unit, container or control group; of a ghost: what is known of it")
    name: str = Field(description="as the process calls itself")
    user: str
    since: AwareDatetime | None
    protected: str = Field(description="why it is never signalled; empty: the policy decides")


class GpuFaultDocument(Document):
    """A field that could not be read."""

    field: str
    code: int | None = Field(description="NVML's; null: it was no error of NVML's")
    text: str


class GpuDocument(GpuBriefDocument):
    """One GPU, as it was last read."""

    why: str = Field(description="what the driver answered, when the state is not ok")
    remedy: str
    memory: str | None = Field(description="own; own_v1: used counts the reserve; unified: the host's memory")
    reserved_mib: int | None
    holders: list[HolderDocument] | None = Field(description="null: not known, which is not nobody")
    busy_percent: int | None
    celsius: int | None
    watts: float | None
    ecc_corrected: int | None
    ecc_uncorrected: int | None
    rows_remapped: int | None
    rows_pending: bool | None
    rows_failed: bool | None
    mig: bool | None
    persistent: bool | None
    fabric: str | None
    faults: list[GpuFaultDocument]


class GpusDocument(Document):
    """The GPUs as they were last read, and whether they could be."""

    state: str = Field(description="ok, not_read, or what keeps them from being looked at")
    why: str
    remedy: str
    driver: str = Field(description="version of the kernel module; empty: not known")
    devices: list[GpuDocument]
