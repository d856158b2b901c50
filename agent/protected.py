"""Which units may be kept off: one rule, for the configuration and for the code that runs as root.

Standard library only: root runs it.
"""

from __future__ import annotations

import re

UNIT_CHARS = 200
"""Of a unit's name at most: with what is put behind it, it must fit into the name of a file."""
KINDS = ("service", "socket", "timer", "path")

# Not "nvidia-.service": what lies in nvidia-.service.d counts for every unit whose name begins with "nvidia-".
_UNIT = re.compile(
    rf"(?P<stem>[A-Za-z0-9:_.\\-]*[A-Za-z0-9:_.\\])(?P<instance>@[A-Za-z0-9:_.\\@-]*)?\.(?:{'|'.join(KINDS)})"
)
_PROTECTED = re.compile(
    r"gpuagent(?:-.*)?"  # ourselves, and the servers
    r"|systemd-.*|dbus(?:-.*)?|polkit|user|user-runtime-dir|getty|.*-getty|autovt|emergency|rescue"  # the host's own
    r"|ssh|sshd(?:-.*)?"  # how one comes in
    r"|nvidia-(?:persistenced|fabricmanager|imex|dcgm|mps)(?:-.*)?|dcgm(?:-.*)?|mps(?:-.*)?"  # the GPUs' own
    r"|gdm3?|lightdm|sddm|xdm|lxdm|greetd|display-manager"  # who sits before it
    r"|(?i:network-?manager)(?:-.*)?|network(?:ing|s)?(?:-.*)?|netplan(?:-.*)?|ifup|wpa_supplicant.*|connman.*|iwd|dhcpcd.*"
)


def is_unit(name: str) -> bool:
    """Whether a unit that can be kept off may be called that."""
    return len(name) <= UNIT_CHARS and _UNIT.fullmatch(name) is not None


def is_protected(unit: str) -> bool:
    """Whether the host, its GPUs or gpuagent itself need it."""
    parts = _UNIT.fullmatch(unit)
    return parts is None or _PROTECTED.fullmatch(parts["stem"]) is not None


def fault(unit: str) -> str | None:
    """Why that may not be kept off, as half a sentence with what to do; None: it may."""
    stem, at, _ = unit.partition("@")
    if (stem if at else unit.rpartition(".")[0]).endswith("-"):
        return "stands for every unit whose name begins so; write the name of each in full"
    if not is_unit(unit):
        kinds = ", ".join(f".{kind}" for kind in KINDS)
        return f"is no name of a unit that can be kept off; write it in full, with its ending: one of {kinds}"
    if is_protected(unit):
        return "is protected: the host, its GPUs or gpuagent itself need it; take it out"
    return None


def start_fault(unit: str) -> str | None:
    """Why that may not be started when a disk is too full, as half a sentence with what to do; None: it may."""
    if not unit.endswith(".service") or is_template(unit) or not is_unit(unit):
        return "is no name of a service that can be started; write it in full, with .service"
    return "is protected; write a service of your own" if is_protected(unit) else None


def is_template(unit: str) -> bool:
    """Whether it stands for all its instances: "foo@.service"."""
    return unit.partition("@")[2].removeprefix(".") in KINDS


def instances_of(template: str) -> str:
    """The pattern of its instances, as systemd takes it: "foo@.service" -> "foo@*.service"."""
    stem, _, kind = template.partition("@")
    return f"{stem}@*{kind}".replace("\\", "\\\\")  # a pattern's own way to write that character


def template_of(unit: str) -> str | None:
    """Of an instance its template: "foo@1.service" -> "foo@.service". None: it is none."""
    stem, at, rest = unit.partition("@")
    return f"{stem}@.{rest.rpartition('.')[2]}" if at and not is_template(unit) else None
