"""The look at a launch's preconditions: what only root may read, then the rest as the server's user.

Standard library only, as agent.families is: so the models that a command names are known here, too.
"""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.core.seen import Need
from agent.errors import ConfigError
from agent.families import FAMILIES, find, model_files
from agent.launch_spec import LaunchSpec, digest, variables
from agent.privileged import become, files, policy
from agent.privileged.launch import base_environment
from agent.privileged.policy import Policy, PolicyError

PIPE_BYTES = 1 << 16


def checked(name: str, config: Path = policy.CONFIG) -> dict[str, Any]:
    """The record of one look: `at` is CLOCK_BOOTTIME when it began."""
    record: dict[str, Any] = {"at": time.clock_gettime(time.CLOCK_BOOTTIME), "digest": "", "needs": []}
    try:
        found = policy.load(config)
        spec = found.spec(name)
    except PolicyError as error:
        needs = [files.unmet("configuration", "launch_failed", str(error), "Correct it: gpuagent check-config.")]
        return {**record, "needs": [_said(each) for each in needs]}
    record["digest"] = digest(spec)
    try:
        user = become.user_of(spec.user)
    except become.UnknownUserError as error:
        need = files.unmet("user", "launch_failed", str(error), "Make that user, or correct `user`.")
        return {**record, "needs": [_said(need)]}
    secret, unreadable = _secret(spec)
    if unreadable is not None:
        return {**record, "needs": [_said(unreadable)]}
    environment = variables(spec, base_environment(user), secret)
    return {**record, "needs": _as_user(user, spec, environment["PATH"], _models(found, spec))}


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


def _models(found: Policy, spec: LaunchSpec) -> tuple[str, ...]:
    """Those of the command's flags, and those that the definition adds."""
    table = found.table(spec.name)
    family = FAMILIES.get(str(table.get("family"))) or find(spec.command)
    added = table.get("model", [])
    return (*model_files(spec.command, family), *(added if isinstance(added, list) else ()))


def _as_user(user: become.User, spec: LaunchSpec, search: str, models: tuple[str, ...]) -> list[dict[str, Any]]:
    """In a child that gives up root for good; the unit's own time limit ends it, should the files be frozen."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            become.become(user)
            needs = _needs(spec, search, models)
            os.write(write, json.dumps([_said(each) for each in needs]).encode()[:PIPE_BYTES])
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(write)
    with open(read, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    try:
        found: list[dict[str, Any]] = json.loads(answer)
    except ValueError:  # it failed before it could say what is missing, or became somebody that may not look
        text = f"The look at its files, as user {user.name}, ended early ({os.waitstatus_to_exitcode(status)})"
        return [_said(files.unmet("files", "launch_failed", text, f"See: journalctl -u gpuagent-check@{spec.name}"))]
    return found


def _needs(spec: LaunchSpec, search: str, models: tuple[str, ...]) -> list[Need]:
    base = Path(spec.working_dir or "/")
    looks = [
        files.folder(base),
        files.executable(spec.command[0], search, base),
        *(files.model(base / each) for each in models),
    ]
    return [need for need in looks if need is not None]


def _said(need: Need) -> dict[str, Any]:
    cause = need.cause
    return {"name": need.name, "slug": cause.slug, "text": cause.text, "remedy": cause.remedy, "heals": need.heals}
