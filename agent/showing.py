"""What the loop shows: a snapshot for the board, made of the States of the moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from agent import view_gpus, view_holds
from agent.board import Board, Snapshot
from agent.core.model import Saved, State
from agent.gpu_watch import GpuWatch
from agent.keeping_off import KeepingOff
from agent.ports import Store
from agent.records import Records
from agent.roster import Roster
from agent.view import Document, Face, Shown, dump, show, status


class Showing:
    """`about`: the agent and the host, as /status shows them. `more_faults`: what does not work beside the servers.

    `saved`: of the servers, as of the agent's start or of a server's removal. `to_wall`: monotonic -> Unix seconds.
    """

    def __init__(
        self,
        board: Board,
        about: tuple[Document, Document],
        roster: Roster,
        records: Records,
        store: Store,
        keeping_off: KeepingOff,
        gpus: GpuWatch,
        more_faults: Callable[[], list[str]],
        saved: Callable[[], Mapping[str, Saved]],
        to_wall: Callable[[float], float],
    ) -> None:
        self._board = board
        self._about = about
        self._roster = roster
        self._records = records
        self._store = store
        self._keeping_off = keeping_off
        self._gpus = gpus
        self._gpu_page = view_gpus.show(None)
        self._more_faults = more_faults
        self._saved = saved
        self._to_wall = to_wall
        self._loop = asyncio.get_running_loop()
        self._shown: dict[str, Shown] = {}
        self._marks: list[str] | None = None  # what does not work, as last shown

    def beat(self) -> None:
        """The loop has turned."""
        self._board.beat(time.monotonic())

    @property
    def sentence(self) -> str:
        """Where every server is, in one line."""
        return "; ".join(f"{name}: {each.full['why']}" for name, each in self._shown.items())

    def forget(self, name: str) -> None:
        """It is not defined any more."""
        self._shown.pop(name, None)

    def publish(self, states: Mapping[str, State], changed: set[str], booting: bool = False) -> None:
        """Show all, those that have changed as they are now."""
        self._look_at(states, changed)
        if booting and len(self._shown) < len(states):
            return  # what is not shown yet would be taken for not defined
        self._put_up(states, self._degraded(states))

    def _look_at(self, states: Mapping[str, State], changed: set[str]) -> None:
        for name in changed & states.keys():
            self._shown[name] = self._show(name, states[name])

    def _put_up(self, states: Mapping[str, State], degraded: list[str]) -> None:
        self._marks = degraded
        shown = [self._shown[name] for name in states if name in self._shown]
        marks = list(dict.fromkeys(mark.partition(":")[0] for mark in degraded))  # the rest may name a file
        holds, gpus = view_holds.holds(self._keeping_off.state), self._gpu_page.summary
        self._board.publish(
            Snapshot(
                version=self._board.read().version + 1,
                servers={each.page.name: each.page for each in shown},
                full=dump(status(*self._about, [each.full for each in shown], gpus, holds, degraded)),
                public=dump(status(*self._about, [each.public for each in shown], gpus, holds, marks)),
                about=dump(status(*self._about, [each.page.name for each in shown], gpus, holds, degraded)),
                holds=dump({"holds": holds}),
                rivals=dump(view_holds.rivals(self._keeping_off.state, self._keeping_off.warnings)),
                gpus=self._gpu_page.full,
            )
        )

    def refresh(self, states: Mapping[str, State]) -> None:
        """What changes while nothing happens: the expected end of a start, the GPUs, an edge that finds a fault."""
        now, page = self._loop.time(), self._gpu_page
        self._gpu_page = view_gpus.show(self._gpus.latest)
        names = {name for name, state in states.items() if self._records.expected(name, state, now)}
        degraded = self._degraded(states)
        if names or page != self._gpu_page or degraded != self._marks:
            self._look_at(states, names)
            self._put_up(states, degraded)

    def _show(self, name: str, state: State) -> Shown:
        member = self._roster.members[name]
        # Where there is no log yet, the last attempt's lines would mislead.
        tail = () if state.blocked or state.unlaunched else member.watch.tail
        expected = self._records.expected(name, state, self._loop.time())
        face = Face(member.defined.url, member.watch.log, tail, self._records.shown(name), expected)
        return show(name, state, face, self._to_wall)

    def _degraded(self, states: Mapping[str, State]) -> list[str]:
        """What does not work, for a person."""
        members = self._roster.members
        unsaved = (member.worker.unsaved for member in members.values() if member.worker.unsaved)
        marks = [f"state-not-saved: {why}" for why in dict.fromkeys(unsaved)]
        marks += [f"state: {fault}" for fault in self._store.faults] + self._records.faults + self._more_faults()
        marks += self._keeping_off.faults
        named = {gpu for member in members.values() for gpu in member.defined.policy.gpus}
        marks += view_gpus.marks(self._gpus.latest, named)
        lost = [name for name, saved in self._saved().items() if saved.running and name not in states]
        marks += [f"undefined-server: {name} ran when it was last seen, and is not defined any more" for name in lost]
        for name, member in members.items():
            marks += [f"{mark}: {name}: {why}" for mark, why in member.watch.marks.items()]
        return marks
