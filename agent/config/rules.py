"""What must be true of a server's keys together, and what follows from its command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agent.config.faults import Where
from agent.config.model import ServerConfig
from agent.config.values import literal
from agent.families import FAMILIES, Family, find, flag_value

Rule = Callable[[ServerConfig], Iterator[tuple[Where, str]]]

_ASKED_AT = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # who listens on every address is asked on loopback


def family_of(server: ServerConfig) -> Family:
    """The family that was named, or the one that the command tells."""
    return FAMILIES[server.family] if server.family is not None else find(server.command)


def port_of(server: ServerConfig) -> int | None:
    """Where the server listens; None: neither its keys, its command nor its family say."""
    if server.port is not None:
        return server.port
    family = family_of(server)
    said = flag_value(server.command, family.port_flags)
    return family.default_port if said is None else _port(said)


def address_of(server: ServerConfig) -> str | None:
    """The literal address at which the server is asked; None: its command gives a name, not an address."""
    family = family_of(server)
    said = server.host or flag_value(server.command, family.host_flags) or family.default_host
    address = literal("127.0.0.1" if said == "localhost" else said)
    return None if address is None else _ASKED_AT.get(address, address)


def shared(a: ServerConfig, b: ServerConfig) -> str | None:
    """What keeps `a` and `b` from running side by side, for a person; None: nothing that the file tells.

    A GPU named by its index in one and by its UUID in the other is not seen here: only the driver knows.
    """
    port = port_of(a)
    if port is not None and port == port_of(b):
        return f"port {port}"
    both = [gpu for gpu in a.gpus if gpu in b.gpus]
    return f"GPU {both[0]}" if both else None


def _port(said: str) -> int | None:
    return int(said) if said.isascii() and said.isdigit() and 0 < int(said) < 65536 else None


def _program(server: ServerConfig) -> Iterator[tuple[Where, str]]:
    program = server.command[0]
    if "/" in program and not program.startswith("/") and server.working_dir is None:
        yield ("command", 0), "is a relative path; give it from the root, or set working_dir"


def _models(server: ServerConfig) -> Iterator[tuple[Where, str]]:
    for i, path in enumerate(server.model):
        if not path.is_absolute() and server.working_dir is None:
            yield ("model", i), "is a relative path; give it from the root, or set working_dir"


def _need(server: ServerConfig) -> Iterator[tuple[Where, str]]:
    if server.need_mib is not None and not server.gpus:
        yield ("need_mib",), "needs to know on which GPUs; name them in gpus, or leave need_mib out"


def _visible_gpus(server: ServerConfig) -> Iterator[tuple[Where, str]]:
    if server.gpus and "CUDA_VISIBLE_DEVICES" in server.environment:
        yield ("environment", "CUDA_VISIBLE_DEVICES"), "is set from gpus; remove one of the two"


def _port_told(server: ServerConfig) -> Iterator[tuple[Where, str]]:
    flags = family_of(server).port_flags
    said = flag_value(server.command, flags)
    if said is not None and _port(said) is None:
        yield ("command", _place(server, flags)), f"is no port ({flags[0]}); give a number from 1 to 65535"
    elif said is not None and server.port not in (None, _port(said)):
        yield ("port",), f"is not the one in the command ({flags[0]} {said}); give the same, or leave one out"
    elif port_of(server) is None:
        yield ("port",), "is missing, and the command does not tell it; give the port that the server listens on"


def _place(server: ServerConfig, flags: tuple[str, ...]) -> int:
    """Which word of the command holds the value that `flag_value` finds."""
    words = server.command
    return max(i for i in range(len(words)) if flag_value(words[: i + 1], flags) != flag_value(words[:i], flags))


def _host_told(server: ServerConfig) -> Iterator[tuple[Where, str]]:
    if address_of(server) is None:
        yield ("host",), 'cannot be told: the command has a name; add the address in digits, as in host = "127.0.0.1"'


def _disk(server: ServerConfig) -> Iterator[tuple[Where, str]]:
    disk = server.disk
    if disk.warn_mib is not None and disk.low_mib is not None and disk.warn_mib < disk.low_mib:
        yield ("disk", "warn_mib"), "is less than low_mib: nobody would be warned; make it the larger one"


SHARED = frozenset({"command", "family", "port", "gpus", "autostart"})
"""The keys that decide whether two servers get in each other's way."""

RULES: tuple[tuple[frozenset[str], Rule], ...] = (
    (frozenset({"command", "working_dir"}), _program),
    (frozenset({"model", "working_dir"}), _models),
    (frozenset({"need_mib", "gpus"}), _need),
    (frozenset({"environment", "gpus"}), _visible_gpus),
    (frozenset({"command", "family", "port"}), _port_told),
    (frozenset({"command", "family", "host"}), _host_told),
    (frozenset({"disk"}), _disk),
)
"""Each rule with the keys that it draws on."""
