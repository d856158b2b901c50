"""What servers on PyTorch, CUDA, NCCL and the Hugging Face hub say before they die of it, whichever they are.

The order counts within a line: "Capture cuda graph failed: CUDA out of memory" is a lack of memory. Texts are those of
many versions; a pattern takes the part that has stayed.
"""

from __future__ import annotations

import re

from agent.families.family import causes

_MEMORY = causes(
    ("port_in_use", r"EADDRINUSE|server socket has failed to (?:listen|bind)"),  # else taken for trouble of the network
    (
        "gpu_memory_taken",
        r"less than desired GPU memory utilization|memory capacity is unbalanced"
        r"|Error in memory profiling\. Initial free|other processes sharing the same container release GPU memory"
        r"|is already in use by another process",
    ),
    (
        "kv_cache_too_small",
        r"KV cache is needed, which is larger than|No available memory for the cache blocks"
        r"|larger than the maximum number of tokens that can be stored in KV cache"
        r"|Not enough memory\. Please try to (?:in|de)crease|Not enough memory to handle \d+ |No space for KV cache"
        r"|Impossible to fit in any sequence|No available memory for the KV cache"
        r"|max_total_num_tokens must be positive|Loading the model consumes too much memory"
        r"|No enough gpu memory for runtime|KV cache size .{0,40} is too small",
    ),
    (
        "shm_too_small",
        r"NCCL WARN .{0,80}shared memory segment|/dev/shm/nccl|SIGBUS received|Fatal Python error: Bus error"
        r"|unable to write to file </torch_|unable to (?:mmap|allocate shared memory).{0,60}</torch_"
        r"|insufficient shared memory|No space left on device: '/dev/shm"
        r"|No space left on device: '/(?:psm|torch|sem)_|Please increase the size of the shared memory"
        r"|killed by signal: Bus error",
    ),
    (
        "cuda_oom",
        r"(?:CUDA|HIP|XPU|MPS|NPU) (?:backend )?out of memory|[Oo]utOfMemoryError: |CUDA error: out of memory"
        r"|HIP error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|Malloc failed: out of memory"
        r"|CUDA runtime error: out of memory|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED"
        r"|Error \[CUDA\]: out of memory|Cuda failure (?:\d+ )?'out of memory'|insufficient GPU memory"
        r"|CUDA runtime error in .{0,400}: out of memory|cudaMemGetInfo.{0,200}: out of memory|exceeded GPU memory",
    ),
)

_HARDWARE = causes(
    (
        "driver_mismatch",
        r"system has unsupported display driver|CUDA driver version is insufficient|Driver/library version mismatch"
        r"|NVIDIA driver on your system is too old|forward compatibility was attempted|unsupported toolchain"
        r"|cudaErrorInsufficientDriver|cudaErrorSystemDriverMismatch|unsatisfied condition: cuda>=",
    ),
    ("driver", r"Error 802: system not yet initialized|CUDA error: system not yet initialized|cudaErrorSystemNotReady"),
    (
        "no_gpu",
        r"No CUDA GPUs are available|no CUDA-capable device|libcuda\.so\.1: cannot open shared object"
        r"|Failed to infer device type|UVA is not available|Found no NVIDIA driver on your system"
        r"|Torch not compiled with CUDA enabled|could not select device driver"
        r"|nvidia-container-cli: initialization error|No (?:HIP|XPU|accelerator).{0,80} available"
        r"|Device string must not be empty|NVMLError_LibraryNotFound: |NVMLError_DriverNotLoaded: "
        r"|Error: .{0,200}CUDA is not available|CUDA unknown error - this may be due",
    ),
    ("bad_config", r"CUDA error: invalid device ordinal|[Ii]nvalid device ordinal"),
    (
        "arch_unsupported",
        r"no kernel image is available|device kernel image is invalid|Bfloat16 is only supported on GPUs"
        r"|for the current GPU\. Minimum capability|FlashAttention only supports"
        r"|only supports (?:Ampere|Hopper|Blackwell)"
        r"|Error: .{0,300}(?:[Cc]ompute [Cc]apability) .{0,80}(?:required|or higher|at least)|sm\d+ is not supported"
        r"|no device code compatible|requires AVX|Illegal instruction \(core dumped\)\s*$",
    ),
    (
        "gpu_fault",
        r"uncorrectable ECC error|unspecified launch failure|fallen off the bus|NVRM: Xid|uncorrectable NVLink error"
        r"|is/are busy or unavailable|CUDA error: unknown error|CUDA error: hardware stack error|GPU is lost"
        r"|GPU requires reset|NVMLError_GpuIsLost: |NVMLError_ResetRequired: |CUDA error: Invalid access of peer GPU"
        r"|CUDA error: initialization error",
    ),
)

