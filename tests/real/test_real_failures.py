"""Everything that can be wrong with a server, all at once under one agent: each is named right, and retried only where
that can help."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real.conftest import Make
from tests.real.real_house import FAKE, Agent, Document, free_port, llama, table

BEFORE_THE_LAUNCH = 0  # attempts
QUICKLY = {"pauses_s": [0.1]}


def broken_models(folder: Path, model: Path) -> dict[str, Path]:
    """Name -> what stands in the model's place."""
    whole = model.read_bytes()
    contents = {"garbage": b"no model at all" * 1000, "cut": whole[: len(whole) // 2], "cut-head": whole[:1000]}
    models = {name: folder / f"{name}.gguf" for name in ("empty", "absent", "folder", "empty-folder")}
    models |= {name: folder / f"{name}.bin" for name in contents}  # with their true suffix they would not be launched
    for name, content in contents.items():
        models[name].write_bytes(content)
    models["empty"].touch()
    models["empty-folder"].mkdir()
    models["folder"].mkdir()
    (models["folder"] / "README").write_text("the weights are elsewhere")
    return models


def broken_programs(folder: Path) -> dict[str, list[str]]:
    """Name -> command."""
    programs = {name: folder / name for name in ("plain-text", "no-interpreter", "no-format")}
    programs["plain-text"].write_text("#!/bin/sh\n")
    programs["no-interpreter"].write_text("#!/no/such/interpreter\n")
    programs["no-format"].write_text("hello")
    for name in ("no-interpreter", "no-format"):
        programs[name].chmod(0o755)
    return {
        "no-program": ["/no/such/server"],
        "not-in-path": ["no-such-server"],
        "folder-program": [str(folder)],
        **{name: [str(path)] for name, path in programs.items()},
    }


SHORT_LIVED = {
    "exits-0": ["/bin/sh", "-c", "echo bye"],
    "exits-3": ["/bin/sh", "-c", "echo oops; exit 3"],
    "at-once": ["/bin/true"],
    "crashes": ["/bin/sh", "-c", "kill -SEGV $$"],
    "killed": ["/bin/sh", "-c", "kill -KILL $$"],
    "silent": ["/bin/sh", "-c", "exec >&- 2>&-; exit 4"],
    "daemon": ["/bin/sh", "-c", "setsid sleep 600 & exit 0"],
}


@pytest.fixture(scope="module")
def taken_port() -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    port = free_port()
    squatter = subprocess.Popen([*FAKE, "--port", str(port), "--title", "squatter"], stdout=subprocess.PIPE)
    assert squatter.stdout is not None
    while b"listening" not in squatter.stdout.readline():
        assert squatter.poll() is None
    yield port, squatter
    squatter.kill()
    squatter.wait()
    squatter.stdout.close()


@pytest.fixture(scope="module")
def night(
    make_shared: Make, model: Path, tmp_path_factory: pytest.TempPathFactory, taken_port: tuple[int, object]
) -> Agent:
    folder = tmp_path_factory.mktemp("night")
    (folder / "log").mkdir()
    (folder / "log" / "no-log").write_text("a file in the place of a folder")

    def real(name: str, path: Path, *flags: str, port: int | None = None, **keys: Any) -> str:
        return table(name, llama(path, port or free_port(), *flags), "llama_cpp", autostart=True, **keys)

    def other(name: str, command: list[str], **keys: Any) -> str:
        return table(name, command, autostart=True, port=free_port(), restart=QUICKLY, **keys)

    agent: Agent = make_shared(
        *(real(name, path) for name, path in broken_models(folder, model).items()),
        *(other(name, command) for name, command in broken_programs(folder).items()),
        *(other(name, command) for name, command in SHORT_LIVED.items()),
        real("flag", model, "--no-such-flag"),
        real("value", model, "--ctx-size", "many"),
        real("taken", model, port=taken_port[0]),
        other("no-log", FAKE),
        other("no-environment", FAKE, environment_file="/no/such/file"),
        other("no-folder", FAKE, working_dir="/no/such/folder"),
        other("address", [*FAKE, "--host", "192.0.2.1"], host="192.0.2.1"),
        folder=folder,
    )
    return agent.start()


def failed(night: Agent, name: str) -> Document:
    return night.until_stage("failed", name=name)


def test_every_server_is_there_from_the_first_answer_on(make: Make) -> None:
    names = [f"s{number}" for number in range(60)]
    agent = make(*(table(name, ["/no/such/server"], port=free_port(), autostart=True) for name in names)).start()
    assert [server["name"] for server in agent.get("/status").document["servers"]] == names
    assert agent.end() == 0


@pytest.mark.parametrize(
    ("name", "slug", "words"),
    [
        ("absent", "missing_weights", "does not exist"),
        ("empty", "missing_weights", "is empty"),
        ("empty-folder", "missing_weights", "is empty"),
        ("no-program", "exec_missing", "Executable not found: /no/such/server"),
        ("not-in-path", "exec_missing", "Executable not found: no-such-server"),
        ("folder-program", "exec_not_executable", "is a folder"),
        ("plain-text", "exec_not_executable", "Not executable"),
        ("no-interpreter", "exec_not_executable", "/no/such/interpreter"),
        ("no-log", "log_unwritable", "is not a folder"),
        ("no-environment", "bad_env", "/no/such/file does not exist"),
        ("no-folder", "launch_failed", "Working folder /no/such/folder does not exist"),
    ],
)
def test_what_cannot_work_is_named_before_anything_is_launched(night: Agent, name: str, slug: str, words: str) -> None:
    server = failed(night, name)
    assert server["cause"]["slug"] == slug
    assert words in server["cause"]["text"]
    assert server["cause"]["remedy"]
    assert server["attempt"] == BEFORE_THE_LAUNCH
    assert not list(night.logs.glob(f"{name}/*"))


@pytest.mark.parametrize(
    ("name", "slug", "words"),
    [
        ("garbage", "missing_weights", "magic"),
        ("cut", "missing_weights", "not within the file bounds"),
        ("cut-head", "missing_weights", "failed to read"),
        ("folder", "missing_weights", "failed to read magic"),
        ("flag", "bad_flag", "--no-such-flag"),
        ("value", "bad_flag", "many"),
    ],
)
def test_what_the_real_server_says_of_its_failure_is_the_cause_and_is_not_retried(
    night: Agent, name: str, slug: str, words: str
) -> None:
    server = failed(night, name)
    assert server["cause"]["slug"] == slug
    assert words in server["cause"]["text"]
    assert (server["cause"]["retry"], server["attempt"]) == ("no", 1)
    assert (server["exit"]["code"], server["exit"]["signal"]) == (1, None)
    assert server["step"] == ("launched" if slug == "bad_flag" else "loading-weights"), "the step that it died in"


@pytest.mark.parametrize("name", ["garbage", "cut", "cut-head", "folder", "flag"])
def test_explain_finds_the_same_cause_from_the_log_alone(night: Agent, name: str) -> None:
    server = failed(night, name)
    log = night.logs / name / f"{server['invocation']}.log"
    told = json.loads(night.cli("explain", "--json", str(log)).stdout)
    assert told["outcome"] == "crash"
    assert (told["cause"]["slug"], told["cause"]["line"]) == (server["cause"]["slug"], server["cause"]["line"])


@pytest.mark.parametrize(
    ("name", "slug", "ended"),
    [
        ("exits-0", "exited_zero", (0, None)),
        ("at-once", "exited_zero", (0, None)),
        ("daemon", "exited_zero", (0, None)),
        ("exits-3", "unknown", (3, None)),
        ("silent", "unknown", (4, None)),
        ("crashes", "worker_signal", (None, signal.SIGSEGV)),
        ("killed", "external_kill", (None, signal.SIGKILL)),
    ],
)
def test_the_same_end_three_times_in_a_row_is_enough(
    night: Agent, name: str, slug: str, ended: tuple[int | None, int | None]
) -> None:
    server = failed(night, name)
    assert server["cause"]["slug"] == slug
    assert (server["exit"]["code"], server["exit"]["signal"]) == ended
    assert server["attempt"] == 3
    assert "3 times in a row" in server["why"]
    assert len(list(night.logs.glob(f"{name}/*.log"))) == 3


def test_a_program_that_the_kernel_refuses_is_told(night: Agent) -> None:
    server = failed(night, "no-format")
    assert (server["cause"]["slug"], server["attempt"]) == ("exec_not_executable", 1)


def test_nothing_is_left_of_a_server_that_went_into_the_background(night: Agent) -> None:
    failed(night, "daemon")
    assert not [each for each in night.left() if "sleep 600" in each]


def test_a_failed_server_ends_a_wait_at_once_and_is_explained_by_why(night: Agent) -> None:
    failed(night, "flag")
    assert night.cli("wait", "flag", "--timeout", "3000").returncode == 3
    story = night.cli("why", "flag").stdout
    assert "bad_flag" in story
    assert "not retried" in story


def test_a_taken_port_is_told_with_its_holder_and_the_start_goes_on_once_it_is_free(
    night: Agent, taken_port: tuple[int, subprocess.Popen[bytes]]
) -> None:
    port, squatter = taken_port
    server = night.until_stage("waiting", name="taken")
    (need,) = server["needs"]
    assert (need["slug"], need["heals"]) == ("port_taken", True)
    assert f"{port} is taken by pid {squatter.pid} (squatter)" in need["text"]
    assert need["text"] in server["why"]
    assert server["attempt"] == BEFORE_THE_LAUNCH
    squatter.kill()
    squatter.wait()
    assert night.until_stage("ready", name="taken")["attempt"] == 1


def test_an_address_that_this_host_does_not_have_yet_is_waited_for_by_name(night: Agent) -> None:
    (need,) = night.until_stage("waiting", name="address")["needs"]
    assert (need["name"], need["subject"], need["slug"]) == ("address", "192.0.2.1", "address_unavailable")


def test_a_port_that_is_shared_with_the_server_makes_it_sick_and_not_ready(make: Make) -> None:
    port = free_port()
    command = [*FAKE, "--port", str(port), "--reuseport"]
    agent = make(table("demo", command, port=port, autostart=True)).start()
    agent.until_stage("ready")
    with socket.socket() as impostor:
        impostor.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        impostor.bind(("127.0.0.1", port))
        impostor.listen()
        agent.until(lambda server: "foreign" in server["why"], "the impostor")
    agent.until(lambda server: server["stage"] == "ready" and "foreign" not in server["why"], "alone again")
    assert agent.end() == 0


def test_the_night_ends_without_a_trace(night: Agent) -> None:
    assert night.end() == 0
