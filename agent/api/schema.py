"""The documents of the API. Times are RFC 3339 UTC; what is not known is null.

The loop builds them; these models say, in OpenAPI and in tests, what they look like.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from agent.core.chronicle import Outcome
from agent.core.model import Retry, Stage, Step, Want


class Document(BaseModel):
    """Exactly these members: one that is not named here is a fault of ours."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class CauseDocument(Document):
    """Why a server is not up."""

    slug: str
    line: int | None = Field(description="number of the log line that says so, from 1")
    text: str
    remedy: str
    retry: Retry


class ExitDocument(Document):
    """How the server's first process ended."""

    code: int | None
    signal: int | None
    oom: bool | None = Field(description="killed by the kernel for memory")
    asked: bool = Field(description="we had told it to end")
    stopped: bool = Field(description="an administrator had told systemd to stop its unit")


class NeedDocument(Document):
    """A precondition of the launch that is not met."""

    name: str = Field(description='"port", "mount", "model", ...')
    slug: str
    subject: str = Field(description="the path or address that it is about; may be empty")
    text: str
    remedy: str
    heals: bool = Field(description="true: it is waited for; false: it fails until it is mended")
    since: AwareDatetime


class StorageDocument(Document):
    """The room on one disk that a server writes to. Figures are rounded; null: not known, or not counted there."""

    path: str
    free_mib: float | None
    free_inodes: float | None
    lasts_s: float | None = Field(description="until it is full, at the present rate")
    state: Literal["ok", "warn", "low", "unknown"]


class ServerDocument(Document):
    """One server."""

    name: str
    stage: Stage
    stage_code: int
    step: Step | None = Field(description="how far the start has come, as its log says")
    progress: Annotated[float, Field(ge=0, le=1)] | None
    eta_s: float | None = Field(description="seconds until it is expected to be ready")
    quiet: bool
    stalled: bool
    why: str = Field(description="one sentence for a person")
    since: AwareDatetime = Field(description="when the stage began")
    want: Want | None = Field(description="null: nobody has ever said")
    pid: int | None
    invocation: str | None
    attempt: int
    url: str | None
    needs: list[NeedDocument] = Field(description="what is not met, while it is not launched for that")
    cause: CauseDocument | None
    exit: ExitDocument | None
    storage: list[StorageDocument] = Field(description="the disks that it fills; empty over TCP")
    tail: list[str] = Field(description="last lines of the log; empty over TCP")


class StartStepDocument(Document):
    """A step that a start came to."""

    step: Step
    at_s: float = Field(ge=0, description="seconds after the launch")


class StartCauseDocument(Document):
    """Why a start failed, or its server was lost."""

    slug: str
    text: str


class OutageDocument(Document):
    """A time in which a server was wanted and did not serve: it had crashed, or gone down with its host or agent."""

    since: AwareDatetime = Field(description="when it last served, as far as known")
    lasted_s: float | None = Field(description="until it served again; null: it has not, or the clock was set")
    attempts: int = Field(description="starts since then, up to this one")


class StartDocument(Document):
    """One start, and how it ended. Seconds count from its launch."""

    invocation: str
    attempt: int
    launched: AwareDatetime
    same_definition: bool = Field(description="launched by what is the server's definition now")
    watched: bool = Field(description="false: the agent was away before it was ready, so its times may be too late")
    steps: list[StartStepDocument]
    ready_s: float | None = Field(description="null: never, or not yet")
    ended_s: float | None = Field(description="when its first process ended; null: not yet, or nobody saw it")
    outcome: Outcome | None = Field(description="null while it lives")
    cause: StartCauseDocument | None
    exit: ExitDocument | None
    outage: OutageDocument | None = Field(description="in which it was launched")


class StartsDocument(Document):
    """The last starts of a server, newest first."""

    name: str
    starts: list[StartDocument]


class AgentDocument(Document):
    """The agent itself."""

    version: str
    pid: int
    since: AwareDatetime
    mode: str


