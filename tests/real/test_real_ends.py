"""How servers and agents end: nothing is left, nothing runs twice, nobody waits for long."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from tests.real.conftest import Make
from tests.real.real_house import FAKE, PATIENCE_S, Agent, free_port, llama, table, until

STREAMS = 50
PROMPT_S = 30  # the agent's own time-outs are far longer: one that is waited for would show


def fake(port: int, *flags: str, **keys: object) -> str:
    return table("demo", [*FAKE, "--port", str(port), *flags], port=port, autostart=True, **keys)


def pids(agent: Agent) -> set[int]:
    """Of the servers' trees."""
    assert agent.process is not None
    return {int(each.split()[0]) for each in agent.left()} - {agent.process.pid}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_that_ends_the_agent_ends_the_whole_tree_of_its_server(make: Make, number: int) -> None:
    agent = make(fake(free_port(), "--orphan")).start()
    agent.until_stage("ready")
    assert len(pids(agent)) == 2, "the server, and a child that left its session"
    agent.signal(number)
    assert agent.ended() == 0
    assert agent.left() == []


def test_under_nohup_a_closed_terminal_ends_nothing(make: Make) -> None:
    agent = make(fake(free_port())).start("nohup")
    pid = agent.until_stage("ready")["pid"]
    agent.signal(signal.SIGHUP)
    agent.signal(signal.SIGHUP)
    assert agent.cli("restart", "demo").returncode == 0, "it lives and obeys"
    agent.until(lambda server: server["stage"] == "ready" and server["pid"] != pid, "another process")
    assert agent.end() == 0


@pytest.mark.parametrize("stage", ["starting", "backing-off", "failed"])
def test_the_agent_ends_in_every_stage_and_leaves_nothing(make: Make, stage: str) -> None:
    port = free_port()
    tables = {
        "starting": fake(port, "--load-s", "600", "--orphan"),
        "backing-off": table("demo", ["/bin/false"], port=port, autostart=True, restart={"pauses_s": [600]}),
        "failed": table("demo", ["/no/such/server"], port=port, autostart=True),
    }
    agent = make(tables[stage]).start()
    agent.until(lambda server: server["stage"] == stage and (server["pid"] or stage != "starting"), stage)
    assert agent.end() == 0


def test_a_second_signal_does_not_cut_the_end_short(make: Make) -> None:
    agent = make(fake(free_port(), "--ignore-term", stop_s=1)).start()
    agent.until_stage("ready")
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
        agent.signal(number)
    assert agent.ended() == 0
    assert agent.left() == []


def test_a_server_deaf_to_sigterm_is_gone_after_a_stop_with_its_runaway_child(make: Make) -> None:
    agent = make(fake(free_port(), "--ignore-term", "--orphan", stop_s=1)).start()
    agent.until_stage("ready")
    assert len(pids(agent)) == 2
    agent.post("/servers/demo/stop")
    server = agent.until_stage("down")
    assert (server["exit"]["signal"], server["exit"]["asked"]) == (signal.SIGKILL, True)
    assert pids(agent) == set()
    assert agent.end() == 0


def test_two_hundred_children_half_of_them_runaways_are_all_gone_after_a_stop(make: Make) -> None:
    program = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: None)\n"
        "for number in range(200):\n"
        "    if os.fork() == 0:\n"
        "        number % 2 or os.setsid()\n"
        "        time.sleep(600)\n"
        "        os._exit(0)\n"
        "print('all there', flush=True)\n"
        "time.sleep(600)\n"
    )
    agent = make(table("demo", [FAKE[0], "-S", "-c", program], port=free_port(), autostart=True, stop_s=1)).start()
    agent.until(lambda server: "all there" in server["tail"], "all children")
    assert len(pids(agent)) == 201
    agent.post("/servers/demo/stop")
    agent.until_stage("down")
    assert pids(agent) == set()
    assert agent.end() == 0


