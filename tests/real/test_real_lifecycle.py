"""llama.cpp's real server under the real agent: from its start to its end, as a user sees it."""

from __future__ import annotations

import http.client
import json
import os
import signal
from pathlib import Path

import pytest

from tests.real.conftest import Make
from tests.real.real_house import FAKE, PATIENCE_S, TEST_MARK, Agent, ask, free_port, llama, table

LOADS_FOR_EVER = ["--load-s", "600"]
FOR_THE_AGENT = {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1", "LISTEN_FDS": "1"}


@pytest.fixture(scope="module")
def agent(make_shared: Make, model: Path) -> Agent:
    port, loading_port = free_port(), free_port()
    loading = [*FAKE, "--port", str(loading_port), *LOADS_FOR_EVER]
    agent: Agent = make_shared(
        table("demo", llama(model, port), "llama_cpp", autostart=True, restart={"pauses_s": [0.1]}),
        # No second attempt: a command that takes long to start must still find the death that it waits for.
        table("loading", loading, port=loading_port, restart={"pauses_s": [600]}),
        table("nobody", ["/bin/sleep", "600"], port=free_port()),
        env={**FOR_THE_AGENT, "http_proxy": "http://127.0.0.1:9", "ALL_PROXY": "http://127.0.0.1:9"},
    )
    return agent.start()


@pytest.fixture
def demo(agent: Agent) -> Agent:
    """With `demo` ready, and no failure counted."""
    agent.until_stage("ready", "failed")
    agent.post("/servers/demo/start")
    agent.until_stage("ready")
    return agent


def pid_of_loading(agent: Agent) -> int:
    """Wanted, launched, answering 503."""
    agent.post("/servers/loading/start")
    pid: int = agent.until(lambda server: server["stage"] == "starting" and server["pid"], "launched", "loading")["pid"]
    return pid


def test_the_real_server_gets_ready_through_its_steps(demo: Agent) -> None:
    server = demo.server()
    assert server["step"] in ("warming-up", "listening"), "read from its log, however quick it was"
    assert (server["attempt"], server["cause"], server["exit"]) == (1, None, None)
    assert server["tail"]


def test_curl_gets_the_stage_as_one_word(demo: Agent) -> None:
    reply = demo.curl("/servers/demo/stage")
    assert (reply.status, reply.text) == (200, "ready")
    assert demo.cli("stage", "demo").stdout == "ready\n"


def test_the_ready_server_answers_a_completion_where_its_url_says(demo: Agent) -> None:
    _, _, address = demo.server()["url"].partition("//")
    body = json.dumps({"prompt": "hello", "max_tokens": 4})
    reply = ask(http.client.HTTPConnection(address, timeout=PATIENCE_S), "POST", "/v1/completions", body)
    assert reply.status == 200
    assert reply.document["choices"]


def test_what_is_meant_for_the_agent_does_not_reach_the_server(demo: Agent) -> None:
    entries = Path(f"/proc/{demo.server()['pid']}/environ").read_bytes().decode().split("\0")
    names = {entry.partition("=")[0] for entry in entries}
    assert TEST_MARK in names, "the agent's own environment is the server's"
    assert not {name for name in names if name.startswith(("NOTIFY_", "WATCHDOG_", "LISTEN_"))}


def test_a_kill_while_ready_is_told_with_cause_signal_and_tail_and_mended(demo: Agent) -> None:
    pid = demo.server()["pid"]
    os.kill(pid, signal.SIGKILL)
    dead = demo.until(lambda server: server["cause"], "the cause")
    assert dead["stage"] in ("stopping", "backing-off")
    assert dead["cause"]["slug"] == "external_kill"
    assert (dead["exit"]["signal"], dead["exit"]["code"], dead["exit"]["asked"]) == (signal.SIGKILL, None, False)
    log = demo.logs / "demo" / f"{dead['invocation']}.log"
    assert dead["tail"][-1].strip() == log.read_text().splitlines()[-1].strip()
    again = demo.until(lambda server: server["stage"] == "ready" and server["pid"] != pid, "the next attempt")
    assert again["attempt"] == 2


def test_a_wait_ends_at_once_when_the_server_dies_while_it_loads(agent: Agent) -> None:
    pid = pid_of_loading(agent)
    waiting = agent.cli_start("wait", "loading", "--timeout", "3000")
    assert agent.get("/servers/loading/wait?timeout=0").document["progress"] == "progressing"
    os.kill(pid, signal.SIGKILL)
    ended = waiting.finish()
    assert ended.returncode == 3
    assert "external_kill" in ended.stderr
    agent.post("/servers/loading/stop")


def test_a_wait_for_a_server_that_nobody_wants_ends_at_once(agent: Agent) -> None:
    ended = agent.cli("wait", "nobody", "--timeout", "3000")
    assert ended.returncode == 3
    assert "not wanted" in ended.stderr


def test_a_wait_whose_time_is_over_says_that_it_still_goes_on(agent: Agent) -> None:
    pid_of_loading(agent)
    assert agent.cli("wait", "loading", "--timeout", "0.1").returncode == 4
    agent.post("/servers/loading/stop")


def test_a_stop_while_it_loads_leaves_nothing(agent: Agent) -> None:
    pid = pid_of_loading(agent)
    assert agent.cli("stop", "loading").returncode == 0
    server = agent.until_stage("down", name="loading")
    assert (server["want"], server["pid"], server["exit"]["asked"]) == ("down", None, True)
    assert not Path(f"/proc/{pid}").exists()


def test_a_stop_and_a_start_of_the_real_server(demo: Agent) -> None:
    pid = demo.server()["pid"]
    assert demo.cli("stop", "demo").returncode == 0
    assert demo.cli("wait", "demo").returncode == 3
    server = demo.until_stage("down")
    assert (server["cause"], server["exit"]["asked"]) == (None, True)
    assert not Path(f"/proc/{pid}").exists()
    assert demo.cli("start", "demo").returncode == 0
    assert demo.cli("wait", "demo").returncode == 0


def test_a_restart_is_another_process_and_no_failure(demo: Agent) -> None:
    pid = demo.server()["pid"]
    assert demo.cli("restart", "demo").returncode == 0
    server = demo.until(lambda server: server["stage"] == "ready" and server["pid"] != pid, "another process")
    assert (server["attempt"], server["cause"]) == (1, None)


def test_the_state_file_holds_what_is_wanted(demo: Agent) -> None:
    pid_of_loading(demo)
    demo.post("/servers/loading/stop")
    demo.until_stage("down", name="loading")
    content = json.loads(demo.state.read_text())
    assert content["version"] == 2
    assert content["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    wants = {name: server["want"] for name, server in content["servers"].items()}
    assert (wants["demo"], wants["loading"]) == ("up", "down")
    assert content["servers"]["demo"]["invocation"] == demo.server()["invocation"]


def test_explain_reads_the_log_that_the_real_server_has_just_written(demo: Agent) -> None:
    log = demo.logs / "demo" / f"{demo.server()['invocation']}.log"
    told = json.loads(demo.cli("explain", "--json", str(log)).stdout)
    assert (told["family"], told["outcome"], told["cause"]) == ("llama_cpp", "ready", None)
    steps = [step["step"] for step in told["steps"]]
    assert steps[0] in ("launched", "initializing")
    assert steps.index("loading-weights") < steps.index("allocating-kv") < steps.index("warming-up")


def test_ready_and_live_are_told_over_tcp_without_a_word_of_the_log(demo: Agent) -> None:
    assert (demo.curl("/live").status, demo.curl("/ready").status) == (200, 200)
    assert demo.server()["tail"]
    assert demo.curl("/servers/demo").document["tail"] == []
    assert demo.curl("/servers/demo/log").status == 403