class HostDocument(Document):
    """The machine."""

    name: str
    boot_id: str | None


class GpuBriefDocument(Document):
    """One GPU in short. In /status its used and free memory are rounded to 128 MiB."""

    index: int
    uuid: str
    name: str | None
    state: str = Field(description="ok, or what is wrong with it")
    total_mib: int | None
    used_mib: int | None
    free_mib: int | None


class GpusBriefDocument(Document):
    """The GPUs in short, and whether they could be looked at."""

    state: str = Field(description="ok, not_read (nobody needs them), or what keeps them from being looked at")
    why: str
    remedy: str
    devices: list[GpuBriefDocument]


class RivalDocument(Document):
    """A unit that is to be kept off, or is kept off, as it was last seen."""

    unit: str
    load: str | None = Field(description="LoadState of systemd; null: it has not been looked at yet")
    active: str | None = Field(description="ActiveState of systemd; null: it has not been looked at yet")
    off: bool = Field(description="it is down with every process, and cannot come up by itself")
    held: bool = Field(description="it is kept off, or is about to be")
    exempt: bool = Field(description="released by an operator: not kept off until it is told to be held again")
    listed: bool = Field(description="named in [rivals] of the configuration")
    pids: list[int] = Field(description="its live processes")
    revivers: list[str] = Field(description="active units that can bring it up")
    why: str = Field(description="one sentence for a person")
    since: AwareDatetime | None = Field(description="when it was first held; null: it is not held")


class RivalsDocument(Document):
    """The units that are to be kept off, or are kept off."""

    rivals: list[RivalDocument]
    warnings: list[str] = Field(description="what a person should know of them")


class HoldDocument(Document):
    """A unit that is kept off."""

    unit: str
    in_force: bool = Field(description="systemd has read it, so that nothing starts the unit")
    since: AwareDatetime | None
    why: str = Field(description="one sentence for a person")
    repairs: int = Field(ge=0, description="how often it was brought back into force lately")


class HoldsDocument(Document):
    """The units that are kept off."""

    holds: list[HoldDocument]


class HoldChangeDocument(Document):
    """What is wanted of a unit from now on."""

    unit: str
    held: bool


class StatusDocument(Document):
    """Everything."""

    agent: AgentDocument
    host: HostDocument
    servers: list[ServerDocument]
    gpus: GpusBriefDocument
    holds: list[HoldDocument]
    degraded: list[str]


class LiveDocument(Document):
    """The loop turns."""

    live: Literal[True] = True
    beat_age_s: float


class ReadyDocument(Document):
    """Every wanted server is ready. `servers`: the wanted ones, with their stages."""

    ready: Literal[True] = True
    servers: dict[str, Stage]


class ReloadDocument(Document):
    """What a new configuration changed: names of servers, keys of the agent that wait for its next start, and units."""

    added: list[str]
    removed: list[str]
    changed: list[str]
    later: list[str]
    listed: list[str] = Field(description="units that are to be kept off from now on")
    unlisted: list[str] = Field(description="units that need not be kept off any more; those that are held stay held")


class FaultDocument(Document):
    """One fault of a request or a configuration: where in it, and what."""

    where: str
    what: str


class ProblemDocument(Document):
    """RFC 9457. The members after `detail` are there only where they say something."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    stage: Stage | None = None
    progress: Literal["progressing", "stalled"] | None = None
    cause: CauseDocument | None = None
    known: list[str] | None = Field(default=None, description="the servers that there are")
    not_ready: dict[str, Stage] | None = Field(default=None, description="wanted servers that are not ready")
    faults: list[FaultDocument] | None = None


class SwitchOptions(Document):
    """Which server is wanted instead of those that are in its way."""

    to: str = Field(description="the server that is wanted")
    back: bool = Field(default=False, strict=True, description="true: return to the one that gave way if it fails")


class ChangeOptions(Document):
    """What may be said with a change."""

    gpu_check: bool = Field(default=True, strict=True, description="false: launch without a look at the GPUs")
