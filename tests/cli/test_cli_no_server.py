"""An agent whose configuration defines no server: it runs, says so, and takes the first one when there is one."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Call, Start

DEADLINE_S = 60.0  # generous: the machine may be busy
AGENT = '[agent]\nlisten = "off"\nstate_dir = "{folder}/state"\n'
SERVER = '[servers.demo]\ncommand = ["/bin/sleep", "1000"]\nfamily = "plain"\nport = 1\n'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "gpuagent.toml"
    path.write_text(AGENT.format(folder=tmp_path))
    return path


@pytest.fixture
def agent(start: Start, config: Path, socket: Path) -> subprocess.Popen[str]:
    """A real one, embedded."""
    return start("--socket", str(socket), "run", "--config", str(config))


def eventually(met: Callable[[], bool], what: str) -> None:
    """Wait until it is."""
    end = time.monotonic() + DEADLINE_S
    while not met():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.05)


def test_it_runs_and_says_what_to_do(agent: subprocess.Popen[str], call: Call, config: Path) -> None:
    eventually(lambda: call("status").exit_code == 0, "it answers")
    said = f"no server is defined: edit {config}, then: gpuagent reload"
    assert call("status").stdout == f"{said}\n"
    document = json.loads(call("status", "--json").stdout)
    assert (document["servers"], document["degraded"]) == ([], [f"no-server: {said}"])
    assert "then: gpuagent reload" in call("start").stderr
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(DEADLINE_S) == 0


def test_it_takes_the_first_server_and_gives_the_last_one_away(
    agent: subprocess.Popen[str], call: Call, config: Path
) -> None:
    eventually(lambda: call("status").exit_code == 0, "it answers")
    without = config.read_text()
    config.write_text(without + SERVER)
    assert call("reload").output == "added: demo\n"
    assert json.loads(call("status", "--json").stdout)["degraded"] == []
    assert call("stage").stdout == "down\n"
    config.write_text(without)
    assert call("reload").stdout == "removed: demo\n"
    assert call("status").stdout.startswith("no server is defined: edit ")
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(DEADLINE_S) == 0
