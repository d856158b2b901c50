"""Starts a program: its log first, in a session of its own, with nothing of the agent's left in it."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from agent.errors import EdgeError

EDGE = "child"
FOR_THE_AGENT_ONLY = frozenset(
    {
        "NOTIFY_SOCKET",
        "WATCHDOG_PID",
        "WATCHDOG_USEC",
        "LISTEN_FDS",
        "LISTEN_PID",
        "LISTEN_PIDFDID",
        "LISTEN_FDNAMES",
    }
)
"""Variables by which systemd speaks to the agent: a child that saw them would speak in its name."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
PR_SET_CHILD_SUBREAPER = 36
NOT_EXECUTABLE = frozenset({errno.EACCES, errno.ENOEXEC, errno.EISDIR, errno.ELIBBAD, errno.ETXTBSY, errno.EPERM})


@cache
def become_subreaper() -> None:
    """Orphans of our servers come to this process from now on, and not to the first process of the host."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise EdgeError(EDGE, "become the reaper of orphans", os.strerror(number), "launch_failed")


def hear_ignored_signals() -> None:
    """Turn each ignored signal into one that is heard and does nothing: an exec resets these alone to the default.

    Under nohup, or in a shell's background, the agent is born with ignored signals, and its servers would be too.
    """
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread may; in the product the loop lives there
    restored_by_popen = {signal.SIGPIPE, signal.SIGXFSZ}
    for number in signal.valid_signals() - restored_by_popen:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def clean_environment(given: Mapping[str, str], mark: Mapping[str, str]) -> dict[str, str]:
    """What the server sees: as given, without what is meant for the agent, with the mark, loopback without a proxy."""
    environment = {key: value for key, value in given.items() if key not in FOR_THE_AGENT_ONLY}
    for key in ("NO_PROXY", "no_proxy"):
        listed = [word.strip() for word in environment.get(key, "").split(",") if word.strip()]
        missing = [] if "*" in listed else [address for address in LOOPBACK if address not in listed]
        environment[key] = ",".join(listed + missing)
    return {**environment, **mark}


def open_log(path: Path) -> int:
    """A new file, and only a new one; EdgeError log_unwritable."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o640)
    except OSError as error:
        raise EdgeError(EDGE, f"open the log {path}", error.strerror or str(error), "log_unwritable") from error


def spawn(command: Sequence[str], environment: Mapping[str, str], working_dir: Path | None, log: int) -> int:
    """Run `command` and return its pid as soon as its exec has succeeded. The caller must wait for that pid.

    Not vfork: it holds the interpreter's lock until the exec, which a frozen mount may never let happen. The signal
    mask is the calling thread's: call this in a thread of its own.
    """
    setattr(subprocess, "_USE_VFORK", False)  # noqa: B010 - the documented switch; typed as final
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        popen = subprocess.Popen(  # noqa: S603 - the operator's own command, as an argument list
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=dict(environment),
            cwd=working_dir,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise refusal(command, working_dir, error) from error
    popen.returncode = 0  # ours to wait for: Popen would else do it whenever the next child is started
    return popen.pid


def refusal(command: Sequence[str], working_dir: Path | None, error: OSError | ValueError) -> EdgeError:
    """Why nothing was started, in words that name the culprit."""
    program = command[0] if command else "an empty command"
    what = f"start {program}"
    if not isinstance(error, OSError):
        return EdgeError(EDGE, what, str(error), "launch_failed")
    if working_dir is not None and str(error.filename) == str(working_dir):
        return EdgeError(EDGE, what, f"working folder {working_dir}: {error.strerror}", "launch_failed")
    why = error.strerror or str(error)
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        if "/" in program and Path(working_dir or "/", program).is_file():
            return EdgeError(EDGE, what, "the interpreter that it names does not exist", "exec_not_executable")
        return EdgeError(EDGE, what, why, "exec_missing")
    slug = "exec_not_executable" if error.errno in NOT_EXECUTABLE else "launch_failed"
    return EdgeError(EDGE, what, why, slug)
