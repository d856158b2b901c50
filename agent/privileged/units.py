"""What root does to a server's unit: by systemctl, and by its control group. Every call has a deadline."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path

SYSTEMCTL = "/usr/bin/systemctl"
GROUPS = Path("/sys/fs/cgroup/gpuagent.slice")
START_S = 10.0  # some ten milliseconds in health
CALL_S = 10.0  # milliseconds in health; systemd does not answer while it reloads
HELD = 256  # processes at a time: each is a descriptor, and every look at the group reads all of its numbers
GONE = frozenset({errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP})
"""A group that is gone, or going; a threaded one, whose processes stand in the one above."""
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


class SystemdError(Exception):
    """systemctl has failed; the text is its own."""


class SystemdLateError(SystemdError):
    """systemctl has not ended in time: what was asked may yet be done."""


class Units:
    """The servers' units. `systemctl`, `groups` and `start_s` are others in tests alone."""

    def __init__(self, systemctl: str = SYSTEMCTL, groups: Path = GROUPS, start_s: float = START_S) -> None:
        self._systemctl = systemctl
        self._groups = groups
        self._start_s = start_s

    def start(self, name: str) -> None:
        """Until its process is there. SystemdError."""
        self._call(self._start_s, "start", _unit(name))

    def check(self, name: str) -> None:
        """Begin a look at its preconditions. SystemdError."""
        self._call(CALL_S, "start", "--no-block", f"gpuagent-check@{name}.service")

    def begin(self, unit: str) -> None:
        """Begin to start a unit of somebody else's. SystemdError."""
        self._call(CALL_S, "start", "--no-block", "--", unit)

    def state(self, name: str) -> str:
        """Its ActiveState. SystemdError."""
        return self._call(CALL_S, "show", "--property=ActiveState", "--value", _unit(name)).strip()

    def pids(self, name: str) -> tuple[int, ...]:
        """Everything in its control group, whatever systemd thinks of the unit; sub-groups too."""
        found: list[int] = []
        for folder, _, _ in os.walk(self._groups / _unit(name)):
            try:
                found += map(int, Path(folder, "cgroup.procs").read_text().split())
            except OSError as error:
                if error.errno not in GONE:
                    raise
        return tuple(sorted({*found} - {0}))  # 0: of another pid namespace

    def signal(self, name: str, pids: tuple[int, ...], number: signal.Signals) -> None:
        """To those of `pids` that are in its control group while we hold them: a number may be another's by now."""
        for at in range(0, len(pids), HELD):
            with ExitStack() as ended:
                held = {}
                for pid in pids[at : at + HELD]:
                    with suppress(ProcessLookupError):
                        held[pid] = os.pidfd_open(pid)
                        ended.callback(os.close, held[pid])
                for pid in held.keys() & frozenset(self.pids(name)):
                    with suppress(ProcessLookupError):
                        signal.pidfd_send_signal(held[pid], number)

    def kill(self, name: str) -> None:
        """SIGKILL to all of it at once, forks included: the kernel's own way, where it has it (5.14)."""
        group = self._groups / _unit(name)
        try:
            fd = os.open(group / "cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)  # not created: there, that is forbidden
        except FileNotFoundError:
            self.signal(name, self.pids(name), signal.SIGKILL)
            return
        with suppress(OSError), open(fd, "wb", buffering=0) as file:  # OSError: the group is gone
            file.write(b"1")

    def _call(self, limit_s: float, *words: str) -> str:
        return systemctl(self._systemctl, limit_s, *words)


def systemctl(program: str, limit_s: float, *words: str) -> str:
    """What it prints. SystemdError."""
    try:
        done = subprocess.run(  # noqa: S603 - a fixed program; no word is the caller's but a checked name
            [program, "--no-ask-password", *words],
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SystemdLateError(f"systemctl {words[0]} has not ended within {limit_s:g} s") from error
    except OSError as error:
        raise SystemdError(f"{program}: {error.strerror}") from error
    if done.returncode:
        raise SystemdError(" ".join(done.stderr.split())[:400] or f"systemctl {words[0]} ended with {done.returncode}")
    return done.stdout


def _unit(name: str) -> str:
    return f"gpuagent-server@{name}.service"
