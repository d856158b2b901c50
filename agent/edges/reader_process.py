"""A child that answers lines with lines, and may hang for ever: asked with a deadline, given up without a wait."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from agent.edges import processes
from agent.edges.bounded import LATE, BoundedThread
from agent.edges.spawn import FOR_THE_AGENT_ONLY
from agent.errors import EdgeError

EDGE = "nvml"
ANSWER_BYTES = 4 << 20
"""Of one answer at most: some hundred processes on each of many GPUs take a tenth of it."""


class Child:
    """What a start has made. `line`: questions and answers; `life`: it dies when this is closed."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Blocks until its exec has succeeded: not for the loop's thread. OSError."""
        setattr(subprocess, "_USE_VFORK", False)  # noqa: B010 - see spawn.spawn: a frozen disk must not stop every thread
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self.line, theirs = socket.socketpair()
        watched, self.life = os.pipe()
        try:
            popen = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [*command, str(watched)],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                pass_fds=(watched,),
                env={key: value for key, value in environment.items() if key not in FOR_THE_AGENT_ONLY},
                cwd="/",
                start_new_session=True,  # Ctrl-C is the agent's to hear
            )
        except BaseException:
            self.close()
            raise
        finally:
            theirs.close()
            os.close(watched)
        popen.returncode = 0  # ours to wait for, and not whenever the next child is started
        self.pid: int = popen.pid
        self.line.setblocking(False)

    def close(self) -> None:
        """Let go of it, which also kills it. As often as one likes."""
        self.line.close()
        if self.life >= 0:
            os.close(self.life)
            self.life = -1

    def end(self) -> None:
        """Of one that nobody has asked anything: it has not met the driver yet, and can end. Blocks until it has."""
        self.close()
        with suppress(ChildProcessError):  # somebody else of the agent's has waited for it
            os.waitpid(self.pid, 0)


async def start(command: Sequence[str], environment: Mapping[str, str], limit_s: float, thread: BoundedThread) -> Child:
    """Make one. EdgeError. When it comes too late, or its caller is cancelled, it does not stay behind."""
    made: list[Child] = []  # whoever takes it out has it: the loop, or the thread once it is given up

    def make(given_up: threading.Event) -> None:
        made.append(Child(command, environment))
        if given_up.is_set():
            for child in _taken(made):
                child.end()

    try:
        await thread.run("start the reader", limit_s, make)
        return made.pop()
    except BaseException:
        for child in _taken(made):
            watched(child).give_up()
        raise


def watched(child: Child) -> ReaderProcess:
    """EdgeError: it has ended already, and somebody else of the agent's has waited for it."""
    try:
        return ReaderProcess(child)
    except OSError as error:
        child.close()
        raise EdgeError(EDGE, "watch the reader", error.strerror or str(error)) from error


def _taken(made: list[Child]) -> list[Child]:
    try:
        return [made.pop()]
    except IndexError:
        return []


class ReaderProcess:
    """Asks a child. Of the loop's thread alone. OSError: there is no such process any more."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[bytes] | None = None
        self._buffer = bytearray()
        self._ended = asyncio.Event()
        self.answered = False
        self._pidfd = os.pidfd_open(child.pid)
        self._loop.add_reader(self._pidfd, self._reap)
        self._loop.add_reader(child.line.fileno(), self._read)

    @property
    def pid(self) -> int:
        """For a person."""
        return self._child.pid

    @property
    def lives(self) -> bool:
        """Whether it has not ended yet. One that is given up may go on for as long as the driver holds it."""
        return not self._ended.is_set()

    @property
    def stuck(self) -> bool:
        """Whether it waits inside the kernel where no signal reaches it."""
        now = processes.stat(self.pid) if self.lives else None
        return now is not None and processes.stuck(now)

    async def ask(self, question: bytes, limit_s: float) -> bytes:
        """The line that it answers. EdgeError: it has ended, or did not answer in time (LATE). One at a time."""
        self._answer = self._loop.create_future()
        try:
            self._child.line.send(question + b"\n")  # some bytes: the buffer takes them, or it is gone
            async with asyncio.timeout(limit_s):
                line = await self._answer
        except TimeoutError:
            raise EdgeError(EDGE, "ask the driver", f"no answer within {limit_s:g} s", LATE) from None
        except OSError as error:
            raise EdgeError(EDGE, "ask the reader", error.strerror or str(error)) from error
        finally:
            self._answer = None
        self.answered = True
        return line

    def give_up(self) -> None:
        """Kill it, and do not wait: it is reaped when it ends, if it ever does."""
        self._hear_no_more()
        self._child.close()
        if self.lives:
            with suppress(ProcessLookupError):  # it has just ended
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    async def gone(self, limit_s: float) -> bool:
        """Whether it has ended, within that time."""
        try:
            async with asyncio.timeout(limit_s):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True

    def forget(self) -> None:
        """Watch it no more, ended or not."""
        self.give_up()
        if self.lives:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._ended.set()

    def _hear_no_more(self) -> None:
        if self._child.line.fileno() >= 0:
            self._loop.remove_reader(self._child.line.fileno())

    def _read(self) -> None:
        try:
            got = self._child.line.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            got = b""
        self._buffer += got
        if not got or len(self._buffer) > ANSWER_BYTES:
            self._hear_no_more()
            if got:
                self._fail("the reader answers without end")  # else it ends: how, is told by its end
        elif got.endswith(b"\n"):
            line, self._buffer = bytes(self._buffer), bytearray()
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(line)

    def _fail(self, why: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(EdgeError(EDGE, "ask the reader", why))

    def _reap(self) -> None:
        """It has ended. Somebody else of the agent's may have waited for it first: it is a child among others."""
        self._loop.remove_reader(self._pidfd)
        try:
            ended = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            ended = None
        os.close(self._pidfd)
        self._ended.set()
        self._fail(f"the reader has ended{_how(ended)}")


def _how(ended: os.waitid_result | None) -> str:
    if ended is None:
        return ""
    return f" with {ended.si_status}" if ended.si_code == os.CLD_EXITED else f" by signal {ended.si_status}"
