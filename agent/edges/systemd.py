"""What systemd says of our servers' units, over D-Bus: read only, without privilege, and never needed to go on.

Whoever follows a unit is told each change. What is lost while the bus is away is healed when it is back, by one look at
every unit, and meanwhile by looks at the control groups. Unknown is None, never an end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus

from agent.edges.bus_words import (
    BUS,
    BUS_PATH,
    MANAGER,
    MANAGER_PATH,
    PROPERTIES,
    RULES,
    SERVICE,
    SHUTDOWN,
    SYSTEMD,
    UNIT,
    path_of,
    rule_of,
    send,
)
from agent.errors import EdgeError

EDGE = "systemd"
SYSTEM_BUS = "unix:path=/run/dbus/system_bus_socket"
LIMIT_S = 10.0
"""One call: a millisecond in health; systemd does not answer while it reloads, seconds on a host of many units."""
AGAIN_S = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Before each further attempt to connect, the last one for ever: back within 2 s after the bus is."""
LASTS_S = 3.0
"""Only a blindness that lasts is told: at the agent's start and at one of the bus, it is over in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One service unit at one moment."""

    active: str  # ActiveState: "active", "deactivating", "failed", ...
    invocation: str  # of its last start, 32 hex digits; "": it has never been started, or was forgotten since
    main_pid: int  # 0: no first process lives
    last_pid: int  # of the last first process
    code: int  # how that ended: CLD_EXITED, CLD_KILLED or CLD_DUMPED; 0: it has not
    status: int  # its exit code or signal
    result: str  # "success", "signal", "oom-kill", ...


@dataclass(frozen=True, slots=True)
class Asked:
    """A question on its way."""

    reply: asyncio.Future[Message]
    unit: str  # whose state the answer is; "": nobody's


