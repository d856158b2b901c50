"""llama.cpp's server: of every age, llamafile, and the same server inside the xllamacpp wheel.

The newest builds put a clock and a level before each line and cut function names to 12 characters
(`0.00.006.333 E llama_model_load: ...`, `cmn  common_init_: ...`), so no pattern rests on what stands before the text.

A 503 is "Loading model" or, in builds of 2024, "no slot available": both say that the server lives.
"""

from __future__ import annotations

import re

from agent.core.model import Step
from agent.families.family import CauseRule, Family, StepRule
from agent.families.plain import GENERAL_CAUSES, GENERAL_NOISE

_STEPS = (
    StepRule(
        re.compile(
            r"\bbuild: \d+ \(|build_info: |system_info: |system info: |(?:init|llama_server): initializing \.\."
            r"|main\] build info |\"build info\",\"build\""
        ),
        Step.LAUNCHED,
    ),
    StepRule(
        re.compile(
            r"trying to download (?:model )?from|_download\w*: downloading |download task: |starting download for model"
            r"|\bDownloading .{0,200}\.gguf"
        ),
        Step.DOWNLOADING,
    ),
    StepRule(
        re.compile(
            r"binding port (?:with|to) |HTTP server is listening|HTTP server listening|threads for HTTP server"
            r"|server is listening on |llama server listening at |: listening on (?:https?|unix)://"
            r"|setting address family to AF_UNIX"
        ),
        Step.LISTENING,
    ),
    StepRule(
        re.compile(
            r"(?:main|init|llama_server): loading model\s*$|load_model: loading model |loaded meta data with "
            r"|loading model tensors, this can take|llm_load_tensors: |load_tensors: |llama\.cpp: loading model from "
        ),
        Step.LOADING_WEIGHTS,
    ),
    StepRule(
        re.compile(
            r"llama_context: constructing|llama_new_context_with_model: |llama_init_from_model: n_|KV buffer size = "
            r"|KV self size|llama_kv_cache\w*: (?:size = |creating |kv_size)"
        ),
        Step.ALLOCATING_KV,
    ),
    StepRule(
        re.compile(
            r"warming up the model with|llama threadpool init|initializing slots|: initializing, n_slots = "
            r"|(?:main|main\]|init|llama_server):? model loaded|\"(?:msg|message)\":\"model loaded\""
        ),
        Step.WARMING_UP,
    ),
)

_FACTS = {
    "layers_on_gpu": re.compile(r"offloaded (\d+)/\d+ layers to GPU"),
    "layers": re.compile(r"offloaded \d+/(\d+) layers to GPU"),
    "model_mib": re.compile(r"(?P<of>[\w.-]{1,32}) +model buffer size = +([\d.]+) MiB"),
    "kv_mib": re.compile(r"(?P<of>[\w.-]{1,32}) +KV buffer size = +([\d.]+) MiB"),
    "context": re.compile(r"\bn_ctx += (\d+)\s*$"),
    "context_of_slot": re.compile(r"\bn_ctx_slot = (\d+)"),
    "slots": re.compile(r"\bn_slots = (\d+)"),
    "file_size": re.compile(r"print_info: file size += +([\d.]+ [MG]iB)"),
    "build": re.compile(r"\bbuild_info: (b[\w.-]+)"),
    "build_number": re.compile(r"\bbuild: (\d+) \("),
    "bound_url": re.compile(r"listening on ((?:https?|unix)://[^\s,]+)"),
}

_NOISE = (
    *GENERAL_NOISE,
    re.compile(r"example_format: "),  # words of the model
    re.compile(r"HEAD failed, status: 404|using cached file"),  # looking for optional files
    re.compile(r"failed to mlock|of pinned memory: |was unable to fit model into"),  # it goes on without
    re.compile(r"defaulting to chatml|falling back to chatml|\(ignoring it\)|skipping assistant start detection"),
    re.compile(r"encountered an error while trying to fit params"),  # the same error comes again from the real load
    re.compile(r"load_backend: failed to |no usable GPU found"),  # one of many backends; it goes on without
    re.compile(r"warning: failed to |madvise\(.{0,60}\) failed|posix_fadvise\(.{0,60}\) failed"),
    re.compile(r"log_server_\w*: |done_request: |got exception: "),  # what clients asked and were told
    re.compile(r"send_error: |next token: |streamed chunk|Parsing chat message: |Parsing input "),  # and their words
    re.compile(r"failed to set process priority|failed to set priority"),
    re.compile(r"please check the input params"),  # xllamacpp's last word, never the cause
)

_RECOVERIES = (
    re.compile(r"retrying without pipeline parallelism"),
    re.compile(r"tokens will be translated between the two"),  # the draft model's vocabulary does not fit, and need not
    # it served after whatever went wrong before
    re.compile(r"log_server_\w*: .{0,400} 200\s*$|done_request: .{0,400} 200\s*$"),
)

