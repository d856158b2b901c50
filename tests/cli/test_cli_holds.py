"""`rivals`, `holds`, `hold`, `release`; and what `status` and `why` say of units and needs."""

from __future__ import annotations

import json

import click
import pytest
from click.shell_completion import ShellComplete

from agent.cli import gpuagent
from tests.cli.conftest import Call
from tests.cli.fake_agent import FakeAgent, failed, hold, problem, rival, server
from tests.cli.test_cli_reading import NASTY

UP = rival("b.service", active="active", off=False, pids=[12], why="is active, pid 12; being turned off")
RELEASED = rival(
    "c.timer", active="active", off=False, held=False, exempt=True, since=None, why="released: not kept off"
)
UNSEEN = rival("d@1.service", load=None, active=None, off=False, held=False, since=None, why="not looked at yet")
NEED = {
    "name": "mount",
    "slug": "not_mounted",
    "subject": "/models",
    "text": "/models is not mounted",
    "remedy": "mount it",
    "heals": True,
    "since": "2026-01-02T03:04:05.678Z",
}


def test_rivals_are_a_line_each_with_their_state_and_why(call: Call, fake: FakeAgent) -> None:
    fake.rivals, fake.warnings = [rival(), UP, RELEASED, UNSEEN], ["docker uses the systemd cgroup driver"]
    lines = call("rivals").stdout.splitlines()
    assert [line.split("  ")[0] for line in lines[:4]] == ["vllm.service", "b.service", "c.timer", "d@1.service"]
    assert "  off  " in lines[0]
    assert "  active  " in lines[1]
    assert lines[1].endswith("  is active, pid 12; being turned off")
    assert "  active (released)  " in lines[2]
    assert "  not seen yet (not held)  " in lines[3]
    assert lines[4:] == ["warning: docker uses the systemd cgroup driver"]


def test_without_a_rival_it_says_where_they_are_listed(call: Call, fake: FakeAgent) -> None:
    assert call("rivals").stdout == (
        "no unit is listed: name those to keep off in [rivals] of the configuration, then: gpuagent reload\n"
    )


def test_holds_are_a_line_each_with_whether_they_are_in_force(call: Call, fake: FakeAgent) -> None:
    fake.holds = [hold(), hold("b.service", in_force=False, why="comes up again and again: brought up by foo.timer")]
    first, second = call("holds").stdout.splitlines()
    assert first.startswith("vllm.service  in force  ")
    assert second.startswith("b.service     not in force  ")
    assert second.endswith("  comes up again and again: brought up by foo.timer")


def test_without_a_hold_it_says_when_there_will_be_some(call: Call, fake: FakeAgent) -> None:
    assert call("holds").stdout.startswith("no unit is held: ")


@pytest.mark.parametrize("command", ["rivals", "holds"])
def test_as_json_it_is_the_agents_document(call: Call, fake: FakeAgent, command: str) -> None:
    fake.rivals, fake.holds, fake.warnings = [UP], [hold()], ["w"]
    assert json.loads(call(command, "--json").stdout) == fake.answer("GET", f"/{command}")[1]


@pytest.mark.parametrize(
    ("said", "unit"),
    [("vllm", "vllm.service"), ("a@.service", "a@.service"), ("x.timer", "x.timer"), ("a@1", "a@1.service")],
)
@pytest.mark.parametrize("verb", ["hold", "release"])
def test_a_change_is_posted_and_said(call: Call, fake: FakeAgent, verb: str, said: str, unit: str) -> None:
    result = call(verb, said)
    assert (result.exit_code, result.stdout.startswith(f"{unit} is ")) == (0, True)
    assert fake.asked == [(f"POST /holds/{unit.replace('@', '%40')}/{verb}", b"")]
    assert json.loads(call(verb, said, "--json").stdout) == {"unit": unit, "held": verb == "hold"}


@pytest.mark.parametrize("unit", ["x.mount", "a b", "../x", "", "a/b.service", "multi-user.target", "é", "x" * 250])
@pytest.mark.parametrize("verb", ["hold", "release"])
def test_a_name_that_no_such_unit_can_have_never_reaches_the_agent(
    call: Call, fake: FakeAgent, verb: str, unit: str
) -> None:
    result = call(verb, unit)
    assert (result.exit_code, fake.asked) == (2, [])
    assert "is no service, socket, timer or path unit" in result.stderr


@pytest.mark.parametrize(("status", "code"), [(403, 7), (404, 2), (409, 7), (503, 6), (504, 6), (500, 1)])
def test_a_change_that_is_not_made_ends_with_what_it_means(call: Call, fake: FakeAgent, status: int, code: int) -> None:
    fake.special["POST /holds/a.service/hold"] = problem(status, "a.service is not listed: add it to [rivals] units")
    result = call("hold", "a")
    assert (result.exit_code, result.stdout) == (code, "")
    assert "a.service is not listed: add it to [rivals] units" in result.stderr


def test_status_tells_holds_that_are_not_in_force_and_rivals_that_are_up_once(call: Call, fake: FakeAgent) -> None:
    drifted = hold("b.service", in_force=False, why="a later drop-in empties its conditions")
    fake.holds, fake.rivals = [hold(), drifted], [rival(), UP, RELEASED, UNSEEN]
    assert call("status").stdout.splitlines()[1:] == [
        "hold not in force: b.service: a later drop-in empties its conditions",
        "rival up: c.timer: released: not kept off",
    ]


