"""Becomes the server: `python -I -m agent.privileged.launch VERB NAME`, started by the units as root.

run: opens the log, becomes the server's user, and executes the server in its place: the process stays the same.
stopping, ended: write down how a unit came to its end. check: looks at the preconditions, with the user's own eyes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from agent.errors import ConfigError
from agent.launch_spec import LaunchSpec, digest, variables
from agent.privileged import become, logs, policy, records, shared_memory
from agent.privileged.policy import NAME, PolicyError

FAILED = 78  # EX_CONFIG
SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
KEPT_FDS = 3
ORDER_S = 60.0  # longer than the helper waits for a start
FORGOTTEN = ("/tmp", "/var/tmp", "/dev/shm", "/run")  # noqa: S108 - not used, but refused
"""Emptied at a boot, or by age: systemd removes what lies untouched in /tmp for 10 days, in /var/tmp for 30."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where the configuration lies, what is told of a launch (records), what it has written (logs), whose those are,
    and which folders a boot forgets. Other places in tests alone.
    """

    config: Path = policy.CONFIG
    told: Path = records.FOLDER
    written: Path = logs.FOLDER
    reader: str = logs.READER
    forgotten: tuple[str, ...] = FORGOTTEN


HOST = Places()


class LaunchError(Exception):
    """The server cannot be launched; `slug` as the catalogue of causes has it."""

    def __init__(self, slug: str, text: str) -> None:
        super().__init__(text)
        self.slug = slug


def run(name: str, places: Places = HOST) -> NoReturn:
    """Become the server, or end with 78 and a last line that says why."""
    order = take_order(name, places.told)
    unit_invocation = os.environ.get("INVOCATION_ID", "")
    invocation = order["invocation"] if order else f"{unit_invocation[:8]}-0"  # an administrator's own start
    try:
        logs.take_over(name, invocation, places.written, places.reader)
    except (OSError, LookupError) as error:  # LookupError: there is no such user as the log's reader
        fail(LaunchError("log_unwritable", f"{places.written / name}: {error}"))
    try:
        found = policy.load(places.config)
        spec = found.spec(name)
        if order is not None and order["digest"] != digest(spec):
            raise LaunchError("launch_failed", "the definition has changed since the agent read it: gpuagent reload")
        logs.forget(name, invocation, found.table(name).get("log", {}), places.written)
        user = become.user_of(spec.user)
        environment = variables(spec, base_environment(user), secrets(spec))
        launched = launch_record(invocation, unit_invocation, digest(spec), ordered=order is not None)
        records.write(name, "launch", launched, folder=places.told)
        if (shared := shared_memory.remember(user.uid)) is not None:
            record = {"unit_invocation": unit_invocation, **shared}
            records.write(name, "shm", record, 0o600, places.told)
        become.become(user)
        execute(spec, environment)
    except LaunchError as error:
        fail(error)
    except (PolicyError, become.UnknownUserError, OSError, ValueError) as error:  # ValueError: a NUL, say, in a path
        fail(LaunchError("launch_failed", str(error)))


def take_order(name: str, folder: Path) -> dict[str, Any] | None:
    """What the agent has ordered; None: this start is somebody else's. An order not carried out is void soon."""
    order = records.take(name, "order", folder)
    if order is None or time.clock_gettime(time.CLOCK_BOOTTIME) - order["at"] > ORDER_S:
        return None
    return order


def fail(error: LaunchError) -> NoReturn:
    """The last line of the log; of the journal, where there is no log."""
    text = " ".join(str(error).split())
    os.write(2, f"gpuagent-launch: {error.slug}: {text}\n".encode())
    sys.exit(FAILED)


def base_environment(user: become.User) -> dict[str, str]:
    """What every server has: nothing of ours and nothing of systemd's."""
    return {
        "PATH": SEARCH,
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "HOME": user.home,
        "USER": user.name,
        "LOGNAME": user.name,
        "SHELL": "/bin/sh",
    }


def secrets(spec: LaunchSpec) -> Mapping[str, str]:
    """Of environment_file, which root alone need be able to read."""
    if spec.environment_file is None:
        return {}
    try:
        return policy.read_secrets(Path(spec.environment_file))
    except ConfigError as error:
        raise LaunchError("bad_env", "; ".join(error.faults)) from error
    except PolicyError as error:
        raise LaunchError("bad_env", str(error)) from error