_BUILD = causes(
    (
        "jit_build",
        r"ninja: build stopped|Error building extension|Ninja is required to load|Ninja build failed|nvcc fatal +: "
        r"|ptxas fatal +: |Could not find nvcc|CUDA_HOME environment variable is not set|Failed to find C compiler"
        r"|fatal error: .{0,200}: No such file or directory|Command '\[?'?ninja|InvalidCxxCompiler: "
        r"|NVCC compilation failed|No such file or directory: '?(?:/[\w./-]+/)?(?:nvcc|ninja|gcc|ptxas)\b"
        r"|Failed to build .{0,80}kernel|Failed to compile .{0,80}kernel"
        r"|CalledProcessError: Command '\['.{0,100}(?:gcc|nvcc|ninja|cc|ptxas)'",
    ),
    (
        "cuda_graph_capture",
        r"[Cc]apture (?:cuda|CUDA) graph failed(?!.*by peer)|not permitted when stream is capturing"
        r"|cudaErrorStreamCapture|Failed to capture CUDA graph|CUDA graph capture failed|capture_end\w* failed"
        r"|failed due to a previous error during",
    ),
    (
        "illegal_memory",
        r"an illegal memory access was encountered|device-side assert triggered|_assert_async_cuda_kernel: "
        r"|CUDA error: misaligned address|an illegal instruction was encountered|Warp Illegal Address"
        r"|: block: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\] Assertion|cudaErrorIllegalAddress:",
    ),
    (
        "nccl",
        r"NCCL error[: ]|ncclSystemError|ncclInternalError|ncclUnhandledCudaError|ncclRemoteError|ncclInvalidUsage"
        r"|NCCL WARN Cuda failure|Watchdog caught collective operation timeout|DistBackendError: |DistStoreError: "
        r"|DistNetworkError: |Gloo connectFullMesh failed|client socket has timed out after"
        r"|clients joined the TCPStore|NVSHMEM .{0,60}failed|[Cc]ustom allreduce .{0,60}(?:timed out|failed)\s*$",
    ),
)

_FILES = causes(
    (
        "trust_remote_code",
        r"requires you to execute the (?:configuration|modeling|tokenizer)"
        r"|contains custom code which must be executed|trust_remote_code=True. to remove this error"
        r"|consider setting .trust_remote_code=True",
    ),
    (
        "tokenizer",
        r"[Cc]ouldn't instantiate the backend tokenizer|Can't load tokenizer for"
        r"|Tokenizer class .{0,80} does not exist|data did not match any variant of untagged enum"
        r"|Tokenizer class .{0,80}is not currently imported|Cannot instantiate this tokenizer",
    ),
    (
        "gated_repo",
        r"access a gated repo|access gated repo|GatedRepoError: |Access to model .{0,200} is restricted"
        r"|401 Client Error|403 Client Error|Invalid credentials in Authorization header|Invalid user token",
    ),
    (
        "hf_unreachable",
        r"We couldn't connect to 'http|LocalEntryNotFoundError: |OfflineModeIsEnabled"
        r"|HTTPSConnectionPool\(host=.{0,200}Max retries exceeded|ReadTimeout: HTTPSConn|ConnectTimeout: HTTPSConn"
        r"|Temporary failure in name resolution|Failed to resolve 'hu|NameResolutionError"
        r"|outgoing traffic has been disabled|Cannot find the requested files in the (?:local|disk) cache"
        r"|find an appropriate cached snapshot folder|429 Client Error|(?:500|502|503|504) Server Error|ProxyError\('"
        r"|offline mode is enabled|Consistency check failed: file should be",
    ),
    (
        "missing_weights",
        r"Cannot find any model weights|referenced in index but missing|shard file\(s\) missing from"
        r"|does not appear to have a file named (?!generation_config|chat_template|processor)"
        r"|is not a local folder and is not a valid model identifier|RepositoryNotFoundError: 404"
        r"|RevisionNotFoundError: |Can't load the (?:configuration|model|image processor|feature extractor)"
        r"|Repo id must |Can't find a valid checkpoint|Error while deserializing header|SafetensorError: "
        r"|PytorchStreamReader failed|unexpected EOF, expected \d+ more|pickle data was truncated|UnpicklingError: "
        r"|EOFError: Ran out of input|No (?:local )?weights found in"
        r"|[Ff]ollowing weights were not initialized from checkpoint|No safetensors weights found"
        r"|[Ii]nvalid repository ID|No such file or directory: .{0,400}\.(?:safetensors|bin|pth?|gguf|json|model)\b"
        r"|No model weights found|[Mm]odel path .{0,400} (?:does not exist|not exist)"
        r"|is not a valid (?:model|git identifier|directory)|weights? file .{0,400} (?:is missing|not found)"
        r"|[Nn]o such file or directory.{0,20}safetensors",
    ),
    (
        "unsupported_model",
        r"does not recognize this architecture"
        r"|Model architectures \[.{0,400}\] (?:are not supported|failed to be inspected)|has no vLLM implementation"
        r"|Unsupported architecture|Unrecognized model in |Unrecognized configuration class|Unsupported model type"
        r"|[Mm]odel type .{0,80} (?:is )?not supported|Unknown quantization method"
        r"|Quantization method .{0,80} not supported|There is no module or parameter named"
        r"|Attempted to load weight \(|Unknown architecture|Cannot find model module|No model class found"
        r"|Unsupported quantization",
    ),
)

