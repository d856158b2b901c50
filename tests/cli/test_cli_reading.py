"""`status`, `stage`, `why`: what is shown, and what may never reach a terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.cli.fake_agent import FakeAgent, failed, listening, problem, server

# Sets a title, clears the screen, writes over the line, turns the direction of text.
NASTY = "\x1b]0;owned\x07\x1b[2Jgo\x1b[31mod\x9b\x08\u202e"


def test_stage_is_one_word(call: Call, fake: FakeAgent) -> None:
    result = call("stage", "demo")
    assert (result.stdout, result.exit_code) == ("ready\n", 0)


def test_stage_without_a_name_is_of_the_one_server(call: Call, fake: FakeAgent) -> None:
    fake.servers = [failed("other")]
    assert call("stage").stdout == "failed\n"


def test_stage_as_json_names_the_server(call: Call, fake: FakeAgent) -> None:
    assert json.loads(call("stage", "--json").stdout) == {"name": "demo", "stage": "ready"}


def test_without_a_name_and_with_several_servers_it_asks_which(call: Call, fake: FakeAgent) -> None:
    fake.servers = [server("a"), server("b")]
    result = call("stage")
    assert result.exit_code == 2
    assert "which server? Defined are: a, b" in result.stderr


def test_without_a_name_and_without_a_server_it_says_what_to_do(call: Call, fake: FakeAgent) -> None:
    fake.servers = []
    result = call("why")
    assert result.exit_code == 2
    assert "no server is defined: add one to the configuration" in result.stderr


@pytest.mark.parametrize("command", ["stage", "start", "stop", "restart", "wait", "log", "why"])
def test_a_name_that_nobody_defined_is_wrong_usage(call: Call, fake: FakeAgent, command: str) -> None:
    result = call(command, "nemo")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no server is named 'nemo'. Defined are: demo" in result.stderr


@pytest.mark.parametrize("name", ["../status", "A", "x" * 33, "a/b", ""])
def test_a_name_that_no_server_can_have_never_reaches_the_agent(call: Call, fake: FakeAgent, name: str) -> None:
    result = call("stage", name)
    assert (result.exit_code, fake.asked) == (2, [])
    assert "no server can be named" in result.stderr


def test_status_is_one_line_a_server(call: Call, fake: FakeAgent) -> None:
    loading = {"step": "loading-weights", "progress": 0.436, "eta_s": 75.0, "why": "loads its weights"}
    fake.servers = [server("a"), server("long-name", "starting", quiet=True, **loading)]
    lines = call("status").stdout.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("a          ready  ")
    assert "long-name  starting (quiet)  loading-weights 43 %, 1 min 15 s left  " in lines[1]
    assert lines[1].endswith("  loads its weights")


def test_status_tells_stalled_rather_than_quiet(call: Call, fake: FakeAgent) -> None:
    fake.servers = [server("a", "starting", quiet=True, stalled=True)]
    assert "starting (stalled)" in call("status").stdout


def test_status_shows_what_is_degraded(call: Call, fake: FakeAgent) -> None:
    fake.degraded = ["state-not-saved: no space"]
    assert call("status").stdout.splitlines()[-1] == "degraded: state-not-saved: no space"


def test_status_without_servers_says_so(call: Call, fake: FakeAgent) -> None:
    fake.servers = []
    assert call("status").stdout == "no server is defined\n"
    fake.degraded = ["no-server: no server is defined: edit /x.toml, then: gpuagent reload", "bus: lost"]
    assert call("status").stdout.splitlines() == [
        "no server is defined: edit /x.toml, then: gpuagent reload",
        "degraded: bus: lost",
    ]


def test_status_as_json_is_the_agents_document(call: Call, fake: FakeAgent) -> None:
    assert json.loads(call("status", "--json").stdout) == fake.answer("GET", "/status")[1]


def test_status_has_colour_on_a_terminal_and_none_in_a_pipe(
    call: Call, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[32mready" in call("status", color=True).stdout
    assert "\x1b" not in call("status").stdout


def test_why_tells_the_whole_story(call: Call, fake: FakeAgent) -> None:
    fake.servers = [failed(step="loading-weights")]
    told = call("why").stdout
    assert "demo: failed: gave up: out of memory" in told
    assert "step loading-weights, attempt 1; wanted" in told
    assert "gpu-out-of-memory (line 17 of the log)\n           CUDA error: out of memory" in told
    assert "give it fewer layers" in told
    assert "not retried: the same again would fail the same way" in told
    assert "killed by SIGKILL (9), by itself" in told
    assert told.endswith("the log ends:\n    loading\n    CUDA error: out of memory\n")


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ({"code": 1, "signal": None, "oom": None, "asked": False}, "code 1, by itself"),
        ({"code": 0, "signal": None, "oom": None, "asked": True}, "code 0, as asked"),
        ({"code": None, "signal": 9, "oom": True, "asked": False}, "killed by SIGKILL (9), for memory"),
        ({"code": None, "signal": 42, "oom": None, "asked": False}, "killed by signal 42"),
        ({"code": None, "signal": None, "oom": None, "asked": False}, "ended unseen"),
    ],
)
def test_why_names_the_exit(call: Call, fake: FakeAgent, end: dict[str, object], words: str) -> None:
    fake.servers = [failed(exit=end)]
    assert words in call("why").stdout


def test_why_as_json_is_the_servers_document(call: Call, fake: FakeAgent) -> None:
    fake.servers = [failed()]
    assert json.loads(call("why", "--json").stdout) == failed()


@pytest.mark.parametrize("command", [["status"], ["why"], ["why", "--json"], ["status", "--json"], ["wait", "--json"]])
def test_what_a_server_wrote_cannot_drive_the_terminal(call: Call, fake: FakeAgent, command: list[str]) -> None:
    cause = failed()["cause"] | {"text": NASTY, "remedy": NASTY}
    fake.servers = [failed(why=NASTY, cause=cause, tail=[NASTY])]
    shown = call(*command).stdout
    assert all(letter == "\n" or " " <= letter <= "~" for letter in shown)


def test_of_an_overwritten_line_the_last_state_is_shown(call: Call, fake: FakeAgent) -> None:
    fake.servers = [failed(tail=["load:  1 %\rload: 99 %\r"])]
    assert call("why").stdout.endswith("\n    load: 99 %\n")


def test_an_agent_that_is_not_there_is_named_with_each_place_and_what_to_do(call: Call, socket: Path) -> None:
    result = call("status")
    assert (result.exit_code, result.stdout) == (6, "")
    assert f"no agent can be reached at {socket}: no such socket\n" in result.stderr
    assert "gpuagent run" in result.stderr


def test_a_socket_that_an_agent_left_behind_is_told_from_none(call: Call, socket: Path) -> None:
    import socket as sockets

    with sockets.socket(sockets.AF_UNIX) as left:
        left.bind(str(socket))
    result = call("status")
    assert result.exit_code == 6
    assert "nobody listens there; the agent that made it is gone" in result.stderr


def test_a_path_too_long_for_a_socket_is_unreachable_and_no_bug(call: Call) -> None:
    result = call("--socket", "/tmp/" + "x" * 200, "status")
    assert result.exit_code == 6
    assert "too long" in result.stderr


def test_an_agent_that_goes_away_while_it_answers_is_unreachable(call: Call, fake: FakeAgent) -> None:
    def die(_request: str) -> None:
        raise RuntimeError("the connection ends here")

    fake.on_request = die
    result = call("status")
    assert result.exit_code == 6
    assert "the agent went away without an answer" in result.stderr


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"\xff"])
def test_something_else_behind_the_socket_is_no_agent(call: Call, fake: FakeAgent, body: bytes) -> None:
    fake.special["GET /status"] = (200, body)
    result = call("status")
    assert result.exit_code == 6
    assert "is no gpuagent" in result.stderr


def test_an_error_that_the_agent_should_never_answer_is_a_bug(call: Call, fake: FakeAgent) -> None:
    fake.special["GET /status"] = problem(500, "a fault of the agent")
    result = call("status")
    assert result.exit_code == 1
    assert "a fault of the agent (HTTP 500)" in result.stderr


def test_the_socket_of_the_environment_is_used(socket: Path, fake: FakeAgent) -> None:
    from click.testing import CliRunner

    from agent.cli import gpuagent

    assert CliRunner(env={"GPUAGENT_SOCKET": str(socket)}).invoke(gpuagent, ["stage"]).stdout == "ready\n"


def test_every_place_where_no_agent_was_is_named(tmp_path: Path) -> None:
    from agent.cli.client import Client
    from agent.cli.exits import Unreachable

    with pytest.raises(Unreachable) as raised:
        Client([tmp_path / "a.sock", tmp_path / "b.sock"]).status()
    assert raised.value.message.splitlines()[:3] == [
        "no agent can be reached:",
        f"  {tmp_path}/a.sock: no such socket",
        f"  {tmp_path}/b.sock: no such socket",
    ]


def test_an_agent_further_down_the_list_is_found(tmp_path: Path, socket: Path) -> None:
    from agent.cli.client import Client

    with listening(FakeAgent(socket)):
        assert Client([tmp_path / "none.sock", socket]).stage("demo") == "ready"


def test_an_unknown_command_and_an_unknown_option_are_wrong_usage(call: Call, fake: FakeAgent) -> None:
    assert call("dance").exit_code == 2
    assert call("status", "--colour").exit_code == 2


def test_help_names_every_command_and_every_exit_code(call: Call) -> None:
    shown = call("--help").stdout
    for command in [
        "run",
        "status",
        "stage",
        "start",
        "stop",
        "restart",
        "wait",
        "log",
        "why",
        "explain",
        "check-config",
    ]:
        assert f"  {command} " in shown
    assert "6 the agent cannot be reached" in shown


AS_NOBODY = """
import os
import agent.cli.status  # before the change of user, who may not read our files
os.setresuid(65534, 65534, 65534)
agent.cli.gpuagent(["status"])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_socket_that_we_may_not_use_is_named_with_what_to_do(socket: Path, fake: FakeAgent) -> None:
    socket.parent.chmod(0o755)
    socket.chmod(0o600)
    environment = os.environ | {"GPUAGENT_SOCKET": str(socket)}
    ended = subprocess.run([sys.executable, "-c", AS_NOBODY], env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (6, "")
    assert f"{socket}: permission denied" in ended.stderr
    assert "group of its socket" in ended.stderr


@pytest.mark.parametrize("status", [503, 504])
def test_an_agent_that_cannot_serve_now_is_unreachable(call: Call, fake: FakeAgent, status: int) -> None:
    fake.special["GET /status"] = problem(status, "the agent is ending")
    result = call("status")
    assert result.exit_code == 6
    assert "the agent is ending" in result.stderr
