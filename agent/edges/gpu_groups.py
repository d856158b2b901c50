"""Whose a process is, told by its control group. Pure: from the text of /proc/PID/cgroup."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.core.gpu_seen import HolderKind

SERVER = re.compile(r"gpuagent-server@(?P<name>[a-z0-9][a-z0-9-]{0,31})\.service")
ID = r"(?P<id>[0-9a-f]{64})"
SHOWN = 12
"""Digits of a container's id that a person is shown, as the engines do."""


@dataclass(frozen=True, slots=True)
class Group:
    """What a control group belongs to."""

    kind: HolderKind
    owner: str
    engine: str = ""
    container: str = ""
    unit: str = ""  # the systemd unit of the host that it lies in, of whatever kind


_CONTAINERS = (
    ("kubernetes", re.compile(rf"(?:cri-containerd|crio|cri-o|docker)[-:]{ID}(?:\.scope)?"), True),
    ("kubernetes", re.compile(ID), True),
    ("kubernetes", re.compile(rf"kubepods.*:cri-containerd:{ID}"), False),
    ("docker", re.compile(rf"docker-{ID}\.scope"), False),
    ("podman", re.compile(rf"libpod-{ID}(?:\.scope)?"), False),
    ("kubernetes", re.compile(rf"(?:cri-containerd-|crio-|cri-o-){ID}(?:\.scope)?"), False),
    ("containerd", re.compile(rf"nerdctl-{ID}(?:\.scope)?"), False),
    ("lxc", re.compile(r"lxc\.payload\.(?P<id>.+)"), False),
    ("machine", re.compile(r"(?:machine-|systemd-nspawn@)(?P<id>.+)\.(?:scope|service)"), False),
)
"""Of one part of a path: the engine, how it calls its groups, and whether only below Kubernetes' own."""
_BELOW = {"docker": "docker", "libpod_parent": "podman", "lxc": "lxc", "default": "containerd", "k8s.io": "kubernetes"}
"""Without systemd's driver: what stands above the group of a container, at the root."""
_ENGINES = re.compile(r"(?:containerd|docker|crio|cri-o|kubelet|k3s|podman|lxc|systemd-nspawn@.*|user@\d+)\.service")
"""Services in whose groups containers may lie that are no part of them."""
_POD = re.compile(r"kubepods[^/]*|(?:kubelet-)?kubepods.*\.slice")
_USER = re.compile(r"user@(?P<uid>\d+)\.service")
_SERVICE = re.compile(r"[^/]+\.service")
_SCOPE = re.compile(r"[^/]+\.scope")
_SESSION = re.compile(r"session-[^/]+\.scope|init\.scope")


def path_of(text: str) -> str:
    """The control group: of version 2 or, where that is bare, the one that systemd keeps, or an engine's."""
    found = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    paths = {controllers: path for _, controllers, path in found}
    for controllers in ("", "name=systemd", "devices", "cpu,cpuacct", "memory"):
        if paths.get(controllers, "/") != "/":
            return paths[controllers]
    return "/"


def group_of(path: str) -> Group:
    """What it belongs to, by its path from the root."""
    parts = [part for part in path.split("/") if part]
    unit = _unit(parts)
    if server := SERVER.fullmatch(unit):
        return Group(HolderKind.OURS, server["name"], unit=unit)
    found = _container(parts)
    if found is not None and not _lies_in_service(parts, unit):
        engine, container = found
        shown = container[:SHOWN] if re.fullmatch(ID, container) else container
        return Group(HolderKind.CONTAINER, f"{engine} {shown}", engine, container, unit)
    if inner := _user_unit(parts):
        uid, name = inner
        return Group(HolderKind.USER_UNIT, f"{name} of user {uid}", unit=f"user@{uid}.service")
    if unit and not _SESSION.fullmatch(unit) and not _USER.fullmatch(unit):
        return Group(HolderKind.UNIT, unit, unit=unit)
    return Group(HolderKind.STRAY, path, unit=unit)


def _unit(parts: list[str]) -> str:
    """The outermost one: what lies below it is its own affair (delegation)."""
    return next((part for part in parts if _SERVICE.fullmatch(part) or _SCOPE.fullmatch(part)), "")


def _lies_in_service(parts: list[str], unit: str) -> bool:
    """Whether a unit of the host keeps the container (podman's quadlets): it would start it again."""
    return unit.endswith(".service") and not _ENGINES.fullmatch(unit) and parts[-1] != unit


def _container(parts: list[str]) -> tuple[str, str] | None:
    """Engine and id of the outermost container."""
    pod = next((index for index, part in enumerate(parts) if _POD.fullmatch(part)), len(parts))
    for index, part in enumerate(parts):
        for engine, pattern, below_pod in _CONTAINERS:
            if (not below_pod or index > pod) and (found := pattern.fullmatch(part)):
                return engine, found["id"]
        if index == 1 and parts[0] in _BELOW:
            return _BELOW[parts[0]], part
        if re.fullmatch(ID, part):
            return "container", part
    return None


def _user_unit(parts: list[str]) -> tuple[str, str] | None:
    """User id and unit, of one that a user's own systemd runs."""
    for index, part in enumerate(parts):
        if found := _USER.fullmatch(part):
            inner = next((below for below in parts[index + 1 :] if _SERVICE.fullmatch(below)), None)
            return (found["uid"], inner) if inner else None
    return None
