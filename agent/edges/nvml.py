"""The GPUs, through NVML in a process of its own: a driver that hangs costs that process, never the agent.

One question is outstanding at most, and one reader. A reader that does not answer is killed and never waited for; while
it cannot die there is no other. After a fault comes a fresh one: a library that has been loaded stays the old one.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from agent.core.gpu_seen import GpuReading, GpuState
from agent.edges import nvml_answer, reader_process
from agent.edges.bounded import LATE, BoundedThread
from agent.edges.reader_process import EDGE, ReaderProcess
from agent.errors import EdgeError

COMMAND = (sys.executable, "-I", "-m", "agent.edges.nvml_reader")
CLOSE_S = 1.0
"""A process that is killed is gone within milliseconds, or stays for as long as the driver holds it."""
PID_NAMESPACE = 0xEFFFFFFC
"""Number of the host's own, include/linux/proc_ns.h."""
NEVER = float("-inf")
DEVICE = "/dev/nvidiactl"
"""Comes with the driver, and goes with it."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long an answer may take, and how soon after a fault another reader is tried. Seconds."""

    first_s: float = 60.0  # without nvidia-persistenced the driver wakes each GPU anew
    answer_s: float = 3.0
    again_s: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)  # a start costs 0.1 s of a core
    renew_s: float = 60.0  # while a GPU is lost: a session that has lost it may never see it again


class Nvml:
    """Implements `agent.ports.Gpus`."""

    def __init__(self, environment: Mapping[str, str], command: Sequence[str] = COMMAND, pace: Pace = Pace()) -> None:
        self._environment = environment
        self._command = command
        self._pace = pace
        self._starter = BoundedThread(EDGE)
        self._reader: ReaderProcess | None = None
        self._given_up: ReaderProcess | None = None  # the last one; it may still be there
        self._asking: asyncio.Task[GpuReading] | None = None
        self._last: GpuReading | None = None
        self._questions = 0
        self._faults = 0  # one after another
        self._due = NEVER  # no fresh reader before
        self._renew_at: float | None = None
        self._device = _device()
        self._closed = False
        self._namespaced = _namespaced()

    async def read(self) -> GpuReading:
        """See `agent.ports.Gpus`."""
        if self._asking is None:
            if (refused := self._refused()) is not None:
                return refused
            self._asking = asyncio.create_task(self._ask(_now()), name="gpuagent-nvml")
            self._asking.add_done_callback(self._settled)
        asking = self._asking
        done, _ = await asyncio.wait([asking], timeout=self._pace.answer_s * 1.5)
        return asking.result() if done else self._again()

    @property
    def stuck(self) -> int | None:
        """Pid of a reader that was given up, and cannot end."""
        held = self._given_up
        return held.pid if held is not None and held.lives else None

    async def close(self) -> None:
        """See `agent.ports.Gpus`."""
        self._closed = True
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])
        self._retire()
        held, self._given_up = self._given_up, None
        if held is not None:
            await held.gone(CLOSE_S)
            held.forget()

    # -- whether to ask ---------------------------------------------------------------------------

    def _refused(self) -> GpuReading | None:
        """What is said without asking; None: it may be asked."""
        if self._closed:
            return self._plain(GpuState.ERROR, "the agent ends")
        if self._last is None:
            return None
        if self.stuck is not None and self._last.state is GpuState.HUNG:
            return self._hung()
        renewed = _device() != self._device  # the driver has come or gone: worth a try at once
        return self._again() if self._reader is None and _now() < self._due and not renewed else None

    def _again(self) -> GpuReading:
        """While nothing newer can be had: the fault that was told last, or that an answer is waited for."""
        if self._last is not None and self._last.state is not GpuState.OK:
            return replace(self._last, began=_now(), devices=(), xids=(), owners=())
        return self._plain(GpuState.OPENING, "the driver has been asked and has not answered yet")

    def _plain(self, state: GpuState, why: str, began: float | None = None) -> GpuReading:
        at = _now() if began is None else began
        return GpuReading(began=at, state=state, why=why, namespaced=self._namespaced)

    def _hung(self) -> GpuReading:
        held = self._given_up
        unkillable = held is not None and held.stuck
        where = "is stuck in the kernel, where no signal reaches it" if unkillable else "has been killed"
        return self._plain(GpuState.HUNG, f"the driver does not answer: its reader (pid {self.stuck}) {where}")

    # -- one question -----------------------------------------------------------------------------

    async def _ask(self, began: float) -> GpuReading:
        try:
            reader = self._reader or await self._start()
            limit_s = self._pace.answer_s if reader.answered else self._pace.first_s
            self._questions += 1
            line = await reader.ask(b"%d" % self._questions, limit_s)
            answer = json.loads(line)
            if answer["n"] != self._questions:
                raise ValueError("an answer to another question")
            reading = nvml_answer.reading_of(answer, began)
        except EdgeError as error:
            state = GpuState.HUNG if error.slug == LATE else GpuState.ERROR
            reading = self._plain(state, f"{error.what}: {error.why}", began)
            self._retire()
        except (ValueError, TypeError, KeyError) as error:
            why = f"the reader answered what is no answer: {type(error).__name__}: {error}"
            reading = self._plain(GpuState.ERROR, why, began)
            self._retire()
        else:
            self._judge(reading, "renew" in answer)
        self._last = replace(reading, namespaced=self._namespaced)
        return self._last

    async def _start(self) -> ReaderProcess:
        held = self._given_up
        if held is not None and held.lives and not await held.gone(CLOSE_S):
            raise EdgeError(EDGE, "end the last reader", f"pid {held.pid} is there still", LATE)
        self._device = _device()
        child = await reader_process.start(self._command, self._environment, self._pace.first_s, self._starter)
        self._reader = reader_process.watched(child)
        return self._reader

    def _judge(self, reading: GpuReading, renew: bool) -> None:
        """Whether to go on with this session: one that is broken may stay so though the driver is well again."""
        if not reading.devices:
            return self._retire()
        self._faults, self._due = 0, NEVER
        lacking = any(gpu.state is not GpuState.OK for gpu in reading.devices)
        if not lacking:
            self._renew_at = None
        elif self._renew_at is None:
            self._renew_at = _now() + self._pace.renew_s
        if renew or (self._renew_at is not None and _now() >= self._renew_at):
            self._renew_at = None
            self._give_up()
        return None

    def _retire(self) -> None:
        """Let go of the reader, and wait longer each time before there is another."""
        pauses = self._pace.again_s
        self._due = _now() + pauses[min(self._faults, len(pauses) - 1)]
        self._faults += 1
        self._give_up()

    def _give_up(self) -> None:
        if self._reader is not None:
            self._reader.give_up()
            self._given_up, self._reader = self._reader, None

    def _settled(self, asking: asyncio.Task[GpuReading]) -> None:
        """One that has failed is a bug's: it stays, and so whoever reads next is told."""
        if asking.cancelled() or asking.exception() is None:
            self._asking = None


def _now() -> float:
    return asyncio.get_running_loop().time()


def _device() -> tuple[int, int] | None:
    with suppress(OSError):
        found = os.stat(DEVICE)
        return found.st_ino, found.st_ctime_ns
    return None


def _namespaced() -> bool:
    try:
        return os.stat("/proc/self/ns/pid").st_ino != PID_NAMESPACE
    except OSError:
        return True
