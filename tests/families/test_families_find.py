"""The family is told from the command, or from the log."""

from __future__ import annotations

import pytest

from agent.families import FAMILIES, find, find_by_log, flag_value
from agent.families.family import listed_values
from tests.families.samples import BOOT_LLAMAFILE, READY, crash_b5


@pytest.mark.parametrize(
    "command",
    [
        "llama-server -m x.gguf",
        "/opt/llama.cpp/build/bin/llama-server -m x.gguf",
        "./llama-server-b8680 -m x.gguf",
        "llama-server-vulkan -m x.gguf",
        "llama-server-cuda12-b8680 -m x",
        "C:\\llama\\llama-server.exe -m x.gguf",
        "llamafile -m x.gguf",
        "llamafile-0.10.1 -m x.gguf",
        "./Some-Model-1B.llamafile --server",
        "python demo/llama_server.py -m x.gguf",
        "/v/bin/python3.11 -u -X utf8 -W ignore demo/llama_server.py -m x.gguf",
        "python -m demo.llama_server -m x.gguf",
        "python -mllama_server",
        "python xllama_server.py -m x.gguf",
        "env CUDA_VISIBLE_DEVICES=0 llama-server -m x.gguf",
        "env -i -u HOME A=1 B=2 python -u llama_server.py",
        "numactl --cpunodebind=0 --membind=0 llama-server -m x.gguf",
        "numactl -N 0 -m 0 llama-server -m x.gguf",
        "nice -n 5 ionice -c 3 taskset -c 0-3 llama-server",
        "timeout -s TERM 60 llama-server",
        "nohup llama-server",
        "/usr/bin/env -- llama-server",
    ],
)
def test_llama_cpp_is_found_behind_whatever_starts_it(command: str) -> None:
    assert find(command.split(" ")).name == "llama_cpp"


@pytest.mark.parametrize(
    "command",
    [
        "my-server --model llama-server",
        "python server.py llama-server",
        "python -c import",
        "python -m http.server 8000",
        "python",
        "python -m",
        "env",
        "numactl -N 0",
        "sh -c llama-server",
        "llama-server-proxy",
        "not-llama-server",
        "numactl -m 0 ./other --backend llama-server",
        "",
    ],
)
def test_what_is_not_known_is_plain(command: str) -> None:
    assert find(command.split(" ")).name == "plain"


def test_no_command_at_all_is_plain() -> None:
    assert find([]).name == "plain"


@pytest.mark.parametrize("log", [*READY.values(), BOOT_LLAMAFILE, crash_b5("x")])
def test_a_log_of_llama_cpp_is_told_by_its_lines(log: str) -> None:
    assert find_by_log(log).name == "llama_cpp"


@pytest.mark.parametrize(
    "log",
    [
        "",
        "INFO:     Uvicorn running on http://0.0.0.0:8000\n",
        'time=2026-01-01T00:00:00Z level=INFO source=server.go:1 msg="x"\nllama_model_load: error loading model: y\n',
    ],
)
def test_other_logs_are_plain(log: str) -> None:
    assert find_by_log(log).name == "plain"


def test_every_family_stands_under_its_own_name() -> None:
    assert all(name == family.name for name, family in FAMILIES.items())


def test_the_last_value_of_a_flag_counts() -> None:
    flags = FAMILIES["llama_cpp"].model_flags
    assert flag_value(["x", "-m", "a", "--model=b"], flags) == "b"
    assert flag_value(["x", "--port", "1"], flags) is None


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("x --lora a.gguf", ["a.gguf"]),
        ("x --lora a.gguf,b.gguf --lora c.gguf", ["a.gguf", "b.gguf", "c.gguf"]),
        ("x --lora=a.gguf, --host 1", ["a.gguf"]),
        ("x --lora-scaled a.gguf:0.5,/m/b.gguf:-1,c.gguf", ["a.gguf", "/m/b.gguf", "c.gguf"]),
        ("x --lora-scaled a.gguf 0.5", ["a.gguf"]),  # as it was before
        ("x --control-vector-scaled C:/v.gguf:2", ["C:/v.gguf"]),
        ("x -m a,b.gguf --lora", []),
    ],
)
def test_a_list_of_files_is_told_file_by_file(command: str, files: list[str]) -> None:
    assert listed_values(command.split(), FAMILIES["llama_cpp"].list_flags) == files
