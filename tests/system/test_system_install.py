"""From a bare Debian to the real server of the demo, as the README says it."""

from __future__ import annotations

import json
import re

import pytest

from tests.real.real_house import table, until
from tests.system.conftest import Boot
from tests.system.installed import INSTALL_S, OFFLINE, Installed
from tests.system.machine import SOURCE, CommandError, Machine
from tests.system.servers import agent_of, fake, processes, start_agent, until_other_agent

MODEL = "/home/llm/models/tiny.gguf"
VETH = "10.99.0.1"
ADDRESSES = {"demo": ("127.0.0.1", 8601), "far": (VETH, 8602), "wide": ("0.0.0.0", 8603)}

PREPARE = f"""
set -eu
useradd --create-home --user-group llm
chmod 0700 /home/llm
install -d -o llm -g llm -m 0700 /home/llm/models
runuser -u llm -- /opt/demo/bin/python {SOURCE}/demo/make_model.py --size tiny --out {MODEL}
ip link add veth0 type veth peer name veth1
ip address add {VETH}/24 dev veth0
ip link set veth0 up
ip link set veth1 up
"""

COMPLETE = """
import http.client, json, sys
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=60)
connection.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 4}))
print(json.dumps(json.loads(connection.getresponse().read())["choices"][0]["text"]))
"""


def llama(name: str) -> str:
    host, port = ADDRESSES[name]
    command = ["/opt/demo/bin/python", f"{SOURCE}/demo/llama_server.py", "--model", MODEL, "--host", host]
    command += ["--port", str(port), "--ctx-size", "64", "--threads", "1", "--verbosity", "4"]
    return table(name, command, "llama_cpp", autostart=True, user="llm")


@pytest.fixture(scope="module")
def machine(boot: Boot) -> Machine:
    made: Machine = boot()
    made.run("sh", "-c", PREPARE)
    return start_agent(made, *map(llama, ADDRESSES))


@pytest.mark.parametrize("name", ADDRESSES)
def test_the_real_server_is_ready_and_answers(machine: Machine, name: str) -> None:
    machine.until_stage(name, "ready")
    host, port = ADDRESSES[name]
    assert machine.python(COMPLETE, VETH if name == "wide" else host, str(port))


def test_the_server_is_another_user_than_the_agent_and_its_model_is_private(machine: Machine) -> None:
    server = machine.until_stage("demo", "ready")
    users = machine.run("ps", "-o", "user=", "-p", f"{server['pid']},{agent_of(machine).pid}").split()
    assert sorted(users) == ["gpuagent", "llm"]
    with pytest.raises(CommandError, match="Permission denied"):
        machine.run("cat", MODEL, user="gpuagent")


def test_systemctl_status_shows_the_stage_in_words(machine: Machine) -> None:
    machine.until_stage("demo", "ready")
    until(
        lambda: re.search(r"Status: .*demo: answers", machine.run("systemctl", "status", "gpuagent")), "a status of it"
    )


def test_the_commands_work_as_root_and_tell_what_runs(machine: Machine) -> None:
    machine.until_stage("demo", "ready")
    assert machine.run("gpuagent", "stage", "demo") == "ready\n"


def test_the_helper_and_the_agent_have_no_failed_unit(machine: Machine) -> None:
    machine.until_stage("demo", "ready")
    assert machine.run("systemctl", "--failed", "--no-legend", "--plain") == ""


def test_the_agents_log_has_no_traceback(machine: Machine) -> None:
    machine.until_stage("demo", "ready")
    assert "Traceback" not in machine.log("gpuagent") + machine.log("gpuagent-helper")


def test_installing_again_keeps_the_servers_running(machine: Machine) -> None:
    before, agent = machine.until_stage("demo", "ready"), agent_of(machine).pid
    machine.run(*OFFLINE, "make", "-C", SOURCE, "install", deadline_s=INSTALL_S)
    until_other_agent(machine, agent)
    after = machine.until_stage("demo", "ready")
    assert (after["pid"], after["invocation"]) == (before["pid"], before["invocation"])


def test_an_install_says_what_to_do_next(installed: Installed) -> None:
    assert "systemctl enable --now gpuagent" in installed.said


FILES = """
import json, os
print(json.dumps(sorted(
    os.path.join(folder, name)
    for top in ("/etc", "/usr", "/opt", "/var/lib", "/var/log", "/run") for folder, folders, files in os.walk(top)
    for name in folders + files if "gpuagent" in name
)))
"""


def test_uninstalling_leaves_nothing_but_what_was_asked_for(boot: Boot) -> None:
    machine = boot()
    assert "/opt/gpuagent" in machine.python(FILES)
    start_agent(machine, fake("demo", 8604))
    machine.run(*OFFLINE, "make", "-C", SOURCE, "uninstall")
    left = machine.python(FILES)
    assert "/opt/gpuagent" not in left
    assert [path for path in left if "/systemd/" in path or path.startswith("/usr/")] == [], json.dumps(left)
    assert "/etc/gpuagent/gpuagent.toml" in left
    assert processes(machine, "/sys/fs/cgroup/gpuagent.slice/gpuagent.service") == []
    machine.run(*OFFLINE, "make", "-C", SOURCE, "uninstall", "PURGE=1")
    assert machine.python(FILES) == []
    assert "gpuagent" not in machine.run("cat", "/etc/passwd", "/etc/group")
