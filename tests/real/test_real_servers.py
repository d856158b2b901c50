"""Several servers, another configuration, and what is remembered of starts: with the real agent, as a user has it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from agent.cli.client import Client
from tests.real.conftest import Make
from tests.real.real_house import FAKE, Agent, Document, free_port, llama, table, until

CHANGED = "changed: demo; takes effect when it is next launched"
LATER = "changed, takes effect at restart"
IS_WELL = """
import os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if os.path.exists(sys.argv[2]) else 500)
        self.end_headers()
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
"""A server that is well as long as a file is there."""


def fake(name: str, port: int, *flags: str, **keys: Any) -> str:
    keys = {"autostart": True, "stop_s": 2, **keys}
    return table(name, [*FAKE, "--port", str(port), *flags], port=port, **keys)


def variant(name: str, *arguments: str) -> str:
    return f'[servers.{name}]\nextends = "base"\narguments = {json.dumps(arguments)}\n'


def fakes(agent: Agent) -> list[int]:
    """The pids of the stand-ins that live."""
    return [int(each.split()[0]) for each in agent.left() if "fakes/server.py" in each]


def command_of(server: Document) -> list[str]:
    return Path(f"/proc/{server['pid']}/cmdline").read_text().split("\0")


def starts(agent: Agent, name: str = "demo") -> list[Document]:
    told: list[Document] = agent.get(f"/servers/{name}/starts").document["starts"]
    return told


def degraded(agent: Agent) -> str:
    return "; ".join(agent.get("/status").document["degraded"])


def reloaded(agent: Agent, *tables: str) -> subprocess.CompletedProcess[str]:
    """`gpuagent reload`, after the file has been written anew."""
    agent.configure(*tables)
    return agent.cli("reload")


def until_another(agent: Agent, before: Document) -> Document:
    """The server, ready as another process than before."""
    return agent.until(lambda now: now["stage"] == "ready" and now["pid"] != before["pid"], "another", before["name"])


# -- alternatives ----------------------------------------------------------------------------------


def test_variants_of_one_real_server_are_switched_and_a_wrong_one_leads_back(make: Make, model: Path) -> None:
    base = table("base", llama(model, free_port()), "llama_cpp", template=True)
    agent = make(base, variant("one"), variant("two", "--parallel", "2"), variant("wrong", "--no-such-flag"))
    agent.start()
    names = [server["name"] for server in agent.get("/status").document["servers"]]
    assert names == ["one", "two", "wrong"], "a template is no server"
    agent.post("/servers/one/start")
    one = agent.until_stage("ready", name="one")
    refused = agent.cli("start", "two")
    assert (refused.returncode, "one is wanted" in refused.stderr) == (7, True)
    assert agent.cli("switch", "two", "--wait").returncode == 0
    assert not Path(f"/proc/{one['pid']}").exists()
    one, two = agent.server("one"), agent.server("two")
    assert (one["stage"], one["want"]) == ("down", "down")
    assert (two["stage"], command_of(two)[-3:]) == ("ready", ["--parallel", "2", ""])
    assert agent.cli("switch", "wrong", "--back", "--wait").returncode == 3
    again = until_another(agent, two)
    assert (again["want"], agent.until_stage("down", name="wrong")["want"]) == ("up", "down")
    assert [(start["outcome"], start["cause"]["slug"]) for start in starts(agent, "wrong")] == [
        ("failed-start", "bad_flag")
    ]
    assert [start["outcome"] for start in starts(agent, "two")] == [None, "stopped"]
    assert "switched back: wrong failed (bad_flag)" in agent.own_log.read_text()
    assert agent.end() == 0


def test_a_switch_goes_on_over_a_kill_of_the_agent_and_never_makes_two(make: Make) -> None:
    port = free_port()
    agent = make(fake("a", port, "--ignore-term", stop_s=1), fake("b", port, autostart=False)).start()
    old = agent.until_stage("ready", name="a")
    Client([agent.socket]).switch("b", back=False)
    agent.crash()
    agent.start()

    def arrived() -> bool:
        alive = fakes(agent)
        assert len(alive) <= 1 or alive != fakes(agent), f"two of them: {agent.left()}"
        return bool(agent.server("b")["stage"] == "ready")

    until(arrived, "the new one")
    assert fakes(agent) == [agent.server("b")["pid"]] != [old["pid"]]
    assert (agent.server("a")["stage"], agent.server("a")["want"]) == ("down", "down")
    assert agent.end() == 0


