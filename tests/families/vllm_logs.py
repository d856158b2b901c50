"""Logs of vLLM of several ages, written by hand after their formats. No line is from a real host."""

# ruff: noqa: E501 - lines of logs are as long as they are

from __future__ import annotations

V0 = """\
INFO 03-02 10:00:01 api_server.py:528] vLLM API server version 0.6.2
INFO 03-02 10:00:01 api_server.py:529] args: Namespace(model_tag='/m/tiny', host='0.0.0.0', port=8000, note='CUDA error')
INFO 03-02 10:00:03 llm_engine.py:226] Initializing an LLM engine (v0.6.2) with config: model='/m/tiny', max_seq_len=4096, seed=0
INFO 03-02 10:00:04 model_runner.py:1014] Starting to load model /m/tiny...
\rLoading safetensors checkpoint shards:   0% Completed | 0/2 [00:00<?, ?it/s]
\rLoading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.10s/it]
\rLoading safetensors checkpoint shards: 100% Completed | 2/2 [00:02<00:00,  1.05s/it]

INFO 03-02 10:00:07 model_runner.py:1025] Loading model weights took 2.5 GB
INFO 03-02 10:00:08 gpu_executor.py:122] # GPU blocks: 1000, # CPU blocks: 500
INFO 03-02 10:00:09 model_runner.py:1329] Capturing the model for CUDA graphs. This may lead to unexpected consequences.
INFO 03-02 10:00:20 model_runner.py:1456] Graph capturing finished in 11 secs.
INFO 03-02 10:00:20 launcher.py:19] Available routes are:
INFO 03-02 10:00:20 launcher.py:27] Route: /health, Methods: GET
INFO:     Started server process [1]
INFO:     Waiting for application startup.
INFO:     Application startup complete.
INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)
"""

V1 = """\
INFO 05-12 02:45:10 [__init__.py:239] Automatically detected platform cuda.
INFO 05-12 02:45:15 [api_server.py:1043] vLLM API server version 0.8.5
INFO 05-12 02:45:15 [api_server.py:1044] args: Namespace(subparser='serve', model_tag='/m/tiny', port=8000)
INFO 05-12 02:45:22 [config.py:717] This model supports multiple tasks: {'embed', 'generate'}. Defaulting to 'generate'.
INFO 05-12 02:45:30 [core.py:58] Initializing a V1 LLM engine (v0.8.5) with config: model='/m/tiny', max_seq_len=8192, seed=0
INFO 05-12 02:45:31 [parallel_state.py:1004] rank 0 in world size 1 is assigned as DP rank 0, PP rank 0, TP rank 0
WARNING 05-12 02:45:31 [topk.py:69] FlashInfer is not available. Falling back to the PyTorch-native implementation.
INFO 05-12 02:45:31 [gpu_model_runner.py:1329] Starting to load model /m/tiny...
\rLoading safetensors checkpoint shards:   0% Completed | 0/4 [00:00<?, ?it/s]
\rLoading safetensors checkpoint shards: 100% Completed | 4/4 [00:03<00:00,  1.09it/s]

INFO 05-12 02:45:35 [loader.py:458] Loading weights took 3.50 seconds
INFO 05-12 02:45:35 [gpu_model_runner.py:1347] Model loading took 14.5 GiB and 4.25 seconds
INFO 05-12 02:45:47 [backends.py:420] Using cache directory: /c/torch_compile_cache/0a/rank_0_0 for vLLM's torch.compile
INFO 05-12 02:45:47 [backends.py:430] Dynamo bytecode transform time: 11.47 s
INFO 05-12 02:45:58 [monitor.py:33] torch.compile takes 12.5 s in total
INFO 05-12 02:45:59 [kv_cache_utils.py:634] GPU KV cache size: 132,832 tokens
INFO 05-12 02:45:59 [kv_cache_utils.py:637] Maximum concurrency for 8,192 tokens per request: 16.21x
Capturing CUDA graph shapes:   0%|          | 0/67 [00:00<?, ?it/s]\rCapturing CUDA graph shapes: 100%|████| 67/67 [00:33<00:00]
INFO 05-12 02:46:32 [gpu_model_runner.py:1686] Graph capturing finished in 33 secs, took 0.70 GiB
INFO 05-12 02:46:32 [core.py:159] init engine (profile, create kv cache, warmup model) took 57.31 seconds
INFO 05-12 02:46:32 [core_client.py:439] Core engine process 0 ready.
INFO 05-12 02:46:33 [api_server.py:1090] Starting vLLM API server on http://0.0.0.0:8000
INFO 05-12 02:46:33 [launcher.py:28] Available routes are:
INFO:     Started server process [22]
INFO:     Waiting for application startup.
INFO:     Application startup complete.
"""

