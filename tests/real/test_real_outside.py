"""A bad night outside the agent: full and read-only disks, broken files, storms of lines, secrets, other users."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.real.conftest import Make
from tests.real.real_house import FAKE, PATIENCE_S, ROOT, Agent, free_port, llama, table, until

NOBODY = 65534
SECRETS = ("s3cret-token-of-the-hub", "two words of a passphrase", "/folder-that-nobody-may-know")
SPEAKS = """
import os, time
print("token is", os.environ["HF_TOKEN"], "and", os.environ["PHRASE"], flush=True)
print("error: invalid argument:", os.environ["HF_TOKEN"], flush=True)
raise SystemExit(1)
"""
STORM = """
import os, sys, time
end = time.monotonic() + 4
while time.monotonic() < end:
    os.write(1, (b"x" * 80 + b"\\n") * 500)
    time.sleep(0.01)
os.write(1, b"y" * 1_000_000 + b"\\xff\\xfe\\n" + b"error: invalid argument: --last\\n")
os._exit(1)
"""


def python(name: str, program: str, family: str = "plain", **keys: object) -> str:
    return table(name, [FAKE[0], "-S", "-c", program], family, port=free_port(), autostart=True, **keys)


def fake(name: str = "demo", **keys: object) -> str:
    port = free_port()
    return table(name, [*FAKE, "--port", str(port)], port=port, **{"autostart": True, **keys})


def degraded(agent: Agent) -> str:
    marks: list[str] = agent.get("/status").document["degraded"]
    return "; ".join(marks)


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A filesystem of 256 KiB of its own; skips where mounting is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting is not permitted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """A file that takes all the room there is."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return path


