"""Ollama: of every age. It listens at once and loads a model with the first request, in a child (the runner).

Whether it is up says "/"; whether a model is, only a request. A runner that died leaves it up. Its children print what
llama.cpp prints, between its own lines.
"""

from __future__ import annotations

import re

from agent.core.model import Health, Step
from agent.families.family import Family, causes, steps
from agent.families.llama_cpp import LLAMA_CPP
from agent.families.plain import GENERAL_NOISE

_STEPS = steps(
    (Step.LAUNCHED, r"msg=\"server config\"|routes\.go:\d+: INFO server config"),
    (Step.DOWNLOADING, r"msg=\"downloading |downloading [0-9a-f]{12} in \d+"),
    (Step.LISTENING, r"Listening on (?:\[|\d|localhost)"),
    (
        Step.LOADING_WEIGHTS,
        r"msg=\"starting (?:llama server|runner|llama-server|ollama engine)|loading model tensors, this can take"
        r"|waiting for llama runner to start|waiting for server to become available|starting llama runner"
        r"|loaded meta data with ",
    ),
    (Step.ALLOCATING_KV, r"llama_context: constructing|llama_new_context_with_model: |KV buffer size = |KV self size"),
)

_DYING = (
    r"llama runner terminated|llama runner process has terminated|llama runner process no longer running|Load failed"
)

_FIRST = causes(
    ("port_in_use", r"listen tcp .{0,80}: bind: |listen tcp: .{0,80}address already in use"),
    (
        "unsupported_model",
        r"unknown model architecture|may be incompatible with your version|requires a newer version of Ollama",
    ),
    ("permission_denied", r"could not create directory mkdir|permission denied, ensure "),
    ("host_oom", r"model requires more system memory|requires more system memory \("),
    ("stalled", r"timed out waiting for llama runner to start"),
    ("bad_env", r"invalid environment|invalid port, using default|invalid OLLAMA_\w+"),
)
_WRAPPERS = causes(
    (
        "worker_died",
        r"llama runner terminated|llama runner process has terminated|llama runner process no longer running",
    ),
    specific=False,
    wrapper=True,
)
_GENERAL = causes(
    (
        "worker_signal",
        r"msg=\"llama runner terminated\" error=\"signal: |signal arrived during cgo execution|SIGSEGV: segm",
    ),
    ("worker_signal", r"has terminated: signal: "),
    specific=False,
)

OLLAMA = Family(
    name="ollama",
    executables=frozenset({"ollama"}),
    default_port=11434,
    host_flags=(),  # told by OLLAMA_HOST alone
    port_flags=(),
    health_path="/",
    answers={200: Health.OK},
    terms_s=(30.0,),
    clean_exits=frozenset({0, -15, 143, -2, 130}),
    workers=("ollama runner", "ollama_llama_server"),
    steps=_STEPS,
    progress=LLAMA_CPP.progress,
    outcomes={
        "ready": re.compile(r"Listening on (?:\[|\d|localhost)|llama runner started in|llama-server started in"),
        "crash": re.compile(_DYING),
    },
    facts={
        **{name: LLAMA_CPP.facts[name] for name in ("layers_on_gpu", "layers", "model_mib", "kv_mib")},
        "load_s": re.compile(r"(?:llama runner|llama-server) started in ([\d.]+) seconds"),
        "version": re.compile(r"\(version ([\w.+-]+)\)"),
        "bound_url": re.compile(r"Listening on ([^\s\"]+)"),
        "weights_size": re.compile(r"msg=\"model weights\" device=\S+ size=\"([^\"]+)\""),
        "kv_size": re.compile(r"msg=\"kv cache\" device=\S+ size=\"([^\"]+)\""),
    },
    noise=(
        *LLAMA_CPP.noise,
        *GENERAL_NOISE,
        re.compile(r"\[GIN\]|msg=\"server config\"|inference compute|unable to (?:load|locate) (?:cu|nv|gpu)"),
        re.compile(
            r"error looking up nvidia GPU|no compatible GPUs were discovered|library not found|gpu VRAM usage didn't"
        ),
    ),
    recoveries=(
        *LLAMA_CPP.recoveries,
        re.compile(r"\[GIN\].{0,60} \| 200 \| .{0,80} POST "),
        re.compile(r"llama runner started in|llama-server started in"),
    ),
    causes=(
        *_FIRST,
        *(rule for rule in LLAMA_CPP.causes if rule.specific),
        *_GENERAL,
        *(rule for rule in LLAMA_CPP.causes if not rule.specific),
        *_WRAPPERS,
    ),
    signature=re.compile(
        r"\bsource=\w+\.go:\d+|\[GIN\] \d{4}/|ollama/ollama|/\.ollama/|\bollama (?:serve|runner)\b|OLLAMA_\w+:"
    ),
)
