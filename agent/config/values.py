"""What a single value may be. Each function gives it back, or raises ValueError("what is wrong; what to do")."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from agent.environment_file import NAME
from agent.families import FAMILIES
from agent.launch_spec import NO_SERVERS
from agent.protected import fault, start_fault

_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_GPU = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UUID = re.compile(r"[0-9A-Fa-f]{4,}(-?[0-9A-Fa-f]+)*")
_SHA256 = re.compile(r"[0-9A-Fa-f]{64}")
_SOCKET_BYTES = 107  # sockaddr_un holds 108, the last of which is NUL


def default_state_dir(environ: Mapping[str, str], root: bool) -> Path:
    """Where the agent keeps what must survive it, when nobody says."""
    if given := environ.get("STATE_DIRECTORY"):  # systemd's StateDirectory=
        return Path(given)
    if root:
        return Path("/var/lib/gpuagent")
    folder = Path(environ.get("XDG_STATE_HOME", ""))
    if not folder.is_absolute():  # the XDG specification says to ignore such a one
        # Without a home this stays "~", which is no absolute path: a fault of the key, and no surprise.
        folder = Path(os.path.expanduser("~")) / ".local" / "state"
    return folder / "gpuagent"


def text(value: str) -> str:
    """Text that can be handed to a process."""
    if "\0" in value:
        raise ValueError("has a NUL character, which no process can be given; remove it")
    return value


def absolute(path: Path) -> Path:
    """A path from the root: the agent's own folder means nothing to a service."""
    text(str(path))
    if not path.is_absolute():
        raise ValueError("must be an absolute path; begin it with / (~ and variables are not replaced)")
    return path


def socket(path: Path) -> Path:
    """A path that fits a unix socket's address."""
    if len(os.fsencode(path)) > _SOCKET_BYTES:
        raise ValueError(f"is too long for a unix socket; use at most {_SOCKET_BYTES} bytes")
    return path


def command(words: tuple[str, ...]) -> tuple[str, ...]:
    """A program and its arguments."""
    if not words[0].strip():
        raise ValueError("names no program; put the program first")
    if len(words) == 1 and " -" in words[0]:
        raise ValueError('is a whole line in one text, and no shell parts it; write ["PROGRAM", "--flag", "value"]')
    return words


def family(name: str) -> str:
    """A family that there is."""
    if name not in FAMILIES:
        raise ValueError(f"is no family; use one of {', '.join(FAMILIES)}, or leave it out to have it found")
    return name


def environment_name(name: str) -> str:
    """What an environment variable may be called."""
    if not NAME.fullmatch(name):
        raise ValueError("is no variable's name; use letters, digits and _, and begin with no digit")
    return name


def user(value: str) -> str:
    """A user's name, as Debian's useradd takes it; that there is one is found at a launch."""
    if value in NO_SERVERS:
        raise ValueError(f"a server does not run as {value}; name a user of its own")
    if not _USER.fullmatch(value):
        raise ValueError("is no user's name; use lower case letters, digits, _ and -, and begin with no digit")
    return value


def gpu(value: object) -> int | str:
    """An index as `nvidia-smi -L` shows it, or a UUID."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and _GPU.fullmatch(value):
        return value
    raise ValueError('names no GPU; give its index (0) or its UUID ("GPU-..."), as `nvidia-smi -L` shows them')


def distinct(gpus: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Each GPU once."""
    if len(set(gpus)) != len(gpus):
        raise ValueError("names a GPU twice; name each once")
    return gpus


def rival(unit: str) -> str:
    """A unit of systemd that may be kept off."""
    if why := fault(unit):
        raise ValueError(why)
    return unit


def startable(unit: str) -> str:
    """A service that may be started when a disk is too full."""
    if why := start_fault(unit):
        raise ValueError(why)
    return unit


def each_once(units: tuple[str, ...]) -> tuple[str, ...]:
    """Each unit once."""
    if len(set(units)) != len(units):
        raise ValueError("names a unit twice; name each once")
    return units


def growing(pauses_s: tuple[float, ...]) -> tuple[float, ...]:
    """No pause shorter than the one before: a server that keeps failing is tried less and less often."""
    if any(later < earlier for earlier, later in pairwise(pauses_s)):
        raise ValueError("must not shrink; sort the pauses from the shortest to the longest")
    return pauses_s


def uuid(value: str) -> str:
    """As `blkid` shows it: FAT and NTFS have shorter ones."""
    if not _UUID.fullmatch(value):
        raise ValueError("is no UUID of a file system; copy it from blkid, or from /dev/disk/by-uuid")
    return value


def sha256(value: str) -> str:
    """As `sha256sum` prints it."""
    if not _SHA256.fullmatch(value):
        raise ValueError("is no SHA-256; give the 64 hex digits that sha256sum FILE prints")
    return value


def host(address: str) -> str:
    """A literal address: a name could lead to another machine tomorrow."""
    if literal(address) is None:
        raise ValueError('must be an address in digits; write "127.0.0.1" or what the server listens on')
    return address


def literal(address: str) -> str | None:
    """The address in digits, or None if it is none."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return None


def health_path(path: str) -> str:
    """The path of a URL."""
    if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path:
        raise ValueError('must be the path of a URL; begin it with /, as in "/health"')
    return path


def listen(value: str) -> str:
    """ADDRESS:PORT on the loopback interface, or "off"."""
    listen_address(value)
    return value


def listen_address(value: str) -> tuple[str, int] | None:
    """`value` parted; None: off."""
    if value == "off":
        return None
    address, _, port = value.rpartition(":")
    digits = literal(address.removeprefix("[").removesuffix("]"))
    if digits is None or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError('must be ADDRESS:PORT in digits, or "off"; write "127.0.0.1:8900"')
    if not ipaddress.ip_address(digits).is_loopback:
        raise ValueError(
            "must be a loopback address: this listener asks nobody who they are; "
            'write "127.0.0.1:8900" and put a proxy that asks before it'
        )
    return digits, int(port)
