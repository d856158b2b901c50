"""SGLang's server: 0.2 to 0.5.

Its port opens only after the load, and then says 503 until its own first request is answered. It ends itself with
SIGKILL, after plain Python errors and after a clean drain alike, and drains without limit. Each look at /health is a
generation of one token that waits behind the others: it is asked rarely and has long to answer.
"""

from __future__ import annotations

import re

from agent.core.model import Health, Step
from agent.families.family import Family, bars, causes, steps
from agent.families.plain import GENERAL_CAUSES, GENERAL_NOISE
from agent.families.pytorch import PYTORCH_CAUSES, PYTORCH_GENERAL, PYTORCH_NOISE, UVICORN_STOPPED

_STEPS = steps(
    (Step.LAUNCHED, r"server_args=(?:ServerArgs\(|\{)|Launch server with args: "),
    (
        Step.INITIALIZING,
        r"Init torch distributed (?:begin|ends)|Init parallel (?:begin|ends)|Init nccl begin|sglang is using nccl==",
    ),
    (Step.DOWNLOADING, r"\.safetensors: +\d{1,3}%\||Downloading \(incomplete total|Downloading shards: "),
    (Step.LOADING_WEIGHTS, r"Load weight begin|Load weight end|Using model weights format"),
    (
        Step.ALLOCATING_KV,
        r"KV Cache is allocated|Memory pool end|KVPool mem usage|Mamba Cache is allocated",
    ),
    (Step.COMPILING, r"DeepGEMM JIT Pre-Compile|Entering DeepGEMM JIT|Compiling num tokens \(|torch\.compile begin"),
    (Step.TUNING, r"Autotuning process starts|Running FlashInfer autotune"),
    (
        Step.CAPTURING_GRAPHS,
        r"Capture (?:[a-z]+ ){0,3}(?:cuda|CUDA) graph (?:begin|bs|num tokens|end)|Capture piecewise CUDA graph",
    ),
    (Step.WARMING_UP, r"max_total_num_tokens=\d+, |\"GET /(?:get_)?model_info HTTP|\"POST /generate HTTP"),
    (
        Step.LISTENING,
        r"Started server process|Waiting for application startup|Application startup complete|Uvicorn running on",
    ),
)

_BARS = bars(
    (Step.DOWNLOADING, r"Fetching \d+ files"),
    (Step.LOADING_WEIGHTS, r"Multi-thread loading shards"),
    (Step.LOADING_WEIGHTS, r"checkpoint shards"),
    (Step.LOADING_WEIGHTS, r"Loading safetensors using [^|:\r\n]{1,60}"),
    (Step.COMPILING, r"DeepGEMM warmup[^|%\r\n]{0,80}"),
    (Step.COMPILING, r"Compiling num tokens \([^|)\r\n]{0,80}\)"),
    (Step.TUNING, r"Tuning [^|\s]{1,80}"),
    (Step.CAPTURING_GRAPHS, r"Capturing batches \([^|)\r\n]{0,80}\)"),
    (Step.CAPTURING_GRAPHS, r"Capturing num tokens \([^|)\r\n]{0,80}\)"),
)

_FACTS = {
    "weights_gib": re.compile(r"Load weight end\..{0,300}mem usage=(-?[\d.]+) GB"),
    "weights_s": re.compile(r"Load weight end\. elapsed=([\d.]+) s"),
    "kv_tokens": re.compile(r"max_total_num_tokens=(\d+)|KV Cache is allocated\..{0,80}#tokens: (\d+)"),
    "max_concurrency": re.compile(r"max_running_requests=(\d+), context"),
    "context": re.compile(r"context_len=(\d+)"),
    "free_gib": re.compile(r"available_gpu_mem=([\d.]+) GB|Memory pool end\. avail mem=([\d.]+) GB"),
    "capture_s": re.compile(r"(?:cuda|CUDA) graph end\. (?:Time )?elapsed[:=] ?([\d.]+) s"),
    "bound_url": re.compile(r"Uvicorn running on (\S+)"),
}

