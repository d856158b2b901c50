"""The server as a child process (embedded mode): started, watched by pidfd, signalled, found again."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from agent.core.model import Exit, Process
from agent.edges import memory_kills, processes, spawn
from agent.edges.bounded import BoundedThread
from agent.edges.early_end import EarlyEnd
from agent.edges.memory_kills import MemoryKills
from agent.edges.server_tree import LAUNCH_LIMIT_S, Found, ServerTree, mark_environment
from agent.errors import EdgeError
from agent.ports import Tree

LOOK_LIMIT_S = 5.0  # some milliseconds in health; more means that /proc itself is stuck
KILL_ROUNDS = 20  # each finds what was forked during the one before


@dataclass(frozen=True, slots=True)
class Leader:
    """A first process that lives, as far as we have been told."""

    process: Process
    invocation: str
    pidfd: int
    child: bool  # ours to wait for; otherwise adopted from an earlier run of the agent


class ChildServer:
    """Implements `agent.ports.Server` without systemd and without privileges.

    `mark` tells this agent's servers from another's (no ":" in it): the same after a restart of the agent, so that
    what still runs is found again. `command` is an argument list and never meets a shell. `environment` is asked
    at each launch; its EdgeError refuses the launch.
    """

    _unwaited: ClassVar[set[int]] = set()  # first processes of all servers of this agent, until waited for
    _forking: ClassVar[threading.Lock] = threading.Lock()  # from a fork until its pid stands in `_unwaited`

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Callable[[], Mapping[str, str]],
        working_dir: Path | None,
        mark: str,
    ) -> None:
        if ":" in mark or ":" in name:
            raise ValueError("neither a mark nor a name holds a colon")
        self._name = name
        self._mark = mark
        self._command = tuple(command)
        self._environment = environment
        self._working_dir = working_dir
        self._tree = ServerTree(mark, name)
        self._tell: Callable[[str, Exit], None] | None = None
        self._leader: Leader | None = None
        self._launching = False
        self._ended: str | None = None  # the last invocation whose end was told
        self._asked = False
        self._early: EarlyEnd | None = None  # of the leader
        self._kills: MemoryKills | None = None  # as of the last look at the leader
        self._closed = False
        self._launcher = BoundedThread(spawn.EDGE)
        self._looker = BoundedThread(spawn.EDGE)
        spawn.become_subreaper()

    def on_exit(self, tell: Callable[[str, Exit], None]) -> None:
        """See `agent.ports.Server`. How an adopted process ended is known only if EarlyEnd tells it."""
        self._tell = tell

    def on_started(self, tell: Callable[[], None]) -> None:
        """Never told: nobody else than the agent can start a child of it."""

    def last_exit(self, invocation: str) -> Exit | None:
        """None: how a child ended is told to its parent alone."""
        return None

    # -- launch -----------------------------------------------------------------------------------

    async def launch(self, invocation: str, log: Path) -> Process:
        """Start it. EdgeError with a slug: exec_missing, exec_not_executable, log_unwritable, launch_failed."""
        if self._leader is not None:
            raise EdgeError(spawn.EDGE, "start", f"pid {self._leader.process.pid} of it still runs", "launch_failed")
        if ":" in invocation:
            raise ValueError("an invocation holds no colon")
        spawn.hear_ignored_signals()
        self._asked = False
        self._launching = True
        try:
            leader = await self._launcher.run(
                "start", LAUNCH_LIMIT_S, lambda given_up: self._spawn(invocation, log, given_up)
            )
        except EdgeError as error:
            raise EdgeError(error.edge, error.what, error.why, error.slug or "launch_failed") from error
        finally:
            self._launching = False
        self._tree.launched(leader.process)
        self._watch(leader)
        return leader.process

    def _spawn(self, invocation: str, log: Path, given_up: threading.Event) -> Leader:
        given = self._environment()
        fd = spawn.open_log(log)
        try:
            with self._forking:
                began = time.monotonic()
                marks = mark_environment(self._mark, self._name, invocation)
                environment = spawn.clean_environment(given, marks)
                pid = spawn.spawn(self._command, environment, self._working_dir, fd)
                self._unwaited.add(pid)
        finally:
            os.close(fd)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            self._undo(pid)
            raise EdgeError(spawn.EDGE, "watch the new process", error.strerror or str(error)) from error
        now = processes.stat(pid)
        assert now is not None, "an unwaited child has a stat, be it a zombie"  # noqa: S101 - the kernel's promise
        if given_up.is_set() or time.monotonic() - began > LAUNCH_LIMIT_S:  # the loop itself may be late to give it up
            os.close(pidfd)
            self._undo(pid)
            raise EdgeError(spawn.EDGE, "start", "began too late")
        self._kills = memory_kills.count(pid)
        return Leader(now.process, invocation, pidfd, child=True)

    def _undo(self, pid: int) -> None:
        """End a child that must not have been started; it is unwaited, so the number is still its own."""
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self._unwaited.discard(pid)

    # -- the end of the first process ---------------------------------------------------------------

    def _watch(self, leader: Leader) -> None:
        if self._closed:
            os.close(leader.pidfd)
            return
        self._leader = leader
        self._early = EarlyEnd(leader.process, lambda status: self._tell_end(leader, self._exit_from(status)))
        self._early.refresh()
        asyncio.get_running_loop().add_reader(leader.pidfd, self._on_end, leader)

    def _on_end(self, leader: Leader) -> None:
        asyncio.get_running_loop().remove_reader(leader.pidfd)
        exit_ = self._exit_of(leader)
        os.close(leader.pidfd)
        self._unwaited.discard(leader.process.pid)
        self._leader = None
        if self._early is not None:
            self._early.close()
            self._early = None
        self._tell_end(leader, exit_)

    def _tell_end(self, leader: Leader, how: Exit) -> None:
        """Once: when all its threads have ended or, if that was not seen, when the kernel has freed its memory."""
        if self._ended == leader.invocation:
            return
        self._ended = leader.invocation
        if self._tell is not None:
            self._tell(leader.invocation, how)

    def _exit_from(self, status: int) -> Exit:
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            return Exit(code=code, oom=False, asked=self._asked)
        return Exit(signal=-code, oom=self._for_memory(-code), asked=self._asked)

    def _exit_of(self, leader: Leader) -> Exit:
        if not leader.child:
            return Exit(asked=self._asked)
        try:
            result = os.waitid(os.P_PIDFD, leader.pidfd, os.WEXITED | os.WNOHANG)
        except ChildProcessError:  # somebody else waited for it
            result = None
        if result is None:
            return Exit(asked=self._asked)
        if result.si_code == os.CLD_EXITED:
            return Exit(code=result.si_status, oom=False, asked=self._asked)
        return Exit(signal=result.si_status, oom=self._for_memory(result.si_status), asked=self._asked)

    def _for_memory(self, number: int) -> bool | None:
        """Whether the kernel killed it for memory; None: something on this host was, since the last look at it."""
        if number != signal.SIGKILL or self._asked:
            return False
        return memory_kills.killed_since(self._kills) if self._kills is not None else None

    # -- look ---------------------------------------------------------------------------------------

    async def look(self) -> Tree:
        """See `agent.ports.Server`. The first look of a restarted agent adopts what still runs."""
        found = await self._looker.run("look", LOOK_LIMIT_S, lambda _: self._find())
        self._adopt(found)
        alive = tuple(one.process for one in found.members)
        leader = self._leader
        if self._early is not None:
            self._early.refresh()
        lives = leader is not None and leader.process in alive and leader.invocation != self._ended
        main = leader.process if leader is not None and lives else None
        invocation = leader.invocation if leader is not None and main is not None else found.invocation
        if invocation is None and alive:
            invocation = self._ended
        return Tree(
            main=main,
            all=alive,
            unkillable=found.unkillable,
            ending=found.ending,
            invocation=invocation,
            life=found.life,
        )

    def _find(self) -> Found:
        leader = self._leader
        kills = memory_kills.count(leader.process.pid) if leader is not None else None
        found = self._tree.find()
        lives = leader is not None and leader.process in {one.process for one in found.members}
        if leader is not None and lives and leader.process.pid not in found.ending:  # else its own death is counted
            self._kills = kills
        if found.orphans and self._forking.acquire(blocking=False):
            try:
                self._reap(found.orphans)
            finally:
                self._forking.release()
        return found

    def _reap(self, orphans: tuple[Process, ...]) -> None:
        for orphan in orphans:
            if orphan.pid in self._unwaited:
                continue
            try:
                os.waitid(os.P_PID, orphan.pid, os.WEXITED | os.WNOHANG)
            except ChildProcessError:
                continue  # another server's look was quicker

    def _adopt(self, found: Found) -> None:
        """Watch a first process that an earlier run of the agent has launched, or a launch that nobody waited for."""
        main = found.main
        if self._leader is not None or self._launching or main is None or found.invocation in (None, self._ended):
            return
        assert found.invocation is not None  # noqa: S101 - for the type checker; tested above
        try:
            pidfd = os.pidfd_open(main.pid)
        except OSError:  # gone meanwhile, or out of descriptors: the next look tries again
            return
        now = processes.stat(main.pid)
        if now is None or now.started != main.started:
            os.close(pidfd)
            return
        self._tree.launched(main)
        self._watch(Leader(main, found.invocation, pidfd, child=now.ppid == os.getpid()))

    # -- signals ------------------------------------------------------------------------------------

    async def terminate(self, whole: bool) -> None:
        """SIGTERM to the first process or to the whole tree."""
        self._asked = True
        if whole:
            await self._looker.run(
                "terminate", LOOK_LIMIT_S, lambda given_up: self._signal_all(signal.SIGTERM, given_up)
            )
            return
        if self._leader is None:
            await self.look()
        if self._leader is not None:
            try:
                signal.pidfd_send_signal(self._leader.pidfd, signal.SIGTERM)
            except ProcessLookupError:
                return  # it has just ended: its end is being told
            except PermissionError as error:
                pid = self._leader.process.pid
                raise EdgeError(spawn.EDGE, f"signal pid {pid}", "it runs as another user") from error

    async def kill(self) -> None:
        """SIGKILL to the whole tree, until a search finds nothing new or the rounds are over: the next look tells."""
        self._asked = True
        await self._signal_tree(signal.SIGKILL)

    async def _signal_tree(self, number: signal.Signals) -> None:
        await self._looker.run(number.name, LOOK_LIMIT_S, lambda given_up: self._signal_all(number, given_up))

    def _signal_all(self, number: signal.Signals, given_up: threading.Event) -> None:
        told: set[Process] = set()
        denied: set[int] = set()
        for _ in range(KILL_ROUNDS if number == signal.SIGKILL else 1):
            fresh = {one.process for one in self._tree.find().members} - told
            if not fresh or given_up.is_set():
                break
            for process in fresh:
                try:
                    processes.send(process, number)
                except PermissionError:
                    denied.add(process.pid)
            told |= fresh
        if denied:
            pids = ", ".join(str(pid) for pid in sorted(denied))
            raise EdgeError(spawn.EDGE, f"signal pid {pids}", "it runs as another user")

    def close(self) -> None:
        """See `agent.ports.Server`. For good: a launch or a look that is under way watches nothing either."""
        self._closed = True
        if self._early is not None:
            self._early.close()
            self._early = None
        if self._leader is not None:
            asyncio.get_running_loop().remove_reader(self._leader.pidfd)
            os.close(self._leader.pidfd)
            self._leader = None
