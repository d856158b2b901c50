from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.real.real_house import FAKE, ROOT, Agent, free_port, table

Make = Callable[..., Agent]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny real model, made once."""
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    maker = [sys.executable, str(ROOT / "demo" / "make_model.py"), "--size", "tiny", "--out", str(path)]
    subprocess.run(maker, check=True, stdout=subprocess.DEVNULL, timeout=120)
    return path


def _agents(folder: Callable[[], Path]) -> Iterator[Make]:
    with ExitStack() as ended:

        def make(*tables: str, **more: Any) -> Agent:
            agent = Agent(more.pop("folder", None) or folder(), *tables, **more)
            ended.callback(agent.clear_away)
            return agent

        yield make


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes agents, which the test starts and ends itself."""
    yield from _agents(lambda: tmp_path)


@pytest.fixture(scope="module")
def make_shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """The same for agents that several tests look at."""
    yield from _agents(lambda: tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="session", autouse=True)
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """A server that was ready and is stopped by SIGSTOP: three probes must time out before that is said, so it is
    frozen before the first test and looked at by the last."""
    port = free_port()
    server = table("demo", [*FAKE, "--port", str(port)], port=port, autostart=True, unhealthy_s=1, stop_s=1)
    agent = Agent(tmp_path_factory.mktemp("frozen"), server)
    try:
        os.kill(agent.start().until_stage("ready")["pid"], signal.SIGSTOP)
        yield agent
    finally:
        agent.clear_away()