# -- another configuration -------------------------------------------------------------------------


def test_a_changed_definition_is_said_of_a_running_server_and_taken_at_its_restart(make: Make) -> None:
    port = free_port()
    agent = make(fake("demo", port)).start()
    before = agent.until_stage("ready")
    told = reloaded(agent, fake("demo", port, "--title", "newer"))
    assert (told.returncode, told.stdout) == (0, f"{CHANGED}\n")
    now = agent.server()
    assert (now["pid"], now["stage"]) == (before["pid"], "ready")
    assert LATER in now["why"]
    assert agent.cli("reload").stdout == "nothing has changed\n"
    assert LATER in agent.server()["why"]
    agent.post("/servers/demo/restart")
    after = until_another(agent, before)
    assert Path(f"/proc/{after['pid']}/comm").read_text() == "newer\n"
    assert LATER not in after["why"]
    assert [start["same_definition"] for start in starts(agent)] == [True, False]
    assert agent.end() == 0


def test_one_is_added_and_another_changed_by_one_reload_in_whatever_order(make: Make) -> None:
    port, first, second = free_port(), fake("first", free_port()), fake("second", free_port())
    agent = make(fake("demo", port)).start()
    before = agent.until_stage("ready")
    added_last = reloaded(agent, fake("demo", port, "--title", "newer"), first)
    assert added_last.stdout.splitlines() == ["added: first", CHANGED], added_last.stderr
    added_first = reloaded(agent, second, fake("demo", port, "--title", "newest"), first)
    assert added_first.stdout.splitlines() == ["added: second", CHANGED], added_first.stderr
    for name in ("first", "second"):
        agent.until_stage("ready", name=name)
    now = agent.server()
    assert (now["pid"], now["stage"]) == (before["pid"], "ready")
    assert LATER in now["why"]
    os.kill(now["pid"], signal.SIGKILL)
    after = until_another(agent, before)
    assert Path(f"/proc/{after['pid']}/comm").read_text() == "newest\n"
    assert agent.end() == 0


def test_a_new_server_on_the_port_that_another_will_leave_waits_until_it_has_left(make: Make) -> None:
    old, new = free_port(), free_port()
    agent = make(fake("demo", old)).start()
    before = agent.until_stage("ready")
    assert reloaded(agent, fake("heir", old), fake("demo", new)).returncode == 0
    assert agent.until_stage("waiting", "clearing", "failed", name="heir")["pid"] is None
    assert (agent.server()["pid"], agent.server()["stage"]) == (before["pid"], "ready")
    agent.post("/servers/demo/restart")
    assert until_another(agent, before)["url"].endswith(f":{new}")
    assert agent.until_stage("ready", name="heir")["url"].endswith(f":{old}")
    assert agent.end() == 0


def test_what_runs_cannot_be_taken_away_and_a_refused_file_changes_nothing(make: Make) -> None:
    demo, other, third = (fake(name, free_port()) for name in ("demo", "other", "third"))
    agent = make(demo, other).start()
    pids = {name: agent.until_stage("ready", name=name)["pid"] for name in ("demo", "other")}

    def refused(*tables: str) -> str:
        told = reloaded(agent, *tables)
        assert told.returncode == 2
        assert "configuration-refused" in degraded(agent)
        assert agent.get("/servers/third").status == 404
        assert {name: agent.server(name)["pid"] for name in pids} == pids
        return told.stderr

    assert "servers.demo: is wanted or runs: stop it" in refused(other, third)
    faulty = refused(demo + 'stop_s = "soon"\n', other + 'colour = "red"\n', third)  # stop_s stands there twice
    assert "gpuagent.toml" in faulty
    wrong = [fake("demo", free_port(), stop_s="soon"), fake("other", free_port(), colour="red"), third]
    faults = refused(*wrong)
    assert "servers.demo.stop_s" in faults
    assert "servers.other.colour" in faults
    added = reloaded(agent, demo, other, third)
    assert (added.returncode, added.stdout) == (0, "added: third\n")
    assert "configuration-refused" not in degraded(agent)
    agent.post("/servers/demo/stop")
    agent.until_stage("down")
    assert reloaded(agent, other, third).stdout == "removed: demo\n"
    assert agent.get("/servers/demo").status == 404
    assert agent.server("other")["pid"] == pids["other"]
    assert reloaded(agent, demo, other, third).returncode == 0
    assert (agent.server()["want"], len(starts(agent))) == ("down", 1), "what is known of it came back with it"
    assert agent.end() == 0


