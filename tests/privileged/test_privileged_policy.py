"""The configuration is believed only if nobody but root could have written it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.privileged.policy import PolicyError, load
from tests.privileged.privileged_house import CONFIG

NOBODY = 65534


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "etc"
    folder.mkdir()
    (folder / "gpuagent.toml").write_text(CONFIG)
    return folder / "gpuagent.toml"


def why(config: Path) -> str:
    with pytest.raises(PolicyError) as raised:
        load(config)
    assert raised.value.slug == "policy_unreadable"
    return str(raised.value)


def test_what_only_root_can_write_is_believed(config: Path) -> None:
    assert load(config).spec("demo").command == ("/bin/sleep", "60")


def test_a_file_of_another_user_is_refused_with_the_chown_to_run(config: Path) -> None:
    os.chown(config, NOBODY, 0)
    assert f"run: chown root:root {config}" in why(config)


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_file_that_others_may_write_is_refused_with_the_chmod_to_run(config: Path, mode: int) -> None:
    config.chmod(mode)
    assert f"run: chmod go-w {config}" in why(config)


def test_a_folder_that_others_may_write_is_refused(config: Path) -> None:
    config.parent.chmod(0o777)
    assert f"run: chmod go-w {config.parent}" in why(config)


def test_a_folder_of_another_user_is_refused(config: Path) -> None:
    os.chown(config.parent, NOBODY, 0)
    assert f"run: chown root:root {config.parent}" in why(config)


def test_a_symlink_in_the_place_of_the_file_is_refused(config: Path) -> None:
    config.rename(config.with_name("other"))
    config.symlink_to("other")
    assert str(config) in why(config)


def test_a_symlink_in_the_place_of_a_folder_is_refused(config: Path) -> None:
    config.parent.rename(config.parent.with_name("other"))
    config.parent.symlink_to("other")
    assert str(config) in why(config)


def test_a_hard_link_to_a_file_of_another_user_is_refused(config: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text(CONFIG)
    os.chown(theirs, NOBODY, NOBODY)
    config.unlink()
    os.link(theirs, config)
    assert "belongs to uid" in why(config)


def test_a_pipe_in_its_place_is_refused_and_waited_for_by_nobody(config: Path) -> None:
    config.unlink()
    os.mkfifo(config, 0o644)
    assert "is no regular file" in why(config)


@pytest.mark.parametrize(
    "text",
    ["", "servers = 1", "[servers", "x = " + "[" * 5000, "\0", '[servers.demo]\ncommand = "x"', "[servers.demo]"]
    + [f'[servers.demo]\ncommand = ["x"]\n{line}' for line in ("gpus = 1", "gpus = [[]]", "environment = 1")]
    + [f'[servers.demo]\ncommand = ["x"]\n{line}' for line in ("extends = []", "extends = 1", 'extends = "demo"')]
    + [f'[servers.demo]\ncommand = ["x"]\nenvironment = {table}' for table in ('{"A=B" = "1"}', '{A = "\\u0000"}')],
)
def test_what_makes_no_sense_is_refused(config: Path, text: str) -> None:
    config.write_text(text)
    with pytest.raises(PolicyError):
        load(config).spec("demo")


@pytest.mark.parametrize("name", ["other", "base", "../demo", "", "demo\n"])
def test_a_server_that_is_not_defined_or_a_template_is_none(config: Path, name: str) -> None:
    with pytest.raises(PolicyError) as raised:
        load(config).spec(name)
    assert raised.value.slug == "no_such_server"


@pytest.mark.parametrize("user", ["root", "gpuagent"])
def test_neither_root_nor_the_agents_own_user_is_taken_for_a_server(config: Path, user: str) -> None:
    config.write_text(f'[servers.demo]\ncommand = ["x"]\nuser = "{user}"\n')
    with pytest.raises(PolicyError) as raised:
        load(config).spec("demo")
    assert raised.value.slug == "not_allowed"
