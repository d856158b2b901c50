"""The demo's model and launcher, with llama.cpp's real server."""

from __future__ import annotations

import http.client
import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

DEMO = Path(__file__).resolve().parents[2] / "demo"
DEADLINE_S = 60.0  # of everything: generous, for a machine that does much else
POLL_S = 0.02


def make_model(path: Path, size: str = "tiny") -> subprocess.CompletedProcess[str]:
    """Run the model maker as a user would."""
    command = [sys.executable, str(DEMO / "make_model.py"), "--size", size, "--out", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model."""
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    assert make_model(path).returncode == 0
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def command(*flags: str) -> list[str]:
    return [sys.executable, str(DEMO / "llama_server.py"), *flags]


def run(*flags: str) -> tuple[int, str]:
    """Exit code and all that a server that ends by itself has printed."""
    done = subprocess.run(
        command(*flags), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_S
    )
    return done.returncode, done.stdout


@contextmanager
def server(log: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A running server and its port; killed at the end if it still runs."""
    port = free_port()
    with log.open("wb") as output:
        process = subprocess.Popen(command(*flags, "--port", str(port)), stdout=output, stderr=output)
    try:
        yield process, port
    finally:
        process.kill()
        process.wait()


def ask(port: int, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and JSON of an answer; a POST when there is a body. OSError: nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    try:
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    """A zombie does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def await_health(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text(errors="replace")
        try:
            if ask(port, "/health")[0] == 200:
                return
        except OSError:
            pass  # it does not listen yet
        time.sleep(POLL_S)
    pytest.fail("not ready: " + log.read_text(errors="replace"))


def test_the_tiny_model_answers_a_completion_in_printable_ascii(model: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with server(log, "-m", str(model), "-a", "tiny", "-c", "256", "-lv", "4", "--load-mode", "none") as (process, port):
        await_health(process, port, log)
        status, answer = ask(port, "/v1/completions", {"prompt": "the agent", "max_tokens": 64})
        assert status == 200
        assert answer["model"] == "tiny"
        text = answer["choices"][0]["text"]
        assert len(text) >= 64
        assert text.isascii()
        assert text.isprintable()
        status, answer = ask(port, "/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}]})
        assert status == 200


def test_the_log_shows_every_step_of_a_load(model: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with server(log, "-m", str(model), "-c", "256", "-lv", "4") as (process, port):
        await_health(process, port, log)
    text = log.read_text(errors="replace")
    marks = ["load_tensors: loading model tensors", "KV buffer size", "warming up the model", "listening on http://"]
    places = [text.find(mark) for mark in marks]
    assert -1 not in places, text
    assert places == sorted(places)


def test_a_sigterm_while_it_serves_ends_it_with_code_0(model: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with server(log, "-m", str(model), "-c", "256") as (process, port):
        await_health(process, port, log)
        process.terminate()
        assert process.wait(DEADLINE_S) == 0
    assert "cleaning up before exit" in log.read_text(errors="replace")


def test_no_process_but_the_server_is_left_after_the_load(model: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with server(log, "-m", str(model), "-c", "256", "--load-mode", "none") as (process, port):
        await_health(process, port, log)
        assert children(process.pid) == []


def test_dots_tell_the_progress_and_a_sigterm_while_it_loads_ends_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(DEMO)
    make_model = importlib.import_module("make_model")
    path, log = tmp_path / "small.gguf", tmp_path / "log"
    make_model.make(path, make_model.Shape(hidden=1024, layers=8, inner=4096, context=8192, quantized=True))
    # The context takes longest, and comes after the dots: time enough to end it before it is ready.
    with server(log, "-m", str(path), "-c", "32768", "--load-mode", "dio", "--check-tensors") as (process, _):
        artists: list[int] = []
        deadline = time.monotonic() + DEADLINE_S
        while not re.search(rb"^\.+", log.read_bytes(), re.MULTILINE) and time.monotonic() < deadline:
            assert process.poll() is None, log.read_text(errors="replace")
            artists = children(process.pid) or artists
            time.sleep(POLL_S / 4)
        process.terminate()
        assert process.wait(DEADLINE_S) == -signal.SIGTERM
    assert len(artists) == 1
    while alive(artists[0]) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    assert not alive(artists[0])


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--bogus"], "error: invalid argument: --bogus"),
        (["--port", "many"], "error while handling argument: argument --port: invalid int value: 'many'"),
    ],
)
def test_a_wrong_flag_is_exit_1_with_one_line(model: Path, flags: list[str], said: str) -> None:
    assert run("-m", str(model), *flags) == (1, said + "\n")


def test_a_missing_model_is_exit_1_with_the_lines_of_llama_cpp(tmp_path: Path) -> None:
    code, text = run("-m", str(tmp_path / "none.gguf"), "--port", str(free_port()), "--load-mode", "none")
    assert code == 1
    assert re.search(r"failed to open GGUF file '.*none\.gguf' \(No such file or directory\)", text)
    assert "Traceback" not in text


def test_a_truncated_model_is_exit_1_with_the_lines_of_llama_cpp(model: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(model.read_bytes()[:300_000])
    code, text = run("-m", str(cut), "--port", str(free_port()), "--load-mode", "none")
    assert code == 1
    assert "failed to load model" in text
    assert "Traceback" not in text


def test_a_taken_port_is_exit_1_before_anything_is_loaded(model: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, text = run("-m", str(model), "--port", str(taken.getsockname()[1]))
    assert code == 1
    assert "couldn't bind HTTP server socket" in text
    assert "Traceback" not in text


def test_a_model_that_is_there_is_left_alone(model: Path) -> None:
    before = model.stat()
    assert make_model(model).returncode == 0
    after = model.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_model_that_was_cut_off_is_made_anew(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(model.read_bytes()[:300_000])
    assert make_model(path).returncode == 0
    assert path.read_bytes() == model.read_bytes()


def test_leftovers_of_a_killed_maker_go_and_those_of_a_running_one_stay(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    left, running = tmp_path / f"tiny.gguf.{ended.pid}.part", tmp_path / f"tiny.gguf.{os.getpid()}.part"
    left.touch()
    running.touch()
    assert make_model(tmp_path / "tiny.gguf").returncode == 0
    assert not left.exists()
    assert running.exists()


def test_a_folder_that_cannot_be_made_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = make_model(tmp_path / "file" / "tiny.gguf")
    assert done.returncode == 1
    assert done.stderr.startswith("make_model: cannot write the model to ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_maker_that_is_told_to_end_leaves_no_half_file(tmp_path: Path, number: signal.Signals) -> None:
    maker = subprocess.Popen([sys.executable, str(DEMO / "make_model.py"), "--out", str(tmp_path / "demo.gguf")])
    deadline = time.monotonic() + DEADLINE_S
    while not any(tmp_path.glob("*.part")) and maker.poll() is None and time.monotonic() < deadline:
        time.sleep(POLL_S)
    maker.send_signal(number)
    assert maker.wait(DEADLINE_S) == 128 + number
    assert list(tmp_path.iterdir()) == []