_NOISE = (
    *GENERAL_NOISE,
    *PYTORCH_NOISE,
    re.compile(r"^Killed\s*$|Received sigquit|SIGQUIT received|py-spy|[Pp]yspy "),
    re.compile(
        r"still TokenizersBackend after retries|set --mem-fraction-static|disable cuda graph by|disable torch compile"
    ),
    re.compile(r"Failed to get GPU memory capacity|Open an issue on GitHub"),
    re.compile(r"Receive: obj=|Finish: obj=|Prefill batch[,.]|Decode batch[,.]"),  # what clients ask, in their words
    re.compile(r"Health check failed|Ignore import error when loading"),
)

_DYING = (
    r"Scheduler hit an exception|TpModelWorker\w* hit an exception|hit an exception: Traceback"
    r"|Received sigquit from a child"
    r"|SIGQUIT received|scheduler is dead|scheduler died|Initialization failed\. |[Ww]atchdog timeout \("
    r"|Killing the server"
    r"|Detokenizer hit an exception|DataParallelController hit|Subprocess \S+ .{0,60}(?:crashed|died|exited)"
    r"|[1-9]\d?%(?: Completed)? ?\|.{0,400}resource_tracker: There appear"  # a bar that the end of the process cut off
)

_FIRST = causes(
    ("watchdog", r"[Ww]atchdog timeout \("),
    ("warmup_failed", r"Initialization failed\. [Ww]arm-?up error"),
    ("port_in_use", r"ort \d+ is already in use|ort \d+ is not available|ort \d+ is unavailable"),
    ("draft_mismatch", r"EAGLE3? .{0,80}(?:requires|expects|mismatch)|draft model .{0,80}(?:must|does not)"),
    ("bad_config", r"AssertionError: .{0,200}(?:tp_size|dp_size|ep_size|chunked_prefill|page_size|mem_fraction)"),
)
_GENERAL = causes(
    ("worker_signal", r"died during initialization \(exit code: -\d+|Exit code: -\d+|crashed with exit code -\d+"),
    ("worker_died", r"scheduler died during initialization|Subprocess \S+ .{0,60}(?:crashed|died|exited)"),
    specific=False,
)
_WRAPPERS = causes(("worker_died", r"scheduler is dead|hit an exception: Traceback"), specific=False, wrapper=True)

SGLANG = Family(
    name="sglang",
    executables=frozenset({"sglang", "sglang.launch-server"}),
    packages=frozenset({"sglang"}),
    default_port=30000,
    model_flags=("--model-path", "--model", "--tokenizer-path", "--speculative-draft-model-path"),
    model_words=("serve",),
    hub=True,
    answers={200: Health.OK, 503: Health.LOADING},
    probe_s=20.0,
    probe_timeout_s=25.0,  # its own limit for the token is 20 s
    terms_s=(120.0,),
    clean_exits=frozenset({0, -15, 143, -2, 130, -9, 137}),
    workers=("sglang::",),
    steps=_STEPS,
    bars=_BARS,
    outcomes={
        "ready": re.compile(r"The server is fired up and ready to roll"),
        "stopped": re.compile(rf"{UVICORN_STOPPED}|SIGTERM received\.|Gracefully exiting\.\.\.|^KeyboardInterrupt"),
        "crash": re.compile(_DYING),
        "boot": re.compile(r"server_args=(?:ServerArgs\(|\{)"),
    },
    facts=_FACTS,
    noise=_NOISE,
    recoveries=(re.compile(r"\"POST /\S{1,200} HTTP/[\d.]+\" 200"), re.compile(r"Decode batch[,.]")),
    causes=(*_FIRST, *PYTORCH_CAUSES, *GENERAL_CAUSES, *_GENERAL, *PYTORCH_GENERAL, *_WRAPPERS),
    signature=re.compile(
        r"server_args=|/sglang/|/sgl-workspace/|\bsglang(?:\.srt|::| serve|\.launch_server)|ready to roll!"
        r"|Watchdog timeout \(self\.|Rank \d+ scheduler (?:is dead|died)|Scheduler hit an exception"
        r"|Memory pool end\. avail mem|Load weight (?:begin|end)\.|Capture (?:\w+ ){0,3}(?:cuda|CUDA) graph begin\."
        r"|Capture cuda graph failed"
    ),
)
