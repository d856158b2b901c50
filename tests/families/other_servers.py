"""Logs of the other servers, written by hand after their formats. No line is from a real host.

`READY`: family -> logs of good starts, each with its steps and facts. `CAUSES`: family -> slug -> lines that only it
says. `WRAPPED`: how each of them dies of a line; the words that stand there for the line are "THE LINE".
"""

# ruff: noqa: E501 - lines of logs are as long as they are

from __future__ import annotations

from tests.families.samples import READY_B5

Steps = list[tuple[str, int]]

_TGI = """\
2024-02-14T06:49:20.000000Z  INFO text_generation_launcher: Args { model_id: "org/tiny", note: "CUDA out of memory" }
2024-02-14T06:49:20.100000Z  INFO text_generation_launcher: Sharding model on 2 processes
2024-02-14T06:49:24.783316Z  INFO download: text_generation_launcher: Starting check and download process for org/tiny
2024-02-14T06:49:25.783316Z  INFO text_generation_launcher: Download: [1/2] -- ETA: 0:00:05
2024-02-14T06:49:27.587880Z  INFO download: text_generation_launcher: Successfully downloaded weights for org/tiny
2024-02-14T06:49:27.588182Z  INFO shard-manager: text_generation_launcher: Starting shard rank=0
2024-02-14T06:49:27.588182Z  INFO shard-manager: text_generation_launcher: Starting shard rank=1
2024-02-14T06:49:37.588182Z  INFO shard-manager: text_generation_launcher: Waiting for shard to be ready... rank=0
2024-02-14T06:49:38.479212Z  INFO text_generation_launcher: Server started at unix:///tmp/text-generation-server-0
2024-02-14T06:49:38.500000Z  INFO shard-manager: text_generation_launcher: Shard ready in 10.5s rank=0
2024-02-14T06:49:38.500000Z  INFO shard-manager: text_generation_launcher: Shard ready in 11.5s rank=1
2024-02-14T06:49:38.600975Z  INFO text_generation_launcher: Starting Webserver
2024-02-14T06:49:38.688621Z  INFO text_generation_router_v3: backends/v3/src/lib.rs:125: Warming up model
2024-02-14T06:49:39.000000Z  INFO text_generation_launcher: KV-cache blocks: 9000, size: 1
2024-02-14T06:49:39.100000Z  INFO text_generation_launcher: Cuda Graphs are enabled for sizes [32, 16, 8, 4, 2, 1]
2024-02-14T06:49:40.600000Z  INFO text_generation_router_v3: backends/v3/src/lib.rs:137: Setting max batch total tokens to 9000
2024-02-14T06:49:40.621798Z  INFO text_generation_router::server: router/src/server.rs:2402: Connected
"""
_TGI_JSON = """\
{"timestamp":"2025-08-29T14:40:10Z","level":"INFO","fields":{"message":"Args {\\n model_id: x }"},"target":"text_generation_launcher"}
{"timestamp":"2025-08-29T14:40:11Z","level":"INFO","fields":{"message":"Starting shard"},"target":"text_generation_launcher"}
{"timestamp":"2025-08-29T14:40:17Z","level":"INFO","message":"Connected","target":"text_generation_router::server"}
"""
_OLLAMA = """\
time=2026-02-21T12:00:00.000Z level=INFO source=routes.go:1187 msg="server config" env="map[OLLAMA_HOST:http://127.0.0.1:11434 ERROR:no]"
time=2026-02-21T12:00:00.100Z level=INFO source=routes.go:1238 msg="Listening on 127.0.0.1:11434 (version 0.16.1)"
time=2026-02-21T12:00:00.200Z level=INFO source=types.go:131 msg="inference compute" id=GPU-0 library=cuda
"""
_OLLAMA_LOADED = """\
time=2026-02-21T12:07:54.000Z level=INFO source=server.go:400 msg="starting runner" cmd="/usr/bin/ollama runner --port 40000"
time=2026-02-21T12:07:55.028Z level=INFO source=ggml.go:494 msg="offloaded 24/49 layers to GPU"
time=2026-02-21T12:07:55.028Z level=INFO source=device.go:245 msg="model weights" device=CUDA0 size="10.1 GiB"
time=2026-02-21T12:07:55.029Z level=INFO source=device.go:256 msg="kv cache" device=CUDA0 size="1.5 GiB"
time=2026-02-21T12:07:55.044Z level=INFO source=server.go:1384 msg="waiting for server to become available" status="llm server loading model"
time=2026-02-21T12:10:07.278Z level=INFO source=server.go:1388 msg="llama runner started in 132.5 seconds"
[GIN] 2026/02/21 - 12:10:32 | 200 |         2m38s |       127.0.0.1 | POST     "/v1/chat/completions"
"""
_OLLAMA_2024 = """\
2024/03/01 12:00:00 images.go:806: INFO total blobs: 5
2024/03/01 12:00:00 routes.go:1110: INFO Listening on 127.0.0.1:11434 (version 0.1.29)
[GIN] 2024/03/01 - 12:00:01 | 200 |      41.983us |       127.0.0.1 | HEAD     "/"
"""
_TRANSFORMERS = """\
[transformers] Loading /m/tiny@main
\rLoading weights:   0%|          | 0/21 [00:00<?, ?it/s]\rLoading weights: 100%|##########| 21/21 [00:00<00:00, 900.00it/s]
INFO:     Started server process [7]
INFO:     Waiting for application startup.
INFO:     Application startup complete.
INFO:     Uvicorn running on http://127.0.0.1:8000 (Press CTRL+C to quit)
"""
_TRTLLM = """\
/v/torch/cuda/__init__.py:63: FutureWarning: The pynvml package is deprecated. Please install nvidia-ml-py instead.
[TensorRT-LLM] TensorRT LLM version: 1.2.0rc4
[12/07/2025-00:20:15] [TRT-LLM] [I] Using LLM with PyTorch backend
You are using a model of type llama to instantiate a model of type . This is not supported for all configurations.
\x1b[33;20mrank 0 using MpiPoolSession to spawn MPI processes
\x1b[0m[12/07/2025-00:20:16] [TRT-LLM] [I] Generating a new HMAC key for server proxy_request_queue
[TensorRT-LLM] TensorRT LLM version: 1.2.0rc4
[TensorRT-LLM][INFO] Refreshed the MPI local session
[12/07/2025-00:20:27] [TRT-LLM] [RANK 0] [I] Use 14.5 GB for model weights.
\rLoading safetensors weights in parallel:   0%|          | 0/4 [00:00<?, ?it/s][12/07/2025-00:20:40] [TRT-LLM] [I] Start
\rLoading weights:   0%|          | 0/681 [00:00<?, ?it/s]\rLoading weights:  50%|#####     | 340/681 [00:01<00:01]
Model init total -- 15.5s
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 0.13 GiB for max tokens in paged KV cache (1088).
[12/07/2025-00:20:42] [TRT-LLM] [I] max_seq_len=1025, max_num_requests=32, max_num_tokens=1024, max_batch_size=32
[12/07/2025-00:20:42] [TRT-LLM] [I] Running autotuner warmup...
[12/07/2025-00:20:58] [TRT-LLM] [I] Creating CUDA graph instances for 32 batch sizes.
[12/07/2025-00:20:58] [TRT-LLM] [I] Run generation-only CUDA graph warmup for batch size=32, draft_len=0
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 109.5 GiB for max tokens in paged KV cache (900800).
[12/07/2025-00:21:00] [TRT-LLM] [I] Running autotuner warmup...
[12/07/2025-00:21:01] [TRT-LLM] [I] Creating CUDA graph instances for 32 batch sizes.
[12/07/2025-00:21:01] [TRT-LLM] [I] LLM Args:
model='org/tiny' error='CUDA out of memory' tensor_parallel_size=1
INFO:     Started server process [145]
INFO:     Waiting for application startup.
INFO:     Application startup complete.
INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)
"""
_LMDEPLOY_PYTORCH = """\
2025-10-23 08:50:40,000 - lmdeploy - INFO - async_engine.py:1 - input backend=pytorch, backend_config=x
2025-10-23 08:50:41,000 - lmdeploy - INFO - base.py:1 - Building Model.
Loading weights from safetensors:   0%|          | 0/4 [00:00<?, ?it/s]\rLoading weights from safetensors: 100%|####| 4/4 [00:02]
2025-10-23 08:50:45,000 - lmdeploy - INFO - base.py:2 - Building GraphRunner and warmup ops, please waiting.
2025-10-23 08:50:46,000 - lmdeploy - INFO - base.py:3 - Building CacheEngine
2025-10-23 08:50:47,000 - lmdeploy - INFO - base.py:4 - Warming up model.
HINT:    Please open http://0.0.0.0:23333 in a browser for detailed api usage!!!
INFO:     Started server process [2439]
INFO:     Waiting for application startup.
INFO:     Application startup complete.
INFO:     Uvicorn running on http://0.0.0.0:23333 (Press CTRL+C to quit)
"""
_LMDEPLOY_TURBOMIND = """\
[TM][WARNING] [LlamaTritonModel] `max_context_token_num` is not set, default to 40960.
2025-10-23 08:50:48,823 - lmdeploy - WARNING - turbomind.py:234 - get 509 model params
Convert to turbomind format:  50%|#####     | 18/36 [00:02<00:02]\rConvert to turbomind format: 100%|####| 36/36 [00:04<00:00]
[TM][INFO] [BlockManager] max_block_count = 3000
[TM][INFO] [Gemm2] Tuning finished in 1.0 seconds.
[TM][INFO] Warm-up finished in 4.5 seconds.
HINT:    Please open http://0.0.0.0:23333 in a browser for detailed api usage!!!
INFO:     Started server process [2439]
INFO:     Application startup complete.
INFO:     Uvicorn running on http://0.0.0.0:23333 (Press CTRL+C to quit)
"""
_TRITON = """\
=============================
== Triton Inference Server ==
=============================
NVIDIA Release 23.09 (build 1)
I0803 18:43:44.000000 1 pinned_memory_manager.cc:241] Pinned memory pool is created at '0x7f0000000000' with size 268435456
I0803 18:43:44.100000 1 cuda_memory_manager.cc:107] CUDA memory pool is created on device 0 with size 67108864
I0803 18:43:44.200000 1 model_lifecycle.cc:461] loading: tiny:1
I0803 18:43:45.000000 1 model_lifecycle.cc:818] successfully loaded 'tiny'
+-------+---------+--------+
| Model | Version | Status |
| tiny  | 1       | READY  |
+-------+---------+--------+
| server_version                   | 2.38.0   |
I0803 18:43:45.100000 1 grpc_server.cc:3914] Started GRPCInferenceService at 0.0.0.0:8001
I0803 18:43:45.200000 1 http_server.cc:2717] Started HTTPService at 0.0.0.0:8000
I0803 18:43:45.300000 1 http_server.cc:2736] Started Metrics Service at 0.0.0.0:8002
"""

