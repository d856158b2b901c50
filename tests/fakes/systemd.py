"""A bus daemon of our own, and a service on it that speaks as systemd, for units whose processes are real."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dbus_fast import Message, MessageType, Variant
from dbus_fast.aio import MessageBus

from agent.edges.systemd import MANAGER, MANAGER_PATH, PROPERTIES, SERVICE, SYSTEMD, UNIT, path_of

CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:path={path}</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/>
<allow own="*"/></policy>
</busconfig>"""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Bus:
    """A dbus-daemon at a fixed address, to be ended and started again."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "bus"
        self.address = f"unix:path={self.path}"
        self._config = folder / "bus.conf"
        self._config.write_text(CONFIG.format(path=self.path))
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """It listens when this returns."""
        self.path.unlink(missing_ok=True)
        command = ["dbus-daemon", f"--config-file={self._config}", "--nofork", "--print-address"]
        await asyncio.to_thread(self._run, command)

    def _run(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline()

    def stop(self) -> None:
        """At once, with every connection."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


class FakeUnit:
    """One service unit, whose main process is real. What it is told to hide, it hides."""

    def __init__(self, systemd: FakeSystemd, name: str, folder: Path) -> None:
        self.systemd, self.name, self.folder = systemd, name, folder
        self.unit = f"gpuagent-server@{name}.service"
        self.group = folder / "groups" / "gpuagent.slice" / self.unit
        self.records = folder / "records"
        self.log = folder / "log"
        self.command = ["/bin/sleep", "1000"]
        self.plan: dict[str, Any] = {"wait": "", "hold": "", "fail": "", "record": True, "boot_id": BOOT_ID}
        self.writes_exit = True
        self.result_of_kill = "signal"
        self.invocation = ""  # of the agent
        self.number = ""  # of systemd
        self.process: asyncio.subprocess.Process | None = None
        self.starts = 0
        self.service: dict[str, Any] = {}
        self.state = "inactive"
        self._asked = False
        self._reaper: asyncio.Task[None] | None = None
        self.forget()

    def forget(self) -> None:
        """Garbage-collected: as if it had never been started."""
        self.number, self.state = "", "inactive"
        self.service = {"MainPID": 0, "ExecMainPID": 0, "ExecMainCode": 0, "ExecMainStatus": 0, "Result": "success"}

    def properties(self) -> tuple[dict[str, Variant], dict[str, Variant]]:
        """Of the service, of the unit."""
        kinds = {"MainPID": "u", "ExecMainPID": "u", "ExecMainCode": "i", "ExecMainStatus": "i", "Result": "s"}
        of_unit = {
            "ActiveState": Variant("s", self.state),
            "InvocationID": Variant("ay", bytes.fromhex(self.number)),
            "Id": Variant("s", self.unit),
        }
        return {key: Variant(kinds[key], value) for key, value in self.service.items()}, of_unit

    async def start(self, invocation: str, ordered: bool = True) -> None:
        """As systemd for Type=exec: returns when the main process runs."""
        self.starts += 1
        self._asked = False
        self.invocation, self.number = invocation, uuid.uuid4().hex
        about = {"invocation": invocation, "unit_invocation": self.number, "ordered": ordered}
        plan = {**self.plan, **about, "command": self.command, "log": str(self.log)}
        (self.records / f"{self.name}.plan.json").write_text(json.dumps(plan))
        self.process = await asyncio.create_subprocess_exec(
            str(self.systemd.python), "-I", "-m", "agent.privileged.launch", "run", self.name,
            env={"RECORDS": str(self.records)}, start_new_session=True,
        )  # fmt: skip
        pid = self.process.pid
        self.holds(pid)
        self.state = "active"
        self.service = {"MainPID": pid, "ExecMainPID": pid, "ExecMainCode": 0, "ExecMainStatus": 0, "Result": "success"}
        self._reaper = asyncio.create_task(self._reap(self.process))
        self.changed()

    def holds(self, *pids: int) -> None:
        """What its control group holds from now on."""
        self.group.mkdir(parents=True, exist_ok=True)
        (self.group / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))

    def pids(self) -> list[int]:
        """Of its control group."""
        procs = self.group / "cgroup.procs"
        return [int(word) for word in procs.read_text().split()] if procs.exists() else []

    def stop(self) -> None:
        """`systemctl stop`, up to the signal."""
        assert self.process is not None
        self._asked = True
        self.state = "deactivating"
        self.changed()
        self.process.send_signal(signal.SIGTERM)

    async def _reap(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        result = "success" if code in (0, -signal.SIGTERM) else self.result_of_kill if code < 0 else "exit-code"
        how = {"ExecMainCode": 1 if code >= 0 else 2, "ExecMainStatus": abs(code)}
        self.service |= {"MainPID": 0, "Result": result, **how}
        self.state = "deactivating"
        self.holds(*(pid for pid in self.pids() if pid != process.pid))
        self.changed()
        if self.writes_exit:
            self.write_exit(code, result)
        self.state = "inactive" if result == "success" else "failed"
        if result == "success":
            self.changed()
            self.forget()
        self.changed()

    def write_exit(self, code: int, result: str) -> None:
        """As `launch ended` does."""
        status = str(code) if code >= 0 else signal.Signals(-code).name.removeprefix("SIG")
        how = {"code": "exited" if code >= 0 else "killed", "status": status, "result": result, "asked": self._asked}
        said = {"invocation": self.invocation, "unit_invocation": self.number, "at": 5, **how}
        (self.records / f"{self.name}.exit.json").write_text(json.dumps(said))

    def changed(self) -> None:
        """Tell it, as systemd does: the service's properties, then the unit's, changed or not."""
        service, unit = self.properties()
        self.systemd.emit(path_of(self.unit), PROPERTIES, "PropertiesChanged", "sa{sv}as", [SERVICE, service, []])
        self.systemd.emit(path_of(self.unit), PROPERTIES, "PropertiesChanged", "sa{sv}as", [UNIT, unit, []])

    async def close(self) -> None:
        """End what still runs."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
        if self._reaper is not None:
            await self._reaper


class FakeSystemd:
    """Speaks for the units that it is given."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self.python = _python_of_the_unit(folder)
        self.units: dict[str, FakeUnit] = {}  # by object path
        self.silent = False  # signals are lost
        self.subscribed = 0
        self.system_state = "running"
        self._bus: MessageBus | None = None

    def unit(self, name: str, folder: Path) -> FakeUnit:
        """A new one."""
        unit = FakeUnit(self, name, folder)
        self.units[path_of(unit.unit)] = unit
        return unit

    async def connect(self) -> None:
        """Take the name, as systemd does at its start and whenever the bus is back."""
        bus = await MessageBus(self.address).connect()
        bus.add_message_handler(self._answer)
        self._bus = bus
        await bus.request_name(SYSTEMD)

    async def close(self) -> None:
        """Units and connection."""
        for unit in self.units.values():
            await unit.close()
        self.leave()

    def leave(self) -> None:
        """The bus alone."""
        if self._bus is not None:
            self._bus.disconnect()
            self._bus = None

    def emit(self, path: str, interface: str, member: str, signature: str, body: list[Any]) -> None:
        """One signal, if it is not lost."""
        if self._bus is not None and self._bus.connected and not self.silent:
            self._bus.send(Message.new_signal(path, interface, member, signature, body))

    def tell_manager(self, member: str, signature: str, *body: object) -> None:
        """A signal of the manager."""
        self.emit(MANAGER_PATH, MANAGER, member, signature, list(body))

    def _answer(self, message: Message) -> Message | None:
        if message.message_type is not MessageType.METHOD_CALL:
            return None
        if message.member == "Subscribe":
            self.subscribed += 1
            return Message.new_method_return(message)
        if message.member == "Get":
            return Message.new_method_return(message, "v", [Variant("s", self.system_state)])
        if message.member == "GetAll" and message.path in self.units:
            service, unit = self.units[message.path].properties()
            return Message.new_method_return(message, "a{sv}", [{**service, **unit}])
        return None


def _python_of_the_unit(folder: Path) -> Path:
    """An interpreter that finds our stand-in as agent.privileged.launch, also with -I: a virtual environment."""
    home = folder / "venv"
    package = home / "lib" / f"python3.{sys.version_info.minor}" / "site-packages" / "agent" / "privileged"
    package.mkdir(parents=True)
    (package / "launch.py").write_text(Path(__file__).with_name("launch.py").read_text())
    (home / "bin").mkdir()
    base = Path(os.path.realpath(sys.executable))
    (home / "bin" / "python").symlink_to(base)
    (home / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
    return home / "bin" / "python"


@asynccontextmanager
async def running_bus(folder: Path) -> AsyncIterator[Bus]:
    """A bus that listens."""
    bus = Bus(folder)
    await bus.start()
    try:
        yield bus
    finally:
        bus.stop()