_OPTIONS = causes(
    (
        "bad_env",
        r"appears to be a URI\. This may be caused by a Kubernetes"
        r"|Invalid value .{0,80} for (?:environment|VLLM_|SGLANG_|SGL_)"
        r"|invalid literal for int\(\) with base 10: 'tcp://|Error parsing CUDA_VISIBLE_DEVICES"
        r"|NCCL_\w+ .{0,40}invalid value",
    ),
    (
        "chat_template",
        r"chat template .{0,400}(?:but doesn't exist|does not exist|not found)\b|TemplateSyntaxError: "
        r"|is not a built-in template name or a valid chat template|[Ff]ailed to load (?:the )?chat template",
    ),
    (
        "draft_mismatch",
        r"[Dd]raft model .{0,120}(?:must|should|same|mismatch|not supported)|target model and draft model should have"
        r"|[Ss]peculative (?:model|decoding) .{0,120}(?:must|not supported|mismatch|requires)\b"
        r"|All drafting layers should belong|num_speculative_tokens was provided"
        r"|[Ee]agle\d? .{0,60}(?:mismatch|not match)",
    ),
    (
        "lora_failed",
        r"Call to add_lora method failed|[Ll]o[Rr][Aa] rank \d+ is greater than|Loading lora .{0,200} failed"
        r"|Error loading LoRA|expected target modules in|No adapter found for|Can't find 'adapter_config\.json'",
    ),
    (
        "ray_cluster",
        r"[Pp]lacement group .{0,200}(?:cannot|can't|timeout|infeasible)|does not have enough GPUs"
        r"|Cannot provide a placement group|exceeds the total number of available|The current node .{0,80} GPU"
        r"|Could not find any running Ray instance|Ray does not allocate any GPUs|No available node types can fulfill"
        r"|RaySystemError: ",
    ),
    (
        "version_mismatch",
        r"cannot import name|undefined symbol: |size changed, may indicate binary incompatibility"
        r"|::nms does not exist|PackageNotFoundError: |requires transformers|has no attribute '__version__'"
        r"|compiled using NumPy 1\.x cannot be run|VersionConflict: |rope_scaling.{0,20} must be a dictionary"
        r"|is required for a normal functioning of this module|got an unexpected keyword argument|ABI mismatch"
        r"|but a different version is required|version .{0,40} is required but",
    ),
    (
        "bad_config",
        r"(?:Error|Exception): .{0,300}divisible by |is greater than the derived"
        r"|larger than the number of available GPUs|does not match the quantization method specified"
        r"|Cannot find the config file for |is not supported for quantization|is smaller than max_model_len"
        r"|is larger than max_num_batched_tokens|invalid tool call parser|invalid reasoning parser"
        r"|requires --tool-call-parser|ArgumentValidation\(|Free port not found"
        r"|[Tt]p_size .{0,60}(?:must|should|larger)"
        r"|[Tt]ensor[_ ]parallel[_ ]size .{0,80}(?:must|should|larger|greater|exceeds|cannot)"
        r"|context length .{0,80} is greater|longer than the model's|is larger than the model's context"
        r"|Value error, (?!The checkpoint|Model arch|Invalid repo)"
        r"|not compatible with .{0,80}(?:backend|enabled|together)\s*$"
        r"|is not divisible by .{0,40}(?:size|heads|tp|rank)\b|mem.fraction.static .{0,40}too (?:small|large)"
        r"|AssertionError: Please (?:set|use|specify|provide)",
    ),
    (
        "bad_flag",
        r"error: unrecognized arguments|error: argument |error: the following arguments are required"
        r"|No such option: -|No such option '-|error: No such option|error: unexpected argument"
        r"|error: invalid argument: |error: unknown argument|error: unknown option|error: invalid value '"
        r"|error: the argument '|error: a value is required for|error: invalid choice: |error: ambiguous option"
        r"|error: unrecognized subcommand|error: required arguments were not|error: the following required arguments"
        r"|Error: Invalid value for |Error: Got unexpected extra argument"
        r"|Error: Missing (?:argument|option|parameter)|Error: unknown (?:flag|shorthand|command)"
        r"|unrecognized option '|arguments are not used by the HfArgumentParser|error: one of the arguments"
        r"|error: not allowed with argument",
    ),
)

