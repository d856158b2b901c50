"""Run by smoke.sh from "/", with the installed wheel and nothing of the checkout: does what is shipped work?"""

from __future__ import annotations

import importlib.metadata
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import agent

COMMAND = str(Path(sys.executable).parent / "gpuagent")
READY_S = 60  # generous: it takes about one second
END_S = 30

CONFIG = """
[agent]
listen = "off"
socket = "{folder}/api.sock"
state_dir = "{folder}/state"

[servers.files]
# Not an inference server: it answers, which is all that is asked of it here.
command = ["{python}", "-m", "http.server", "{port}", "--bind", "127.0.0.1", "--directory", "{folder}"]
family = "plain"
port = {port}
health_path = "/"
"""


def gpuagent(*words: str, environ: dict[str, str] | None = None, code: int = 0) -> str:
    """What `gpuagent words` prints; it must end with `code`."""
    done = subprocess.run([COMMAND, *words], capture_output=True, text=True, timeout=READY_S + 30, env=environ)
    assert done.returncode == code, f"gpuagent {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


def free_port() -> int:
    """A port that nobody listens on right now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def the_package_is_ours() -> None:
    """`agent` is a common name: nothing else may have put its modules into it."""
    assert agent.__file__ is not None
    assert Path(agent.__file__).is_relative_to(sys.prefix), agent.__file__
    assert importlib.metadata.packages_distributions()["agent"] == ["gpuagent"]
    assert importlib.metadata.version("gpuagent") in gpuagent("--version")


def a_server_lives_and_ends(folder: Path) -> None:
    """From launch to stop, by the command line alone."""
    config = folder / "gpuagent.toml"
    config.write_text(CONFIG.format(folder=folder, python=sys.executable, port=free_port()))
    gpuagent("check-config", str(config))
    environ = os.environ | {"GPUAGENT_SOCKET": str(folder / "api.sock")}
    daemon = subprocess.Popen([COMMAND, "run", "--config", str(config)])
    try:
        wait_for_the_socket(daemon, folder / "api.sock")
        assert gpuagent("stage", "files", environ=environ) == "down"
        gpuagent("start", "files", environ=environ)
        gpuagent("wait", "files", "--timeout", str(READY_S), environ=environ)
        assert gpuagent("stage", "files", environ=environ) == "ready"
        gpuagent("stop", "files", "--wait", "--timeout", str(END_S), environ=environ)
        assert gpuagent("stage", "files", environ=environ) == "down"
    finally:
        daemon.send_signal(signal.SIGTERM)
        ended = daemon.wait(END_S)
    assert ended == 0, f"the agent ended with {ended}"


def wait_for_the_socket(daemon: subprocess.Popen[bytes], path: Path) -> None:
    """Until the agent answers; by waiting for its own end, so that an early one is told at once."""
    for _ in range(READY_S * 10):
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
            return
        except OSError:
            try:
                daemon.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(f"the agent ended with {daemon.returncode}") from None
    raise AssertionError(f"the agent does not listen on {path}")


def main() -> None:
    """Every check; the first that fails ends it."""
    the_package_is_ours()
    with tempfile.TemporaryDirectory(prefix="gpuagent-smoke-") as folder:
        a_server_lives_and_ends(Path(folder))
    print(f"smoke: ok (Python {sys.version.split()[0]}, gpuagent {importlib.metadata.version('gpuagent')})")


main()
