"""What servers on PyTorch say before they die, written by hand after the formats: slug -> lines that tell it alone."""

# ruff: noqa: E501 - lines of logs are as long as they are

from __future__ import annotations

CAUSES: dict[str, list[str]] = {
    "cuda_oom": [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total capacity of 93.09 GiB "
        "of which 739.81 MiB is free. Including non-PyTorch memory, this process has 92.34 GiB memory in use.",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.65 GiB total capacity; "
        "21.00 GiB already allocated; 1.25 GiB free; 21.50 GiB reserved in total by PyTorch)",
        "RuntimeError: CUDA error: out of memory",
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests.",
        "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 448.00 MiB.",
        "RuntimeError: Triton Error [CUDA]: out of memory",
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1.00 GiB.",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ],
    "gpu_memory_taken": [
        "ValueError: Free memory on device cuda:0 (7.34/139.72 GiB) on startup is less than desired GPU memory utilization "
        "(0.9, 125.75 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
        "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. 1.0, 70.0",
        "AssertionError: Error in memory profiling. Initial free memory 20.1 GiB, current free memory 21.2 GiB.",
    ],
    "kv_cache_too_small": [
        "ValueError: To serve at least one request with the model's max seq len (262144), (18.35 GiB KV cache is needed, "
        "which is larger than the available KV cache memory (8.72 GiB). Based on the available memory, the estimated "
        "maximum model length is 121840.",
        "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV "
        "cache (3536). Try increasing `gpu_memory_utilization`.",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "RuntimeError: Not enough memory to handle 4096 prefill tokens. You need to decrease `--max-batch-prefill-tokens`",
    ],
    "cuda_graph_capture": [
        "Exception: Capture cuda graph failed: Triton Error [CUDA]: an illegal memory access was encountered",
        "RuntimeError: CUDA error: operation not permitted when stream is capturing",
    ],
    "jit_build": [
        "Exception: Capture cuda graph failed: Failed to find C compiler. Please specify via CC environment variable.",
        "RuntimeError: Error building extension 'fused_moe_90'",
        "RuntimeError: Ninja build failed. Ninja output:",
        "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist",
        "/tmp/x/main.c:6:10: fatal error: Python.h: No such file or directory",
        "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
    ],
    "port_in_use": [
        "OSError: [Errno 98] Address already in use",
        "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
        "RuntimeError: The server socket has failed to listen on any local network address. The server socket has failed "
        "to bind to [::]:29500 (errno: 98 - Address already in use).",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: "
        "29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    ],
    "nccl": [
        "host:2699411:2699411 [0] init.cc:416 NCCL WARN Cuda failure 'operation not supported'",
        "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/x.cpp:94, unhandled system error",
        "[rank3]:[E803 21:49:24.1 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=9, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600059 milliseconds before timing out.",
        "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/x.cc:144] no error",
    ],
    "shm_too_small": [
        "host:1:9 [1] misc/shmutils.cc:72 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-AbC123 "
        "(size 33030528), error: No space left on device (28)",
        "*** SIGBUS received at time=1695144916 on cpu 2 ***",
        "Fatal Python error: Bus error",
        "OSError: [Errno 28] No space left on device: '/dev/shm/psm_0a1b2c'",
    ],
    "disk_full": [
        "OSError: [Errno 28] No space left on device",
        "RuntimeError: Data processing error: CAS service error : IO Error: No space left on device (os error 28)",
    ],
    "missing_weights": [
        "RuntimeError: Cannot find any model weights with `/m/none`",
        "OSError: /m/none does not appear to have a file named config.json. Checkout 'https://hub.example/x' for files.",
        "OSError: /m/none is not a local folder and is not a valid model identifier listed on the hub",
        "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name'",
        "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered",
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        "FileNotFoundError: [Errno 2] No such file or directory: '/m/tiny/model-00002-of-00004.safetensors'",
        "ValueError: Following weights were not initialized from checkpoint: {'lm_head.weight'}",
        "FileNotFoundError: Weight files referenced in index but missing: {'/m/tiny/model-00004-of-00004.safetensors'}",
        "RuntimeError: model.safetensors.index.json references 1 shard file(s) missing from /m/x (incomplete download?): ['y']",
        "ValueError: Invalid repository ID or local directory specified: '/m/none'.",
    ],
    "gated_repo": [
        "OSError: You are trying to access a gated repo.",
        "huggingface_hub.errors.GatedRepoError: 403 Client Error. (Request ID: Root=1)",
        "Cannot access gated repo for url https://hub.example/org/x/resolve/main/config.json.",
        "huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error. (Request ID: Root=1)",
    ],
    "hf_unreachable": [
        "OSError: We couldn't connect to 'https://hub.example' to load the files, and couldn't find them in the cache.",
        "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder",
        "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://hub.example/x",
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='hub.example', port=443): Max retries exceeded",
    ],
    "bad_flag": [
        "vllm serve: error: unrecognized arguments: --no-such-flag",
        "launch_server.py: error: argument --tp-size: invalid int value: 'x'",
        "api_server.py: error: argument --dtype: invalid choice: 'x' (choose from 'auto', 'half')",
        "Error: No such option: --no-such-flag",
        "Error: No such option '--no-such-flag'.",
    ],
    "bad_config": [
        "ValueError: User-specified max_model_len (131072) is greater than the derived max_model_len "
        "(max_position_embeddings=4096 or model_max_length=None in model's config.json).",
        "  Value error, User-specified max_model_len (131072) is greater than the derived max_model_len "
        "(max_position_embeddings=4096.0). To allow overriding this maximum, set the env var "
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1. VLLM_ALLOW_LONG_MAX_MODEL_LEN must be used with extreme caution.",
        "ValueError: Total number of attention heads (40) must be divisible by tensor parallel size (3).",
        "ValueError: `num_heads` must be divisible by `num_shards` (got `num_heads`: 71 and `num_shards`: 2",
        "ValueError: World size (8) is larger than the number of available GPUs (2) in this node.",
        "KeyError: 'invalid tool call parser: x (chose from { hermes })'",
    ],
    "unsupported_model": [
        "ValueError: Cannot find model module. 'MartianForCausalLM' is not a registered model in the Transformers library",
        "ValueError: Model architectures ['MartianForCausalLM'] are not supported for now. Supported architectures: x",
        "ValueError: The checkpoint you are trying to load has model type `martian` but Transformers does not recognize "
        "this architecture.",
        "ValueError: Unknown quantization method: martian. Must be one of ['awq'].",
    ],
    "trust_remote_code": [
        "ValueError: The repository for org/x contains custom code which must be executed to correctly load the model.",
        "ValueError: Loading /m/x requires you to execute the configuration file in that repo on your local machine.",
    ],
    "tokenizer": [
        "ValueError: Couldn't instantiate the backend tokenizer from one of: (1) a `tokenizers` library file"
    ],
    "chat_template": [
        "ValueError: The supplied chat template string (/t/x.jinja) appears path-like, but doesn't exist! chat template",
        "RuntimeError: Chat template /t/x is not a built-in template name or a valid chat template file path.",
        "jinja2.exceptions.TemplateSyntaxError: unexpected '}'",
    ],
    "draft_mismatch": ["AssertionError: Target model and draft model should have the same vocabulary size, 1 vs 2."],
    "lora_failed": [
        "ValueError: LoRA rank 64 is greater than max_lora_rank 16.",
        "ValueError: Call to add_lora method failed: ",
    ],
    "ray_cluster": [
        "ValueError: The number of required GPUs exceeds the total number of available GPUs in the placement group.",
        "RuntimeError: Cannot provide a placement group of placement_group_specs=[{'GPU': 1.0}] within 1800 seconds.",
    ],
    "bad_env": [
        "ValueError: VLLM_PORT 'tcp://10.0.0.1:80' appears to be a URI. This may be caused by a Kubernetes issue"
    ],
    "version_mismatch": [
        "ImportError: cannot import name 'x' from 'transformers' (/v/transformers/__init__.py)",
        "ImportError: /v/x.so: undefined symbol: _ZN3c105ErrorC2ENS",
        "importlib.metadata.PackageNotFoundError: No package metadata was found for vllm",
        "RuntimeError: operator torchvision::nms does not exist",
    ],
    "missing_lib": [
        "ModuleNotFoundError: No module named 'sgl_kernel'",
        "ValueError: Using a `device_map` requires `accelerate`. You can install it with `pip install accelerate`",
        "ImportError: libcudart.so.12: cannot open shared object file: No such file",
    ],
    "driver_mismatch": [
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803: system has unsupported display driver / cuda "
        "driver combination",
        "RuntimeError: The NVIDIA driver on your system is too old (found version 12080).",
        "pynvml.NVMLError_LibRmVersionMismatch: Failed to initialize NVML: Driver/library version mismatch",
    ],
    "driver": ["RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"],
    "no_gpu": [
        "RuntimeError: No CUDA GPUs are available",
        "RuntimeError: Failed to infer device type",
        "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
    ],
    "arch_unsupported": [
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla T4 has 7.5.",
        "ValueError: The quantization method fp8 is not supported for the current GPU. Minimum capability: 89. Current: 75.",
    ],
    "illegal_memory": [
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        "/pytorch/aten/src/ATen/native/cuda/TensorCompare.cu:112: _assert_async_cuda_kernel: block: [0,0,0], thread: "
        "[0,0,0] Assertion `probability tensor contains either `inf`, `nan` or element < 0` failed.",
        "RuntimeError: CUDA error: device-side assert triggered",
    ],
    "gpu_fault": [
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "RuntimeError: CUDA error: unspecified launch failure",
        "RuntimeError: CUDA error: something that nobody has ever read",
    ],
    "worker_signal": [
        "!!!!!!! Segfault encountered !!!!!!!",
        "*** SIGSEGV received at time=1709021359 on cpu 44 ***",
        "Fatal Python error: Segmentation fault",
        "realloc(): invalid pointer",
    ],
    "host_oom": [
        "MemoryError",
        "OSError: [Errno 12] Cannot allocate memory",
        "Resource temporarily unavailable (src/thread.cpp:241)",
        "RuntimeError: can't start new thread",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 1 bytes. Error code 12 (Cannot allocate memory)",
    ],
    "permission_denied": ["PermissionError: [Errno 13] Permission denied: '/root/.cache/huggingface'"],
    "too_many_files": ["OSError: [Errno 24] Too many open files"],
}

HARMLESS = [
    "(Worker pid=1) WARNING 12-01 03:37:26 [utils.py:333] Attempted to load weight (x) with dtype torch.float32",
    "(APIServer pid=1) WARNING 12-01 03:36:47 [system_utils.py:255] Found ulimit of 20000 and failed to increase it with "
    "error current limit exceeds maximum limit. This can cause errors like `OSError: [Errno 24] Too many open files`.",
    "W1201 03:36:46.373000 24379 torch/_library/triton.py:53] Triton not available: No CUDA GPUs are available",
    "Failed to load generation config for org/x: org/x does not appear to have a file named generation_config.json. "
    "Checkout 'https://hub.example/x'. Proceeding without generation config.",
    "[Gloo] Rank 0 is connected to 0 peer ranks. Expected number of connected peer ranks is : 0",
    "host:1:2 [0] ras/client_support.cc:160 NCCL WARN Call to bind failed: Address already in use",
    "host:1:2 [0] NCCL INFO init.cc:1704 -> 1",
    "Port 29500 is already in use, trying port 29501",
    "'(ReadTimeoutError(\"HTTPSConnectionPool(host='hub.example', port=443): Max retries exceeded\"))' thrown while "
    "requesting HEAD https://hub.example/x/resolve/main/config.json",
    "Retrying in 1s [Retry 1/5].",
    "/v/torch/cuda/__init__.py:63: FutureWarning: The pynvml package is deprecated: CUDA error: out of memory",
    "Failed to import from vllm._C with ModuleNotFoundError(\"No module named 'vllm._C'\")",
    "Ignore import error when loading sglang.srt.models.x: No module named 'y'",
    "Setup Custom allreduce failed with invalid argument. Falling back to NCCL: CUDA error: invalid argument",
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be wrong.",
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
    "Search for `cudaErrorIllegalAddress' in https://docs.example/cuda for more information.",
    "Exception ignored in: <function MultiprocExecutor.__del__ at 0x7f>: AttributeError: CUDA error: x",
    "[rank0]:[W910 12:22:14.7 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl: Connection reset by peer",
    "resource_tracker: There appear to be 1 leaked semaphore objects to clean up at shutdown",
    "The tokenizer class you load from this checkpoint is not the same type. It may result in errors.",
    '    raise RuntimeError("CUDA out of memory")',
    "Model config: quantization not supported for LoRA is deprecated",
]
