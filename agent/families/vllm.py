"""vLLM's OpenAI server: 0.1 to 0.33, V0 and V1 engine, one process to many ranks.

Its port is bound early but listens only when the model is ready. It exits 0 both after SIGTERM and some seconds after
its engine died, and swallows a first SIGTERM that comes while the engine starts.
"""

from __future__ import annotations

import re

from agent.core.model import Health, Step
from agent.families.family import Family, bars, causes, steps
from agent.families.plain import GENERAL_CAUSES, GENERAL_NOISE
from agent.families.pytorch import PYTORCH_CAUSES, PYTORCH_GENERAL, PYTORCH_NOISE, UVICORN_STOPPED

_STEPS = steps(
    (
        Step.LAUNCHED,
        r"vLLM API server version|[▄▀█] +version \d|non-default args: |\bargs: Namespace\(|Resolved architecture: "
        r"|Using max model len \d|This model supports multiple tasks",
    ),
    (
        Step.INITIALIZING,
        r"Initializing an LLM engine|Initializing a V[01] LLM engine|world_size=\d+ rank=\d+ |vLLM is using nccl=="
        r"|in world size \d+ is assigned as|Started a local Ray instance|Connecting to existing Ray cluster",
    ),
    (
        Step.DOWNLOADING,
        r"Time spent downloading weights|\.safetensors: +\d{1,3}%\||Downloading \(incomplete total"
        r"|Downloading shards: ",
    ),
    (
        Step.LOADING_WEIGHTS,
        r"Starting to load model |Loading model from scratch|Loading weights took|Model loading took"
        r"|weights took [\d.]+ GB|Checkpoint size: [\d.]+ GiB|Using model weights format|Loading drafter model",
    ),
    (
        Step.COMPILING,
        r"for vLLM's torch\.compile|Dynamo bytecode transform time|Cache the graph (?:of|for) |Compiling a graph for "
        r"|Directly load the compiled graph|Directly load AOT compilation|torch\.compile (?:takes|took) "
        r"|Warming up model for the compilation|saved AOT compiled function",
    ),
    (
        Step.PROFILING,
        r"Initial profiling/warmup run took|Profiling CUDA graph memory|Estimated CUDA graph memory"
        r"|Memory profiling (?:takes|results)|Encoder cache will be initialized",
    ),
    (
        Step.ALLOCATING_KV,
        r"Available KV cache memory|KV cache size: [\d,]+ tokens|Maximum concurrency for |# \w{3,8} blocks: \d",
    ),
    (Step.TUNING, r"Autotuning process starts|Running FlashInfer autotune"),
    (
        Step.CAPTURING_GRAPHS,
        r"Capturing the model for CUDA graphs|Capturing cudagraphs for |Graph capturing finished in",
    ),
    (Step.WARMING_UP, r"init engine \(profile|Core engine process \d+ ready"),
    (
        Step.LISTENING,
        r"Starting vLLM API server|Starting vLLM server on|Available routes are:|Started server process"
        r"|Waiting for application startup|Application startup complete|Uvicorn running on",
    ),
)

_BARS = bars(
    (Step.DOWNLOADING, r"Fetching \d+ files"),
    (Step.LOADING_WEIGHTS, r"checkpoint shards"),
    (Step.LOADING_WEIGHTS, r"Loading safetensors using [^|:\r\n]{1,60}"),
    (Step.LOADING_WEIGHTS, r"Multi-thread loading shards"),
    (Step.TUNING, r"Tuning [^|\s]{1,80}"),
    (Step.CAPTURING_GRAPHS, r"Capturing CUDA graph[^|%\r\n]{0,80}"),
)

