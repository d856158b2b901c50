"""What root does to a server's unit: by systemctl, and by its control group. Every call has a deadline."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

SYSTEMCTL = "/usr/bin/systemctl"
GROUPS = Path("/sys/fs/cgroup/gpuagent.slice")
START_S = 30.0  # systemd begins a start after the end of a stop that is under way
CALL_S = 10.0  # milliseconds in health; systemd does not answer while it reloads
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


class SystemdError(Exception):
    """systemctl has failed, or has not ended in time; the text is its own."""


class Units:
    """The servers' units. `systemctl` and `groups` are others in tests alone."""

    def __init__(self, systemctl: str = SYSTEMCTL, groups: Path = GROUPS) -> None:
        self._systemctl = systemctl
        self._groups = groups

    def start(self, name: str) -> None:
        """Until its process is there. SystemdError."""
        self._call(START_S, "start", _unit(name))

    def check(self, name: str) -> None:
        """Begin a look at its preconditions. SystemdError."""
        self._call(CALL_S, "start", "--no-block", f"gpuagent-check@{name}.service")

    def state(self, name: str) -> str:
        """Its ActiveState. SystemdError."""
        return self._call(CALL_S, "show", "--property=ActiveState", "--value", _unit(name)).strip()

    def pids(self, name: str) -> tuple[int, ...]:
        """Everything in its control group, whatever systemd thinks of the unit; sub-groups too."""
        found: list[int] = []
        for folder, _, _ in os.walk(self._groups / _unit(name)):
            with suppress(OSError):  # the group is gone
                found += map(int, Path(folder, "cgroup.procs").read_text().split())
        return tuple(sorted({*found} - {0}))  # 0: of another pid namespace

    def signal(self, name: str, pids: tuple[int, ...], number: signal.Signals) -> None:
        """To those of `pids` that are in its control group while we hold them: a number may be another's by now."""
        for pid in pids:
            with suppress(ProcessLookupError):
                held = os.pidfd_open(pid)
                try:
                    if pid in self.pids(name):
                        signal.pidfd_send_signal(held, number)
                finally:
                    os.close(held)

    def kill(self, name: str) -> None:
        """SIGKILL to all of it at once, forks included: the kernel's own way, where it has it (5.14)."""
        group = self._groups / _unit(name)
        try:
            (group / "cgroup.kill").write_text("1")
        except FileNotFoundError:
            self.signal(name, self.pids(name), signal.SIGKILL)

    def _call(self, limit_s: float, *words: str) -> str:
        try:
            done = subprocess.run(  # noqa: S603 - a fixed program; no word is the caller's but a checked name
                [self._systemctl, "--no-ask-password", *words],
                env=ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise SystemdError(f"systemctl {words[0]} has not ended within {limit_s:g} s") from error
        except OSError as error:
            raise SystemdError(f"{self._systemctl}: {error.strerror}") from error
        if done.returncode:
            raise SystemdError(
                " ".join(done.stderr.split())[:400] or f"systemctl {words[0]} ended with {done.returncode}"
            )
        return done.stdout


def _unit(name: str) -> str:
    return f"gpuagent-server@{name}.service"
