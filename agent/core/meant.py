"""The nouns of what is meant: what is wanted and asked, what must survive a crash, what a definition says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Want(StrEnum):
    """What the operator wants of a server."""

    UP = "up"
    DOWN = "down"


class Ask(StrEnum):
    """What an operator may ask."""

    START = "start"
    STOP = "stop"
    RESTART = "restart"
    SWITCH = "switch"  # start, and the servers that are in the way give way


class After(StrEnum):
    """What follows once STOPPING is over."""

    DOWN = "down"
    AGAIN = "again"  # at once: the operator asked for a restart
    RETRY = "retry"  # judge the cause: another attempt, or none
    FAILED = "failed"  # it was judged already


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What must survive a crash of the agent."""

    want: Want | None = None  # None: nobody has ever said
    asks: int = 0  # changes that operators have asked for so far; higher than those of who shares something with it
    gpu_check: bool = True  # False: the operator said --without-gpu-check
    attempt: int = 0  # launches since the operator asked, or since it last served for long
    failures: tuple[str, ...] = ()  # what ended the last attempts: equal ones in a row
    invocation: str | None = None  # of the last launch; set before it
    running: bool = False  # launched, and not known to be gone
    served: bool = False  # ... and it has been ready
    over: frozenset[str] = frozenset()  # servers that this one was switched to from: they give way to it
    back: str | None = None  # the one of them to return to when this one fails
    gave_up: str | None = None  # FAILED after its attempts: the cause's slug


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the lifecycle must know of one server's definition. Seconds and MiB."""

    name: str = "server"
    gpus: tuple[str, ...] = ()  # UUIDs or indices; none: no GPU look is needed
    need_mib: int = 0  # free memory that each of them must have
    overlaps: frozenset[str] = frozenset()  # servers that share a GPU or the port
    autostart: bool = False
    start_limit_s: float | None = None
    on_stall: str = "report"  # or "restart"
    on_disk_low: str = "report"  # or "stop": it is ended before the disk is full, and goes on when there is room again
    disk_warn_mib: int | None = None  # None: a part of the file system, see storage.py
    disk_low_mib: int | None = None
    relief: str | None = None  # a unit that is started each time that a disk becomes too full: it makes room
    clear_s: float = 60.0  # between two sayings of what is in the way
    quiet_s: float = 120.0
    stall_s: float = 900.0
    stall_init_s: float = 600.0  # while initializing, where a hung NCCL spins the CPU
    misses: int = 3  # probes missed in a row before UNHEALTHY
    busy_s: float = 120.0  # without an answer, but with signs of life, before UNHEALTHY
    unhealthy_s: float = 120.0
    terms_s: tuple[float, ...] = (30.0,)  # patience after each SIGTERM to the first process
    sweep_s: float = 5.0  # patience after a SIGTERM to what is left of the tree
    kill_s: float = 10.0  # patience after SIGKILL, until a survivor is named
    launch_s: float = 30.0  # until the launch itself must have been confirmed
    pauses_s: tuple[float, ...] = (2.0, 5.0, 15.0, 60.0, 300.0)
    attempts: int = 6
    few_attempts: int = 3
    same_failures: int = 3
    steady_s: float = 600.0  # serving this long makes earlier failures history