def test_status_tells_a_unit_once_though_the_agent_marks_it_too(call: Call, fake: FakeAgent) -> None:
    fake.holds = [hold("b.service", in_force=False, why="is active"), hold()]
    fake.degraded = ["hold: b.service: is active", "hold: vllm.service: comes up again and again", "bus: lost"]
    assert call("status").stdout.splitlines()[1:] == [
        "hold not in force: b.service: is active",
        "degraded: hold: vllm.service: comes up again and again",
        "degraded: bus: lost",
    ]


def test_status_says_nothing_of_holds_that_do_what_they_should(call: Call, fake: FakeAgent) -> None:
    fake.holds, fake.rivals = [hold()], [rival(), UNSEEN]
    assert len(call("status").stdout.splitlines()) == 1


def test_why_names_each_need_that_is_waited_for_with_its_remedy_and_age(call: Call, fake: FakeAgent) -> None:
    fake.servers = [server(stage="waiting", why="waiting for mount", pid=None, needs=[NEED])]
    told = call("why").stdout
    assert "  waits for: mount (for " in told
    assert "           /models is not mounted\n  remedy:  mount it\n" in told


def test_why_tells_a_need_that_is_the_cause_once(call: Call, fake: FakeAgent) -> None:
    lacks = NEED | {"name": "model", "heals": False, "text": failed()["cause"]["text"]}
    fake.servers = [failed(needs=[lacks, lacks | {"name": "patch", "text": "x.py lacks the patch"}])]
    told = call("why").stdout
    assert told.count("out of memory\n") == 3  # its sentence, its cause, the log's end
    assert "  lacks: patch (for " in told


def test_why_names_the_disks_that_get_full(call: Call, fake: FakeAgent) -> None:
    low = {"path": "/logs", "free_mib": 512.4, "free_inodes": None, "lasts_s": 7500.0, "state": "low"}
    odd = {"path": "/nfs", "free_mib": None, "free_inodes": None, "lasts_s": None, "state": "unknown"}
    few = {"path": "/dev/shm", "free_mib": 3.0, "free_inodes": 12.0, "lasts_s": None, "state": "warn"}
    fake.servers = [server(storage=[low, odd, few, few | {"path": "/fine", "state": "ok"}])]
    assert [line for line in call("why").stdout.splitlines() if line.startswith("  disk:")] == [
        "  disk:    /logs: 512 MiB free, full in 2 h 5 min at the present rate",
        "  disk:    /nfs: cannot be looked at",
        "  disk:    /dev/shm: 3 MiB and 12 inodes free",
    ]


@pytest.mark.parametrize(("stage", "named"), [("clearing", True), ("waiting", True), ("ready", False)])
def test_why_names_the_rivals_that_are_waited_for(call: Call, fake: FakeAgent, stage: str, named: bool) -> None:
    other = rival("e.service", listed=False, off=False, why="held, and not listed any more")
    fake.servers, fake.rivals = [server(stage=stage)], [rival(), UP, RELEASED, other]
    lines = [line for line in call("why").stdout.splitlines() if line.startswith("  rival:")]
    assert lines == (["  rival:   b.service: is active, pid 12; being turned off"] if named else [])


@pytest.mark.parametrize("command", ["rivals", "holds", "status", "why"])
def test_what_a_unit_is_called_cannot_drive_the_terminal(call: Call, fake: FakeAgent, command: str) -> None:
    fake.rivals, fake.warnings = [rival(NASTY, off=False, active=NASTY, pids=[1], why=NASTY)], [NASTY]
    fake.holds = [hold("o" + NASTY, in_force=False, why=NASTY)]
    fake.servers = [server(stage="clearing", why=NASTY, needs=[dict.fromkeys(NEED, NASTY) | {"since": NEED["since"]}])]
    shown = call(command).stdout
    assert shown
    assert all(letter == "\n" or " " <= letter <= "~" for letter in shown)


@pytest.mark.parametrize(("begun", "units"), [("", ["vllm.service", "b.service"]), ("v", ["vllm.service"])])
def test_the_shell_completes_units(fake: FakeAgent, begun: str, units: list[str]) -> None:
    fake.rivals = [rival(), UP]
    completion = ShellComplete(gpuagent, {}, "gpuagent", "_GPUAGENT_COMPLETE")
    found = completion.get_completions(["--socket", str(fake.socket), "hold"], begun)
    assert [each.value for each in found] == units


def test_without_an_agent_the_shell_completes_no_unit(tmp_path: object) -> None:
    completion = ShellComplete(gpuagent, {}, "gpuagent", "_GPUAGENT_COMPLETE")
    assert completion.get_completions(["--socket", f"{tmp_path}/no.sock", "release"], "") == []


def test_the_units_of_a_terminal_are_coloured(call: Call, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    fake.rivals = [rival(), UP]
    shown = call("rivals", color=True).stdout
    assert click.style("off", fg="green") in shown.replace("   \x1b[0m", "\x1b[0m")
    assert "\x1b[31mactive" in shown
