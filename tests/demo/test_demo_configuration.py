"""The configuration that the demo writes, and the examples beside it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from agent.config import load

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "config" / "examples").glob("*.toml"))


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "demo")
    return importlib.import_module("demo")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_a_good_configuration(path: Path) -> None:
    assert load(path).servers


def test_the_demo_puts_its_own_paths_into_the_example(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / 'a "quoted" \\ checkout'
    monkeypatch.setattr(demo, "ROOT", checkout)
    monkeypatch.setattr(demo, "FOLDER", tmp_path)
    path = demo._configuration(tmp_path / "api.sock")
    config = load(path)
    assert "/opt/gpuagent/" not in "".join(line for line in path.read_text().splitlines() if not line.startswith("#"))
    assert config.agent.socket == tmp_path / "api.sock"
    assert config.agent.state_dir == checkout / ".demo" / "state"
    assert config.servers["demo"].command[:2] == (sys.executable, str(checkout / "demo" / "llama_server.py"))


def test_the_demo_knows_the_server_of_its_example(demo: ModuleType) -> None:
    config = load(demo.EXAMPLE)
    server = config.servers[demo.NAME]
    assert server.command[server.command.index("--port") + 1] == str(demo.PORT)
    assert config.agent.listen.endswith(demo.API.removeprefix("localhost"))


def test_a_checkout_too_deep_for_a_socket_gets_one_elsewhere(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "FOLDER", tmp_path / ("deep" * 30))
    with demo._socket() as socket:
        assert len(str(socket)) <= demo.SOCKET_BYTES
        assert socket.parent.is_dir()
    assert not socket.parent.exists()
