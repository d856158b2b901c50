"""How systemd is called on the bus, and how a unit is; and one message sent."""

from __future__ import annotations

from dbus_fast import Message
from dbus_fast.aio import MessageBus

BUS, BUS_PATH = "org.freedesktop.DBus", "/org/freedesktop/DBus"
SYSTEMD, MANAGER_PATH = "org.freedesktop.systemd1", "/org/freedesktop/systemd1"
MANAGER, UNIT, SERVICE = f"{SYSTEMD}.Manager", f"{SYSTEMD}.Unit", f"{SYSTEMD}.Service"
PROPERTIES = "org.freedesktop.DBus.Properties"
SHUTDOWN = "shutdown.target"
RULES = (
    f"type='signal',sender='{BUS}',interface='{BUS}',member='NameOwnerChanged',arg0='{SYSTEMD}'",
    f"type='signal',sender='{SYSTEMD}',interface='{MANAGER}',member='Reloading'",
    f"type='signal',sender='{SYSTEMD}',interface='{MANAGER}',member='JobNew',arg2='{SHUTDOWN}'",
    f"type='signal',sender='{SYSTEMD}',interface='{MANAGER}',member='JobRemoved',arg2='{SHUTDOWN}'",
)
"""What is always heard."""


def rule_of(unit: str) -> str:
    """What the bus is asked to pass on of a unit."""
    return f"type='signal',sender='{SYSTEMD}',path='{path_of(unit)}',interface='{PROPERTIES}'"


def path_of(unit: str) -> str:
    """The object that speaks for a unit: what is no letter or digit stands as `_` and two hexadecimal digits."""
    label = "".join(each if _plain(each, at) else f"_{ord(each):02x}" for at, each in enumerate(unit))
    return f"{MANAGER_PATH}/unit/{label}"


def _plain(each: str, at: int) -> bool:
    return each.isascii() and (each.isalpha() or (each.isdigit() and at > 0))


async def send(bus: MessageBus, message: Message) -> None:
    """OSError: the connection is lost. The library then drops the future of what it could not send, not looked at."""
    try:
        await bus.send(message)
    except OSError as error:
        sent = bus._writer.fut if bus._writer is not None else None
        if sent is not None and sent.done():
            sent.exception()  # looked at, or asyncio would complain
        raise OSError(f"the bus has closed the connection: {error.strerror}") from error
