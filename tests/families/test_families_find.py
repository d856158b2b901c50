"""The family is told from the command, or from the log."""

from __future__ import annotations

import pytest

from agent.families import FAMILIES, find, find_by_log, flag_value, model_files
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
        "sh -c ls",
        "llama-server-proxy",
        "not-llama-server",
        "numactl -m 0 ./other --backend llama-server",
        "",
    ],
)
def test_what_is_not_known_is_plain(command: str) -> None:
    assert find(command.split(" ")).name == "plain"


VLLM = [
    "vllm serve /m/x",
    "/opt/venv/bin/vllm serve /m/x --port 8000",
    "python -m vllm.entrypoints.openai.api_server --model /m/x",
    "python3.11 -u -m vllm.entrypoints.api_server --model /m/x",
    "/v/bin/python /src/vllm/vllm/entrypoints/openai/api_server.py --model /m/x",
    "python /v/bin/vllm serve /m/x",
    "conda run -n vllm --no-capture-output vllm serve /m/x",
    "micromamba run -p /opt/env vllm serve /m/x",
    "conda run -n llm python -m vllm.entrypoints.openai.api_server",
    "numactl --cpunodebind=0 --membind=0 vllm serve /m/x",
    "env VLLM_USE_V1=1 CUDA_VISIBLE_DEVICES=0,1 vllm serve /m/x",
    "nice -n -5 ionice -c 1 -n 0 numactl -N 0 -m 0 env A=b vllm serve /m/x",
    "torchrun --nproc-per-node 4 --standalone -m vllm.entrypoints.openai.api_server --model /m/x",
    "torchrun --nproc-per-node=4 -m vllm.entrypoints.openai.api_server",
    "python -m torch.distributed.run --nproc_per_node 2 -m vllm.entrypoints.openai.api_server",
    "uv run --with vllm vllm serve /m/x",
    "uvx --from vllm vllm serve /m/x",
    "sudo -u llm vllm serve /m/x",
    "tini -- vllm serve /m/x",
    "bash run_vllm.sh",
    "/opt/llm/start-vllm.sh",
    "/bin/bash -eu /opt/llm/vllm-serve.sh --port 9000",
]
OTHERS = [
    ("sglang serve --model-path /m/x", "sglang"),
    ("python -m sglang.launch_server --model-path /m/x", "sglang"),
    ("python3 /src/sglang/launch_server.py --model-path /m/x", "sglang"),
    ("sh start_sglang.sh", "sglang"),
    ("text-generation-launcher --model-id /m/x", "tgi"),
    ("ollama serve", "ollama"),
    ("/usr/local/bin/ollama serve", "ollama"),
    ("transformers serve /m/x", "transformers"),
    ("transformers-cli serve", "transformers"),
    ("trtllm-serve /m/x --port 8000", "tensorrt_llm"),
    ("trtllm-serve serve /m/x", "tensorrt_llm"),
    ("mpirun -n 8 --allow-run-as-root trtllm-llmapi-launch trtllm-serve /m/x", "tensorrt_llm"),
    ("lmdeploy serve api_server /m/x", "lmdeploy"),
    ("python -m lmdeploy.serve.openai.api_server /m/x", "lmdeploy"),
    ("tritonserver --model-repository=/models", "triton"),
    ("nsys profile -o /r/x tritonserver --model-repository=/models", "triton"),
    ("bash run_llama_server.sh", "llama_cpp"),
    ("sh -e x/not_vllmish.sh", "plain"),
    ("python /srv/vllm/my_proxy.py", "plain"),
    ("python -m http.server", "plain"),
    ("torchrun --nproc-per-node 4 train.py", "plain"),
    ("bash", "plain"),
    ("bash -c", "plain"),
    ("conda run", "plain"),
]


@pytest.mark.parametrize("command", VLLM)
def test_vllm_is_found_behind_whatever_starts_it(command: str) -> None:
    assert find(command.split(" ")).name == "vllm"


@pytest.mark.parametrize(("command", "family"), OTHERS)
def test_the_other_servers_are_found_too(command: str, family: str) -> None:
    assert find(command.split(" ")).name == family


IN_A_SHELL = [
    ["bash", "-c", "source /opt/venv/bin/activate && exec vllm serve '/m/my model' --port 9001 --host 10.0.0.1"],
    [
        "/bin/sh",
        "-ec",
        "cd /opt; export A=1\nVLLM_X=1 exec python -m vllm.entrypoints.openai.api_server --port=9001 --host 10.0.0.1",
    ],
    ["env", "X=1", "bash", "-lc", 'ulimit -l unlimited; vllm serve x --host "10.0.0.1" --port 9001'],
    ["bash", "-c", "bash -c 'vllm serve x --port 9001 --host 10.0.0.1'"],
    ["sh", "-c", "ollama serve & vllm serve x --host 10.0.0.1 --port 9001"],
]


@pytest.mark.parametrize("command", IN_A_SHELL, ids=lambda command: command[-1][:20])
def test_a_command_that_a_shell_is_given_is_read_with_its_flags(command: list[str]) -> None:
    family = find(command)
    assert family.name == "vllm"
    assert flag_value(command, family.port_flags) == "9001"
    assert flag_value(command, family.host_flags) == "10.0.0.1"


@pytest.mark.parametrize("text", ["", ";", "'", '"', "a 'b", "((", "\\", "a && ", "$(x) `y`", "a\\\nb"])
def test_no_words_of_a_shell_raise(text: str) -> None:
    assert find(["sh", "-c", text]).name == "plain"


def test_of_what_a_shell_is_given_only_a_plain_path_must_be_there() -> None:
    for text, files in [
        ("cd /m && llama-server -m x.gguf", ()),
        ("llama-server -m $MODEL", ()),
        ("llama-server -m /m/$NAME.gguf", ()),
        ("exec llama-server -m '/m/a b.gguf' --lora /m/l.gguf", ("/m/a b.gguf", "/m/l.gguf")),
    ]:
        command = ["sh", "-c", text]
        assert model_files(command, find(command)) == files
    assert flag_value(["sh", "-c", "vllm serve x --port $PORT"], ("--port",)) is None


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("vllm serve /m/x --port 1", ("/m/x",)),
        ("vllm serve org/x", ()),
        ("vllm serve ./x", ("./x",)),
        ("vllm serve --port 1", ()),
        ("python -m vllm.entrypoints.openai.api_server --model=/m/x", ("/m/x",)),
        ("sglang serve --model-path /m/x --speculative-draft-model-path org/d", ("/m/x",)),
        ("text-generation-launcher --model-id org/x", ()),
        ("lmdeploy serve api_server /m/x --server-port 1", ("/m/x",)),
        ("tritonserver --model-repository=models", ("models",)),
        ("trtllm-serve /m/x", ("/m/x",)),
        ("llama-server -m x.gguf", ("x.gguf",)),
    ],
)
def test_a_model_that_is_a_path_must_be_there_and_a_name_of_the_hub_need_not(
    command: str, files: tuple[str, ...]
) -> None:
    words = command.split()
    assert model_files(words, find(words)) == files


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
