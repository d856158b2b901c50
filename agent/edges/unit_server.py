"""The server as a systemd unit: it outlives the agent, and is found again by its control group and its records.

Started and signalled by the privileged helper; watched by pidfd and by systemd's own word. Unprivileged.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from agent.core.model import Exit, Process
from agent.edges import cgroup, memory_kills, processes, unit_launch, unit_records, unit_tree
from agent.edges.bounded import BoundedThread
from agent.edges.cgroup import Cgroup
from agent.edges.memory_kills import MemoryKills
from agent.edges.privileged import Privileged
from agent.edges.systemd import Systemd, Unit
from agent.edges.unit_exit import exit_of
from agent.edges.unit_records import Launched, UnitRecords
from agent.edges.unit_tree import Found
from agent.errors import EdgeError
from agent.ports import Tree

EDGE = "unit"
SLICE = "gpuagent.slice"
LOOK_LIMIT_S = 5.0  # some milliseconds in health; more means that /proc or the control groups are stuck
LAUNCH_LIMIT_S = 20.0
"""From the unit's start to the exec of the server: 50 ms in health, seconds from a slow network mount."""
POLL_S = 0.01
START_SEEN_S = 3.0
"""Somebody else's start is waited for so long until it is written down who began it."""
EVIDENCE_S = 1.0  # from the end of the first process to systemd's word of how: 2 ms in health
RECORD_S = 2.0  # the same, while systemd is not heard: the record is written after two starts of Python


@dataclass(frozen=True, slots=True)
class Leader:
    """A first process that lives, as far as we have been told."""

    launched: Launched
    pidfd: int | None  # None: it had ended before it could be watched


