"""Logs of SGLang of several ages, written by hand after their formats. No line is from a real host."""

# ruff: noqa: E501 - lines of logs are as long as they are

from __future__ import annotations

OLD = """\
[2024-12-13 01:44:50] server_args=ServerArgs(model_path='/m/tiny', port=30000, note='crash abort CUDA error')
[2024-12-13 01:44:52 TP0] Init torch distributed begin.
[2024-12-13 01:44:53 TP0] Init torch distributed ends. mem usage=0.02 GB
[2024-12-13 01:44:53 TP0] Load weight begin. avail mem=22.50 GB
\rLoading safetensors checkpoint shards:   0% Completed | 0/2 [00:00<?, ?it/s]
\rLoading safetensors checkpoint shards: 100% Completed | 2/2 [00:02<00:00,  1.05s/it]

[2024-12-13 01:44:59 TP0] Load weight end. type=MistralForCausalLM, dtype=torch.bfloat16, avail mem=9.69 GB
[2024-12-13 01:44:59 TP0] Memory pool end. avail mem=2.44 GB
[2024-12-13 01:44:59 TP0] Capture cuda graph begin. This can take up to several minutes.
[2024-12-13 01:45:01 TP0] Capture cuda graph end. Time elapsed: 2.5 s.
[2024-12-13 01:45:02 TP0] max_total_num_tokens=56524, max_prefill_tokens=16384, max_running_requests=2049, context_len=32768
[2024-12-13 01:45:02] INFO:     Started server process [31]
[2024-12-13 01:45:02] INFO:     Waiting for application startup.
[2024-12-13 01:45:02] INFO:     Application startup complete.
[2024-12-13 01:45:02] INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)
[2024-12-13 01:45:03] INFO:     127.0.0.1:40418 - "GET /get_model_info HTTP/1.1" 200 OK
[2024-12-13 01:45:04] INFO:     127.0.0.1:40420 - "POST /generate HTTP/1.1" 200 OK
[2024-12-13 01:45:04] The server is fired up and ready to roll!
"""

NEW = """\
/v/sglang/launch_server.py:56: UserWarning: 'python -m sglang.launch_server' is still supported.
[2026-08-01 23:37:40] Failed to get GPU memory capacity from nvidia-smi. Falling back to torch.cuda.mem_get_info().
[2026-08-01 23:37:40] server_args=ServerArgs(model_path='/m/tiny', tokenizer_path='/m/tiny', watchdog_timeout=300)
[2026-08-01 23:37:43] Tokenizer for /m/tiny is still TokenizersBackend after retries with --trust-remote-code.
[2026-08-01 23:37:49 TP0] Init torch distributed begin.
[2026-08-01 23:37:49 TP0] Init torch distributed ends. elapsed=0.23 s, mem usage=0.03 GB
[2026-08-01 23:37:50 TP0] Load weight begin. avail mem=115.36 GB
\rMulti-thread loading shards:   0% Completed | 0/15 [00:00<?, ?it/s][2026-08-01 23:37:54] Parameter x not found in params_dict
\rMulti-thread loading shards:   7% Completed | 1/15 [00:29<06:47, 29.12s/it]\rMulti-thread loading shards:  13% Completed | 2/15
[2026-08-01 23:39:39 TP0] Load weight end. elapsed=109.5 s, type=X, quant=y, avail mem=47.80 GB, mem usage=67.5 GB.
[2026-08-01 23:39:43 TP0] Init torch distributed begin.
[2026-08-01 23:39:43 TP0] Load weight begin. avail mem=47.83 GB
[2026-08-01 23:39:55 TP0] Load weight end. elapsed=12.25 s, type=XDraft, avail mem=46.25 GB, mem usage=1.5 GB.
[2026-08-01 23:40:01 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 185897, K size: 4.25 GB, V size: 4.25 GB
[2026-08-01 23:40:01 TP0] Memory pool end. avail mem=17.73 GB
[2026-08-01 23:40:02 TP0] Capture target prefill CUDA graph begin. backend=breakable, num_tokens=[4, 8], avail mem=13.2 GB
\r  0%|          | 0/58 [00:00<?, ?it/s]\rCapturing num tokens (num_tokens=8192 avail_mem=12.06 GB):   0%|          | 0/58
\rCapturing num tokens (num_tokens=8192 avail_mem=12.06 GB):   2%|1         | 1/58 [01:54<1:48:53, 114.62s/it]
[2026-08-01 23:43:38 TP0] Capture target prefill CUDA graph end. elapsed=216.5 s, mem usage=5.24 GB, avail mem=7.27 GB.
[2026-08-01 23:43:38 TP0] Capture target verify CUDA graph begin. backend=full, bs=[1, 2], avail mem=7.27 GB
\rCapturing batches (bs=8 avail_mem=7.19 GB): 100%|##########| 8/8 [00:03<00:00,  2.37it/s]
[2026-08-01 23:43:41 TP0] Capture target verify CUDA graph end. elapsed=3.00 s, mem usage=0.60 GB, avail mem=6.67 GB.
[2026-08-01 23:43:42 TP0] max_total_num_tokens=185897, chunked_prefill_size=8192, max_running_requests=48, context_len=65536, available_gpu_mem=6.5 GB
[2026-08-01 23:43:43] INFO:     Started server process [313]
[2026-08-01 23:43:43] INFO:     Waiting for application startup.
[2026-08-01 23:43:43] INFO:     Application startup complete.
[2026-08-01 23:43:43] INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)
[2026-08-01 23:43:44] INFO:     127.0.0.1:34498 - "GET /model_info HTTP/1.1" 200 OK
[2026-08-01 23:43:45] INFO:     10.0.0.1:34498 - "GET /health HTTP/1.1" 503 Service Unavailable
[2026-08-01 23:43:46 TP0] Prefill batch, #new-seq: 1, #new-token: 7, #cached-token: 0, full token usage: 0.00
[2026-08-01 23:43:47] INFO:     127.0.0.1:34504 - "POST /generate HTTP/1.1" 200 OK
[2026-08-01 23:43:47] The server is fired up and ready to roll!
"""

