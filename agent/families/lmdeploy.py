"""LMDeploy's API server: 0.2 to 0.18, with TurboMind or PyTorch.

What it says before it binds ("Please open ...") is no sign of readiness, and its own lines need --log-level INFO.
"""

from __future__ import annotations

import re

from agent.core.model import Health, Step
from agent.families.family import Family, bars, causes, steps
from agent.families.plain import GENERAL_CAUSES, GENERAL_NOISE
from agent.families.pytorch import PYTORCH_CAUSES, PYTORCH_GENERAL, PYTORCH_NOISE, UVICORN_STOPPED

LMDEPLOY = Family(
    name="lmdeploy",
    executables=frozenset({"lmdeploy", "lmdeploy.serve.openai.api-server"}),
    packages=frozenset({"lmdeploy"}),
    default_host="0.0.0.0",  # noqa: S104 - what it does, unless it is told
    default_port=23333,
    host_flags=("--server-name",),
    port_flags=("--server-port",),
    model_flags=("--model-path",),
    model_words=("api_server",),
    hub=True,
    answers={200: Health.OK},  # it never answers while it loads
    probe_timeout_s=15.0,  # its own look at the engine takes up to 12 s
    terms_s=(30.0,),
    clean_exits=frozenset({0, -15, 143, -2, 130}),
    steps=steps(
        (
            Step.LAUNCHED,
            r"input backend=|model_source: |updated backend=|turbomind model config"
            r"|turbomind (?:engine|backend) config",
        ),
        (Step.INITIALIZING, r"Building Model\.|Initializing? .{0,40}engine|\[TM\]\[INFO\] .{0,80}TM_"),
        (Step.DOWNLOADING, r"\.safetensors: +\d{1,3}%\||Downloading \(incomplete total"),
        (Step.LOADING_WEIGHTS, r"Loading weights from |loading weights|get \d+ model params"),
        (Step.COMPILING, r"Building GraphRunner|warmup ops, please waiting"),
        (Step.ALLOCATING_KV, r"Building CacheEngine|Object cache budget|\[BlockManager\]|Updating configs\."),
        (Step.TUNING, r"\[Gemm2\] Tuning|Gemm2\] Tun"),
        (Step.WARMING_UP, r"Warming up model|Warm-up finished in|Warm up model"),
        (
            Step.LISTENING,
            r"Please open +http|Started server process|Application startup complete|Uvicorn running on",
        ),
    ),
    bars=bars(
        (Step.DOWNLOADING, r"Fetching \d+ files"),
        (Step.LOADING_WEIGHTS, r"Convert to turbomind format"),
        (Step.LOADING_WEIGHTS, r"Loading weights from (?:safetensors|pytorch|bin)"),
        (Step.LOADING_WEIGHTS, r"^Loading"),
    ),
    outcomes={
        "ready": re.compile(r"Uvicorn running on|Application startup complete"),
        "stopped": re.compile(rf"{UVICORN_STOPPED}|^KeyboardInterrupt"),
    },
    facts={
        "kv_blocks": re.compile(r"max_block_count = (\d+)|num gpu blocks: (\d+)"),
        "context": re.compile(r"session_len[=:] ?(\d+)"),
        "warmup_s": re.compile(r"Warm-up finished in ([\d.]+) seconds"),
        "bound_url": re.compile(r"Uvicorn running on +(\S+)"),
    },
    noise=(
        *GENERAL_NOISE,
        *PYTORCH_NOISE,
        re.compile(r"HINT: +Please open|input backend=|Can not find tokenizer|Fallback to pytorch engine"),
    ),
    recoveries=(re.compile(r"\"POST /\S{1,200} HTTP/[\d.]+\" 200"),),
    causes=(
        *causes(
            ("cuda_oom", r"CUDA runtime error: out of memory|\[TM\]\[(?:ERROR|FATAL)\].{0,200}out of memory"),
            (
                "kv_cache_too_small",
                r"No enough gpu memory for runtime|num_gpu_blocks .{0,40}(?:<=|too small)|No enough blocks",
            ),
            ("illegal_memory", r"\[TM\]\[(?:ERROR|FATAL)\].{0,200}illegal memory access"),
            ("unsupported_model", r"is not supported by (?:turbomind|pytorch engine|lmdeploy)|Unsupported model arch"),
        ),
        *PYTORCH_CAUSES,
        *GENERAL_CAUSES,
        *causes(("gpu_fault", r"\[TM\]\[(?:ERROR|FATAL)\].{0,80}CUDA "), specific=False),
        *PYTORCH_GENERAL,
    ),
    signature=re.compile(
        r"\blmdeploy\b|\[TM\]\[(?:INFO|WARNING|ERROR|FATAL|DEBUG)\]|Please open +http\S+ +in a browser"
    ),
)
