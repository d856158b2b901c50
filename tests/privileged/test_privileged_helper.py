"""A real helper process on a real socket; systemctl is a script, the control groups are folders."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agent.launch_spec import digest
from agent.privileged import policy, records
from agent.privileged.helper import Verbs
from agent.privileged.units import Units
from tests.privileged.privileged_house import DEADLINE_S, HelperProcess, exchange, running


def test_start_leaves_an_order_for_the_launch_and_starts_the_unit(helper: HelperProcess) -> None:
    assert helper.start() == {"ok": True}
    assert helper.calls() == ["--no-ask-password start gpuagent-server@demo.service"]
    order = helper.folder / "records" / "demo.order.json"
    assert json.loads(order.read_text())["invocation"] == "0123abcd-1"
    assert order.stat().st_mode & 0o777 == 0o600


def test_check_starts_the_looks_unit_without_waiting(helper: HelperProcess) -> None:
    of = json.loads(_order(helper))["digest"]
    assert helper.ask(verb="check", name="demo", digest=of) == {"ok": True}
    assert helper.calls()[-1] == "--no-ask-password start --no-block gpuagent-check@demo.service"


def _order(helper: HelperProcess) -> str:
    helper.start()
    return (helper.folder / "records" / "demo.order.json").read_text()


@pytest.mark.parametrize(
    ("request_", "slug"),
    [
        ({"verb": "start", "name": "demo", "digest": "0" * 16, "invocation": "0123abcd-1"}, "digest_differs"),
        ({"verb": "check", "name": "demo", "digest": ""}, "digest_differs"),
        ({"verb": "start", "name": "demo", "digest": "0" * 16}, "bad_request"),
        ({"verb": "start", "name": "demo", "digest": 1, "invocation": "0123abcd-1"}, "bad_request"),
        ({"verb": "kill", "name": "other", "launch": ""}, "no_such_server"),
        ({"verb": "kill", "name": "base", "launch": ""}, "no_such_server"),
        ({"verb": "kill", "name": "../x", "launch": ""}, "no_such_server"),
        ({"verb": "kill", "name": "--help", "launch": ""}, "no_such_server"),
        ({"verb": "kill", "name": "demo", "launch": "", "signal": 9}, "bad_request"),
        ({"verb": "terminate", "name": "demo", "whole": 1, "launch": ""}, "bad_request"),
        ({"verb": "exec", "name": "demo"}, "bad_request"),
        ({"verb": ["start"]}, "bad_request"),
        ({}, "bad_request"),
    ],
)
def test_what_is_not_allowed_is_refused_and_nothing_is_called(
    helper: HelperProcess, request_: dict[str, Any], slug: str
) -> None:
    reply = helper.ask(**request_)
    assert (reply["ok"], reply["slug"]) == (False, slug)
    assert helper.calls() == []


@pytest.mark.parametrize("invocation", ["../../etc/x", "", "0123abcd-1\n", "x" * 100])
def test_an_invocation_that_could_be_a_path_is_refused(helper: HelperProcess, invocation: str) -> None:
    assert helper.start(invocation=invocation)["slug"] == "bad_request"
    assert list((helper.folder / "records").iterdir()) == []


def test_the_configuration_is_read_anew_for_each_request(helper: HelperProcess) -> None:
    assert helper.start()["ok"]
    (helper.folder / "gpuagent.toml").chmod(0o666)
    reply = helper.ask(verb="kill", name="demo", launch="")
    assert reply["slug"] == "policy_unreadable"
    assert "chmod go-w" in reply["why"]


def test_left_overs_refuse_a_start_and_are_named(helper: HelperProcess) -> None:
    helper.occupy(4242)
    reply = helper.start()
    assert (reply["slug"], reply["pids"]) == ("left_overs", [4242])
    assert "4242" in reply["why"]


def test_a_server_that_runs_refuses_a_start(helper: HelperProcess) -> None:
    helper.occupy(4242)
    (helper.folder / "state").write_text("active\n")
    assert helper.start()["slug"] == "already_runs"


def test_a_failure_of_systemctl_is_told_in_its_own_words(helper: HelperProcess) -> None:
    (helper.folder / "broken").touch()
    reply = helper.start()
    assert (reply["slug"], reply["why"]) == ("systemd_failed", "no such unit")


def test_systemctl_gets_an_environment_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD_CANARY", "hf_secret")
    with running(tmp_path) as helper:
        helper.start()
        assert "hf_secret" not in (tmp_path / "systemctl-environment").read_text()


@pytest.mark.parametrize("whole", [True, False])
def test_terminate_reaches_only_what_is_in_the_servers_group(helper: HelperProcess, whole: bool) -> None:
    ours, theirs = (subprocess.Popen(["/bin/sleep", "60"]) for _ in range(2))
    try:
        helper.occupy(ours.pid)
        record = helper.folder / "records" / "demo.launch.json"
        record.write_text(json.dumps({"pid": theirs.pid}))
        assert helper.ask(verb="terminate", name="demo", whole=False, launch="") == {"ok": True}
        record.write_text(json.dumps({"pid": ours.pid}))
        assert helper.ask(verb="terminate", name="demo", whole=whole, launch="") == {"ok": True}
        assert ours.wait(DEADLINE_S) == -signal.SIGTERM
        assert theirs.poll() is None
    finally:
        for each in (ours, theirs):
            each.kill()
            each.wait(DEADLINE_S)


@pytest.mark.parametrize("request_", [{"verb": "terminate", "whole": w} for w in (True, False)] + [{"verb": "kill"}])
def test_what_was_started_after_the_request_is_left_alone(helper: HelperProcess, request_: dict[str, Any]) -> None:
    theirs = subprocess.Popen(["/bin/sleep", "60"])
    try:
        helper.occupy(theirs.pid)
        record = helper.folder / "records" / "demo.launch.json"
        record.write_text(json.dumps({"pid": theirs.pid, "unit_invocation": "second"}))
        reply = helper.ask(name="demo", launch="first", **request_)
        assert (reply["ok"], reply["slug"]) == (False, "another_start")
        assert theirs.poll() is None
        assert helper.ask(name="demo", launch="second", **request_)["ok"]
        assert theirs.wait(DEADLINE_S) < 0
    finally:
        theirs.kill()
        theirs.wait(DEADLINE_S)


def test_a_server_that_was_taken_out_of_the_configuration_while_it_ran_can_be_ended(helper: HelperProcess) -> None:
    removed = {"name": "removed", "launch": ""}
    assert helper.ask(verb="kill", **removed)["slug"] == "no_such_server"
    (helper.folder / "records" / "removed.launch.json").write_text('{"pid": 1, "unit_invocation": "u"}')
    assert helper.ask(verb="terminate", whole=True, **removed) == {"ok": True}
    assert helper.ask(verb="kill", **removed) == {"ok": True}
    assert (
        helper.ask(verb="start", name="removed", digest="0" * 16, invocation="0123abcd-1")["slug"] == "no_such_server"
    )


RELIEF = '[servers.demo.disk]\nstart_unit = "{}"\n'


def test_what_makes_room_is_started_as_the_configuration_names_it_and_nothing_else(helper: HelperProcess) -> None:
    config = helper.folder / "gpuagent.toml"
    plain = config.read_text()
    assert helper.ask(verb="relieve", name="demo")["slug"] == "not_allowed"
    for unit in ("sshd.service", "gpuagent.service", "clear.timer", "-.service", "a/../b.service", "foo@.service"):
        config.write_text(plain + RELIEF.format(unit))
        assert not helper.ask(verb="relieve", name="demo")["ok"], unit
    assert helper.ask(verb="relieve", name="demo", unit="clear.service")["slug"] == "bad_request"
    assert helper.calls() == []
    config.write_text(plain + RELIEF.format("clear-cache.service"))
    assert helper.ask(verb="relieve", name="demo") == {"ok": True}
    assert helper.calls() == ["--no-ask-password start --no-block -- clear-cache.service"]


def test_kill_uses_the_kernels_own_way(helper: HelperProcess) -> None:
    helper.occupy()
    (helper.group / "cgroup.kill").touch()
    assert helper.ask(verb="kill", name="demo", launch="") == {"ok": True}
    assert (helper.group / "cgroup.kill").read_text() == "1"


def test_another_user_is_shown_the_door_and_logged(tmp_path: Path) -> None:
    with running(tmp_path, uid=12345) as helper, helper.connect() as caller:
        assert caller.recv(100) == b""
        assert "uid=0 asked='connect' result='refused'" in (tmp_path / "audit").read_text()


def test_each_verb_leaves_one_line_and_no_line_can_be_forged(helper: HelperProcess) -> None:
    helper.start()
    helper.ask(verb="kill", name="demo\nuid=0 asked='start demo'\x1b[2J\u2028")
    lines = (helper.folder / "audit").read_text().splitlines()
    assert len(lines) == 2
    assert lines[0] == "uid=0 asked='start demo' result='done'"
    assert lines[1].startswith('uid=0 asked="kill demo\\nuid=0')


def test_no_value_of_the_environment_is_in_a_reply_a_record_or_the_audit(helper: HelperProcess) -> None:
    secret = "hf_canary_5151"
    with (helper.folder / "gpuagent.toml").open("a") as config:
        config.write(f'[servers.demo.environment]\nHF_TOKEN = "{secret}"\n')
    replies = [helper.start(), helper.start(digest="0" * 16)]
    assert [reply["ok"] for reply in replies] == [True, False]
    written = [path.read_text() for path in (helper.folder / "records").iterdir()]
    audit, calls = (helper.folder / "audit").read_text(), (helper.folder / "calls").read_text()
    assert secret not in "".join((*map(str, replies), *written, audit, calls))


def test_300_quick_requests_are_all_answered_and_a_flood_is_refused(helper: HelperProcess) -> None:
    ping = b'{"verb": "ping"}'
    for _ in range(300):
        with helper.connect() as caller:
            assert exchange(caller, ping) == {"ok": True}
    with helper.connect() as caller:
        slugs = {exchange(caller, ping).get("slug") for _ in range(3000)}
    assert slugs == {None, "too_many"}


def test_no_packet_ends_it(helper: HelperProcess) -> None:
    chance = random.Random(7)
    packets = [
        b"[" * 4096,
        b"9" * 4096,
        b'{"verb":NaN}',
        b'{"verb":"ping","verb":{}}',
        b"\xff\xfe",
        b"null",
        b"x" * 9000,
    ]
    packets += [
        b'{"verb":"kill","launch":"","name":"\\ud800"}',
        b'{"verb":"\\udcff"}',
        b'{"verb":"terminate","name":null,"whole":true,"launch":""}',
    ]
    packets += [chance.randbytes(chance.randint(1, 4096)) for _ in range(200)]
    good = b'{"verb": "start", "name": "demo", "digest": "0", "invocation": "0123abcd-1"}'
    for _ in range(200):
        packet = bytearray(good)
        packet[chance.randrange(len(packet))] = chance.randrange(256)
        packets.append(bytes(packet))
    with helper.connect() as caller:
        assert [reply for packet in packets if (reply := exchange(caller, packet))["ok"]] == []
    assert helper.process.poll() is None
    assert helper.calls() == []


def test_callers_that_come_and_go_or_never_read_end_nothing(helper: HelperProcess) -> None:
    for _ in range(100):
        with helper.connect() as caller:
            caller.send(b'{"verb": "ping"}')
    idle = [helper.connect() for _ in range(20)]
    try:
        assert helper.ask(verb="ping") == {"ok": True}
        assert len(os.listdir(f"/proc/{helper.process.pid}/fd")) < 40
    finally:
        for each in idle:
            each.close()


def test_it_ends_when_nobody_asks(tmp_path: Path) -> None:
    with running(tmp_path, idle_s=0.2) as helper:
        assert helper.process.wait(DEADLINE_S) == 0


def test_without_a_socket_of_systemds_it_says_who_starts_it() -> None:
    words = [sys.executable, "-I", "-m", "agent.privileged.helper"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 1
    assert "systemctl start gpuagent-helper.socket" in done.stderr


def test_what_is_still_ending_is_not_started_beside(helper: HelperProcess) -> None:
    helper.occupy(4242)
    (helper.folder / "state").write_text("deactivating\n")
    reply = helper.start()
    assert (reply["ok"], reply["slug"], reply["pids"]) == (False, "still_ending", [4242])
    assert helper.calls()[-1].startswith("--no-ask-password show"), "nothing was started"


ENDED_MEANWHILE = """#!/bin/sh
echo "$*" >> {folder}/calls
[ "$2" = show ] || exit 0
: > {folder}/groups/gpuagent-server@demo.service/cgroup.procs
echo {state}
"""


@pytest.mark.parametrize("state", ["deactivating", "inactive", "failed"])
def test_a_start_waits_for_the_last_processes_of_the_end_before_it(helper: HelperProcess, state: str) -> None:
    """Those that write down how the last one ended: they may go before, or after, systemd has been asked."""
    helper.occupy(4242)
    (helper.folder / "systemctl").write_text(ENDED_MEANWHILE.format(folder=helper.folder, state=state))
    assert helper.start()["ok"]
    assert helper.calls()[-1] == "--no-ask-password start gpuagent-server@demo.service"


def test_an_order_goes_with_a_start_that_failed_and_stays_with_one_that_may_yet_come(helper: HelperProcess) -> None:
    (helper.folder / "broken").touch()
    assert helper.start()["slug"] == "systemd_failed"
    assert records.read("demo", "order", helper.folder / "records") is None
    (helper.folder / "systemctl").write_text("#!/bin/sh\nexec sleep 600\n")
    units = Units(str(helper.folder / "systemctl"), helper.folder / "groups", start_s=0.2)
    verbs = Verbs(units, helper.folder / "gpuagent.toml", helper.folder / "records")
    of = digest(policy.load(helper.folder / "gpuagent.toml").spec("demo"))
    asked = {"verb": "start", "name": "demo", "digest": of, "invocation": "0123abcd-1"}
    reply, _ = verbs.answer(json.dumps(asked).encode())
    assert (reply["slug"], "within" in reply["why"]) == ("systemd_failed", True)
    assert records.read("demo", "order", helper.folder / "records") is not None


def test_without_the_kernels_own_way_each_process_is_killed(helper: HelperProcess) -> None:
    with subprocess.Popen(["sleep", "600"]) as victim:
        helper.occupy(victim.pid)
        assert helper.ask(verb="kill", name="demo", launch="")["ok"]
        assert victim.wait(20) == -signal.SIGKILL


def test_a_group_that_cannot_be_read_is_no_empty_one(helper: HelperProcess) -> None:
    helper.group.mkdir(parents=True)
    (helper.group / "cgroup.procs").mkdir()  # any fault but that it is gone
    assert helper.start()["ok"] is False
    assert "start" not in " ".join(helper.calls())


HIDDEN = """
import os, sys
from agent.edges import processes
os.setgid(65534), os.setuid(65534)
print(processes.stat(1), processes.hidden(1), processes.hidden(os.getpid()), processes.hidden(2**22 - 1))
"""


def test_a_process_that_proc_hides_from_us_is_told_from_one_that_is_gone() -> None:
    """With /proc mounted as hidepid, unknown must not pass for gone."""
    script = f"mount -t proc -o hidepid=2 proc /proc && exec {sys.executable} -c '{HIDDEN}'"
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["None", "True", "False", "False"]


def test_no_line_of_the_audit_is_so_long_that_the_journal_would_part_it(helper: HelperProcess) -> None:
    names = [f"{number:02x}" for number in range(512)]
    asked: list[dict[str, Any]] = [
        {"verb": "hold", "units": names},
        {"verb": "hold", "units": ["é" * 600]},
        {"verb": "release", "units": names},
        {"verb": "é" * 600},
        {"verb": "kill", "launch": "", "name": "\\" * 1000},
    ]
    for request in asked:
        assert not helper.ask(**request)["ok"]
    lines = (helper.folder / "audit").read_text().splitlines()
    assert len(lines) == len(asked)
    assert max(map(len, lines)) < 2100, "the journal parts one beyond 48 KiB"


def test_a_flood_does_not_crowd_what_is_done_out_of_the_journal(helper: HelperProcess) -> None:
    with helper.connect() as caller:
        for _ in range(5000):
            exchange(caller, b'{"verb": "ping"}')
    with ExitStack() as crowd:
        for _ in range(300):
            crowd.enter_context(helper.connect())
    until = time.monotonic() + DEADLINE_S
    while not helper.start()["ok"]:  # the crowd's ends are still to be seen
        assert time.monotonic() < until
        time.sleep(0.2)
    lines = (helper.folder / "audit").read_text().splitlines()
    assert lines[-1] == "uid=0 asked='start demo' result='done'"
    assert "uid=0 asked='too many requests' result='refused'" in lines
    assert len(lines) < 1000, "the journal takes some 10,000 in 30 s, and drops what comes then"


def test_a_refusal_fits_into_a_reply_however_many_processes_there_are(helper: HelperProcess) -> None:
    helper.occupy(*range(1000, 31000))
    reply = helper.start()
    assert (reply["slug"], len(reply["pids"])) == ("left_overs", 100)


def test_many_processes_are_signalled_with_few_looks_at_their_group(tmp_path: Path) -> None:
    """Others wait behind it, and how many there are is the server's to say."""
    looks = []

    class Counted(Units):
        def pids(self, name: str) -> tuple[int, ...]:
            looks.append(name)
            return super().pids(name)

    group = tmp_path / "gpuagent-server@demo.service"
    group.mkdir()
    living = [subprocess.Popen(["sleep", "60"]) for _ in range(20)]
    outside = subprocess.Popen(["sleep", "60"])
    try:
        inside = [each.pid for each in living]
        (group / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in inside))
        Counted("/bin/true", tmp_path).signal("demo", (*inside, outside.pid, 4_000_000), signal.SIGTERM)
        assert [each.wait(DEADLINE_S) for each in living] == [-signal.SIGTERM] * 20
        assert outside.poll() is None
        assert len(looks) == 1
    finally:
        for each in [*living, outside]:
            each.kill()
            each.wait()