def test_an_agent_that_ends_takes_no_other_configuration(make: Make) -> None:
    demo = fake("demo", free_port(), "--ignore-term", stop_s=3)
    agent = make(demo).start()
    agent.until_stage("ready")
    agent.signal(signal.SIGTERM)
    agent.until_stage("stopping")
    agent.configure(demo, fake("other", free_port()))
    refused = agent.post("/reload")
    assert refused.status in (409, 503), refused.text
    assert "ending" in refused.document["detail"]
    assert agent.get("/servers/other").status == 404
    assert agent.ended() == 0
    assert agent.left() == []


def test_following_the_log_of_a_server_that_is_taken_away_comes_to_its_end(make: Make) -> None:
    demo, other = fake("demo", free_port(), "--print", "one line"), fake("other", free_port())
    agent = make(demo, other).start()
    agent.until_stage("ready")
    agent.post("/servers/demo/stop")
    agent.until_stage("down")
    following = agent.cli_start("log", "demo", "-f")
    assert following.process.stdout is not None
    assert following.process.stdout.readline() == "one line\n"
    assert reloaded(agent, other).returncode == 0
    ended = following.finish()
    assert "Traceback" not in ended.stderr + agent.own_log.read_text()
    assert "went away while its answer was read" not in ended.stderr
    assert "the agent has ended" not in ended.stderr, "it has not"
    assert agent.end() == 0


def test_a_server_whose_port_was_edited_while_no_agent_ran_is_adopted_and_left_alone(
    make: Make, tmp_path: Path
) -> None:
    well = tmp_path / "well"
    well.touch()
    port, next_port, witness_port = free_port(), free_port(), free_port()
    # The witness is restarted for what the other one must not be restarted for, with the same patience.
    witness = [sys.executable, "-S", "-c", IS_WELL, str(witness_port), str(well)]
    judged = table("witness", witness, port=witness_port, autostart=True, unhealthy_s=1, stop_s=2)
    agent = make(fake("demo", port, unhealthy_s=1), judged).start()
    before = agent.until_stage("ready")
    seen = agent.until_stage("ready", name="witness")
    agent.crash()
    well.unlink()
    agent.configure(fake("demo", next_port, unhealthy_s=1), judged)
    agent.start()
    agent.until(lambda now: now["pid"] not in (None, seen["pid"]), "the restart of the witness", "witness")
    now = agent.server()
    assert {key: now[key] for key in ("pid", "invocation", "attempt")} == {
        key: before[key] for key in ("pid", "invocation", "attempt")
    }
    assert LATER in now["why"]
    agent.post("/servers/demo/restart")
    after = until_another(agent, before)
    assert after["url"].endswith(f":{next_port}")
    assert LATER not in after["why"]
    assert agent.end() == 0


# -- what is remembered ----------------------------------------------------------------------------


def test_the_second_start_has_an_expected_end_and_both_are_told_of_each_of_two_side_by_side(
    make: Make, model: Path
) -> None:
    port = free_port()
    real = table("real", llama(model, port), "llama_cpp", autostart=True)
    agent = make(fake("demo", free_port(), "--load-s", "1"), real).start()
    first = {name: agent.until_stage("ready", name=name) for name in ("demo", "real")}
    agent.post("/servers/demo/restart")
    expected = agent.until(lambda now: now["stage"] == "starting" and now["eta_s"] is not None, "an expected end")
    assert expected["eta_s"] >= 0
    beside = agent.server("real")
    assert [beside[key] for key in ("stage", "pid", "since")] == [
        first["real"][key] for key in ("stage", "pid", "since")
    ]
    agent.post("/servers/real/restart")
    for before in first.values():
        after, told = until_another(agent, before), starts(agent, before["name"])
        assert [start["invocation"] for start in told] == [after["invocation"], before["invocation"]]
        assert [start["outcome"] for start in told] == [None, "stopped"]
        assert all(start["ready_s"] is not None and start["watched"] for start in told)
    head, *lines = agent.cli("starts", "demo").stdout.splitlines()
    assert head.startswith("LAUNCHED")
    assert [line.split()[-1] for line in lines] == ["serving", "stopped"]
    assert agent.end() == 0
