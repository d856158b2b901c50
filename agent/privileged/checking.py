"""The look at a launch's preconditions: what only root may read, then the rest as the server's user.

Standard library only, as agent.families is: so the models that a command names are known here, too.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from agent.core.seen import Need
from agent.errors import ConfigError
from agent.launch_spec import LaunchSpec, digest, variables
from agent.preconditions import Preconditions
from agent.privileged import become, files, looks, policy, space
from agent.privileged.asking import Asking, Say
from agent.privileged.known import Known
from agent.privileged.launch import base_environment
from agent.privileged.needed import preconditions
from agent.privileged.policy import Policy, PolicyError

Record = dict[str, Any]
TEXTS = ("name", "slug", "text", "remedy", "subject")
TEXT_LENGTH = 6000  # a path has at most 4096 bytes
MORE_BYTES = 192 << 20
"""Of memory for the child, beyond what it begins with: a large index takes half. Some file takes any."""


class ChangedError(Exception):
    """The definition is another one than that which is looked at."""


def checked(
    name: str,
    config: Path = policy.CONFIG,
    told: Mapping[str, Any] | None = None,
    tell: Callable[[Record], None] = lambda record: None,
    forgotten: tuple[str, ...] = (),
) -> Record:
    """The record of one look: `at` is CLOCK_BOOTTIME when it began; `known` is for the next look to be told.

    A look that takes long is told of again and again, as a record that holds now. ChangedError: nobody needs it more.
    """
    record: Record = {"at": _now(), "digest": "", "needs": [], "known": {}}
    try:
        found = policy.load(config)
        spec, conditions = found.spec(name), preconditions(found.table(name))
    except PolicyError as error:
        return _with(record, files.unmet("configuration", "launch_failed", str(error), "See: gpuagent check-config"))
    record["digest"] = digest(spec)
    try:
        user = become.user_of(spec.user)
    except become.UnknownUserError as error:
        return _with(record, files.unmet("user", "launch_failed", str(error), "Make that user, or correct `user`."))
    named = _named(found, spec, told)
    models = (*named[1], *_added(found, spec))
    work = partial(_work, user, spec, conditions, models, forgotten, Known(_of_user(told, user)))
    asking = Asking(work)
    while not asking.wait():
        if not asking.slow:
            continue
        if not _same(name, config, record["digest"], conditions):
            asking.leave()
            raise ChangedError
        tell(_with({**record, "at": _now()}, _under_way(asking)))
    done = _finished(record, asking, user, name)
    return {**done, "known": {**done["known"], "models": named}} if done["known"] else done


def _of_user(told: Mapping[str, Any] | None, user: become.User) -> Mapping[str, Any]:
    """What one user has seen of a file is nothing that another may read."""
    kept = told.get("kept") if told is not None and told.get("uid") == user.uid else None
    return kept if isinstance(kept, dict) else {}


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _with(record: Record, *needs: Need) -> Record:
    return {**record, "needs": [_plain(_said(need)) for need in needs]}


def _same(name: str, config: Path, of: str, conditions: Preconditions) -> bool:
    """Whether the configuration still says what is looked at: an operator may have turned away from what hangs."""
    try:
        found = policy.load(config)
        return digest(found.spec(name)) == of and preconditions(found.table(name)) == conditions
    except PolicyError:
        return False


def _under_way(asking: Asking) -> Need:
    if asking.stalled:
        return space.stalled(asking.path, asking.since)
    text = f"The look at its files is under way: {asking.path}"
    remedy = "Wait: its storage is slow."
    return files.unmet("storage", "storage_slow", text, remedy, subject=asking.path, heals=True)


def _finished(record: Record, asking: Asking, user: become.User, name: str) -> Record:
    """With the child's answer, as far as it is one: it was the server's user's."""
    try:
        answer = asking.answer()
        needs = [_plain(each) for each in answer["needs"]]
        known = {"uid": user.uid, "kept": answer["known"]}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        text = f"The look at its files, as user {user.name}, failed: {error}"
        remedy = f"See: journalctl -u gpuagent-check@{name}"
        return _with(record, files.unmet("files", "launch_failed", text, remedy))
    return {**record, "needs": needs, "known": known}


def _plain(need: Mapping[str, Any]) -> Record:
    """ValueError, TypeError, KeyError, RecursionError: it is no need."""
    return {**{key: _printable(str(need[key]))[:TEXT_LENGTH] for key in TEXTS}, "heals": bool(need["heals"])}


def _printable(text: str) -> str:
    """In it stand names of files, which may hold anything: what no terminal and no database takes is written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


# -- in the child ---------------------------------------------------------------------------------------


def _work(
    user: become.User,
    spec: LaunchSpec,
    conditions: Preconditions,
    models: tuple[str, ...],
    forgotten: tuple[str, ...],
    known: Known,
    say: Say,
) -> None:
    """Reads the secrets as root, gives up root for good, and looks."""
    _bound_memory()
    say({"at": spec.environment_file or "/"})
    secret, unreadable = _secret(spec)
    become.become(user)
    search = variables(spec, base_environment(user), secret)["PATH"]
    wanted = looks.Wanted(
        command=spec.command,
        search=search,
        base=Path(spec.working_dir or "/"),
        models=models,
        environment_file=spec.environment_file,
        preconditions=conditions,
        forgotten=forgotten,
    )
    needs = looks.needs(wanted, known, lambda path: say({"at": path}))
    if unreadable is not None and not any(need.name == "mount" for need in needs):
        needs = [unreadable]  # without it the program cannot be sought
    say({"needs": [_said(need) for need in needs], "known": known.kept})


def _bound_memory() -> None:
    """Else the kernel would end this child, or its parent, with no word on why."""
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    most = pages * resource.getpagesize() + MORE_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _secret(spec: LaunchSpec) -> tuple[Mapping[str, str], Need | None]:
    if spec.environment_file is None:
        return {}, None
    remedy = "Make it root's alone, with lines NAME=value."
    try:
        return policy.read_secrets(Path(spec.environment_file)), None
    except ConfigError as error:
        return {}, files.unmet("environment_file", "bad_env", f"Environment: {'; '.join(error.faults)}", remedy)
    except PolicyError as error:
        return {}, files.unmet("environment_file", "bad_env", f"Environment: {error}", remedy)


def _named(found: Policy, spec: LaunchSpec, told: Mapping[str, Any] | None) -> tuple[list[str], list[str]]:
    """The models of the command's flags, after what they were told from: the same from look to look, and their
    families take longer to import than all else here."""
    family = str(found.table(spec.name).get("family"))
    of = [digest(spec), family, __file__]  # __file__: another version lies elsewhere
    match (told or {}).get("models"):
        case [seen, [*models]] if seen == of:
            return of, models
    from agent.families import FAMILIES, find, model_files

    return of, list(model_files(spec.command, FAMILIES.get(family) or find(spec.command)))


def _added(found: Policy, spec: LaunchSpec) -> list[str]:
    """The models that the definition adds."""
    added = found.table(spec.name).get("model", [])
    return added if isinstance(added, list) else []


def _said(need: Need) -> Record:
    cause = need.cause
    texts = {"name": need.name, "slug": cause.slug, "text": cause.text, "remedy": cause.remedy, "subject": need.subject}
    return {**texts, "heals": need.heals}