READY: dict[str, list[tuple[str, Steps, dict[str, float | str]]]] = {
    "tgi": [
        (
            _TGI,
            [
                ("launched", 1),
                ("downloading", 3),
                ("loading-weights", 5),
                ("listening", 12),
                ("warming-up", 13),
                ("allocating-kv", 14),
                ("capturing-graphs", 15),
            ],
            {"load_s": 11.5, "kv_blocks": 9000, "kv_tokens": 9000},
        ),
        (_TGI_JSON, [("launched", 1), ("loading-weights", 2), ("listening", 3)], {}),
    ],
    "ollama": [
        (_OLLAMA, [("launched", 1), ("listening", 2)], {"version": "0.16.1", "bound_url": "127.0.0.1:11434"}),
        (
            _OLLAMA + _OLLAMA_LOADED,
            [("launched", 1), ("listening", 2), ("loading-weights", 4)],
            {"layers_on_gpu": 24, "layers": 49, "load_s": 132.5, "weights_size": "10.1 GiB"},
        ),
        (_OLLAMA_2024, [("listening", 2)], {"version": "0.1.29"}),
    ],
    "transformers": [
        (_TRANSFORMERS, [("loading-weights", 1), ("listening", 3)], {"bound_url": "http://127.0.0.1:8000"}),
    ],
    "tensorrt_llm": [
        (
            _TRTLLM,
            [
                ("launched", 2),
                ("initializing", 3),
                ("loading-weights", 9),
                ("allocating-kv", 13),
                ("tuning", 15),
                ("capturing-graphs", 16),
                ("listening", 23),
            ],
            {
                "version": "1.2.0rc4",
                "weights_gib": 14.5,
                "load_s": 15.5,
                "kv_tokens": 900800,
                "kv_gib": 109.5,
                "context": 1025,
                "max_concurrency": 32,
            },
        ),
    ],
    "lmdeploy": [
        (
            _LMDEPLOY_PYTORCH,
            [
                ("launched", 1),
                ("initializing", 2),
                ("loading-weights", 3),
                ("compiling", 4),
                ("allocating-kv", 5),
                ("warming-up", 6),
                ("listening", 7),
            ],
            {"bound_url": "http://0.0.0.0:23333"},
        ),
        (
            _LMDEPLOY_TURBOMIND,
            [("loading-weights", 2), ("allocating-kv", 4), ("tuning", 5), ("warming-up", 6), ("listening", 7)],
            {"warmup_s": 4.5, "kv_blocks": 3000},
        ),
    ],
    "triton": [
        (
            _TRITON,
            [("launched", 2), ("initializing", 6), ("loading-weights", 7), ("listening", 14)],
            {"version": "2.38.0", "bound_url": "0.0.0.0:8000"},
        ),
    ],
}

