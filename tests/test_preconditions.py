"""What a definition needs of the host: the agent and the privileged code must read the same out of one file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from agent.config import load
from agent.definition import preconditions
from agent.privileged.needed import preconditions as roots
from agent.privileged.policy import Policy, PolicyError

UUID = "0a3407de-014b-458b-b5c1-848e92a327a3"
WHOLE = f"""
mounts = ["/models", "/srv//data/"]
filesystems = {{ "/models/" = "{UUID}" }}
files = ["/etc/x"]
contains = {{ "/opt/a.py" = "fix 1" }}
sha256 = {{ "/opt/b.py" = "{"0f" * 32}" }}
free_mib = {{ "/var/cache" = 100 }}
free_inodes = {{ "/var/cache" = 7 }}
shm_mib = 64
shm_free_mib = 32
"""
BASE = '[servers.base]\ntemplate = true\n[servers.base.needs]\nfiles = ["/base"]\nmounts = ["/base"]\n'


def written(folder: Path, needs: str, more: str = "") -> Path:
    path = folder / "gpuagent.toml"
    extends = 'extends = "base"\n' if more else ""
    path.write_text(f'{more}[servers.demo]\n{extends}command = ["/bin/x"]\nport = 1\n[servers.demo.needs]\n{needs}')
    return path


@pytest.mark.parametrize(("needs", "more"), [("", ""), (WHOLE, ""), (WHOLE, BASE), ("shm_mib = 1\n", BASE)])
def test_root_looks_at_what_the_agent_means(tmp_path: Path, needs: str, more: str) -> None:
    path = written(tmp_path, needs, more)
    agents = preconditions(load(path).servers["demo"].needs)
    assert roots(Policy(tomllib.loads(path.read_text())["servers"]).table("demo")) == agents


def test_needs_are_merged_key_by_key_with_those_of_the_base(tmp_path: Path) -> None:
    found = preconditions(load(written(tmp_path, 'mounts = ["/own"]\n', BASE)).servers["demo"].needs)
    assert (found.files, found.mounts) == (("/base",), ("/own",))


def test_every_path_on_which_something_must_be_mounted_is_there_once_and_the_outer_ones_come_first() -> None:
    found = roots({"needs": {"mounts": ["/m/inner", "/m"], "filesystems": {"/m": UUID, "/a": UUID}}})
    assert found.mounted == ("/a", "/m", "/m/inner")


@pytest.mark.parametrize(
    "needs",
    [
        [],
        {"mounts": "/m"},
        {"mounts": ["m"]},
        {"mounts": [1]},
        {"files": ["/a\0b"]},
        {"filesystems": {"/m": 1}},
        {"contains": {"m": "x"}},
        {"free_mib": {"/m": "1"}},
        {"free_mib": {"/m": True}},
        {"shm_mib": "1"},
    ],
    ids=str,
)
def test_root_refuses_what_makes_no_sense(needs: Any) -> None:
    with pytest.raises(PolicyError, match=r"needs"):
        roots({"needs": needs})
