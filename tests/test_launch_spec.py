"""The agent and the privileged code read the same file, each in its own way: they must mean the same server by it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config import load
from agent.definition import launch_spec
from agent.launch_spec import LaunchSpec, digest, variables
from agent.privileged.policy import Policy, PolicyError

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "config" / "examples").glob("*.toml"))

words = st.text(st.characters(codec="utf-8", exclude_characters='\0\\"', exclude_categories=["C"]), max_size=12)
names = st.sampled_from(["a", "b", "c", "d"])
environments = st.dictionaries(st.sampled_from(["A", "B", "_C9"]), words, max_size=3)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    """Servers of which each may extend an earlier one."""
    made: dict[str, dict[str, Any]] = {}
    for name in ("a", "b", "c", "d"):
        table: dict[str, Any] = {"port": 9000 + len(made)}
        if made and draw(st.booleans()):
            table["extends"] = draw(st.sampled_from(sorted(made)))
        if "extends" not in table or draw(st.booleans()):
            table["command"] = ["prog", *draw(st.lists(words, max_size=3))]
        for key, values in {
            "arguments": st.lists(words, max_size=3),
            "environment": environments,
            "environment_file": st.sampled_from(["/etc/a.env", "/etc//b.env", "/etc/./c.env"]),
            "gpus": st.sampled_from([[], [0], [1, 0], ["GPU-5f0c2b1e-3f0a-4a57-9d0c-1d6c2f7c3a11"]]),
            "working_dir": st.sampled_from(["/srv", "/srv/", "/srv//x"]),
            "user": st.sampled_from(["llm", "other-1"]),
        }.items():
            if draw(st.booleans()):
                table[key] = draw(values)
        made[name] = table
    return made


def text_of(servers: dict[str, dict[str, Any]]) -> str:
    lines: list[str] = []
    for name, table in servers.items():
        lines += [f"[servers.{name}]", *(f"{key} = {value(each)}" for key, each in table.items())]
    return "\n".join(lines)


def value(of: object) -> str:
    if isinstance(of, dict):
        return "{" + ", ".join(f"{key} = {value(each)}" for key, each in of.items()) + "}"
    if isinstance(of, list):
        return "[" + ", ".join(map(value, of)) + "]"
    return f'"{of}"' if isinstance(of, str) else str(of)


def both(path: Path) -> list[tuple[LaunchSpec, LaunchSpec]]:
    """Of each server: as the agent means it, and as root does."""
    policy = Policy(tomllib.loads(path.read_text())["servers"])
    return [(launch_spec(name, server), policy.spec(name)) for name, server in load(path).servers.items()]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_of_every_example_root_launches_what_the_agent_means(path: Path) -> None:
    assert EXAMPLES
    for agents, roots in both(path):
        assert agents == roots
        assert digest(agents) == digest(roots)


@given(tables())
def test_of_whatever_extends_whatever_root_launches_what_the_agent_means(
    tmp_path_factory: pytest.TempPathFactory, servers: dict[str, dict[str, Any]]
) -> None:
    path = tmp_path_factory.mktemp("config") / "gpuagent.toml"
    path.write_text(text_of(servers))
    for agents, roots in both(path):
        assert agents == roots
        assert digest(agents) == digest(roots)


@pytest.mark.parametrize(
    ("key", "other"),
    [
        ("command", ("x", "y")),
        ("environment", {"A": "2"}),
        ("environment_file", "/b"),
        ("gpus", ("1",)),
        ("working_dir", "/b"),
        ("user", "b"),
    ],
)
def test_whatever_is_launched_otherwise_has_another_digest(key: str, other: Any) -> None:
    same: dict[str, Any] = {
        "name": "a",
        "command": ("x",),
        "environment": {"A": "1"},
        "environment_file": "/a",
        "gpus": ("0",),
        "working_dir": "/a",
        "user": "a",
    }
    assert digest(LaunchSpec(**same)) != digest(LaunchSpec(**{**same, key: other}))


def test_the_secret_wins_over_what_is_said_and_that_over_what_was_there() -> None:
    spec = LaunchSpec(
        name="a", command=("x",), environment={"A": "said", "B": "said"}, environment_file="/f", gpus=("0", "3"),
        working_dir=None, user="u",
    )  # fmt: skip
    found = variables(spec, {"A": "base", "B": "base", "C": "base", "CUDA_VISIBLE_DEVICES": "7"}, {"A": "secret"})
    assert found == {
        "A": "secret", "B": "said", "C": "base", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0,3"
    }  # fmt: skip


@pytest.mark.parametrize("name", ["../x", "A", "", "x" * 40, "no-such"])
def test_what_is_no_server_has_no_spec(name: str) -> None:
    with pytest.raises(PolicyError):
        Policy({"x": {"command": ["y"]}}).spec(name)