_GPU = r"(?:CUDA|ROCm|HIP|Vulkan|SYCL|MUSA|CANN|MTL|Metal|OpenCL)\d*(?:_Mapped|_Split|_Private)?"
_HOST = r"(?:CPU\w*|\w+_Host)"

_SPECIFIC = (
    ("chat_template", r"supplied chat template is not supported|chat template parsing error"),
    ("chat_template", r"failed to initialize chat template|custom template is not supported"),
    ("no_gpu", r"invalid device: |invalid value for main_gpu"),
    (
        "bad_flag",
        r"error: invalid argument: |error: unknown argument: |error while handling argument|error: unknown value for "
        r"|error: invalid parameter for argument|the argument has been removed|error: --model is required"
        r"|error: invalid value for|error: expected value for argument|^error: failed to open file '"
        r"|either --embedding or --reranking",
    ),
    ("bad_env", r"error while handling environment variable"),
    (
        "cuda_oom",
        r"cudaMalloc failed: out of memory|hipMalloc failed: out of memory|ErrorOutOfDeviceMemory|ErrorOutOfMemory\b"
        r"|Device memory allocation of size \d+ failed|CUBLAS_STATUS_ALLOC_FAILED|NV_ERR_NO_MEMORY"
        r"|CUDA error: out of memory|ROCm error: out of memory|CUDA error \d+ at .{0,400}: out of memory"
        r"|can't allocate \d+ Bytes? of memory on device|Requested buffer size exceeds|ERROR_OUT_OF_DEVICE_MEMORY"
        r"|Insufficient Memory \(",
    ),
    ("cuda_oom", rf"unable to allocate {_GPU} buffer|failed to allocate {_GPU} buffer"),
    ("cuda_oom", r"metal\w*: error: failed to allocate buffer"),
    ("host_oom", r"ggml_aligned_malloc: insufficient memory|std::bad_alloc|bad_alloc error while reading"),
    ("host_oom", rf"unable to allocate {_HOST} buffer|failed to allocate {_HOST} buffer|mmap failed: Cannot allocate"),
    (
        "unsupported_model",
        r"unknown model architecture|unsupported model architecture|loading model: unknown architecture"
        r"|this GGUF file is version |GGUFv1 is no longer supported|bad GGUF version|this GGUF file version"
        r"|unsupported gguf version|unknown projector type|unsupported projector type|has invalid ggml type"
        r"|wrong number of tensors|has wrong shape; expected|error loading model hyperparameters"
        r"|unknown vision projector|is this really a GGML file|unrecognized tensor type|loading model: key not found"
        r"|loading model: (?:_Map_base|unordered_map|vector|invalid vector|invalid map)",
    ),
    ("tokenizer", r"unknown pre-tokenizer type|error loading model ?vocabulary|cannot find tokenizer"),
    ("tokenizer", r"unable to find tokenizer|vocab size mismatch|unknown tokenizer"),
    ("permission_denied", r"[Pp]ermission denied"),
    (
        "missing_weights",
        r"failed to open .{0,4096}No such file or directory|failed to open .{0,4096}Is a directory"
        r"|failed to read magic|invalid magic characters|not within the file bounds|failed to read key-value pairs"
        r"|failed to read header|failed to read tensor|missing tensor '|create_tensor: tensor .{0,200} not found"
        r"|is missing from model|unexpectedly reached end of file"
        r"|model is corrupted|corrupted model: |illegal split file|invalid split file|invalid split count"
        r"|failed to load GGUF split|found tensors with invalid data|Does this file exist\?|invalid file magic"
        r"|exceeds remaining file size|loading model: read error",
    ),
    ("gated_repo", r"status: 40[13]\b|code received: 40[13]\b|status code: 40[13]\b|response code: 40[13]\b"),
    (
        "missing_weights",
        r"download.{0,400}status: 404\b|status code: 404\b|response code: 404\b|not found in repository",
    ),
    (
        "hf_unreachable",
        r"curl_easy_perform\(\) failed|Could not resolve host|Could not establish connection|failed to get manifest"
        r"|failed to resolve commit|available in cache \(offline|download failed after \d|download failed: "
        r"|cannot make GET request"
        r"|response code: (?:429|5\d\d)|status code: (?:429|5\d\d)",
    ),
    (
        "missing_lib",
        r"no backends are loaded|built without libcurl|built without SSL|version `GLIBC\w*_[\d.]+' not found",
    ),
    ("port_in_use", r"couldn't bind HTTP server socket|couldn't bind to server socket|failed to bind to address"),
    ("arch_unsupported", r"no device code compatible with CUDA arch|error: invalid device function"),
    ("arch_unsupported", r"Shared memory size too small for matrix"),
    ("lora_failed", r"failed to load lora adapter|failed to apply lora adapter|failed to init lora"),
    (
        "draft_mismatch",
        r"draft (?:model|vocab) .{0,60} must (?:closely )?match|is not compatible with the target model",
    ),
    ("draft_mismatch", r"target and draft vocabs are not compatible|failed to initialize speculative decoding"),
    (
        "bad_config",
        r"requires Flash Attention|requires flash_attn|V cache quantization requires|does not divide n_embd_head"
        r"|n_batch and n_ubatch cannot both be zero|SPLIT_MODE_TENSOR needs|does not support different K "
        r"|mismatch between text model|static assets path not found|tools setup failed: |to initialize router models: ",
    ),
    ("kv_cache_too_small", r"failed to allocate buffer for kv cache|llama_kv_cache_init\(\) failed"),
    ("gpu_fault", r"is/are busy or unavailable|CUDA error: unknown error|CUDA error: initialization error"),
    ("gpu_fault", r"ErrorDeviceLost|ERROR_DEVICE_LOST"),
    ("illegal_memory", r"CUDA error: misaligned address|CUDA error: an illegal instruction"),
)

