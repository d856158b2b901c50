"""A death is told when the last thread has ended, not when the kernel has freed the memory; and nothing else is."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agent.edges import processes
from agent.edges.early_end import PIDFD_THREAD, EarlyEnd
from tests.edges.edges_house import until

pytestmark = pytest.mark.anyio

DEADLINE_S = 30.0
THREADED = """
import os, sys, threading, time
for _ in range(4):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print("up", flush=True)
"""


def told_by_this_kernel() -> bool:
    """Whether it can tell the end of a thread (6.9)."""
    try:
        os.close(os.pidfd_open(os.getpid(), PIDFD_THREAD))
    except OSError:
        return False
    return True


needs_threads = pytest.mark.skipif(not told_by_this_kernel(), reason="Linux before 6.9 does not tell a thread's end")


@contextmanager
def running(code: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program that has said "up"; killed and waited for at the end."""
    child = subprocess.Popen(
        [sys.executable, "-c", THREADED + code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "up\n"
        yield child
    finally:
        child.kill()
        child.communicate()


async def told(child: subprocess.Popen[str], end: signal.Signals | str) -> int:
    """The wait status that is told after a signal, or a line on the program's standard input."""
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    found = processes.stat(child.pid)
    assert found is not None
    early = EarlyEnd(found.process, answer.set_result)
    early.refresh()
    if isinstance(end, str):
        assert child.stdin is not None
        child.stdin.write(end)
        child.stdin.flush()
    else:
        child.send_signal(end)
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await answer
    finally:
        early.close()


@needs_threads
async def test_the_signal_that_killed_it_is_told() -> None:
    with running("time.sleep(1000)") as child:
        assert os.waitstatus_to_exitcode(await told(child, signal.SIGKILL)) == -signal.SIGKILL


@needs_threads
@pytest.mark.parametrize("code", [0, 3])
async def test_the_code_that_it_ended_with_is_told(code: int) -> None:
    with running(f"sys.stdin.readline(); os._exit({code})") as child:
        assert os.waitstatus_to_exitcode(await told(child, "go\n")) == code


OTHER_USER = """
import ctypes
PR_SET_DUMPABLE = 4
os.setuid(65534)
ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1)  # as a program that this user has started
print("changed", flush=True)
sys.stdin.readline()
"""


@needs_threads
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start something as another user")
async def test_a_code_of_0_of_another_user_may_be_hidden_and_is_not_told() -> None:
    with running(OTHER_USER + "os._exit(0)") as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "changed\n"
        found = processes.stat(child.pid)
        assert found is not None
        heard: list[int] = []
        early = EarlyEnd(found.process, heard.append)
        early.refresh()
        child.stdin.write("go\n")
        child.stdin.flush()

        async def zombie() -> bool:  # not waited for, so that it can be looked at
            now = processes.stat(child.pid)
            return now is not None and now.gone

        await until(zombie, "its end")
        await asyncio.sleep(0.3)  # longer than it looks again
        assert heard == []
        early.close()
        assert child.wait(DEADLINE_S) == 0


@needs_threads
async def test_it_is_told_while_the_kernel_still_frees_the_memory() -> None:
    """512 MiB take the kernel far longer than the threads take to end; at worst, both come at once."""
    with running("held = bytearray(os.urandom(1 << 20)) * 512; time.sleep(1000)") as child:
        status = await told(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        # Told before anybody has waited for it: it is still there to be waited for, with the same word.
        assert child.wait(DEADLINE_S) == -signal.SIGKILL


@needs_threads
async def test_threads_that_end_alone_are_no_death() -> None:
    code = """
def short(): sys.stdin.readline()
t = threading.Thread(target=short); t.start(); print("ready", flush=True); t.join(); print("joined", flush=True)
time.sleep(1000)
"""
    with running(code) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == "ready\n"
        found = processes.stat(child.pid)
        assert found is not None
        heard: list[int] = []
        early = EarlyEnd(found.process, heard.append)
        early.refresh()
        child.stdin.write("go\n")
        child.stdin.flush()
        assert await asyncio.to_thread(child.stdout.readline) == "joined\n"
        await asyncio.sleep(0.3)  # longer than it looks again
        assert heard == []
        early.refresh()
        early.close()


async def test_no_descriptor_is_left_open_whatever_came_first() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with running("time.sleep(1000)") as child:
        found = processes.stat(child.pid)
        assert found is not None
        early = EarlyEnd(found.process, lambda status: None)
        early.refresh()
        early.refresh()
        early.close()
        early.close()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_another_process_with_the_same_number_is_not_believed() -> None:
    with running("time.sleep(1000)") as child:
        found = processes.stat(child.pid)
        assert found is not None
        heard: list[int] = []
        early = EarlyEnd(type(found.process)(child.pid, found.started - 1), heard.append)
        early.refresh()
        child.kill()
        child.wait()
        await asyncio.sleep(0.3)
        assert heard == []
        early.close()
