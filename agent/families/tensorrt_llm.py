"""TensorRT-LLM's `trtllm-serve`: 0.16 to 1.2.

Its whole block of tuning and graphs runs twice: to estimate, then in earnest.
"""

from __future__ import annotations

import re

from agent.core.model import Health, Step
from agent.families.family import Family, bars, causes, steps
from agent.families.plain import GENERAL_CAUSES, GENERAL_NOISE
from agent.families.pytorch import PYTORCH_CAUSES, PYTORCH_GENERAL, PYTORCH_NOISE, UVICORN_STOPPED

_DYING = (
    r"Executor worker initialization error|Executor worker returned error|Executor worker died during initialization"
    r"|Executor creation failed|Failed to initialize executor on rank|MPI_ABORT was invoked"
    r"|Primary job +terminated normally"
)

TENSORRT_LLM = Family(
    name="tensorrt_llm",
    executables=frozenset({"trtllm-serve", "trtllm-llmapi-launch", "trtllm"}),
    packages=frozenset({"tensorrt-llm"}),
    default_host="localhost",
    default_port=8000,
    model_flags=("--model", "--tokenizer", "--extra_llm_api_options", "--config"),
    model_words=("trtllm-serve", "serve"),
    hub=True,
    answers={200: Health.OK},
    terms_s=(30.0,),
    clean_exits=frozenset({0, -15, 143, -2, 130}),
    workers=("tensorrt_llm",),
    steps=steps(
        (Step.LAUNCHED, r"TensorRT.LLM version: "),
        (
            Step.INITIALIZING,
            r"Using LLM with PyTorch backend|Using LLM with TensorRT|to spawn MPI processes"
            r"|Refreshed the MPI local session",
        ),
        (Step.DOWNLOADING, r"\.safetensors: +\d{1,3}%\||Downloading \(incomplete total"),
        (
            Step.LOADING_WEIGHTS,
            r"Use [\d.]+ GB for model weights|Prefetching [\d.]+ ?GB checkpoint|Start to load safetensor file"
            r"|Model init total -- |Loading checkpoint |Engine size in bytes",
        ),
        (Step.ALLOCATING_KV, r"for max tokens in paged KV cache|Estimated max memory in KV cache"),
        (Step.TUNING, r"Running autotuner warmup|Autotuning process starts"),
        (Step.CAPTURING_GRAPHS, r"Creating CUDA graph instances|CUDA graph warmup for batch size"),
        (Step.WARMING_UP, r"Running warmup|Run warmup for|general warmup"),
        (
            Step.LISTENING,
            r"Started server process|Waiting for application startup|Application startup complete|Uvicorn running on",
        ),
    ),
    bars=bars(
        (Step.DOWNLOADING, r"Fetching \d+ files"),
        (Step.LOADING_WEIGHTS, r"Loading safetensors weights in parallel"),
        (Step.LOADING_WEIGHTS, r"Loading weights(?: concurrently)?"),
    ),
    outcomes={
        "ready": re.compile(r"Uvicorn running on|Application startup complete"),
        "stopped": re.compile(rf"{UVICORN_STOPPED}|^KeyboardInterrupt"),
        "crash": re.compile(_DYING),
    },
    facts={
        "version": re.compile(r"TensorRT.LLM version: (\S+)"),
        "weights_gib": re.compile(r"Use ([\d.]+) GB for model weights"),
        "load_s": re.compile(r"Model init total -- ([\d.]+)s"),
        "kv_tokens": re.compile(r"for max tokens in paged KV cache \((\d+)\)"),
        "kv_gib": re.compile(r"Allocated ([\d.]+) GiB for max tokens"),
        "context": re.compile(r"max_seq_len=(\d+), max_num_requests"),
        "max_concurrency": re.compile(r"max_num_requests=(\d+), "),
        "bound_url": re.compile(r"Uvicorn running on (\S+)"),
    },
    noise=(
        *GENERAL_NOISE,
        *PYTORCH_NOISE,
        re.compile(r"has no attribute 'cuda_graph_runner'|Can not find sequence for request|UCX +WARN"),
        re.compile(r"This is not supported for all configurations|The smaller value will be used"),
    ),
    recoveries=(re.compile(r"\"POST /\S{1,200} HTTP/[\d.]+\" 200"),),
    causes=(
        *causes(
            (
                "cuda_oom",
                r"Executor creation failed due to insufficient GPU memory|failed to allocate .{0,80}GPU memory",
            ),
            ("kv_cache_too_small", r"No memory available for KV cache|KV cache .{0,60}(?:too small|insufficient)"),
            (
                "version_mismatch",
                r"The engine plan file is not compatible|was (?:built|generated) with a different version",
            ),
            ("arch_unsupported", r"engine plan file is generated on an incompatible device"),
        ),
        *PYTORCH_CAUSES,
        *GENERAL_CAUSES,
        *causes(
            ("worker_signal", r"exited on signal \d+"),
            ("unknown", r"Assertion failed: |Failed to initialize executor on rank \d+: "),
            specific=False,
        ),
        *PYTORCH_GENERAL,
        *causes(
            ("worker_died", r"Executor worker (?:initialization error|returned error|died during)"),
            specific=False,
            wrapper=True,
        ),
    ),
    signature=re.compile(r"\[TensorRT-LLM\]|\[TRT-LLM\]|\btensorrt_llm\b|\btrtllm-serve\b|TensorRT LLM version"),
)
