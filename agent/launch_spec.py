"""What is launched of a server, and its digest: one rule, for the agent and for the privileged code.

Standard library only: root runs it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_USER = "gpuagent-llm"
NO_SERVERS = frozenset({"root", "gpuagent"})
"""Users that no server runs as: it could do what root may, or all that the agent may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """One server, as far as it is launched. Paths as they are written, without needless slashes."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    environment_file: str | None
    gpus: tuple[str, ...]
    working_dir: str | None
    user: str  # where it is a unit; embedded, it is the agent's


def digest(spec: LaunchSpec) -> str:
    """16 hex digits: the same as long as the same is launched. Of environment_file its path counts, not its text."""
    launched = {
        "command": spec.command,
        "environment": dict(spec.environment),
        "environment_file": spec.environment_file,
        "gpus": spec.gpus,
        "working_dir": spec.working_dir,
        "user": spec.user,
    }
    content = json.dumps(launched, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def variables(spec: LaunchSpec, base: Mapping[str, str], secret: Mapping[str, str]) -> dict[str, str]:
    """The server's whole environment: `base`, then what is said, then the GPUs, then `secret`, the file's."""
    gpus = {}
    if spec.gpus:
        gpus["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # else an index means another GPU to CUDA than to the driver
        gpus["CUDA_VISIBLE_DEVICES"] = ",".join(spec.gpus)
    return {**base, **spec.environment, **gpus, **secret}
