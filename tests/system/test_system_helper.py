"""Whoever has broken the agent speaks to the helper as its user, and may lay out every folder of the agent's anew."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.real.real_house import until
from tests.system.conftest import Boot
from tests.system.machine import CommandError, Machine
from tests.system.servers import CONFIGURATION, agent_of, cgroup, fake, live, start, start_agent, unit

SPEAK = """
import json, socket, sys
requests, connections = json.loads(sys.argv[1]), int(sys.argv[2])
replies = []
def connect():
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(60)
    connection.connect("/run/gpuagent-helper.sock")
    return connection
for _ in range(connections):
    with connect() as connection:
        for request in requests:
            connection.send(request.encode("latin-1") if isinstance(request, str) else json.dumps(request).encode())
            reply = connection.recv(65536)
            replies.append(json.loads(reply) if reply else None)
            if not reply:
                connection.close()
                connection = connect()
print(json.dumps(replies))
"""

SNAPSHOT = """
import hashlib, json, os, sys
def told(path):
    info = os.lstat(path)
    content = ""
    if os.path.islink(path):
        content = os.readlink(path)
    elif os.path.isfile(path):
        content = hashlib.sha256(open(path, "rb").read()).hexdigest()
    return [info.st_mode, info.st_uid, info.st_gid, content]