PYTORCH_CAUSES = (*_MEMORY, *_HARDWARE, *_BUILD, *_FILES, *_OPTIONS)

PYTORCH_GENERAL = (
    *causes(
        ("bad_config", r"validation errors? for \w*(?:Config|Args)\b"),
        ("cuda_graph_capture", r"[Cc]apture (?:cuda|CUDA) graph failed"),  # of a rank whose peer died first
        ("nccl", r"NCCL WARN .{0,200}(?:[Ff]ailed|[Ee]rror|[Mm]ismatch|[Tt]imeout)"),
        (
            "jit_build",
            r"FAILED: \S+\.o\b|fatal error: .{0,200}\.h\b|BackendCompilerFailed: |InductorError: |Triton Error ",
        ),
        ("gpu_fault", r"CUDA error: |HIP error: |CUDA driver error: |CUBLAS_STATUS_\w+ |CUDNN_STATUS_"),
        (
            "worker_signal",
            r"Segfault encountered !!|\*\*\* SIG(?:SEGV|ILL|ABRT|FPE|QUIT) received"
            r"|Fatal Python error: (?:Seg|Abo|Ill|Flo)|died with <Signals\.|exitcode *: -\d|realloc\(\): "
            r"|malloc\(\): |munmap_chunk\(\)|corrupted (?:size|double)",
        ),
        specific=False,
    ),
)
"""Worth saying when nothing better is said."""

PYTORCH_NOISE: tuple[re.Pattern[str], ...] = tuple(
    map(
        re.compile,
        (
            r"destroy_process_group\(\) was not called|TCPStore.{0,200}Broken pipe|sendBytes failed"
            r"|recvValue(?:WithTimeout)? failed|\[Gloo\] |^(?!.*graph failed).*Connection (?:closed|reset) by peer"
            r"|resource_tracker: |leaked semaphore|Exception ignored in: ",
            r"might be asynchronously reported|CUDA_LAUNCH_BLOCKING|TORCH_USE_CUDA_DSA|Search for `cudaError",
            r"ras/client_support\.cc|NCCL WARN NET/|NCCL INFO |NCCL WARN Missing ",
            r"Call to (?:bind|ibv_\w+) failed|retrying \d of \d",
            r"generation_config\.json.{0,400}Proceeding|Failed to load generation config|HEAD http|\"HEAD /"
            r"|HTTP Request: ",
            r"thrown while requesting|Retrying in \d|Trying to resume download|[Rr]etry(?:ing)? \d+/\d+|will retry",
            r"\[Autotuner\]|\[AutoTuner\]|Skipped \d+ unsupported tactic|flashinfer\.jit: ",
            r"is already in use, trying|Port \d+ is already in use, |port \d+ is in use, ",
            r"UserWarning: |FutureWarning: |DeprecationWarning: |RuntimeWarning: |warnings\.warn\(",
            r"Setup [Cc]ustom allreduce failed|Custom allreduce is disabled|Failed to import from vllm\."
            r"|Ignore import error",
            r"potential root causes|Possible solutions|root cause above\. Failed core proc\(s\): \{\}"
            r"|root cause above\.?\s*$|for (?:the )?root cause",
            r"Not enough SMs to use max_autotune|not found in params_dict|is deprecated|^\s*File \"",
            r"please check the stack trace above|RuntimeError: cancelled|CancelledError|BrokenPipeError|EOFError: *$",
            r"[Ff]alling back to|Fallback to |will be ignored|[Ii]gnoring ",
            r"Prefix dict has been built|Detected the chat template|the chat template content format",
        ),
    )
)
"""Teardown after a death, advice, and what is got over: never a cause."""

UVICORN_STOPPED = r"Application shutdown complete|Finished server process|^INFO: +Shutting down"