_GENERAL = (
    ("gpu_fault", r"CUDA error: |ROCm error: |HIP error: |MUSA error: |CUDA error \d+ at |cuBLAS error \d+ at "),
    ("no_gpu", r"ggml_vulkan: No devices found"),
    ("unknown", r"Remote RPC server crashed|Failed to connect to \S+:\d+"),
    (
        "worker_signal",
        r"GGML_ASSERT|^\S+\.cpp:\d+: fatal error|^\S+\.cuh?:\d+: fatal error|^\S+\.c:\d+: fatal error",
    ),
    ("lora_failed", r"failed to load control vector"),
    ("hf_unreachable", r"failed to download model|error: failed to download"),
    ("missing_weights", r"error loading model: |unable to load model|failed to load model|failed to load draft model"),
    ("missing_weights", r"failed to load multimodal model|failed to load CLIP model|due to model loading error"),
    ("kv_cache_too_small", r"failed to create context|failed to create_context|failed to initialize the context"),
    ("port_in_use", r"due to HTTP server error"),
    ("bad_config", r"failed to initialize HTTP server"),
    ("external_kill", r"^Killed\s*$|\b\d+ Killed {2}"),  # a shell's word; servers that kill themselves have it too
)

LLAMA_CPP = Family(
    name="llama_cpp",
    executables=frozenset({"llama-server", "xllama-server", "llamafile", "llamafiler"}),
    default_port=8080,
    model_flags=("-m", "--model", "-mm", "--mmproj", "-md", "--model-draft"),
    list_flags=("--lora", "--lora-scaled", "--control-vector", "--control-vector-scaled"),
    # A second SIGTERM ends it at once (exit 1), where the first waits for open connections.
    terms_s=(20.0, 10.0),
    # -15: SIGTERM while loading, where it has no handler yet. -2, 130: SIGINT.
    clean_exits=frozenset({0, -15, 143, -2, 130}),
    steps=_STEPS,
    progress={
        Step.LOADING_WEIGHTS: re.compile(r"^[ \t]*(?P<dots>\.+)", re.ASCII),  # printed one by one, without a newline
        Step.DOWNLOADING: re.compile(  # curl
            r"^[ \t]*(?P<percent>\d{1,3}) +[\d.]+[kMGT]? +\d{1,3} +[\d.]+[kMGT]? +\d", re.ASCII
        ),
    },
    outcomes={
        "ready": re.compile(
            r"listening (?:on|at) (?:https?|unix)://|starting the main loop|all slots are idle|main\] model loaded"
            r"|\"(?:msg|message)\":\"model loaded\""
        ),
        "stopped": re.compile(r"cleaning up before exit|Received second interrupt"),
    },
    facts=_FACTS,
    noise=_NOISE,
    recoveries=_RECOVERIES,
    causes=(
        *(CauseRule(slug, re.compile(pattern)) for slug, pattern in _SPECIFIC),
        *GENERAL_CAUSES,
        CauseRule("missing_lib", re.compile(r"cannot open shared object file")),
        *(CauseRule(slug, re.compile(pattern), specific=False) for slug, pattern in _GENERAL),
    ),
    children=re.compile(r"\[\d{4,5}\] "),  # of its router: the port of the child
    # Ollama prints the same lines, but also its own with `source=file.go`.
    signature=re.compile(
        r"\A(?![\s\S]*\bsource=\w+\.go)[\s\S]*?(?:\bllama_model_load|\bload_tensors: |\bload_backend: loaded "
        r"|\bbuild_info: b|\bbuild: \d+ \([0-9a-f]{7,}\)|\bsrv +\w+(?:\(\))?: |\bserver_main: |\bllama_context: "
        r"|common_params_print_info|\bllama_kv_cache|\bllm_load_|\bllama_new_context_|\bllama server listening at "
        r"|\bllama\.cpp: loading model|\bgguf_init_from_|\bcommon_init_from_params: |\bINFO \[ +main\] "
        r"|\"level\":\"[A-Z]+\",\"function\":\"\w+\",\"line\":\d+,\"m(?:sg|essage)\":"
        r"|error while handling argument \"-|main: HTTP server is listening)"
    ),
)