def test_a_crash_of_the_agent_leaves_the_server_which_the_next_one_adopts(make: Make, model: Path) -> None:
    agent = make(table("demo", llama(model, free_port()), "llama_cpp", autostart=True)).start()
    before = agent.until_stage("ready")
    agent.crash()
    assert len(agent.left()) == 1
    agent.start()
    after = agent.until_stage("ready")
    assert {key: after[key] for key in ("pid", "invocation", "attempt")} == {
        key: before[key] for key in ("pid", "invocation", "attempt")
    }
    assert pids(agent) == {before["pid"]}
    os.kill(after["pid"], signal.SIGKILL)
    again = agent.until(lambda server: server["stage"] == "ready" and server["pid"] != after["pid"], "a new one")
    assert pids(agent) == {again["pid"]}
    assert agent.end() == 0


def test_a_crash_while_the_server_loads_never_makes_two_of_it(make: Make) -> None:
    agent = make(fake(free_port(), "--load-s", "2")).start()
    pid = agent.until(lambda server: server["pid"], "launched")["pid"]
    for _ in range(3):
        agent.crash()
        agent.start()
    assert agent.until_stage("ready")["pid"] == pid
    assert pids(agent) == {pid}
    assert agent.end() == 0


def test_a_server_that_died_with_its_agent_is_launched_anew(make: Make) -> None:
    agent = make(fake(free_port(), "--orphan")).start()
    first = agent.until_stage("ready")["pid"]
    agent.crash()
    os.kill(first, signal.SIGKILL)
    agent.start()
    second = agent.until_stage("ready")["pid"]
    assert second != first
    assert len(pids(agent)) == 2, "what was left of the first one's tree is gone"
    assert agent.end() == 0


def test_a_want_survives_a_crash_and_so_does_its_end(make: Make) -> None:
    agent = make(fake(free_port())).start()
    agent.until_stage("ready")
    agent.post("/servers/demo/stop")
    agent.crash()
    agent.start()
    assert agent.until_stage("down")["want"] == "down", "though autostart is true"
    until(lambda: not pids(agent), "the end of its processes")
    assert agent.end() == 0


def test_a_second_agent_on_the_same_state_ends_with_100_and_harms_nothing(make: Make) -> None:
    agent = make(fake(free_port())).start()
    pid = agent.until_stage("ready")["pid"]
    assert agent.run().wait(PATIENCE_S) == 100
    assert agent.process is not None
    assert f"another agent holds it (pid {agent.process.pid})" in agent.own_log.read_text()
    assert agent.server()["pid"] == pid
    assert agent.end() == 0


def test_two_servers_run_side_by_side_and_two_on_one_port_are_refused(make: Make) -> None:
    port, other = free_port(), free_port()

    def on(name: str, port: int, **keys: object) -> str:
        return table(name, [*FAKE, "--port", str(port)], port=port, **keys)

    agent = make(on("a", port, autostart=True), on("b", port), on("c", other, autostart=True)).start()
    for name in ("a", "c"):
        agent.until_stage("ready", name=name)
    refused = agent.cli("start", "b")
    assert refused.returncode == 7
    assert "a is wanted" in refused.stderr
    assert agent.cli("stop", "a").returncode == 0
    assert agent.cli("start", "b").returncode == 0, "also while the other is still ending"
    agent.until_stage("ready", name="b")
    assert agent.server("c")["attempt"] == 1
    assert agent.end() == 0


def test_open_waits_and_streams_do_not_keep_the_agent_from_ending(make: Make) -> None:
    agent = make(fake(free_port(), "--load-s", "600", "--ignore-term", stop_s=1)).start()
    agent.until(lambda server: server["pid"], "launched")
    clients = [client(agent, path) for path in ("wait?timeout=3000", "log?follow=1") for _ in range(STREAMS)]
    half = socket.create_connection(("127.0.0.1", agent.tcp_port))
    half.sendall(b"GET /stat")
    assert agent.get("/status").status == 200
    agent.signal(signal.SIGTERM)
    assert agent.process is not None
    assert agent.process.wait(PROMPT_S) == 0
    for each in (*clients, half):
        until(lambda each=each: each.recv(65_536) == b"", "the end of the stream")
        each.close()
    assert agent.left() == []


def client(agent: Agent, path: str) -> socket.socket:
    """One that asks, and has been heard: the API accepts in order."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE_S)
    connection.connect(str(agent.socket))
    connection.sendall(f"GET /servers/demo/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return connection