READY = {"0.4": OLD, "0.5": NEW}
STEPS = {
    "0.4": [
        ("launched", 1),
        ("initializing", 2),
        ("loading-weights", 4),
        ("allocating-kv", 9),
        ("capturing-graphs", 10),
        ("warming-up", 12),
        ("listening", 13),
    ],
    "0.5": [
        ("launched", 3),
        ("initializing", 5),
        ("loading-weights", 7),
        ("allocating-kv", 14),
        ("capturing-graphs", 16),
        ("warming-up", 23),
        ("listening", 24),
    ],
}
FACTS = {
    "0.4": {"kv_tokens": 56524, "max_concurrency": 2049, "context": 32768, "capture_s": 2.5, "free_gib": 2.44},
    "0.5": {
        "weights_gib": 67.5,
        "weights_s": 109.5,
        "kv_tokens": 185897,
        "max_concurrency": 48,
        "context": 65536,
        "capture_s": 216.5,
        "free_gib": 6.5,
        "bound_url": "http://0.0.0.0:30000",
    },
}

BOOT = NEW[: NEW.index("\rMulti-thread")]  # 7 lines
_TRACE = """\
  File "/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py", line 3616, in run_scheduler_process
    scheduler = Scheduler(server_args, port_args, gpu_id, tp_rank, dp_rank)
    raise Exception(
"""


def crash(line: str) -> str:
    """A rank dies of `line` while it loads, and takes the others with it. The cause is line 12."""
    return (
        BOOT
        + "[2026-08-01 23:38:00 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
        + f"{_TRACE}{line}\n"
        + "\n[2026-08-01 23:38:00] Received sigquit from a child process. It usually means the child failed.\n"
        + "[2026-08-01 23:38:00 TP0] SIGQUIT received. signum=None, frame=None. It usually means one child failed.\n"
        + "Killed\n"
    )


DEAD = f"""\
[2026-07-25 14:35:07] INFO:     192.0.2.24:55166 - "GET /health HTTP/1.1" 200 OK
%s
[2026-07-25 14:35:08 TP0] Scheduler hit an exception: Traceback (most recent call last):
{_TRACE}[2026-07-25 14:35:08] Received sigquit from a child process. It usually means the child failed.
Killed
"""
STOP = """\
[2026-08-01 23:50:00] SIGTERM received. signum=15 frame=None. Draining requests and shutting down...
[2026-08-01 23:50:05] Gracefully exiting... Remaining number of requests 1.
[2026-08-01 23:50:10] INFO:     Shutting down
Killed
"""