_API, _CORE = "(APIServer pid=10) ", "(EngineCore pid=20) "
V1_NEW = f"""\
{_API}INFO 08-01 20:59:09 [api_utils.py:339]
{_API}INFO 08-01 20:59:09 [api_utils.py:339]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.25.1
{_API}INFO 08-01 20:59:09 [api_utils.py:339]   █▄█▀ █     █     █     █  model   /m/tiny
{_API}INFO 08-01 20:59:09 [api_utils.py:273] non-default args: {{'model_tag': '/m/tiny', 'max_model_len': 65536}}
{_API}INFO 08-01 20:59:10 [model.py:619] Resolved architecture: LlamaForCausalLM
{_API}INFO 08-01 20:59:10 [model.py:1776] Using max model len 65536
{_CORE}INFO 08-01 20:59:16 [core.py:114] Initializing a V1 LLM engine (v0.25.1) with config: model='/m/tiny', max_seq_len=65536, x=1
{_CORE}INFO 08-01 20:59:16 [parallel_state.py:1607] world_size=1 rank=0 local_rank=0 distributed_init_method=tcp://x backend=nccl
{_CORE}INFO 08-01 20:59:17 [gpu_model_runner.py:5209] Starting to load model /m/tiny...
{_CORE}INFO 08-01 21:01:17 [weight_utils.py:530] Time spent downloading weights for org/tiny: 120.5 seconds
{_CORE}INFO 08-01 21:01:18 [weight_utils.py:849] Filesystem type for checkpoints: EXT4. Checkpoint size: 92.5 GiB. Available RAM: 19.5 GiB.
{_CORE}\rLoading safetensors checkpoint shards:   0% Completed | 0/2 [00:00<?, ?it/s]
{_CORE}\rLoading safetensors checkpoint shards: 100% Completed | 2/2 [00:02<00:00,  2.26s/it]
{_CORE}
{_CORE}INFO 08-01 21:08:52 [default_loader.py:430] Loading weights took 570.5 seconds
{_CORE}INFO 08-01 21:08:56 [gpu_model_runner.py:5233] Loading drafter model...
{_CORE}INFO 08-01 21:09:13 [default_loader.py:430] Loading weights took 11.25 seconds
{_CORE}INFO 08-01 21:09:14 [gpu_model_runner.py:5306] Model loading took 95.5 GiB memory and 595.5 seconds
{_CORE}INFO 08-01 21:09:17 [backends.py:1148] Dynamo bytecode transform time: 2.07 s
{_CORE}INFO 08-01 21:09:18 [backends.py:292] Directly load the compiled graph(s) for compile range (1, 2048) from the cache, took 0.9 s
{_CORE}INFO 08-01 21:09:18 [monitor.py:53] torch.compile took 3.5 s in total
{_CORE}INFO 08-01 21:10:18 [shm_broadcast.py:698] No available shared memory broadcast block found in 60 seconds.
{_CORE}INFO 08-01 21:11:18 [shm_broadcast.py:698] No available shared memory broadcast block found in 60 seconds.
{_CORE}INFO 08-01 21:12:18 [shm_broadcast.py:698] No available shared memory broadcast block found in 60 seconds.
{_CORE}INFO 08-01 21:19:47 [monitor.py:81] Initial profiling/warmup run took 629.5 s
{_CORE}INFO 08-01 21:21:47 [gpu_worker.py:538] Available KV cache memory: 6.5 GiB
{_CORE}INFO 08-01 21:21:47 [kv_cache_utils.py:2146] GPU KV cache size: 94,135 tokens
{_CORE}2026-08-01 21:21:48,181 - INFO - autotuner.py:651 - flashinfer.jit: [Autotuner]: Autotuning process starts ...
{_CORE}\r[AutoTuner]: Tuning trtllm::fused_moe::gemm1:   5%|4 | 1/21 [00:05<01:52,  5.61s/profile]
{_CORE}2026-08-01 21:21:50,000 - WARNING - autotuner.py:9 - flashinfer.jit: [Autotuner]: tactic failed: CUDA out of memory
{_CORE}2026-08-01 21:23:31,132 - INFO - autotuner.py:674 - flashinfer.jit: [Autotuner]: Autotuning process ends
{_CORE}\rCapturing CUDA graphs (mixed prefill-decode, PIECEWISE):   0%|          | 0/32 [00:00<?, ?it/s]
{_CORE}\rCapturing CUDA graphs (decode, FULL): 100%|██████████| 32/32 [00:06<00:00,  5.02it/s]
{_CORE}INFO 08-01 21:23:41 [gpu_model_runner.py:6707] Graph capturing finished in 11 secs, took -0.5 GiB
{_CORE}INFO 08-01 21:23:42 [core.py:337] init engine (profile, create kv cache, warmup model) took 867.5 s (compilation: 9.98 s)
{_API}INFO 08-01 21:23:47 [api_server.py:616] Starting vLLM server on http://0.0.0.0:8000
{_API}INFO:     Started server process [10]
{_API}INFO:     Waiting for application startup.
{_API}INFO:     Application startup complete.
"""

READY = {"V0": V0, "V1": V1, "V1, new": V1_NEW}