print(json.dumps({
    os.path.join(folder, name): told(os.path.join(folder, name))
    for top in sys.argv[1:] for folder, folders, files in os.walk(top) for name in folders + files
}))
"""
GUARDED = (
    "/etc",
    "/root",
    "/home",
    "/srv",
    "/opt/gpuagent",
    "/usr/local",
    "/usr/lib/systemd",
    "/var/spool",
    "/var/victim",
)
"""Folders in which nothing may change."""

CANARY = "canary-7d1f5a"
CORE = "gpuagent"


@pytest.fixture(scope="module")
def machine(boot: Boot) -> Machine:
    tables = [
        fake("target", 8301),
        fake("other", 8302),
        fake("secret", 8303, environment_file="/etc/gpuagent/secret.env"),
        fake("dirty", 8304),
    ]
    made: Machine = boot()
    made.write("/etc/gpuagent/secret.env", f"HF_TOKEN={CANARY}\n", 0o600)
    made.write("/var/victim/file", "untouched\n")
    start_agent(made, *tables)
    return made


@pytest.fixture(autouse=True)
def _rested(machine: Machine) -> None:
    """The helper begins anew with each test: it remembers how much it was asked."""
    machine.run("systemctl", "stop", "gpuagent-helper.service")


def speak(machine: Machine, *requests: Any, connections: int = 1, user: str = CORE) -> list[Any]:
    """What the helper answers to requests by `user`, in order. A text is sent as it is."""
    replies: list[Any] = machine.python(SPEAK, json.dumps(requests), str(connections), user=user)
    return replies


def snapshot(machine: Machine) -> Any:
    return machine.python(SNAPSHOT, *GUARDED)


def test_nobody_else_reaches_the_helper(machine: Machine) -> None:
    machine.run("useradd", "stranger")
    for user in ("stranger", "gpuagent-llm"):
        with pytest.raises(CommandError, match="PermissionError"):
            speak(machine, {"verb": "ping"}, user=user)


def test_the_helper_answers_the_agents_user(machine: Machine) -> None:
    assert [reply["ok"] for reply in speak(machine, {"verb": "ping"})] == [True]


@pytest.mark.parametrize(("each", "connections"), [(300, 1), (1, 300)], ids=["one connection", "a connection each"])
def test_many_quick_requests_are_all_answered(machine: Machine, each: int, connections: int) -> None:
    replies = speak(machine, *[{"verb": "ping"}] * each, connections=connections)
    assert len(replies) == 300
    assert all(reply["ok"] for reply in replies)
    assert machine.show("gpuagent-helper.socket", "ActiveState", "Result") == {
        "ActiveState": "active",
        "Result": "success",
    }


FOREIGN_NAMES = (
    "dbus",
    "../dbus",
    "gpuagent",
    "dbus.service",
    "x" * 200,
    "target\n",
    "target;id",
    "*",
    "TARGET",
    "-a",
)
STARTED = {"invocation": "abcdef01-1", "digest": "0" * 16}


def services(machine: Machine) -> list[str]:
    """All that systemd knows, with their states, but for the helper, which a request starts."""
    listed = machine.run("systemctl", "list-units", "--all", "--plain", "--no-legend", "--type=service").splitlines()
    return [line for line in listed if "gpuagent-helper" not in line]


@pytest.mark.parametrize("name", FOREIGN_NAMES)
def test_no_other_unit_can_be_named(machine: Machine, name: str) -> None:
    before = services(machine)
    replies = speak(
        machine,
        {"verb": "start", "name": name, **STARTED},
        {"verb": "terminate", "name": name, "whole": True, "launch": ""},
        {"verb": "kill", "name": name, "launch": ""},
        {"verb": "check", "name": name, "digest": "0" * 16},
    )
    assert [reply["ok"] for reply in replies] == [False] * 4
    assert {reply["slug"] for reply in replies} <= {"bad_request", "no_such_server"}
    assert services(machine) == before


MALFORMED: tuple[Any, ...] = (
    "{", "[]", "null", "\x00", "\xff\xfe", "[" * 3000, '{"verb": "ping", "verb": "kill"}', "x" * 4096,
    {"verb": "stop", "name": "target"}, {"verb": "start", "name": "target", "command": ["/bin/id"], **STARTED},
    {"verb": "start", "name": ["target"], **STARTED}, {"verb": None},
    {"verb": "kill", "name": "target", "launch": "", "pid": 1},
    {"verb": "start", "name": "target", "digest": "0" * 16, "invocation": "../../etc/x"},
)  # fmt: skip


@pytest.mark.parametrize("request_", MALFORMED, ids=range(len(MALFORMED)))
def test_what_is_malformed_does_nothing(machine: Machine, request_: Any) -> None:
    reply, alive = speak(machine, request_, {"verb": "ping"})
    assert reply is None or reply["ok"] is False
    assert alive["ok"]
    assert live(machine, "target") == []


def test_another_definition_than_the_agents_is_not_started(machine: Machine) -> None:
    (reply,) = speak(machine, {"verb": "start", "name": "target", **STARTED})
    assert (reply["ok"], reply["slug"]) == (False, "digest_differs")
    assert live(machine, "target") == []


def test_only_the_named_server_is_ended(machine: Machine) -> None:
    start(machine, "other")
    agent = agent_of(machine)
    bystander = machine.start("sleep", "600")
    any_launch = {"name": "target", "launch": ""}
    speak(machine, {"verb": "kill", **any_launch}, {"verb": "terminate", "whole": True, **any_launch})
    assert len(live(machine, "other")) == 1
    assert agent_of(machine) == agent
    assert bystander.poll() is None
    machine.run("gpuagent", "stop", "other")


def test_a_policy_that_others_could_write_is_refused(machine: Machine) -> None:
    def answer() -> str:
        (reply,) = speak(machine, {"verb": "kill", "name": "target", "launch": ""})
        return "ok" if reply["ok"] else str(reply["slug"])

    assert answer() == "ok"
    machine.run("chown", CORE, CONFIGURATION)
    assert answer() == "policy_unreadable"
    machine.run("chown", "root", CONFIGURATION)
    machine.run("chmod", "0666", CONFIGURATION)
    assert answer() == "policy_unreadable"
    machine.run("chmod", "0644", CONFIGURATION)
    machine.run("chmod", "0777", "/etc/gpuagent")
    assert answer() == "policy_unreadable"
    machine.run("chmod", "0755", "/etc/gpuagent")
    assert answer() == "ok"


ARRANGE = """
import os, shutil
done = []
def attempt(act, *arguments):
    try:
        act(*arguments)
    except OSError:
        return
    done.append(act.__name__)
def instead(path):
    attempt(shutil.rmtree, path)
    attempt(os.unlink, path)
    attempt(os.rename, path, path + ".away")
    attempt(os.symlink, "/var/victim", path)
tops = ["/var/lib/gpuagent", "/run/gpuagent", "/var/log/gpuagent", "/run/gpuagent-server", "/var/log/gpuagent/dirty"]
for top in tops:
    for name in os.listdir(top) if os.path.isdir(top) else ():
        instead(os.path.join(top, name))
    for name in ("dirty", "dirty.order.json", "dirty.launch.json", "dirty.exit.json", "dirty.check.json"):
        attempt(os.symlink, "/var/victim/" + name, os.path.join(top, name))
    instead(top)