class Systemd:
    """The eyes on systemd, for all servers: one connection, made again whenever it is lost. Used as `async with`."""

    def __init__(self, address: str = SYSTEM_BUS) -> None:
        self.fault: str | None = "not connected yet"  # why systemd is not seen
        self.shutting_down = False  # the host, as far as seen
        self.reloading = False  # systemd says nothing meanwhile: seconds on a host of many units
        self._address = address
        self._owner = ""  # systemd's own name on the bus: others may not speak for it
        self._tells: list[tuple[str, Callable[[Unit], None]]] = []  # a unit, and who follows it
        self._known: dict[str, dict[str, Any]] = {}  # object path -> its properties, as last told
        self._asked: dict[int, Asked] = {}  # by serial
        self._rules: set[str] = set()  # what the bus has been asked to pass on
        self._unseen: set[str] = set()  # units to be looked at
        self._heeded: dict[str, str] = {}  # object path -> ActiveState, as last told
        self._stirs: list[Callable[[], None]] = []  # who hears of these
        self._bus: MessageBus | None = None  # while it is connected
        self._blind_since = float("inf")  # when the fault came; of no meaning while there is none
        self._stirred = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Systemd:
        self._blind_since = asyncio.get_running_loop().time()
        self._task = asyncio.create_task(self._run(), name="gpuagent-systemd")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None  # noqa: S101 - entered before it is left
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    @property
    def lasting_fault(self) -> str | None:
        """Why systemd is not seen, once that has lasted: for a person."""
        return self.fault if asyncio.get_running_loop().time() - self._blind_since > LASTS_S else None

    def follow(self, unit: str, tell: Callable[[Unit], None]) -> None:
        """`tell` is called in the loop's thread with the present state, once known, and at each change of it."""
        self._tells.append((unit, tell))
        self._unseen.add(unit)
        self._stirred.set()

    def unfollow(self, unit: str, tell: Callable[[Unit], None]) -> None:
        """Tell nothing more, as often as one likes."""
        self._tells = [each for each in self._tells if each != (unit, tell)]

    # -- other units --------------------------------------------------------------------------------

    async def ask(self, path: str, interface: str, member: str, signature: str, *body: object) -> list[Any] | None:
        """Its answer to a question that changes nothing; None: an error. EdgeError: it cannot be asked now."""
        if self._bus is None or self.fault is not None:
            raise EdgeError(EDGE, member, self.fault or "not connected yet")
        try:
            reply = await self._call(self._bus, SYSTEMD, path, interface, member, *body, signature=signature)
        except OSError as error:
            raise EdgeError(EDGE, member, str(error)) from error
        return None if reply is None else reply.body

    async def heed(self, unit: str, active: str) -> None:
        """Whoever is stirred hears once that unit is in another ActiveState than that one. EdgeError."""
        if self._bus is None:
            raise EdgeError(EDGE, "heed", self.fault or "not connected yet")
        try:
            await self._match(self._bus, rule_of(unit))
        except OSError as error:
            raise EdgeError(EDGE, "heed", str(error)) from error
        self._heeded[path_of(unit)] = active

    def stir(self, tell: Callable[[], None]) -> None:
        """`tell` is called in the loop's thread when a unit that is heeded has changed, or may have."""
        self._stirs.append(tell)

    def unstir(self, tell: Callable[[], None]) -> None:
        """Tell nothing more, as often as one likes."""
        self._stirs = [each for each in self._stirs if each != tell]

    def _stir(self) -> None:
        for tell in self._stirs:
            tell()

    # -- the connection -----------------------------------------------------------------------------

    async def _run(self) -> None:
        attempt = 0
        while True:
            try:
                await self._talk()
            except OSError as error:
                attempt = 0 if self.fault is None else attempt
                self._blind(str(error))
            self._known.clear()
            await asyncio.sleep(AGAIN_S[min(attempt, len(AGAIN_S) - 1)])
            attempt += 1

    def _blind(self, why: str) -> None:
        if self.fault is None:
            self._blind_since = asyncio.get_running_loop().time()
        self.fault = why

    async def _talk(self) -> None:
        """Connect, and listen until the connection is lost: always raises."""
        bus = MessageBus(self._address)
        try:
            async with asyncio.timeout(LIMIT_S):
                await bus.connect()
        except Exception as error:  # the library documents that connecting may raise anything
            raise OSError(f"{self._address}: {str(error) or type(error).__name__}") from error
        lost = asyncio.ensure_future(bus.wait_for_disconnect())  # type: ignore[no-untyped-call]  # by the library
        lost.add_done_callback(self._lost)
        bus.add_message_handler(self._heard)
        self._bus = bus
        try:
            for rule in RULES:
                await self._match(bus, rule)
            self._all_unseen()
            while True:
                await self._stirred.wait()
                self._stirred.clear()
                if lost.done():
                    raise OSError(f"{self._address}: {lost.exception() or 'the bus has closed the connection'}")
                await self._look(bus)
        finally:
            self._bus = None
            bus.disconnect()
            self._rules.clear()
            await asyncio.wait([lost], timeout=LIMIT_S)  # the socket is closed then; at once, as it is shut down

    def _lost(self, lost: asyncio.Future[None]) -> None:
        why = None if lost.cancelled() else lost.exception()
        for asked in self._asked.values():
            if not asked.reply.done():
                asked.reply.set_exception(OSError(f"{self._address}: {why or 'closed'}"))
        self._stirred.set()

    def _all_unseen(self) -> None:
        self._owner, self.reloading = "", False
        self._unseen.update(unit for unit, _ in self._tells)
        self._stirred.set()

    async def _look(self, bus: MessageBus) -> None:
        """Whose word counts, whether the host goes down, and how each unit stands that was not looked at yet."""
        if not self._owner:
            reply = await self._call(bus, BUS, BUS_PATH, BUS, "GetNameOwner", SYSTEMD)
            if reply is None:
                self._blind(f"{self._address}: systemd is not on the bus")
                return
            self._owner = reply.body[0]
            await self._call(bus, SYSTEMD, MANAGER_PATH, MANAGER, "Subscribe")  # an error: it was done already
            state = await self._call(bus, SYSTEMD, MANAGER_PATH, PROPERTIES, "Get", MANAGER, "SystemState")
            self.shutting_down = state is not None and state.body[0].value == "stopping"
        while self._unseen:
            unit = self._unseen.pop()
            await self._match(bus, rule_of(unit))
            await self._call(bus, SYSTEMD, path_of(unit), PROPERTIES, "GetAll", "", of=unit)
        was, self.fault = self.fault, None
        if was is not None:
            self._stir()

    async def _match(self, bus: MessageBus, rule: str) -> None:
        if rule not in self._rules:
            await self._call(bus, BUS, BUS_PATH, BUS, "AddMatch", rule)
            if bus is self._bus:  # lost while the answer was on its way: to be asked of the next one again
                self._rules.add(rule)

    async def _call(
        self, bus: MessageBus, to: str, path: str, interface: str, member: str, *body: object,
        of: str = "", signature: str | None = None,
    ) -> Message | None:  # fmt: skip
        """The reply; None: an error. `of`: its body is that unit's state."""
        message = Message(
            destination=to,
            path=path,
            interface=interface,
            member=member,
            signature="s" * len(body) if signature is None else signature,
            body=list(body),
            serial=bus.next_serial(),
        )
        if not bus.connected:
            raise OSError(f"{self._address}: the bus has closed the connection")
        self._asked[message.serial] = asked = Asked(asyncio.get_running_loop().create_future(), of)
        try:
            async with asyncio.timeout(LIMIT_S):
                await send(bus, message)
                reply = await asked.reply
        except TimeoutError as error:
            raise OSError(f"{self._address}: no answer to {member} within {LIMIT_S:g} s") from error
        finally:
            del self._asked[message.serial]
        return reply if reply.message_type is MessageType.METHOD_RETURN else None

    # -- what it says -------------------------------------------------------------------------------

    def _heard(self, message: Message) -> None:
        """Every message, in the order of the wire: a reply taken up later could undo a change told after it."""
        if (asked := self._asked.get(message.reply_serial)) is not None and not asked.reply.done():
            asked.reply.set_result(message)
            if asked.unit and message.message_type is MessageType.METHOD_RETURN:
                self._known[path_of(asked.unit)] = {}
                self._take(path_of(asked.unit), message.body[0])
        elif message.message_type is MessageType.SIGNAL and message.sender == BUS:
            if message.member == "NameOwnerChanged" and message.body[0] == SYSTEMD:
                self._all_unseen()
        elif message.message_type is MessageType.SIGNAL and message.sender == self._owner:
            self._signalled(message)

    def _signalled(self, message: Message) -> None:
        match message.interface, message.member:
            case (_, "PropertiesChanged") if message.interface == PROPERTIES:
                if message.body[0] in (UNIT, SERVICE) and message.path in self._known:
                    self._take(message.path, message.body[1])
                self._heed_change(message.path, message.body[1])
            case (_, "Reloading"):
                self.reloading = message.body[0]
                if not self.reloading:  # what was told meanwhile may be lost
                    self._all_unseen()
                    self._stir()
            case (_, "JobNew"):
                self.shutting_down |= message.body[2] == SHUTDOWN
            case (_, "JobRemoved") if message.body[2] == SHUTDOWN:
                self.shutting_down = message.body[3] == "done"

    def _heed_change(self, path: str | None, changed: Mapping[str, Any]) -> None:
        """A start that its conditions forbid changes something too, and no state: of no interest."""
        now = changed.get("ActiveState")
        if path is not None and path in self._heeded and now is not None and self._heeded[path] != now.value:
            self._heeded[path] = now.value
            self._stir()

    def _take(self, path: str, changed: Mapping[str, Any]) -> None:
        known = self._known[path]
        known.update((key, variant.value) for key, variant in changed.items() if key in WANTED)
        if len(known) < len(WANTED):
            return
        for tell in [tell for unit, tell in self._tells if path_of(unit) == path]:
            tell(_unit(known))


WANTED = frozenset(
    {"ActiveState", "InvocationID", "MainPID", "ExecMainPID", "ExecMainCode", "ExecMainStatus", "Result"},
)


def _unit(known: Mapping[str, Any]) -> Unit:
    return Unit(
        active=known["ActiveState"],
        invocation=bytes(known["InvocationID"]).hex(),
        main_pid=known["MainPID"],
        last_pid=known["ExecMainPID"],
        code=known["ExecMainCode"],
        status=known["ExecMainStatus"],
        result=known["Result"],
    )
