"""Tells systemd how the agent is (sd_notify)."""

from __future__ import annotations

import os

import sdnotify  # type: ignore[import-untyped]  # it ships no types

from agent.edges.spawn import FOR_THE_AGENT_ONLY


class Notifier:
    """Does nothing where systemd did not start us. Make it once, at the start: it takes the variables out of the
    environment, so that no child speaks to systemd in the agent's name."""

    def __init__(self) -> None:
        self.watchdog_s = _watchdog_s()  # how often systemd wants a ping at the latest; None: not at all
        self._systemd = sdnotify.SystemdNotifier() if os.environ.get("NOTIFY_SOCKET") else None
        if self._systemd is not None and self._systemd.socket is not None:
            self._systemd.socket.setblocking(False)  # a full queue loses a message and never delays the loop
        for name in FOR_THE_AGENT_ONLY:
            os.environ.pop(name, None)

    def ready(self) -> None:
        """The agent's own API answers."""
        self._say("READY=1")

    def status(self, text: str) -> None:
        """One line for `systemctl status`."""
        self._say("STATUS=" + " ".join(text.split()))

    def stopping(self) -> None:
        """The agent has begun to end."""
        self._say("STOPPING=1")

    def watchdog(self) -> None:
        """The loop is alive."""
        self._say("WATCHDOG=1")

    def _say(self, state: str) -> None:
        if self._systemd is not None:
            # The library encodes as Latin-1, and systemd reads UTF-8: this makes the bytes UTF-8.
            self._systemd.notify(state.encode().decode("latin-1"))


def _watchdog_s() -> float | None:
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    if not microseconds.isdigit() or os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(microseconds) / 1e6
