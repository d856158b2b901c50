"""What a definition is recognised by: the digest of what is launched."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config import load
from agent.definition import define

LINES = {
    "command": '["/bin/server", "--port", "9000"]',
    "host": '"127.0.0.1"',
    "port": "9000",
    "working_dir": '"/tmp"',
    "environment": '{ A = "1", B = "2" }',
}


def digest(folder: Path, name: str = "one", **changes: str) -> str:
    """Of a server of this configuration."""
    path = folder / "gpuagent.toml"
    lines = [f"{key} = {value}" for key, value in {**LINES, **changes}.items()]
    path.write_text("\n".join(["[agent]", f'state_dir = "{folder}"', f"[servers.{name}]", *lines]))
    return define(load(path))[name].digest


def test_the_same_definition_has_the_same_digest_in_every_order_and_under_every_name(tmp_path: Path) -> None:
    assert digest(tmp_path) == digest(tmp_path)
    assert digest(tmp_path, environment='{ B = "2", A = "1" }') == digest(tmp_path)
    assert digest(tmp_path, name="two") == digest(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"command": '["/bin/server", "--port", "9000", "--fast"]'},
        {"command": '["/bin/server --port", "9000"]'},
        {"environment": '{ A = "1", B = "3" }'},
        {"environment": '{ A = "1" }'},
        {"working_dir": '"/"'},
        {"gpus": "[0]"},
        {"environment_file": '"/nowhere/secrets.env"'},
    ],
    ids=str,
)
def test_whatever_changes_what_is_launched_changes_the_digest(tmp_path: Path, change: dict[str, str]) -> None:
    assert digest(tmp_path, **change) != digest(tmp_path)


@pytest.mark.parametrize("change", [{"autostart": "true"}, {"start_limit_s": "60.0"}, {"stop_s": "5.0"}], ids=str)
def test_what_only_the_agent_minds_changes_nothing(tmp_path: Path, change: dict[str, str]) -> None:
    assert digest(tmp_path, **change) == digest(tmp_path)


def test_what_stands_in_the_environment_file_is_not_part_of_it(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.env"
    secrets.write_text("TOKEN=one\n")
    secrets.chmod(0o600)
    before = digest(tmp_path, environment_file=f'"{secrets}"')
    secrets.write_text("TOKEN=two\n")
    assert digest(tmp_path, environment_file=f'"{secrets}"') == before
