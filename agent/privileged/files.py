"""What a launch needs of the files: the program, the folders, the models. Looked at as the user that this process has.

Standard library only: in unit mode it is run as the server's user, by what root has started.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from agent.core.seen import Cause, Need, Retry


def unmet(name: str, slug: str, text: str, remedy: str, *, subject: str = "", heals: bool = False) -> Need:
    """A need that is not met. `heals`: waiting may mend it; `subject`: what it is about, where there may be several."""
    retry = Retry.WAIT if heals else Retry.NO
    cause = Cause(slug=slug, text=text, remedy=remedy, retry=retry)
    return Need(name=name, cause=cause, heals=heals, subject=subject)


# -- the program ----------------------------------------------------------------------------------------


def executable(program: str, search: str, working_dir: Path | None) -> Need | None:
    """What the exec would refuse. `search`: the server's PATH."""
    if "/" in program:
        candidates = [Path(working_dir or "", program)]
        if _closed(candidates[0]):
            text = f"Not executable: a folder above {candidates[0]} may not be entered"
            return unmet("executable", "exec_not_executable", text, "Let the server's user enter each folder above it.")
    else:
        candidates = [Path(working_dir or "", place, program) for place in search.split(os.pathsep)]
    there = [path for path in candidates if os.path.exists(path)]  # pathlib's raises in a folder closed to us
    if not there:
        where = "" if "/" in program else f" in PATH ({search})"
        remedy = "Install it, or correct the first word of `command`; a full path is best."
        return unmet("executable", "exec_missing", f"Executable not found: {program}{where}", remedy)
    faults = [fault for path in there if (fault := _not_executable(path))]
    if len(faults) < len(there):
        return None
    remedy = "Make it executable (chmod +x) and its interpreter present, or correct `command`."
    return unmet("executable", "exec_not_executable", faults[0], remedy)


def _closed(path: Path) -> bool:
    """Whether nobody but others can say if it is there: a folder above it may not be entered."""
    try:
        os.stat(path)
    except OSError as error:
        return error.errno == errno.EACCES
    return False


def _not_executable(path: Path) -> str | None:
    if not os.path.isfile(path):
        return f"Not a program: {path} is {'a folder' if os.path.isdir(path) else 'no file'}"
    if not os.access(path, os.X_OK):
        return f"Not executable: {path}"
    if not os.access(path, os.R_OK):
        return None  # a program may be executable and not readable; a script may not, and the exec will say so
    with open_file(path) as file:
        head = file.readline(256)
    if not head.startswith(b"#!"):
        return None
    interpreter = Path(os.fsdecode((head[2:].split() or [b""])[0]))
    if os.path.isfile(interpreter) and os.access(interpreter, os.X_OK):
        return None
    return f"Not executable: {path} names an interpreter that is not there: {interpreter}"


# -- files and folders ----------------------------------------------------------------------------------


def folder(path: Path) -> Need | None:
    """The working folder."""
    is_dir = os.path.isdir(path)
    if is_dir and os.access(path, os.X_OK):
        return None
    there = "is not a folder" if os.path.exists(path) else "does not exist"
    state = "may not be entered" if is_dir or _closed(path) else there
    return unmet("working_dir", "launch_failed", f"Working folder {path} {state}", "Correct `working_dir`, or make it.")


def readable_file(path: Path) -> Need | None:
    """The file with the server's secrets."""
    fault = _unreadable(path, may_be_folder=False)
    if fault is None:
        return None
    remedy = "Correct `environment_file`, or give the agent's user the right to read it."
    return unmet("environment_file", "bad_env", f"Environment file {path} {fault}", remedy)


def model(path: Path) -> Need | None:
    """Weights: a file or a folder."""
    fault = _unreadable(path, may_be_folder=True)
    if fault is not None:
        slug = "missing_weights" if fault == "does not exist" else "model_unreadable"
        remedy = "Correct the path, mount its disk, or give the server's user the right to read it."
        return unmet("model", slug, f"Model {path} {fault}", remedy, subject=str(path))
    empty = next(path.iterdir(), None) is None if path.is_dir() else path.stat().st_size == 0
    if not empty:
        return None
    text, remedy = f"Model {path} is empty", "Download or copy the weights there."
    return unmet("model", "missing_weights", text, remedy, subject=str(path))


def readable(path: Path) -> Need | None:
    """A file or folder that the definition names; it may be empty."""
    fault = _unreadable(path, may_be_folder=True)
    if fault is None:
        return None
    remedy = "Put it there, or give the server's user the right to read it and to enter each folder above it."
    return unmet("file", "file_missing", f"{path} {fault}", remedy, subject=str(path))


def open_file(path: Path) -> BinaryIO:
    """To read it. OSError: it is none, too: whoever opens a pipe waits for its other end."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return open(fd, "rb")
    os.close(fd)
    raise OSError(errno.EINVAL, "is no regular file", str(path))


def _unreadable(path: Path, may_be_folder: bool) -> str | None:
    """Why a server could not read it; None: it could."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe in its place must not block
    except FileNotFoundError:
        return "does not exist"
    except OSError as error:
        return f"is not readable: {error.strerror}"
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            return None if may_be_folder else "is a folder"
        os.read(fd, 1)  # a broken disk opens well and reads badly
    except OSError as error:
        return f"is not readable: {error.strerror}"
    finally:
        os.close(fd)
    return None


def log_folder(path: Path) -> Need | None:
    """Writable, or possible to make: the nearest thing above that exists, be it a dangling link, is what counts."""
    nearest = next(one for one in (path.absolute(), *path.absolute().parents) if os.path.lexists(one))
    if nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK):
        return None
    state = "is not writable" if nearest.is_dir() else "is not a folder"
    text = f"Log folder {path}: {nearest} {state}" if nearest != path else f"Log folder {path} {state}"
    return unmet("log", "log_unwritable", text, "Make it writable for the agent's user, or choose another one.")
