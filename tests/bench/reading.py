"""How fast a log is read: the reader alone, on lines of 120 bytes."""

from __future__ import annotations

import time

from agent import families
from agent.families.reader import Reader
from tests.bench.figures import Aim, Figure
from tests.families import vllm_logs

LINE_BYTES = 120
BLOCK_BYTES = 64 * 1024  # as the agent feeds it
REPEATS = 12
BYTES = 4_000_000

SERVING = "0.12.345.678 I srv  log_server_r: done request: POST /v1/completions 127.0.0.1 200"
LOADING = "0.00.123.456 I cmn  llama_model_loader: - tensor   17: blk.1.ffn_down.weight q4_K [ 4096, 1024, 1, 1 ]"
START = "0.00.005.698 I srv  llama_server: loading model\nload_tensors: loading model tensors, this can take a while\n"
READY = "0.00.918.862 I srv  llama_server: listening on http://127.0.0.1:8080\n"


def log_reader() -> list[Figure]:
    """MB/s of each family that is built."""
    cases = [
        ("log reader, llama_cpp, serving", "llama_cpp", START + READY, SERVING),
        ("log reader, llama_cpp, loading", "llama_cpp", START, LOADING),
        ("log reader, plain", "plain", "", SERVING),
        ("log reader, vllm, serving", "vllm", vllm_logs.V1, vllm_logs.SERVED.strip()),
        ("log reader, vllm, behind a crash", "vllm", vllm_logs.crash("RuntimeError: x"), vllm_logs.TRACEBACK_LINE),
    ]
    return [Figure(what, "MB/s", _rates(*case), (Aim(0.5, 20, at_least=True),)) for what, *case in cases]


def _rates(family: str, before: str, line: str) -> list[float]:
    data = (line.ljust(LINE_BYTES - 1, ".") + "\n").encode() * (BYTES // LINE_BYTES)
    blocks = [data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)]
    rates = []
    for _ in range(REPEATS):
        reader = Reader(families.FAMILIES[family])
        reader.feed(before.encode())
        began = time.perf_counter()
        for block in blocks:
            reader.feed(block)
        rates.append(len(data) / 1e6 / (time.perf_counter() - began))
    return rates
