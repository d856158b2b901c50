"""Units of a host that fight over the GPUs, of every kind, and how they are seen: each writes a line at each start."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.real.real_house import until
from tests.system.machine import Machine

FOLDER = "/etc/systemd/system"
PACKAGED = "/usr/lib/systemd/system"
STARTS = "/var/log/starts"
CORE = "gpuagent"

EDGE = """
import asyncio, dataclasses, json, sys
from agent.edges.privileged import Privileged
from agent.edges.rivals import UnitRivals
from agent.edges.systemd import Systemd
from agent.errors import EdgeError

async def main():
    async with Systemd() as eyes:
        while eyes.fault:
            await asyncio.sleep(0.005)
        edge = UnitRivals(Privileged(), eyes)
        try:
            answer = await getattr(edge, sys.argv[1])(frozenset(sys.argv[2:]))
        except EdgeError as error:
            return {"slug": error.slug, "why": error.why}
        return {each.unit: {**dataclasses.asdict(each), "off": each.off} for each in answer or ()}

print(json.dumps(asyncio.run(main())))
"""
"""The agent's own edge, as its user."""

TREE = """
import json, os, stat
def told(path):
    info = os.lstat(path)
    plain = stat.S_ISREG(info.st_mode)
    content = open(path, "rb").read().decode("latin-1") if plain else ""
    return [info.st_mode, info.st_mtime_ns if plain else 0, os.readlink(path) if os.path.islink(path) else content]
print(json.dumps({
    path: told(path)
    for top in ("/etc/systemd/system", "/usr/lib/systemd/system")
    for folder, folders, files in os.walk(top) for path in (os.path.join(folder, name) for name in folders + files)
    if "gpuagent.service" not in path and "gpuagent-" not in os.path.basename(path).replace("zz-gpuagent-hold", "")
    and not path.endswith("/gpuagent.slice")
}))
"""

DEB = """
set -eu
folder=$(mktemp -d)
mkdir -p $folder/DEBIAN $folder/usr/lib/systemd/system
printf 'Package: NAME\\nVersion: VERSION\\nArchitecture: all\\nMaintainer: x <x@example.com>\\nDescription: x\\n' \
  >$folder/DEBIAN/control
cat >$folder/usr/lib/systemd/system/NAME.service
cat >$folder/DEBIAN/postinst <<'END'
#!/bin/sh
set -e
deb-systemd-helper unmask NAME.service
deb-systemd-helper enable NAME.service
systemctl --system daemon-reload
deb-systemd-invoke restart NAME.service
END
chmod 755 $folder/DEBIAN/postinst
dpkg-deb --build --root-owner-group $folder /tmp/NAME.deb
dpkg --install /tmp/NAME.deb
"""
"""What a package with a service does, as debhelper has it."""


def service(name: str, *lines: str, wanted_by: str = "", unit: Iterable[str] = ()) -> str:
    """A unit that says when it starts, and sleeps."""
    text = ["[Unit]", *unit, "[Service]", f"ExecStartPre=/bin/sh -c 'echo start >>{STARTS}/{name}'", *lines]
    if not any(line.startswith("ExecStart=") for line in lines):
        text.append("ExecStart=/bin/sleep infinity")
    return "\n".join([*text, *(["[Install]", f"WantedBy={wanted_by}"] if wanted_by else []), ""])


def starts(machine: Machine, name: str) -> int:
    """How often it was started, over all boots."""
    path = machine.path(f"{STARTS}/{name}")
    return len(path.read_text().splitlines()) if path.exists() else 0


def active(machine: Machine, unit: str) -> str:
    return machine.show(unit, "ActiveState")["ActiveState"]


def edge(machine: Machine, verb: str, *units: str) -> Any:
    """What the agent's edge answers: to `look` each unit's rival by its name, else nothing or why it is refused."""
    words = ["/opt/gpuagent/venv/bin/python", "-I", "-c", EDGE, verb, *units]
    return json.loads(machine.run(*words, user=CORE))


def until_off(machine: Machine, *units: str) -> Any:
    """The look that shows all of them off."""
    seen: dict[str, Any] = {}

    def off() -> Any:
        nonlocal seen
        seen = edge(machine, "look", *units)
        return seen if all(seen[unit]["off"] for unit in units) else None

    try:
        return until(off, f"{', '.join(units)} off")
    except AssertionError as error:
        raise AssertionError(f"{error}; last seen: {json.dumps(seen, indent=1)}\n{machine.journal_end()}") from error


def tree(machine: Machine) -> Any:
    """Every unit and drop-in that is not ours: mode, time, content."""
    return machine.python(TREE)


def install_package(machine: Machine, name: str, version: str) -> None:
    """A Debian package with that service, built and installed there."""
    unit = service(name, f"Environment=VERSION={version}", "Restart=always", wanted_by="multi-user.target")
    machine.run("sh", "-c", DEB.replace("NAME", name).replace("VERSION", version), text=unit)


def let_time_pass(machine: Machine) -> None:
    """Until the clock of the host, a timer that nobody holds, has ticked three times."""
    before = starts(machine, "clock")
    until(lambda: starts(machine, "clock") >= before + 3, "three ticks of clock.timer")


def lay_out(machine: Machine) -> None:
    """One rival of each kind, most of them running."""
    forever = ("Restart=always", "RestartSec=50ms")
    units = {
        "vllm.service": service("vllm", *forever, wanted_by="multi-user.target"),
        "sock.service": service("sock"),
        "sock.socket": "[Socket]\nListenStream=127.0.0.1:8710\n[Install]\nWantedBy=sockets.target\n",
        "tick.service": service("tick", "Type=oneshot", "ExecStart=/bin/true", unit=["StartLimitIntervalSec=0"]),
        "nightly.timer": "[Timer]\nOnCalendar=*:*:*\nAccuracySec=10ms\nUnit=tick.service\n"
        "[Install]\nWantedBy=timers.target\n",
        "pathed.service": service("pathed"),
        "pathed.path": "[Path]\nPathExists=/etc/hostname\n[Install]\nWantedBy=paths.target\n",
        "upheld.service": service("upheld"),
        "up.service": "[Unit]\nUpholds=upheld.service\n[Service]\nExecStart=/bin/sleep infinity\n"
        "[Install]\nWantedBy=multi-user.target\n",
        "tpl@.service": service("tpl-%i"),
        "one@.service": service("one-%i", wanted_by="multi-user.target"),
        "clock.service": service("clock", "Type=oneshot", "ExecStart=/bin/true", unit=["StartLimitIntervalSec=0"]),
        "clock.timer": "[Timer]\nOnCalendar=*:*:*\nAccuracySec=10ms\n[Install]\nWantedBy=timers.target\n",
    }
    for name, text in units.items():
        machine.write(f"{FOLDER}/{name}", text)
    machine.write(f"{FOLDER}/vllm.service.d/10-own.conf", "[Service]\nNice=3\n")
    machine.write(f"{PACKAGED}/static.service", service("static"))
    machine.write(f"{PACKAGED}/masked.service", service("masked"))
    machine.write(f"{STARTS}/none", "")
    enabled = ["vllm", "sock.socket", "nightly.timer", "pathed.path", "up", "one@1", "clock.timer"]
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "enable", "--now", *enabled)
    machine.run("systemctl", "start", "static", "masked", "tpl@1", "one@2")
    machine.run("systemctl", "mask", "masked")
    install_package(machine, "ollama", "1.0")