def launch_record(invocation: str, unit_invocation: str, of: str, *, ordered: bool) -> dict[str, Any]:
    """Which process the server is, for the agent to find: this one."""
    return {
        "invocation": invocation,
        "unit_invocation": unit_invocation,
        "pid": os.getpid(),
        "started": started(),
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "digest": of,
        "ordered": ordered,
        "at": time.time(),
    }


def started() -> int:
    """When this process began, in clock ticks since boot: the 22nd field, behind a name that may hold anything."""
    return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])


def execute(spec: LaunchSpec, environment: Mapping[str, str]) -> NoReturn:
    """As the server's user already."""
    try:
        os.chdir(spec.working_dir or "/")
    except OSError as error:
        raise LaunchError("launch_failed", f"working folder {spec.working_dir}: {error.strerror}") from error
    os.closerange(KEPT_FDS, os.sysconf("SC_OPEN_MAX"))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python's own doing, which an exec would hand on
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    program = spec.command[0]
    try:
        os.execvpe(program, list(spec.command), dict(environment))  # noqa: S606 - the operator's own words, no shell
    except (FileNotFoundError, NotADirectoryError) as error:
        raise LaunchError(*_missing(program, environment["PATH"])) from error
    except OSError as error:
        raise LaunchError("exec_not_executable", f"{program}: {error.strerror or error}") from error


def _missing(program: str, search: str) -> tuple[str, str]:
    """Slug and text. Where the program is there, its interpreter is not: the kernel says the same of both."""
    places = [""] if "/" in program else search.split(os.pathsep)
    if any(os.path.isfile(os.path.join(place, program)) for place in places):
        return "exec_not_executable", f"{program}: the interpreter that it names does not exist"
    return "exec_missing", f"{program}: not found"


def stopping(name: str, places: Places = HOST) -> None:
    """ExecStop=: systemd sets $MAINPID only if the first process lives, so that somebody has asked for the end."""
    asked = bool(os.environ.get("MAINPID"))
    record = {"unit_invocation": os.environ.get("INVOCATION_ID", ""), "asked": asked}
    records.write(name, "stopping", record, 0o600, places.told)


def ended(name: str, places: Places = HOST) -> None:
    """ExecStopPost=: systemd forgets a unit that ended well, code and all; this record stays."""
    unit_invocation = os.environ.get("INVOCATION_ID", "")
    launch = records.read(name, "launch", places.told)
    before = records.take(name, "stopping", places.told)
    record = {
        "invocation": launch["invocation"] if launch and launch["unit_invocation"] == unit_invocation else "",
        "unit_invocation": unit_invocation,
        "asked": bool(before and before["unit_invocation"] == unit_invocation and before["asked"]),
        "result": os.environ.get("SERVICE_RESULT", ""),
        "code": os.environ.get("EXIT_CODE", ""),
        "status": os.environ.get("EXIT_STATUS", ""),
        "at": time.time(),
    }
    records.write(name, "exit", record, folder=places.told)
    shared = records.take(name, "shm", places.told)
    if shared is not None and shared["unit_invocation"] == unit_invocation:
        told = shared_memory.clean(shared)
        records.write(name, "leftovers", {"unit_invocation": unit_invocation, **told}, folder=places.told)
        if told["removed"] or told["left_count"]:
            print(f"gpuagent-launch: left in {shared_memory.FOLDER}: {json.dumps(told)}", file=sys.stderr)


def check(name: str, places: Places = HOST) -> None:
    """Write down which preconditions are not met."""
    from agent.privileged import checking  # only here: it knows the families, and a launch must be quick

    def tell(record: dict[str, Any]) -> None:
        known = record.pop("known")
        records.write(name, "check", record, folder=places.told)
        if known:
            records.write(name, "known", known, 0o600, places.told)

    told = records.read(name, "known", places.told)
    with suppress(checking.ChangedError):  # whoever asks next asks for another
        tell(checking.checked(name, places.config, told, tell, places.forgotten))


VERBS = {"run": run, "stopping": stopping, "ended": ended, "check": check}


def main(arguments: list[str]) -> None:
    """Exit codes: 0; 2: wrong words; 78: the server cannot be launched."""
    if len(arguments) != 2 or arguments[0] not in VERBS or not NAME.fullmatch(arguments[1]):
        sys.exit(f"usage: launch {'|'.join(VERBS)} NAME")
    VERBS[arguments[0]](arguments[1])


if __name__ == "__main__":
    main(sys.argv[1:])