_FACTS = {
    "version": re.compile(r"version (\d+\.\d+[\w.+]*)"),
    "weights_gib": re.compile(r"Model loading took ([\d.]+) Gi?B|weights took ([\d.]+) GB"),
    "weights_s": re.compile(r"Loading weights took ([\d.]+) seconds"),
    "load_s": re.compile(r"Model loading took .{0,40}and ([\d.]+) seconds"),
    "checkpoint_gib": re.compile(r"Checkpoint size: ([\d.]+) GiB"),
    "ram_gib": re.compile(r"Available RAM: ([\d.]+) GiB"),
    "download_s": re.compile(r"Time spent downloading weights for .{0,400}: ([\d.]+) seconds"),
    "context": re.compile(r"\bmax_seq_len=(\d+)"),
    "kv_gib": re.compile(r"Available KV cache memory: ([\d.]+) GiB"),
    "kv_tokens": re.compile(r"KV cache size: ([\d,]+) tokens"),
    "kv_blocks": re.compile(r"# (?:GPU|cuda|CUDA|CPU|cpu|rocm|xpu) blocks: (\d+), # "),
    "max_concurrency": re.compile(r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x"),
    "compile_s": re.compile(r"torch\.compile (?:takes|took) ([\d.]+) s in total"),
    "profile_s": re.compile(r"Initial profiling/warmup run took ([\d.]+) s"),
    "capture_s": re.compile(r"Graph capturing finished in ([\d.]+) secs"),
    "capture_gib": re.compile(r"Graph capturing finished in [\d.]+ secs, took (-?[\d.]+) GiB"),
    "engine_s": re.compile(r"init engine \(.{0,80}\) took ([\d.]+) s"),
    "bound_url": re.compile(r"Starting vLLM (?:API )?server(?: \d+)? on (\S+)|Uvicorn running on (\S+)"),
}

_NOISE = (
    *GENERAL_NOISE,
    *PYTORCH_NOISE,
    re.compile(
        r"LLM engine \(v.{0,40}\) with config: |with config: model="
        r"|\[shutdown\] (?!MPClient: engine core exited)|force killing remaining"
    ),
    re.compile(r"Received request |Added request |\bprompt: '|prompt_token_ids"),  # what clients ask, in their words
    re.compile(r"AsyncLLM output_handler failed|EngineDeadError"),  # the front process hears that the engine is gone
    re.compile(
        r"Worker failed with error|Engine process failed to start|WorkerProc initialization failed"
        r"|has no attribute 'workers'"
    ),
)

_DYING = (
    r"EngineCore failed to start|Engine core initialization failed|EngineCore encountered a fatal error"
    r"|EngineDeadError|EngineCore hit an exception|WorkerProc failed to start|WorkerProc hit an exception"
    r"|WorkerProc initialization failed|died unexpectedly|engine core exited unexpectedly|MQLLMEngine is already dead"
    r"|MQLLMEngine terminated|Engine process failed to start|Background loop has errored|Engine loop is not running"
    r"|Error executing method '|terminating server process|Failed core proc\(s\): "
    r"|^Process (?:EngineCore|SpawnProcess|ForkProcess|Worker|VllmWorker)[\w-]*:\s*$|Exception in worker \w+ while"
)

_GENERAL = causes(
    ("worker_signal", r"Failed core proc\(s\): \{['\"]\w+['\"]: -\d+"),
    (
        "worker_died",
        r"Worker proc \S+ died unexpectedly|Engine core proc \S+ died unexpectedly|Worker \S+ pid \d+ died, exit code"
        r"|The actor is dead because|A worker died or was killed|Failed core proc\(s\): \{['\"]",
    ),
    specific=False,
)
_WRAPPERS = causes(
    ("worker_died", r"MQLLMEngine is already dead|EngineCore encountered a fatal error|Engine loop is not running"),
    ("worker_died", r"Background loop has errored|MQLLMEngine terminated|engine core exited unexpectedly"),
    specific=False,
    wrapper=True,
)

VLLM = Family(
    name="vllm",
    executables=frozenset(
        {"vllm", "vllm.entrypoints.openai.api-server", "vllm.entrypoints.api-server", "vllm.entrypoints.cli.main"}
    ),
    packages=frozenset({"vllm"}),
    default_host="0.0.0.0",  # noqa: S104 - what it does, unless it is told
    default_port=8000,
    model_flags=("--model",),
    model_words=("serve",),
    hub=True,
    metrics_path="/metrics",
    answers={200: Health.OK},  # it never answers while it loads; 503: its engine is dead
    terms_s=(30.0, 20.0),
    clean_exits=frozenset({0, -15, 143, -2, 130}),
    workers=("VLLM::",),
    steps=_STEPS,
    bars=_BARS,
    outcomes={
        "ready": re.compile(r"Application startup complete|Uvicorn running on"),
        "stopped": re.compile(
            rf"{UVICORN_STOPPED}|API server: shutdown triggered|Shutting down FastAPI HTTP server"
            rf"|Gracefully stopping http server|KeyboardInterrupt: terminated|^KeyboardInterrupt"
        ),
        "crash": re.compile(_DYING),
        "boot": re.compile(r"vLLM API server version|[▄▀█] +version \d"),
        "hang": re.compile(r"No available shared memory broadcast block found"),
    },
    facts=_FACTS,
    noise=_NOISE,
    recoveries=(
        re.compile(r"\"POST /\S{1,200} HTTP/[\d.]+\" 200"),
        re.compile(r"Avg generation throughput: (?!0\.0 )"),
    ),
    causes=(
        *causes(("shm_too_small", r"Bus error \(core dumped\)|Bus error\s*$")),
        *PYTORCH_CAUSES,
        *GENERAL_CAUSES,
        *_GENERAL,
        *PYTORCH_GENERAL,
        *_WRAPPERS,
    ),
    signature=re.compile(
        r"vLLM API server|\(APIServer(?:_\d+)? pid=|\(EngineCore\w* pid=|\(Vllm\w+ |VllmWorker|\(Worker(?:_\w+)? pid="
        r"|RayWorker|MQLLMEngine|EngineCore|/vllm/|\bvllm\.(?:v1|engine|entrypoints|worker|executor)\b"
        r"|Initializing an LLM engine|\bvLLM is using nccl|shm_broadcast\.py|\bvllm serve\b|\bvllm: error:"
        r"|usage: vllm|(?:INFO|WARNING|ERROR|CRITICAL|DEBUG) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w/.]+\.py:\d+\]"
    ),
)