CAUSES: dict[str, dict[str, list[str]]] = {
    "tgi": {
        "worker_signal": [
            "2024-03-06T17:53:31Z ERROR shard-manager: text_generation_launcher: Shard process was signaled to shutdown "
            "with signal 4 rank=0"
        ],
        "bad_config": ['Error: ArgumentValidation("`max_input_tokens` must be < `max_total_tokens`")'],
        "no_gpu": ['Error: NotEnoughCUDADevices("`sharded` is not supported with 1 device")'],
        "bad_flag": ["error: unexpected argument '--no-such-flag' found"],
        "missing_weights": ["FileNotFoundError: No local weights found in org/x with extension .safetensors"],
    },
    "ollama": {
        "port_in_use": ["Error: listen tcp 127.0.0.1:11434: bind: address already in use"],
        "cuda_oom": [
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 3257.82 MiB on device 0: cudaMalloc failed: out of memory",
            "CUDA error: out of memory",
        ],
        "unsupported_model": ["llama_model_load: error loading model: unknown model architecture: 'martian'"],
        "host_oom": [
            'time=2026-02-21T12:07:55Z level=WARN source=s.go:1 msg="model requires more system memory (9 GiB) than"'
        ],
        "worker_died": [
            'time=2025-03-07T05:36:39Z level=ERROR source=server.go:421 msg="llama runner terminated" error="exit status 2"'
        ],
        "worker_signal": [
            'time=2025-03-07T05:36:39Z level=ERROR source=s.go:4 msg="llama runner terminated" error="signal: killed"'
        ],
    },
    "transformers": {
        "missing_lib": ["ImportError: Missing dependencies for the serving CLI. Please install with `pip install x`"],
        "bad_flag": ["ValueError: Some specified arguments are not used by the HfArgumentParser: ['--no-such-flag']"],
    },
    "tensorrt_llm": {
        "cuda_oom": [
            "[09/17/2025-21:24:19] [TRT-LLM] [RANK 2] [E] Error executing load_single_module with args ('model', Linear()): "
            "CUDA out of memory. Tried to allocate 40.00 MiB.",
            "RuntimeError: Executor creation failed due to insufficient GPU memory.",
        ],
        "nccl": [
            "[11/18/2025-09:33:30] [TRT-LLM] [RANK 0] [E] Failed to initialize executor on rank 0: [TensorRT-LLM][ERROR] "
            "Assertion failed: Failed, NCCL error ../x.cpp:90 'invalid usage (run with NCCL_DEBUG=WARN for details)'"
        ],
        "unknown": ["[TensorRT-LLM][ERROR] Assertion failed: Error occurred when running GEMM! (/src/x.cpp:180)"],
        "worker_died": ["RuntimeError: Executor worker returned error"],
    },
    "lmdeploy": {
        "cuda_oom": [
            "  what():  [TM][ERROR] CUDA runtime error: out of memory /lmdeploy/src/turbomind/utils/allocator.h:233",
            "RuntimeError: [TM][ERROR] CUDA runtime error: out of memory",
        ],
        "kv_cache_too_small": ["RuntimeError: No enough gpu memory for runtime."],
        "illegal_memory": ["[TM][ERROR] CUDA runtime error: an illegal memory access was encountered /src/x.cc:9"],
    },
    "triton": {
        "model_load_failed": [
            "E0803 18:43:45.000000 1 model_lifecycle.cc:638] failed to load 'tiny' version 1: Internal: unable to create engine",
            "| tiny  | 1       | UNAVAILABLE: Internal: unable to create TensorRT engine |",
            "E0817 19:18:51.786824 29 model_repository_manager.cc:1265] failed to poll model 'x': model not found",
        ],
        "cuda_oom": [
            "E0803 18:43:45.000000 1 model_lifecycle.cc:638] failed to load 'tiny' version 1: Internal: CUDA out of memory"
        ],
        "missing_lib": [
            "E0803 18:43:45.0 1 x.cc:1] failed to load 't' version 1: Not found: unable to load shared library: libx.so"
        ],
    },
}

