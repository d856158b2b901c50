"""`start`, `stop`, `restart`, `wait`: what is asked of the agent, and what each answer means."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Call
from tests.cli.fake_agent import FakeAgent, failed, problem, server


def requests(fake: FakeAgent) -> list[str]:
    return [request for request, _ in fake.asked]


@pytest.mark.parametrize("verb", ["start", "stop", "restart"])
def test_a_change_is_posted_and_answered_with_what_it_led_to(call: Call, fake: FakeAgent, verb: str) -> None:
    result = call(verb, "demo")
    assert (result.stdout, result.exit_code) == ("demo: ready: it answers\n", 0)
    assert fake.asked == [(f"POST /servers/demo/{verb}", b"{}")]


def test_start_without_gpu_check_says_so_to_the_agent(call: Call, fake: FakeAgent) -> None:
    assert call("start", "--without-gpu-check").exit_code == 0
    request, body = fake.asked[-1]
    assert request == "POST /servers/demo/start"
    assert json.loads(body) == {"gpu_check": False}


def test_a_change_needs_no_name_where_one_server_is_defined(call: Call, fake: FakeAgent) -> None:
    assert call("stop").exit_code == 0
    assert requests(fake)[-1] == "POST /servers/demo/stop"


@pytest.mark.parametrize("verb", ["start", "stop", "restart", "switch"])
def test_a_change_as_json_is_answered_with_the_servers_document(call: Call, fake: FakeAgent, verb: str) -> None:
    fake.special["POST /switch"] = (200, server())
    result = call(verb, "demo", "--json")
    assert (json.loads(result.stdout), result.exit_code) == (server(), 0)


@pytest.mark.parametrize("verb", ["start", "restart", "switch"])
def test_a_change_as_json_that_waits_prints_one_document_as_it_is_at_the_end(
    call: Call, fake: FakeAgent, verb: str
) -> None:
    for path in (f"/servers/demo/{verb}", "/switch"):
        fake.special[f"POST {path}"] = (200, server(stage="starting", why="launched"))
    result = call(verb, "demo", "--json", "--wait")
    assert (json.loads(result.stdout), result.exit_code) == (server(), 0)
    fake.servers = [failed()]
    result = call(verb, "demo", "--json", "--wait")
    assert (json.loads(result.stdout), result.exit_code) == (failed(), 3)


@pytest.mark.parametrize("status", [403, 409, 507])
def test_a_change_that_the_agent_refuses_is_said_with_its_reason(call: Call, fake: FakeAgent, status: int) -> None:
    fake.special["POST /servers/demo/start"] = problem(status, "the state cannot be saved: disk full")
    result = call("start")
    assert (result.exit_code, result.stdout) == (7, "")
    assert "the state cannot be saved: disk full" in result.stderr


def test_start_and_wait_ends_when_the_server_is_ready(call: Call, fake: FakeAgent) -> None:
    fake.special["POST /servers/demo/start"] = (200, server(stage="starting", why="launched"))
    result = call("start", "--wait", "--timeout", "7")
    assert result.stdout.splitlines() == ["demo: starting: launched", "demo: ready: it answers"]
    assert requests(fake)[-1] == "GET /servers/demo/wait?for=ready&timeout=7.0"


def test_stop_and_wait_waits_for_down(call: Call, fake: FakeAgent) -> None:
    fake.special["POST /servers/demo/stop"] = (200, server(stage="stopping", want="down", why="told to end"))
    fake.special["GET /servers/demo/wait"] = (200, server(stage="down", want="down", why="all gone"))
    result = call("stop", "--wait")
    assert result.stdout.splitlines() == ["demo: stopping: told to end", "demo: down: all gone"]
    assert requests(fake)[-1] == "GET /servers/demo/wait?for=down&timeout=900.0"


def test_stop_and_wait_of_a_server_that_is_down_asks_no_more(call: Call, fake: FakeAgent) -> None:
    fake.servers = [server(stage="down")]
    assert call("stop", "--wait").exit_code == 0
    assert requests(fake)[-1] == "POST /servers/demo/stop"


def test_restart_and_wait_tells_of_a_failure(call: Call, fake: FakeAgent) -> None:
    fake.servers = [failed()]
    result = call("restart", "--wait")
    assert result.exit_code == 3
    assert "give it fewer layers" in result.stderr


def test_wait_ends_with_the_sentence_of_a_ready_server(call: Call, fake: FakeAgent) -> None:
    result = call("wait")
    assert (result.stdout, result.exit_code) == ("demo: ready: it answers\n", 0)
    assert requests(fake)[-1] == "GET /servers/demo/wait?for=ready&timeout=900.0"


def test_wait_for_a_server_that_failed_tells_cause_remedy_and_tail(call: Call, fake: FakeAgent) -> None:
    fake.servers = [failed()]
    result = call("wait", "demo")
    assert (result.exit_code, result.stdout) == (3, "")
    for part in (
        "gpuagent: demo is failed\n",
        "CUDA error: out of memory",
        "give it fewer layers",
        "SIGKILL",
        "the log ends:\n    loading\n",
    ):
        assert part in result.stderr


def test_wait_for_a_server_that_nobody_wants_fails(call: Call, fake: FakeAgent) -> None:
    fake.servers = [server(stage="down", want=None, why="not started")]
    fake.special["GET /servers/demo/wait"] = problem(409, "demo is not wanted", stage="down", cause=None)
    result = call("wait")
    assert result.exit_code == 3
    assert result.stderr == "gpuagent: demo is not wanted\n"


@pytest.mark.parametrize(
    ("progress", "code", "words"), [("progressing", 4, "still makes progress"), ("stalled", 5, "no sign of life")]
)
def test_wait_tells_slow_from_stalled(call: Call, fake: FakeAgent, progress: str, code: int, words: str) -> None:
    fake.servers = [server(stage="starting", stalled=code == 5, why="loading weights", tail=["43 %"])]
    fake.special["GET /servers/demo/wait"] = problem(504, "not yet", stage="starting", progress=progress)
    result = call("wait", "--timeout", "90")
    assert (result.exit_code, result.stdout) == (code, "")
    assert "not ready after 1 min 30 s" in result.stderr
    assert words in result.stderr
    assert "loading weights" in result.stderr
    assert result.stderr.endswith("the log ends:\n    43 %\n")


def test_wait_as_json_prints_the_server_whatever_comes(call: Call, fake: FakeAgent) -> None:
    assert json.loads(call("wait", "--json").stdout) == server()
    fake.servers = [failed()]
    result = call("wait", "--json")
    assert (json.loads(result.stdout), result.exit_code) == (failed(), 3)


@pytest.mark.parametrize("timeout", ["-1", "soon", "86401", "nan"])
def test_a_timeout_that_is_none_is_wrong_usage(call: Call, fake: FakeAgent, timeout: str) -> None:
    assert call("wait", f"--timeout={timeout}").exit_code == 2


def test_an_agent_that_ends_for_as_long_as_we_wait_is_unreachable(call: Call, fake: FakeAgent) -> None:
    fake.special["GET /servers/demo/wait"] = problem(503, "the agent is ending")
    result = call("wait", "--timeout", "0.6")
    assert (result.exit_code, result.stdout) == (6, "")
    first = "gpuagent: the agent is ending (HTTP 503); waiting for it to come back\n"
    assert result.stderr == first + "gpuagent: the agent is ending (HTTP 503)\n"


@pytest.mark.parametrize(("options", "back"), [([], False), (["--back"], True)])
def test_a_switch_says_to_which_server_and_whether_to_come_back(
    call: Call, fake: FakeAgent, options: list[str], back: bool
) -> None:
    fake.special["POST /switch"] = (200, server("b"))
    result = call("switch", "b", *options)
    assert (result.stdout, result.exit_code) == ("b: ready: it answers\n", 0)
    assert json.loads(fake.asked[-1][1]) == {"to": "b", "back": back}


def test_a_switch_that_is_refused_is_exit_7(call: Call, fake: FakeAgent) -> None:
    fake.special["POST /switch"] = problem(409, "the want could not be saved: disk full")
    assert call("switch", "b").exit_code == 7
