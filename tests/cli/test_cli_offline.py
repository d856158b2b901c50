"""What needs no agent: where the socket is, `check-config`, `explain`, words."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.cli.text import age, duration, plain
from agent.socket_path import candidates, default_for_run
from tests.cli.conftest import Call

SYSTEM = Path("/run/gpuagent/api.sock")
SESSION = Path("/run/user/7/gpuagent/api.sock")
HOME = Path("/home/u/.local/state/gpuagent/api.sock")


def test_a_named_socket_is_the_only_candidate() -> None:
    environ = {"GPUAGENT_SOCKET": "/x/y.sock", "XDG_RUNTIME_DIR": "/run/user/7"}
    assert candidates(environ) == [Path("/x/y.sock")]
    assert default_for_run(environ) == Path("/x/y.sock")


def test_a_user_finds_the_system_first_then_the_session_then_the_home() -> None:
    environ = {"GPUAGENT_SOCKET": "", "XDG_RUNTIME_DIR": "/run/user/7", "HOME": "/home/u"}
    assert candidates(environ, uid=7) == [SYSTEM, SESSION, HOME]


@pytest.mark.parametrize(
    ("environ", "uid", "expected"),
    [
        ({"XDG_RUNTIME_DIR": "/run/user/7", "HOME": "/home/u"}, 7, SESSION),
        ({"HOME": "/home/u"}, 7, HOME),
        ({"XDG_RUNTIME_DIR": "not/absolute", "HOME": "/home/u"}, 7, HOME),
        ({"HOME": "/root"}, 0, SYSTEM),
        ({"XDG_RUNTIME_DIR": "/run/user/7", "HOME": "/root"}, 0, SESSION),
    ],
)
def test_an_embedded_agent_listens_where_the_cli_looks(environ: dict[str, str], uid: int, expected: Path) -> None:
    assert default_for_run(environ, uid) == expected
    assert expected in candidates(environ, uid)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-1, "0 s"), (59.9, "59 s"), (60, "1 min 0 s"), (3599, "59 min 59 s"), (7500, "2 h 5 min"), (1e6, "11 d 13 h")],
)
def test_a_duration_has_two_units_at_most(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_an_age_is_told_from_an_rfc_3339_time() -> None:
    now = datetime(2026, 1, 2, 3, 5, 0, tzinfo=UTC)
    assert age("2026-01-02T03:04:05.000Z", now) == "55 s"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x07", "link"),
        ("\x1b]0;never ended", ""),
        ("a\tb", "a    b"),
        ("10%\r50%\r\n", "50%"),
        ("\u202egnp.exe\u2066", "gnp.exe"),
        ("\x9b2Jx\x85y\x7f", "2Jxy"),
        ("größe 😀", "größe 😀"),
        ("lone \udc80", "lone "),
    ],
)
def test_foreign_text_loses_what_a_terminal_would_obey(line: str, shown: str) -> None:
    assert plain(line) == shown


def test_check_config_names_every_fault(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text('[servers.a]\ncommand = 5\ncolour = "red"\n')
    result = call("check-config", str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) >= 2
    assert "servers.a.command" in result.stderr
    assert "colour" in result.stderr


def test_check_config_of_a_file_that_is_not_there_is_a_fault(call: Call, tmp_path: Path) -> None:
    result = call("check-config", str(tmp_path / "none.toml"))
    assert result.exit_code == 2
    assert str(tmp_path / "none.toml") in result.stderr


GOOD = '[servers.a]\ncommand = ["/bin/serve", "--api-key", "secret"]\nfamily = "plain"\nport = 8123\n'


def test_check_config_says_what_is_defined_without_its_arguments(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "good.toml"
    file.write_text(GOOD)
    result = call("check-config", str(file))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"{file}: good\n  a: /bin/serve, plain, port 8123, no GPU, starts when told\n"


def test_check_config_as_json(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "good.toml"
    file.write_text(GOOD)
    assert json.loads(call("check-config", "--json", str(file)).stdout) == {
        "file": str(file),
        "faults": [],
        "servers": ["a"],
    }


def test_check_config_of_a_file_without_a_server_is_good_and_says_what_is_next(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "empty.toml"
    file.write_text("")
    result = call("check-config", str(file))
    assert (result.exit_code, result.stderr) == (0, "")
    first, second = result.stdout.splitlines()
    assert first == f"{file}: good"
    assert second.endswith("add a table [servers.NAME] with its command, then: gpuagent reload")
    assert json.loads(call("check-config", "--json", str(file)).stdout)["servers"] == []


LOG = b"""build: 4567 (abcdef0)
main: loading model
llama_model_load: error loading model: missing tensor 'output.weight'
main: exiting due to model loading error
"""


def test_explain_tells_steps_and_cause(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    file.write_bytes(LOG)
    result = call("explain", str(file), "--family", "llama_cpp")
    assert result.exit_code == 0
    assert f"{file}: llama_cpp" in result.stdout
    assert "cause:" in result.stdout


def test_explain_as_json_is_an_object_for_one_file_and_an_array_for_several(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    file.write_bytes(LOG)
    one = json.loads(call("explain", "--json", str(file)).stdout)
    assert one.keys() == {"file", "family", "outcome", "steps", "facts", "cause"}
    assert one["file"] == str(file)
    assert json.loads(call("explain", "--json", str(file), str(file)).stdout) == [one, one]


def test_explain_reads_the_standard_input(call: Call) -> None:
    result = call("explain", "--json", "-", input=LOG)
    assert json.loads(result.stdout)["file"] == "-"


def test_explain_of_a_file_that_is_not_there_is_wrong_usage(call: Call, tmp_path: Path) -> None:
    result = call("explain", str(tmp_path / "none.log"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "none.log: No such file" in result.stderr


def test_explain_of_a_family_that_there_is_not_is_wrong_usage(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    file.write_bytes(LOG)
    assert call("explain", "--family", "nemo", str(file)).exit_code == 2
