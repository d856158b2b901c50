"""Text Generation Inference: 1.0 to 3.3. A launcher, a Python process for each shard, and a router that listens last.

The launcher quotes what a shard printed before it died, so the cause stands among its lines, and the launcher's own
words about it are only wrappers. With --json-output all of it is JSON: no pattern rests on what stands before the text.
"""

from __future__ import annotations

import re

from agent.core.model import Health, Step
from agent.families.family import Family, bars, causes, steps
from agent.families.plain import GENERAL_CAUSES, GENERAL_NOISE
from agent.families.pytorch import PYTORCH_CAUSES, PYTORCH_GENERAL, PYTORCH_NOISE

_STEPS = steps(
    (
        Step.LAUNCHED,
        r"text_generation_launcher: Args|Args \{|Sharding model on \d+ processes|Using default cuda graphs",
    ),
    (Step.DOWNLOADING, r"Starting (?:check and )?download process|Download: \[\d+/\d+\]|Download file: "),
    (
        Step.LOADING_WEIGHTS,
        r"Successfully downloaded weights|Files are already present on the host|Starting shard"
        r"|Waiting for shard to be ready|Shard ready in |Server started at unix:|Using prefill chunking"
        r"|Loaded \d+ shards",
    ),
    (Step.ALLOCATING_KV, r"KV-cache blocks: \d|Setting max batch total tokens to \d|max batch total tokens: \d"),
    (Step.CAPTURING_GRAPHS, r"Cuda Graphs are (?:enabled|disabled)|Cuda Graphs warmup"),
    (Step.WARMING_UP, r"Warming up model|Warmed up model"),
    (Step.LISTENING, r"Starting Webserver|Serving revision|\.rs:\d+: Connected|\"message\":\"Connected\""),
)

_DYING = (
    r"Error: Shard(?:CannotStart|Failed)|Error: DownloadError|Error: WebserverFailed|Error: NotEnoughCUDADevices"
    r"|Error: ArgumentValidation|Shard \d+ (?:failed to start|crashed)|Webserver Crashed"
    r"|Shard complete standard error output|Download encountered an error|Error: WebServer"
    r"|Download process was signaled"
)

_GENERAL = causes(
    ("worker_signal", r"was signaled to shutdown with signal \d+"),
    ("no_gpu", r"Error: NotEnoughCUDADevices|NotEnoughCUDADevices\("),
    ("hf_unreachable", r"Error: DownloadError"),
    specific=False,
)
_WRAPPERS = causes(
    ("worker_died", r"Shard \d+ (?:failed to start|crashed)|Webserver Crashed|Error: Shard(?:CannotStart|Failed)"),
    ("worker_died", r"Error: WebserverFailed"),
    specific=False,
    wrapper=True,
)

TGI = Family(
    name="tgi",
    executables=frozenset({"text-generation-launcher", "text-generation-router", "tgi"}),
    packages=frozenset({"text-generation-server"}),
    default_host="0.0.0.0",  # noqa: S104 - what it does, unless it is told
    default_port=3000,
    host_flags=("--hostname",),
    port_flags=("--port", "-p"),
    model_flags=("--model-id",),
    hub=True,
    metrics_path="/metrics",
    answers={200: Health.OK},  # it never answers while it loads
    terms_s=(95.0,),  # it waits 90 s for its clients
    clean_exits=frozenset({0, -15, 143, -2, 130}),
    workers=("text-generation-server",),
    steps=_STEPS,
    bars=bars((Step.LOADING_WEIGHTS, r"Loading checkpoint shards"), (Step.DOWNLOADING, r"Fetching \d+ files")),
    outcomes={
        "ready": re.compile(
            r"\.rs:\d+: Connected|^Connected\s*$|text_generation_router.{0,40}: Connected|\"message\":\"Connected\""
        ),
        "stopped": re.compile(
            r"Terminating webserver|signal received, starting graceful shutdown|Waiting for webserver to grace"
        ),
        "crash": re.compile(_DYING),
    },
    facts={
        "load_s": re.compile(r"Shard ready in ([\d.]+)s"),
        "kv_blocks": re.compile(r"KV-cache blocks: (\d+)"),
        "kv_tokens": re.compile(r"Setting max batch total tokens to (\d+)"),
        "context": re.compile(r"max_total_tokens: Some\((\d+)\)|Default `max_total_tokens` to (\d+)"),
        "weights_s": re.compile(r"Successfully loaded weights in ([\d.]+)"),
    },
    noise=(
        *GENERAL_NOISE,
        *PYTORCH_NOISE,
        re.compile(r"Args \{|generate(?:_stream)?\{parameters=|inputs: \""),  # options, and what clients ask
        re.compile(r"Could not import |Unable to use |Server shutdown|rank=\d+ .{0,20}Shard terminated"),
    ),
    recoveries=(re.compile(r"text_generation_router.{0,200}: Success\s*$"),),
    causes=(
        *causes(
            ("kv_cache_too_small", r"You need to decrease `?--max-batch-prefill-tokens"),
            ("bad_config", r"`num_heads` must be divisible by `num_shards`|must be < `max_|`max_\w+` must be "),
            ("bad_config", r"`max_\w+ .{0,40}should be|`validation_workers` must"),
            ("host_oom", r"Shard process was signaled to shutdown with signal 9.{0,40}OOM"),
        ),
        *PYTORCH_CAUSES,
        *GENERAL_CAUSES,
        *_GENERAL,
        *PYTORCH_GENERAL,
        *_WRAPPERS,
    ),
    signature=re.compile(
        r"text_generation_(?:launcher|router|server)|text-generation-(?:server|launcher|router)|ShardCannotStart"
    ),
)
