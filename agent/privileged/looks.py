"""All looks at a launch's files, mounts and space, one after another, so that the one that hangs can be named."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agent.core.seen import Need
from agent.preconditions import Preconditions
from agent.privileged import content, files, mounts, space, weights
from agent.privileged.known import Known

Begin = Callable[[str], None]

SECRETS = "/run"
"""Here a unit may lay secrets anew at each boot, so that they are on no disk."""
INTERPRETER = re.compile(r"(?P<kind>python|bash|dash|sh|zsh|perl|node)[\d.]*")
INLINE = {"python": {"-c", "-m"}, "perl": {"-e", "-E"}, "node": {"-e", "-p"}}
"""Flags with which an interpreter is given no script. Of the shells: -c."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a launch needs. `search`: the server's PATH; `models`, relative to `base`: files or folders of weights."""

    command: tuple[str, ...]
    search: str
    base: Path
    models: tuple[str, ...]
    environment_file: str | None
    preconditions: Preconditions
    forgotten: tuple[str, ...]  # folders that a boot empties, or age; (): they are as good as any other


def needs(wanted: Wanted, known: Known, begin: Begin) -> list[Need]:
    """Those that are not met. `begin(path)` is called before each look, which may hang."""
    unmounted = _unmounted(wanted.preconditions, begin)
    if unmounted:  # what is seen of files before that is what the mount will hide: it proves nothing
        return unmounted
    found: list[Need] = []
    for look in _looks(wanted, known, begin):
        found += look
    for folder in _folders(wanted):
        begin(folder)
        space.take_a_write(folder)
    return found


def _unmounted(preconditions: Preconditions, begin: Begin) -> list[Need]:
    found = []
    for path in preconditions.mounted:
        begin(path)
        found.append(mounts.mounted(path, preconditions.filesystems.get(path)))
    return [need for need in found if need is not None]


def _looks(wanted: Wanted, known: Known, begin: Begin) -> Iterator[list[Need]]:
    base, conditions, program = wanted.base, wanted.preconditions, wanted.command[0]
    looks: list[tuple[object, Callable[[], Need | None]]] = [
        (base, partial(files.folder, base)),
        (program, partial(files.executable, program, wanted.search, base)),
        *((base / each, partial(_model, base / each, known, begin)) for each in wanted.models),
        *((path, partial(files.readable, Path(path))) for path in conditions.files),
        *((path, partial(content.lacks, Path(path), text, known)) for path, text in conditions.contains.items()),
        *((path, partial(content.differs, Path(path), digest, known)) for path, digest in conditions.sha256.items()),
        *((path, partial(space.little_space, path, mib)) for path, mib in conditions.free_mib.items()),
        *((path, partial(space.few_inodes, path, number)) for path, number in conditions.free_inodes.items()),
        (space.SHM, partial(space.shared_memory, conditions.shm_mib, conditions.shm_free_mib)),
    ]
    yield from (_look(str(path), look, begin) for path, look in looks)
    yield _in_forgotten(wanted)


def _look(path: str, look: Callable[[], Need | None], begin: Begin) -> list[Need]:
    begin(path)
    try:
        need = look()
    except OSError as error:  # a broken disk, say, in the midst of a look
        remedy = "See the kernel log (dmesg), and that the server's user may read it."
        need = files.unmet("file", "file_missing", f"{path}: {error.strerror}", remedy, subject=path)
    return [] if need is None else [need]


def _model(path: Path, known: Known, begin: Begin) -> Need | None:
    return files.model(path) or weights.incomplete(path, known, begin)


# -- what a boot forgets ---------------------------------------------------------------------------------


def _in_forgotten(wanted: Wanted) -> list[Need]:
    """The server would not come back after a boot, or not start again after a month: refused while there is time."""
    said = wanted.preconditions.mounted
    found = []
    for name, path in _kept(wanted):
        roots = tuple(each for each in wanted.forgotten if name != "environment_file" or each != SECRETS)
        root = mounts.volatile(path, roots, said) if roots else None
        if root is not None:
            text = f"{path} ({name}) lies in {root}, which a boot or systemd-tmpfiles empties"
            remedy = "Move it to a disk; or, if a mount that is filled at each boot, name that mount in needs.mounts."
            found.append(files.unmet("volatile", "volatile_path", text, remedy, subject=path))
    return found


def _kept(wanted: Wanted) -> Iterator[tuple[str, str]]:
    """Key of the definition, and a file or folder that is there now and must be at the next launch."""
    words, base = wanted.command, wanted.base
    named = [("command", base / words[0])] if "/" in words[0] else []
    named += [("command", base / script) for script in _script(words)]
    named += [("working_dir", base), *(("model", base / each) for each in wanted.models)]
    if wanted.environment_file is not None:
        named.append(("environment_file", Path(wanted.environment_file)))
    yield from dict.fromkeys((name, str(path)) for name, path in named if os.path.exists(path))


def _script(words: tuple[str, ...]) -> tuple[str, ...]:
    """The script that an interpreter is given, if it is one."""
    match = INTERPRETER.fullmatch(os.path.basename(words[0]))
    place = next((i for i, word in enumerate(words) if i and not word.startswith("-")), None)
    if match is None or place is None or INLINE.get(match["kind"], {"-c"}) & set(words[1:place]):
        return ()
    return (words[place],)


# -- where a write is tried ------------------------------------------------------------------------------


def _folders(wanted: Wanted) -> list[str]:
    """One folder of each file system that the server reads or writes, as far as its definition tells."""
    conditions = wanted.preconditions
    paths = [wanted.base, *(wanted.base / each for each in wanted.models)]
    paths += map(Path, (*conditions.mounted, *conditions.files, *conditions.free_mib, *conditions.free_inodes))
    found: dict[int, str] = {}
    for path in paths:
        there = space.nearest(str(path))
        folder = there if os.path.isdir(there) else there.parent
        found.setdefault(os.stat(folder).st_dev, str(folder))
    return list(found.values())