_UP_TO = {
    "tgi": _TGI[: _TGI.index("2024-02-14T06:49:37")],
    "ollama": _OLLAMA + _OLLAMA_LOADED[: _OLLAMA_LOADED.index("time=2026-02-21T12:07:55.028")],
    "transformers": "Loading /m/tiny@main\n",
    "tensorrt_llm": _TRTLLM[: _TRTLLM.index("\rLoading")],
    "lmdeploy": _LMDEPLOY_PYTORCH[: _LMDEPLOY_PYTORCH.index("2025-10-23 08:50:45")],
    "triton": _TRITON[: _TRITON.index("I0803 18:43:45.000000")],
}
_BEHIND = {
    "tgi": "\n rank=0\nError: ShardCannotStart\n2024-03-06T17:53:31Z ERROR text_generation_launcher: Shard 0 failed to start\n"
    "2024-03-06T17:53:31Z  INFO text_generation_launcher: Shutting down shards\n",
    "ollama": "\n\ngoroutine 24 [running]:\n"
    'time=2025-03-07T05:36:39Z level=ERROR source=server.go:421 msg="llama runner terminated" error="exit status 2"\n',
    "transformers": "\n",
    "tensorrt_llm": "\n[11/18/2025-09:33:30] [TRT-LLM] [E] Executor worker initialization error: Traceback\n"
    "RuntimeError: Executor worker returned error\n",
    "lmdeploy": "\n",
    "triton": "\nI0803 18:43:46.0 1 server.cc:331] Timeout 29: Found 0 live models and 0 in-flight non-inference requests\n"
    "error: creating server: Internal - failed to load all models\n",
}
WRAPPED = {family: _UP_TO[family] + "THE LINE" + _BEHIND[family] for family in _UP_TO}

HARMLESS: dict[str, list[str]] = {
    "tgi": ["2024-02-14T06:49:27Z  WARN text_generation_launcher: Could not import Mamba: No module named 'mamba_ssm'"],
    "ollama": [
        'time=2026-02-21T12:00:00Z level=WARN source=gpu.go:1 msg="error looking up nvidia GPU memory" error="x"',
        *(line for line in READY_B5.splitlines() if line.startswith(("llama_model_loader", "system_info"))),
    ],
    "transformers": ["org/tiny was removed from memory after 300 seconds of inactivity"],
    "tensorrt_llm": [
        "[TensorRT-LLM][WARNING] [kv cache manager] storeContextBlocks: Can not find sequence for request 32",
        "AttributeError: 'PyTorchModelEngine' object has no attribute 'cuda_graph_runner'",
    ],
    "lmdeploy": ["2025-10-23 08:50:48,823 - lmdeploy - WARNING - Fallback to pytorch engine because CUDA error: none"],
    "triton": [
        "I1011 13:28:21.065593 1 onnxruntime.cc:2742] TRITONBACKEND_ModelInstanceFinalize: delete instance state"
    ],
}