def test_values_of_the_environment_file_are_shown_by_no_face(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "secrets.env"
    file.write_text(f'HF_TOKEN={SECRETS[0]}\nPHRASE="{SECRETS[1]}"\nPATH={SECRETS[2]}\n')
    given = {"environment_file": str(file)}
    lost = table("lost", ["no-such-server"], port=free_port(), autostart=True, **given)
    agent = make(python("demo", SPEAKS, "llama_cpp", **given), lost).start()
    assert agent.until_stage("failed")["cause"]["slug"] == "bad_flag"
    assert agent.until_stage("failed", name="lost")["cause"]["slug"] == "exec_missing"
    log = next((agent.logs / "demo").glob("*.log"))
    assert SECRETS[0] in log.read_text(), "the server itself has it"
    shown = [agent.get(path).text for path in ("/status", "/servers/demo", "/servers/lost", "/servers/demo/log")]
    shown += [agent.get("/servers/demo/wait").text, agent.curl("/status").text, agent.curl("/servers/lost").text]
    shown += [agent.cli(*words).stdout for words in (("log", "demo"), ("why", "demo"), ("why", "lost"), ("status",))]
    shown += [agent.own_log.read_text(), agent.state.read_text()]
    assert not [(secret, text) for secret in SECRETS for text in shown if secret in text]
    assert "token is ***" in agent.get("/servers/demo/log").text
    assert agent.end() == 0


def test_a_full_disk_refuses_a_start_and_lets_a_stop_through_which_is_saved_when_there_is_room(
    make: Make, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "state"):
        agent = make(fake(), fake("other", autostart=False)).start()
        agent.until_stage("ready")
        filler = fill(agent.state.parent)
        refused = agent.cli("start", "other")
        assert refused.returncode == 7
        assert "No space left on device" in refused.stderr
        assert agent.cli("stop", "demo").returncode == 0
        agent.until_stage("down")
        assert "state-not-saved: No space left on device" in degraded(agent)
        filler.unlink()
        assert agent.cli("start", "other").returncode == 0
        marks, saved = degraded(agent), json.loads(agent.state.read_text())["servers"]
        assert "state-not-saved" in marks or saved["demo"]["want"] == "down", "a save of one is no save of the other"
        until(lambda: "state-not-saved" not in degraded(agent), "the save that was missing")
        wants = {name: server["want"] for name, server in json.loads(agent.state.read_text())["servers"].items()}
        assert wants == {"demo": "down", "other": "up"}
        assert agent.end() == 0


def test_a_full_disk_of_the_logs_does_not_keep_the_real_server_down(make: Make, tmp_path: Path, model: Path) -> None:
    with small_disk(tmp_path / "log"):
        command = llama(model, free_port())
        agent = make(table("demo", command, "llama_cpp", autostart=True, restart={"pauses_s": [0.1]})).start()
        pid = agent.until_stage("ready")["pid"]
        fill(agent.logs)
        os.kill(pid, signal.SIGKILL)
        agent.until(lambda server: server["stage"] == "ready" and server["pid"] != pid, "the next attempt")
        assert agent.end() == 0


@pytest.mark.parametrize(
    "content",
    [b"\x00\xffnoise", b"", b"[]", b'{"version": 99, "servers": {}}', b"[" * 100_000, b"x" * 3_000_000],
    ids=["noise", "empty", "a list", "newer", "deep", "huge"],
)
def test_a_state_file_that_is_not_understood_is_set_aside_and_said(make: Make, content: bytes) -> None:
    agent = make(fake())
    agent.state.parent.mkdir()
    agent.state.write_bytes(content)
    agent.start()
    agent.until_stage("ready")
    assert "set aside" in degraded(agent)
    aside = list(agent.state.parent.glob("state.json.broken-*"))
    assert [path.read_bytes() for path in aside] == [content]
    assert agent.end() == 0


def test_a_state_that_cannot_be_had_ends_the_agent_with_its_reason_and_not_as_a_second_one(make: Make) -> None:
    unreadable = make(fake())
    unreadable.state.mkdir(parents=True)
    assert unreadable.run().wait(PATIENCE_S) == 1
    assert "Is a directory" in unreadable.own_log.read_text()
    shutil.rmtree(unreadable.state.parent)
    unreadable.state.parent.write_text("a file in the place of the folder")
    assert unreadable.run().wait(PATIENCE_S) == 1
    assert unreadable.left() == []


def test_a_log_that_cannot_be_read_ends_nothing_and_is_said(make: Make) -> None:
    agent = make(fake(restart={"pauses_s": [0.1]})).start()
    server = agent.until_stage("ready")
    log = agent.logs / "demo" / f"{server['invocation']}.log"
    log.unlink()
    log.mkdir()
    until(lambda: "log-not-seen: demo" in degraded(agent), "the mark")
    os.kill(server["pid"], signal.SIGKILL)
    again = agent.until(lambda now: now["stage"] == "ready" and now["pid"] != server["pid"], "the next attempt")
    assert again["attempt"] == 2
    until(lambda: "log-not-seen" not in degraded(agent), "the end of the mark")
    assert agent.end() == 0


def test_a_log_folder_behind_a_link_is_fine_until_the_link_leads_nowhere(make: Make, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    agent = make(fake())
    agent.logs.symlink_to(elsewhere)
    agent.start()
    server = agent.until_stage("failed")
    assert (server["cause"]["slug"], server["attempt"]) == ("log_unwritable", 0)
    elsewhere.mkdir()
    agent.until_stage("ready")
    assert list(elsewhere.glob("demo/*.log"))
    assert agent.end() == 0


def test_a_storm_of_lines_and_a_line_of_megabytes_delay_nobody_and_hide_nothing(make: Make) -> None:
    agent = make(python("demo", STORM, "llama_cpp")).start()
    agent.until(lambda server: server["pid"], "launched")
    while agent.server()["stage"] == "starting":
        assert agent.curl("/live").status == 200
        time.sleep(0.2)
    server = agent.until_stage("failed")
    assert server["cause"]["slug"] == "bad_flag"
    assert "--last" in server["cause"]["text"]
    assert agent.cli("log", "demo", "-n", "1").stdout == "error: invalid argument: --last\n"
    assert agent.end() == 0


@pytest.mark.parametrize(
    "request_",
    [
        b"\x00\xff\r\n\r\n",
        b"G" * 200_000,
        b"GET /servers/../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /servers/demo/wait?timeout=nan HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /servers/demo/log?lines=99999999999999999999 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /servers/demo/stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n{{{{{",
        b"POST /servers/demo/stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999\r\n\r\n",
        b"DELETE /status HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["bytes", "endless", "path", "nan", "lines", "body", "long body", "method"],
)
def test_garbage_is_refused_and_changes_nothing(asked: Agent, request_: bytes) -> None:
    for family, address in ((socket.AF_UNIX, str(asked.socket)), (socket.AF_INET, ("127.0.0.1", asked.tcp_port))):
        with socket.socket(family) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(address)
            connection.sendall(request_)
            assert connection.recv(12)[9:10] == b"4", "HTTP/1.1 4xx"
    assert (asked.server()["stage"], asked.server()["want"]) == ("ready", "up")


@pytest.fixture(scope="module")
def asked(make_shared: Make) -> Agent:
    agent: Agent = make_shared(fake()).start()
    agent.until_stage("ready")
    return agent


def test_tcp_changes_nothing(asked: Agent) -> None:
    with socket.create_connection(("127.0.0.1", asked.tcp_port)) as connection:
        connection.sendall(b"POST /servers/demo/stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 403"
    assert asked.server()["want"] == "up"


def test_a_socket_path_that_is_too_long_is_a_fault_of_the_configuration(make: Make, tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    agent = make(fake(), folder=deep)
    assert agent.run().wait(PATIENCE_S) == 2
    assert "agent.socket: is too long" in agent.own_log.read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_what_an_ordinary_user_may_not_do_is_named(make: Make, tmp_path_factory: pytest.TempPathFactory) -> None:
    # The environment's own Python may lie in a home that this user must not enter; the system's does not.
    system = ["/usr/bin/python3", "-S", str(ROOT / "tests" / "fakes" / "server.py")]
    if not Path(system[0]).exists():
        pytest.skip("no Python of the system")
    with open_folder() as folder:
        model, secrets, closed = folder / "model.bin", folder / "secrets.env", folder / "closed"
        for path in (model, secrets):
            path.write_text("KEY=value\n")
            path.chmod(0o600)
        closed.mkdir(mode=0o700)
        (folder / "log" / "no-log").mkdir(parents=True)
        os.chown(folder / "log", NOBODY, NOBODY)
        port = free_port()
        agent = make(
            table("demo", [*system, "--port", str(port)], port=port, autostart=True, model=[str(model)]),
            table("secrets", system, port=free_port(), autostart=True, environment_file=str(secrets)),
            table("program", [str(closed / "server")], port=free_port(), autostart=True),
            table("folder", system, port=free_port(), autostart=True, working_dir=str(closed / "deeper")),
            table("no-log", system, port=free_port(), autostart=True),
            folder=folder,
        )
        agent.start("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        slugs = {
            "demo": ("model_unreadable", "is not readable: Permission denied"),
            "secrets": ("bad_env", "is not readable: Permission denied"),
            "program": ("exec_not_executable", "may not be entered"),
            "folder": ("launch_failed", "may not be entered"),
            "no-log": ("log_unwritable", "is not writable"),
        }
        for name, (slug, words) in slugs.items():
            cause = agent.until_stage("failed", name=name)["cause"]
            assert cause["slug"] == slug
            assert words in cause["text"]
        model.chmod(0o644)
        agent.until_stage("ready")
        assert agent.end() == 0


@contextmanager
def open_folder() -> Iterator[Path]:
    """One that another user may enter: pytest's are closed to all but their owner."""
    made = subprocess.run(["mktemp", "-d"], check=True, capture_output=True, text=True)
    folder = Path(made.stdout.strip())
    folder.chmod(0o755)
    os.chown(folder, NOBODY, NOBODY)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