print(done.count("symlink"))
"""


def test_folders_laid_out_by_the_core_make_root_write_nowhere_else(machine: Machine) -> None:
    start(machine, "dirty")
    machine.run("gpuagent", "stop", "dirty")
    machine.until_stage("dirty", "down")
    before = snapshot(machine)
    assert machine.python(ARRANGE, user=CORE) > 0, "nothing was laid out"
    digest = json.loads(machine.run("cat", "/run/gpuagent-server/dirty.launch.json"))["digest"]
    (started,) = speak(machine, {"verb": "start", "name": "dirty", "digest": digest, "invocation": "abcdef01-1"})
    assert started["ok"], started
    until(lambda: live(machine, "dirty"), "the server")
    speak(
        machine, {"verb": "check", "name": "dirty", "digest": digest}, {"verb": "kill", "name": "dirty", "launch": ""}
    )
    until(lambda: not live(machine, "dirty"), "its end")
    machine.run("systemctl", "restart", "gpuagent")  # systemd lays its own folders out again, as root
    assert snapshot(machine) == before
    machine.run("systemctl", "stop", "gpuagent")
    machine.run("rm", "-rf", "/var/lib/gpuagent", "/run/gpuagent")
    machine.run("systemctl", "start", "gpuagent")


REVEAL = """
import json, os, subprocess
said = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("cmdline", "environ"):
        try:
            said.append(open(f"/proc/{pid}/{name}", "rb").read().decode(errors="replace"))
        except OSError:
            pass
for top in ("/run", "/var/log", "/etc", "/var/lib", "/tmp"):
    for folder, _, files in os.walk(top):
        for name in files:
            try:
                fd = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NONBLOCK)
                said.append(os.read(fd, 1 << 20).decode(errors="replace"))
                os.close(fd)
            except OSError:
                pass
for command in (["systemctl", "show", "gpuagent-server@secret"], ["systemctl", "cat", "gpuagent-server@secret"],
                ["busctl", "introspect", "org.freedesktop.systemd1",
                 "/org/freedesktop/systemd1/unit/gpuagent_2dserver_40secret_2eservice"],
                ["busctl", "introspect", "--full", "org.freedesktop.systemd1", "/org/freedesktop/systemd1"]):
    said.append(subprocess.run(command, capture_output=True, text=True, errors="replace").stdout)
print(json.dumps("\\n".join(said)))
"""


def test_a_secret_is_seen_by_its_server_alone(machine: Machine) -> None:
    server = start(machine, "secret")
    assert CANARY in machine.run("cat", f"/proc/{server['pid']}/environ")
    for user in ("nobody", CORE):
        said = machine.python(REVEAL, user=user)
        assert unit("secret") in said
        assert CANARY not in said
    for path in ("/status", "/servers/secret", "/servers/secret/starts"):
        assert CANARY not in machine.ask("GET", path).text
    assert CANARY not in machine.run("journalctl", "--no-pager", "--all", "--output=verbose")
    assert CANARY not in machine.run("sh", "-c", "cat /run/gpuagent-server/* /var/log/gpuagent/secret/*")


def test_a_left_over_is_refused_and_named(machine: Machine) -> None:
    start(machine, "dirty")
    digest = json.loads(machine.run("cat", "/run/gpuagent-server/dirty.launch.json"))["digest"]
    machine.run("gpuagent", "stop", "dirty")
    machine.until_stage("dirty", "down")
    machine.run("systemctl", "stop", "gpuagent")  # which would end it
    folder = cgroup("dirty")
    machine.run("mkdir", "-p", folder)
    left = machine.start("sh", "-c", f'echo $$ >"{folder}/cgroup.procs"; exec sleep 600')
    (pid,) = until(lambda: machine.run("cat", f"{folder}/cgroup.procs").split(), "the left-over")
    (refused,) = speak(machine, {"verb": "start", "name": "dirty", "digest": digest, "invocation": "abcdef02-1"})
    assert (refused["ok"], refused["slug"]) == (False, "left_overs")
    assert int(pid) in refused["pids"]
    assert pid in refused["why"]
    (killed,) = speak(machine, {"verb": "kill", "name": "dirty", "launch": ""})
    assert killed["ok"], killed
    left.communicate(timeout=60)
    machine.run("systemctl", "start", "gpuagent")


def test_the_audit_names_every_verb(machine: Machine) -> None:
    speak(machine, {"verb": "kill", "name": "target", "launch": ""}, {"verb": "kill", "name": "dbus", "launch": ""})
    said = machine.log("gpuagent-helper")
    assert [line for line in said.splitlines() if "kill" in line and "target" in line]
    assert [line for line in said.splitlines() if "kill" in line and "dbus" in line]