class UnitServer:
    """Implements `agent.ports.Server` for `gpuagent-server@NAME.service`.

    `digest` is that of the definition in force: the helper starts no other. Nothing ends when this is closed.
    """

    def __init__(
        self,
        name: str,
        digest: str,
        privileged: Privileged,
        systemd: Systemd,
        records: Path = unit_records.FOLDER,
        groups: Path = cgroup.ROOT,
    ) -> None:
        self._name = name
        self._digest = digest
        self._unit = f"gpuagent-server@{name}.service"
        self._privileged = privileged
        self._systemd = systemd
        self._records = UnitRecords(name, records)
        self.group = Cgroup(groups / SLICE / self._unit)
        self._tell: Callable[[str, Exit], None] | None = None
        self._tell_started: Callable[[], None] | None = None
        self._leader: Leader | None = None
        self._launching: str | None = None  # the invocation whose launch is under way
        self._ended: str | None = None  # the last invocation whose end was told
        self._asked = False
        self._stopped: str | None = None  # systemd's number of the start that somebody else has told to end
        self._seen: Unit | None = None  # systemd's last word
        self._found: Launched | None = None  # the last launch, as of the last look
        self._timer: asyncio.TimerHandle | None = None  # the next look for evidence, or for a start
        self._kills: MemoryKills | None = None  # as of the last look at the leader
        self._closed = False
        self._looker = BoundedThread(EDGE)
        systemd.follow(self._unit, self._on_unit)

    def on_exit(self, tell: Callable[[str, Exit], None]) -> None:
        """See `agent.ports.Server`."""
        self._tell = tell

    def on_started(self, tell: Callable[[], None]) -> None:
        """See `agent.ports.Server`."""
        self._tell_started = tell

    def last_exit(self, invocation: str) -> Exit | None:
        """See `agent.ports.Server`. From the record that ExecStopPost= has written."""
        ended = self._records.ended()
        return ended.exit if ended is not None and ended.invocation == invocation else None

    # -- launch -----------------------------------------------------------------------------------

    async def launch(self, invocation: str, log: Path) -> Process:
        """Start it. EdgeError: the helper's or the launch's own slug, else launch_failed. `log` is read, never made."""
        if self._leader is not None:
            pid = self._leader.launched.main.pid
            raise EdgeError(EDGE, "start", f"pid {pid} of it still runs", "launch_failed")
        self._asked = False
        self._launching = invocation
        records = (self._records.launched(), self._records.ended())
        earlier = frozenset(record.unit_invocation for record in records if record is not None)
        try:
            await self._privileged.start(self._name, self._digest, invocation)
            async with asyncio.timeout(LAUNCH_LIMIT_S):
                launched = await unit_launch.begun(self._records, invocation, earlier, self._looker)
        except TimeoutError as error:
            await self.kill()  # what begins too late must not run: its reply is given up
            raise EdgeError(EDGE, "start", f"not begun within {LAUNCH_LIMIT_S:g} s", "launch_failed") from error
        except EdgeError as error:
            raise EdgeError(error.edge, error.what, error.why, error.slug or "launch_failed") from error
        finally:
            self._launching = None
        if launched is None:
            raise unit_launch.failure(log) or unit_launch.unexplained(self._unit, log)
        if not self._watch(launched):
            if (failure := unit_launch.failure(log)) is not None:
                self._ended = invocation
                raise failure
            self._leader = Leader(launched, None)
            self._hear_again()
            self._await_evidence(self._patience())
        return launched.main

    # -- the end of the first process ---------------------------------------------------------------

    def _watch(self, launched: Launched) -> bool:
        """False: it has ended."""
        try:
            pidfd = os.pidfd_open(launched.main.pid)
        except ProcessLookupError:
            return False
        except OSError:  # out of descriptors: the next look tries again
            self._leader = Leader(launched, None)
            return True
        now = processes.stat(launched.main.pid)  # read after the opening: if it is the right one now, it was then
        if now is None and processes.hidden(launched.main.pid):
            os.close(pidfd)
            raise EdgeError(EDGE, "watch its first process", unit_tree.HIDDEN, "launch_failed")
        if self._closed or now is None or now.process != launched.main or now.gone:
            os.close(pidfd)
            return self._closed
        self._leader = Leader(launched, pidfd)
        self._kills = memory_kills.count(launched.main.pid)
        asyncio.get_running_loop().add_reader(pidfd, self._on_end)
        self._hear_again()
        return True

    def _hear_again(self) -> None:
        """Take up what was told before there was somebody to tell of."""
        if self._seen is not None:
            self._on_unit(self._seen)

    def _on_end(self) -> None:
        """The pidfd tells that it has ended, not how."""
        if self._leader is not None and self._leader.pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._leader.pidfd)
            self._await_evidence(self._patience())

    def _patience(self) -> float:
        """Until when evidence is waited for."""
        heard = self._systemd.fault is None and not self._systemd.reloading
        return asyncio.get_running_loop().time() + (EVIDENCE_S if heard else RECORD_S)

    def _await_evidence(self, until: float) -> None:
        """Tell how it ended once the record is there; systemd's word may come first, and the time may be over."""
        if (leader := self._leader) is None:
            return
        ended = self._records.ended()
        loop = asyncio.get_running_loop()
        if ended is not None and ended.unit_invocation == leader.launched.unit_invocation:
            self._tell_end(ended.exit)
        elif loop.time() >= until:
            self._tell_end(Exit(stopped=self._stopped == leader.launched.unit_invocation))
        else:
            self._later(lambda: self._await_evidence(until))

    def _later(self, what: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(POLL_S, what)

    def _on_unit(self, unit: Unit) -> None:
        """Systemd's word, on each change."""
        if unit.invocation:  # one that is forgotten says nothing
            self._seen = unit
        if (leader := self._leader) is None:
            if unit.main_pid and self._launching is None:
                self._await_start(unit, asyncio.get_running_loop().time() + START_SEEN_S)
            return
        if unit.invocation != leader.launched.unit_invocation:
            return
        pid = leader.launched.main.pid
        if unit.active == "deactivating" and unit.main_pid == pid and unit.result == "success":
            self._stopped = unit.invocation  # we never stop a unit: we signal its processes
        if unit.code and unit.last_pid == pid:
            self._tell_end(self._exit_of(unit))

    def _exit_of(self, unit: Unit) -> Exit:
        return exit_of(unit, asked=self._asked, stopped=self._stopped == unit.invocation, kills=self._kills)

    def _tell_end(self, how: Exit) -> None:
        """Once: whichever comes first, for what comes later finds no leader."""
        if (leader := self._leader) is None:
            return
        self._let_go()
        self._ended = leader.launched.invocation
        stopped, down = how.stopped and not self._asked, self._systemd.shutting_down
        if self._tell is not None:
            how = replace(how, asked=self._asked, stopped=stopped and not down, shutdown=stopped and down, at=None)
            self._tell(self._ended, how)

    def _let_go(self) -> None:
        leader, self._leader = self._leader, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if leader is not None and leader.pidfd is not None:
            asyncio.get_running_loop().remove_reader(leader.pidfd)
            os.close(leader.pidfd)

    # -- a start that we have not ordered -------------------------------------------------------------

    def _await_start(self, unit: Unit, until: float) -> None:
        """Systemd has started it: adopt it once its launch is written down."""
        if self._leader is not None or self._launching is not None or self._closed:
            return
        launched = self._records.launched()
        if launched is not None and launched.unit_invocation == unit.invocation:
            self._adopt(launched)
        elif asyncio.get_running_loop().time() < until:
            self._later(lambda: self._await_start(unit, until))

    def _adopt(self, launched: Launched) -> None:
        """Watch a first process that an earlier run of the agent has launched, or an administrator."""
        if self._leader is not None or self._launching is not None or launched.invocation == self._ended:
            return
        if self._watch(launched) and self._leader is not None:
            self._asked = False
            if not launched.ordered and self._tell_started is not None:
                self._tell_started()

    # -- look ---------------------------------------------------------------------------------------

    async def look(self) -> Tree:
        """See `agent.ports.Server`. Needs neither the bus nor the helper."""
        until = asyncio.get_running_loop().time() + START_SEEN_S
        while (found := await self._find()).passing and self._launching is None:
            if asyncio.get_running_loop().time() >= until:
                raise EdgeError(EDGE, "look", "systemd is starting or ending its unit, and takes long")
            await asyncio.sleep(POLL_S)
        self._found = found.launched
        self._heal(found)
        return self._tree(found)

    def _heal(self, found: Found) -> None:
        """Watch what lives and is not watched; look for the end of what does not live and was not seen ending."""
        leader = self._leader
        if leader is None:
            if found.lives and found.launched is not None:
                self._adopt(found.launched)
        elif leader.pidfd is None:
            if not self._watch(leader.launched) and self._timer is None:
                self._await_evidence(self._patience())
        elif leader.launched.main.pid not in found.ending:  # else its own death is counted
            self._kills = memory_kills.count(leader.launched.main.pid)

    async def _find(self) -> Found:
        return await self._looker.run("look", LOOK_LIMIT_S, lambda _: unit_tree.find(self.group, self._records))

    def _tree(self, found: Found) -> Tree:
        launched, alive = found.launched, tuple(one.process for one in found.members)
        leader = self._leader.launched if self._leader is not None else None
        main = leader.main if leader is not None and leader.main in alive else None
        invocation = launched.invocation if launched is not None and alive else None
        if self._launching is not None and alive:
            invocation = self._launching
        return Tree(
            main=main,
            all=alive,
            unkillable=found.unkillable,
            ending=found.ending,
            invocation=invocation,
            life=found.life,
            ordered=main is None or leader is None or leader.ordered,
        )

    # -- signals ------------------------------------------------------------------------------------

    async def terminate(self, whole: bool) -> None:
        """SIGTERM to the first process or to the whole tree."""
        self._asked = True
        await self._privileged.terminate(self._name, whole, self._meant())

    async def kill(self) -> None:
        """SIGKILL to the whole tree."""
        self._asked = True
        await self._privileged.kill(self._name, self._meant())

    def _meant(self) -> str:
        """The start whose processes are to end, as systemd numbers it: what came later is another's."""
        if self._leader is not None:
            return self._leader.launched.unit_invocation
        return self._found.unit_invocation if self._found is not None and self._launching is None else ""

    def close(self) -> None:
        """See `agent.ports.Server`."""
        self._closed = True
        self._systemd.unfollow(self._unit, self._on_unit)
        self._let_go()