STEPS = {
    "V0": [
        ("launched", 1),
        ("initializing", 3),
        ("loading-weights", 4),
        ("allocating-kv", 10),
        ("capturing-graphs", 11),
        ("listening", 13),
    ],
    "V1": [
        ("launched", 2),
        ("initializing", 5),
        ("loading-weights", 8),
        ("compiling", 14),
        ("allocating-kv", 17),
        ("capturing-graphs", 19),
        ("warming-up", 21),
        ("listening", 23),
    ],
    "V1, new": [
        ("launched", 2),
        ("initializing", 7),
        ("loading-weights", 9),
        ("downloading", 10),
        ("compiling", 19),
        ("profiling", 25),
        ("allocating-kv", 26),
        ("tuning", 28),
        ("capturing-graphs", 32),
        ("warming-up", 35),
        ("listening", 36),
    ],
}

FACTS = {
    "V0": {"weights_gib": 2.5, "context": 4096, "kv_blocks": 1000, "capture_s": 11, "bound_url": "http://0.0.0.0:8000"},
    "V1": {
        "version": "0.8.5",
        "weights_gib": 14.5,
        "weights_s": 3.5,
        "compile_s": 12.5,
        "kv_tokens": 132832,
        "max_concurrency": 16.21,
        "capture_s": 33,
        "engine_s": 57.31,
        "bound_url": "http://0.0.0.0:8000",
    },
    "V1, new": {
        "version": "0.25.1",
        "context": 65536,
        "download_s": 120.5,
        "checkpoint_gib": 92.5,
        "ram_gib": 19.5,
        "weights_s": 570.5,
        "load_s": 595.5,
        "profile_s": 629.5,
        "kv_gib": 6.5,
        "kv_tokens": 94135,
        "capture_gib": -0.5,
    },
}

BOOT_V0 = V0[: V0.index("\rLoading")]
BOOT = V1_NEW[: V1_NEW.index(f"{_CORE}\rLoading")]  # 11 lines
TRACEBACK = f"""\
{_CORE}Process EngineCore:
{_CORE}Traceback (most recent call last):
{_CORE}  File "/v/vllm/v1/engine/core.py", line 1235, in run_engine_core
{_CORE}    raise ValueError(
"""
TRACEBACK_LINE = (
    f'{_CORE}  File "/v/lib/python3.12/site-packages/vllm/v1/engine/core.py", line 1235, in run_engine_core'
)
_FRONT = f"""\
[rank0]:[W803 21:49:24.248813923 ProcessGroupNCCL.cpp:1575] Warning: destroy_process_group() was not called before exit
{_API}Traceback (most recent call last):
{_API}  File "/v/bin/vllm", line 10, in <module>
{_API}    sys.exit(main())
{_API}RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}
"""


def crash(line: str) -> str:
    """The engine dies of `line`, in the way of the newest: told by the engine twice, then by the front process. The
    cause is line 14."""
    told = f"{_CORE}ERROR 08-03 21:49:23 [core.py:1231] "
    return (
        BOOT
        + f"{told}EngineCore failed to start.\n{told}Traceback (most recent call last):\n"
        + f"{told}{line}\n{TRACEBACK}{_CORE}{line}\n{_FRONT}"
    )


def crash_v0(line: str) -> str:
    """An old, single process. The cause is line 8."""
    return (
        BOOT_V0
        + 'Traceback (most recent call last):\n  File "/v/vllm/engine/llm_engine.py", line 1, in x\n    raise x(\n'
        + f"{line}\n"
    )


STOP = f"""\
{_API}INFO 08-21 10:24:34 [launcher.py:100] [shutdown] API server: shutdown triggered
{_API}WARNING 08-21 10:24:34 [utils.py:626] [shutdown] Process manager: force killing remaining processes count=1
{_API}ERROR 08-21 10:24:34 [async_llm.py:704] AsyncLLM output_handler failed.
{_API}ERROR 08-21 10:24:34 [async_llm.py:704] Traceback (most recent call last):
{_API}ERROR 08-21 10:24:34 [async_llm.py:704] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.
{_API}INFO:     Shutting down
{_API}INFO:     Application shutdown complete.
/v/multiprocessing/resource_tracker.py:279: UserWarning: resource_tracker: There appear to be 1 leaked semaphore objects
"""
SERVED = f'{_API}INFO:     127.0.0.1:1 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
WEDGED = (
    f"{_CORE}INFO 08-13 11:27:02 [shm_broadcast.py:802] No available shared memory broadcast block found in 60 s.\n"
)
DEAD = f"""\
{_CORE}ERROR 11-08 11:01:30 [core.py:502] EngineCore encountered a fatal error.
{_CORE}ERROR 11-08 11:01:30 [core.py:502] Traceback (most recent call last):
{_CORE}ERROR 11-08 11:01:30 [core.py:502]   File "/v/vllm/v1/engine/core.py", line 493, in run_engine_core
{_CORE}ERROR 11-08 11:01:30 [core.py:502] %s
{_API}ERROR 11-08 11:01:30 [async_llm.py:1] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.
{_API}INFO:     Shutting down
{_API}INFO:     Application shutdown complete.
"""
