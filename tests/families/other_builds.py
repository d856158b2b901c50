"""Logs of llama.cpp's server of other ages, builds and wrappers, written by hand after their formats.

`CRASHES`: name -> (log, slug, the words of the line that is the cause). `HEALTHY`: name -> (log, outcome).
"""

from __future__ import annotations

from tests.families.samples import BOOT_B5, BOOT_NEWEST, READY_B3, READY_B5, READY_NEWEST

# -- 2023: JSON lines beside plain ones; the server listens when all is loaded ---------------------------
_JSON_2023 = """\
ggml_init_cublas: found 1 CUDA devices:
  Device 0: Some GPU, compute capability 8.6
{"timestamp":1690000000,"level":"INFO","function":"main","line":1296,"message":"build info","build":1200,"commit":"0a1"}
{"timestamp":1690000000,"level":"INFO","function":"main","line":1298,"message":"system info","n_threads":6}
"""
_LOADED_2023 = """\
llama_model_loader: loaded meta data with 19 key-value pairs and 291 tensors from m.gguf (version GGUF V2 (latest))
llm_load_tensors: ggml ctx size =    0.09 MB
llm_load_tensors: VRAM used: 3647.96 MB
..................................................................................................
llama_new_context_with_model: n_ctx      = 512
llama_new_context_with_model: kv self size  =  256.00 MB
"""
_LISTENING_2023 = """\

llama server listening at http://127.0.0.1:8080

{"timestamp":1690000009,"level":"INFO","function":"main","line":1593,"message":"HTTP server listening","port":8080}
"""
_FAILED_2023 = """\
llama_load_model_from_file: failed to load model
llama_init_from_gpt_params: error: failed to load model 'm.gguf'
{"timestamp":1690000001,"level":"ERROR","function":"load_model","line":558,"message":"unable to load model","model":"m"}
"""
_GGML_2023 = "llama.cpp: loading model from models/7B/m.bin\n"

# -- 2024: one JSON line a record, and the port is open before the model is loaded ------------------------
_JSON_2024 = """\
{"tid":"1","timestamp":1719000000,"level":"INFO","function":"main","line":2577,"msg":"build info","build":3000}
{"tid":"1","timestamp":1719000000,"level":"INFO","function":"main","line":3793,"msg":"HTTP server listening","port":"8"}
{"tid":"1","timestamp":1719000000,"level":"INFO","function":"main","line":3795,"msg":"loading model"}
"""
_LOADED_2024 = """\
llama_model_loader: loaded meta data with 22 key-value pairs and 291 tensors from m.gguf (version GGUF V3 (latest))
llama_kv_cache_init:      CUDA0 KV buffer size =   256.00 MiB
{"tid":"1","timestamp":1719000009,"level":"INFO","function":"init","line":702,"msg":"initializing slots","n_slots":1}
{"tid":"1","timestamp":1719000009,"level":"INFO","function":"main","line":2881,"msg":"model loaded"}
"""

_END_B5 = """\
srv    load_model: failed to load model, '/models/some.gguf'
srv    operator(): operator(): cleaning up before exit...
main: exiting due to model loading error
"""
_END_NEWEST = """\
0.01.301.159 I srv    operator(): operator(): cleaning up before exit...
0.01.301.199 E srv  llama_server: exiting due to model loading error
"""
_BACKTRACE = """\
[New LWP 12]
[New LWP 13]
[Thread debugging using libthread_db enabled]
warning: 30\t../sysdeps/unix/sysv/linux/wait4.c: No such file or directory
#1  0x00007f0000000001 in ggml_print_backtrace () from /app/libggml-base.so
#2  0x00007f0000000002 in ggml_abort () from /app/libggml-base.so
[Inferior 1 (process 11) detached]
"""
_CONTEXT_B5 = "llama_context: constructing llama_context\nllama_context: n_ctx         = 4096\n"
_WARM_B5 = _CONTEXT_B5 + "common_init_from_params: warming up the model with an empty run - please wait ...\n"
_SERVED = "srv  log_server_r: request: POST /v1/completions 127.0.0.1 200\nsrv  update_slots: all slots are idle\n"
_ROUTER = """\
0.00.131.801 I cmn  common_param: common_params_print_info: verbosity = 3
0.00.133.426 I srv   load_models: Loaded 2 local model presets from /models
0.00.134.000 I srv  llama_server: starting server in router mode. models will be automatically loaded on-demand
0.00.140.000 I srv  llama_server: listening on http://127.0.0.1:8080
"""
_CHILD_DIED = """\
0.21.532.917 I srv          load: spawning server instance with name=a on port 49457
[49457] 0.00.005.774 I srv    load_model: loading model '/models/a.gguf'
[49457] 0.00.010.000 E gguf_init_from_file: failed to open GGUF file '/models/a.gguf' (No such file or directory)
[49457] 0.00.010.100 E srv    load_model: failed to load model, '/models/a.gguf'
[49457] 0.00.010.200 E srv  llama_server: exiting due to model loading error
0.22.000.000 I srv    operator(): instance name=a exited with status 1
"""

CRASHES: dict[str, tuple[str, str, str]] = {
    "2023, no such file": (
        _JSON_2023 + "error loading model: failed to open m.gguf: No such file or directory\n" + _FAILED_2023,
        "missing_weights",
        "failed to open m.gguf",
    ),
    "2023, GGML file": (
        _JSON_2023
        + _GGML_2023
        + "error loading model: unknown (magic, version) combination: 67676a74, 00000003; is this really a GGML file?\n"
        + _FAILED_2023,
        "unsupported_model",
        "is this really a GGML file?",
    ),
    "2023, GPU memory": (
        _JSON_2023 + _LOADED_2023 + "\nCUDA error 2 at ggml-cuda.cu:5730: out of memory\ncurrent device: 0\n",
        "cuda_oom",
        "CUDA error 2 at",
    ),
    "2023, other CUDA error": (
        _JSON_2023 + _LOADED_2023 + "\nCUDA error 222 at ggml-cuda.cu:6800: something that nobody has read\n",
        "gpu_fault",
        "CUDA error 222 at",
    ),
    "2023, port": (
        _JSON_2023 + _LOADED_2023 + "\ncouldn't bind to server socket: hostname=127.0.0.1 port=8080\n\n",
        "port_in_use",
        "couldn't bind",
    ),
    "2023, merges": (
        _JSON_2023 + "error loading model: cannot find tokenizer merges in model file\n\n" + _FAILED_2023,
        "tokenizer",
        "tokenizer merges",
    ),
    "2024, tensor missing": (
        _JSON_2024
        + "llama_model_load: error loading model: create_tensor: tensor 'output.weight' not found\n"
        + _FAILED_2023,
        "missing_weights",
        "create_tensor",
    ),
    "2024, ready, then an assertion": (
        _JSON_2024 + _LOADED_2024 + "GGML_ASSERT: ggml-cuda.cu:1278: src0->backend == GPU\nAborted (core dumped)\n",
        "worker_signal",
        "GGML_ASSERT: ",
    ),
    "vocabulary with a typo": (
        BOOT_B5
        + "llama_model_load: error loading model: error loading modelvocabulary: cannot find merges\n"
        + _END_B5,
        "tokenizer",
        "modelvocabulary",
    ),
    "vocabulary size": (
        BOOT_B5 + "llama_model_load: error loading model: vocab size mismatch\n" + _END_B5,
        "tokenizer",
        "vocab size",
    ),
    "hyperparameter": (
        BOOT_NEWEST
        + "llama_model_load: error loading model: error loading model hyperparameters: key not found in model: a.b\n"
        + _END_NEWEST,
        "unsupported_model",
        "key not found",
    ),
    "drafter of another kind": (
        BOOT_NEWEST
        + "0.19.473.877 E llama_model_load: error loading model: invalid vector subscript\n"
        + "0.19.473.910 E srv    load_model: failed to load draft model, '/m/d.gguf'\n"
        + _END_NEWEST,
        "unsupported_model",
        "invalid vector",
    ),
    "drafter with other words": (
        BOOT_NEWEST
        + "common_speculative_are_compatible: draft model bos tokens must match target model to use speculation\n"
        + "common_speculative_impl_draft_simple: the target and draft vocabs are not compatible\n"
        + "srv    load_model: failed to initialize speculative decoding context: draft model vocab type must match\n"
        + _END_NEWEST,
        "draft_mismatch",
        "bos tokens must match",
    ),
    "mmproj of another model": (
        BOOT_B5
        + "mtmd_init_from_file: error: mismatch between text model (n_embd = 4096) and mmproj (n_embd = 5120)\n"
        + "srv    load_model: failed to load multimodal model, '/m/mmproj.gguf'\n"
        + _END_B5,
        "bad_config",
        "mismatch between",
    ),
    "mmproj without memory": (
        BOOT_B5
        + _CONTEXT_B5
        + "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9 MiB on device 0: cudaMalloc failed: out of memory\n"
        + "clip_init: failed to load model '/m/p.gguf': load_tensors: failed to allocate buffer\n"
        + _END_B5,
        "cuda_oom",
        "cudaMalloc",
    ),
    "compute buffer": (
        BOOT_B5
        + _CONTEXT_B5
        + "ggml_gallocr_reserve_n_impl: failed to allocate ROCm0 buffer of size 272646272\n"
        + "graph_reserve: failed to allocate compute buffers\n"
        + "llama_init_from_model: failed to initialize the context: failed to allocate compute pp buffers\n"
        + _END_B5,
        "cuda_oom",
        "ROCm0 buffer",
    ),
    "warm-up": (
        BOOT_B5
        + _WARM_B5
        + "CUDA error: out of memory\n  current device: 0, in function alloc at /app/ggml-cuda.cu:400\n"
        + "/app/ggml/src/ggml-cuda/ggml-cuda.cu:98: CUDA error\n"
        + _BACKTRACE,
        "cuda_oom",
        "CUDA error: out",
    ),
    "no kernels for this AMD card": (
        BOOT_B5
        + _WARM_B5
        + "ggml_cuda_compute_forward: MUL_MAT failed\nROCm error: invalid device function\n"
        + _BACKTRACE,
        "arch_unsupported",
        "invalid device function",
    ),
    "no kernels for this NVIDIA card": (
        BOOT_B5
        + _WARM_B5
        + "ggml_cuda_compute_forward: SCALE failed\n"
        + "CUDA error: no kernel image is available for execution on the device\n"
        + _BACKTRACE,
        "arch_unsupported",
        "no kernel image",
    ),
    "Vulkan, device lost": (
        BOOT_B5 + "llama_model_load: error loading model: vk::Queue::submit: ErrorDeviceLost\n" + _END_B5,
        "gpu_fault",
        "ErrorDeviceLost",
    ),
    "SYCL, memory": (
        BOOT_B5
        + "ggml_backend_sycl_buffer_type_alloc_buffer: can't allocate 21583194624 Bytes of memory on device\n"
        + "alloc_tensor_range: failed to allocate SYCL0 buffer of size 21583194624\n"
        + _END_B5,
        "cuda_oom",
        "can't allocate",
    ),
    "an assertion": (
        BOOT_B5 + _WARM_B5 + "/app/ggml/src/ggml.c:2703: GGML_ASSERT(ggml_can_mul_mat(a, b)) failed\n" + _BACKTRACE,
        "worker_signal",
        "GGML_ASSERT",
    ),
    "ggml gives up": (
        READY_B5 + _SERVED + "/app/ggml/src/ggml-backend.cpp:4710: fatal error\n" + _BACKTRACE,
        "worker_signal",
        "fatal error",
    ),
    "an exception that nobody caught": (
        READY_B5
        + "terminate called after throwing an instance of 'std::runtime_error'\n"
        + "  what():  Unexpected empty grammar stack after accepting piece: x\n"
        + "Aborted (core dumped)\n",
        "worker_signal",
        "what():",
    ),
    "the hub answers 500": (
        "terminate called after throwing an instance of 'std::runtime_error'\n"
        + '  what():  error from HF API, response code: 500, data: {"error":"Internal Error"}\n'
        + "Aborted (core dumped)\n",
        "hf_unreachable",
        "what():",
    ),
    "a shell saw a segmentation fault": (
        READY_B5
        + _SERVED
        + "./run.sh: line 3:   417 Segmentation fault      (core dumped) llama-server -m /m/x.gguf\n",
        "worker_signal",
        "Segmentation fault",
    ),
    "a shell saw a kill": (
        BOOT_B5 + "load_tensors: loading model tensors, this can take a while...\n......\nKilled\n",
        "external_kill",
        "Killed",
    ),
    "a CPU without AVX": (
        "./run.sh: line 3:   417 Illegal instruction     (core dumped) llama-server -m /m/x.gguf\n",
        "worker_signal",
        "Illegal instruction",
    ),
    "systemd saw it": (
        READY_B5 + "Jan 26 17:50:00 host systemd[1]: llm.service: Main process exited, code=dumped, status=11/SEGV\n",
        "worker_signal",
        "11/SEGV",
    ),
    "systemd saw the OOM killer": (
        READY_B5
        + "Jan 26 17:50:00 host systemd[1]: llm.service: A process of this unit has been killed by the OOM killer.\n",
        "host_oom",
        "OOM killer",
    ),
    "a far helper is gone": (
        READY_B5
        + "/app/ggml/src/ggml-rpc/ggml-rpc.cpp:782: Remote RPC server crashed or returned malformed response\n",
        "unknown",
        "Remote RPC",
    ),
    "no TLS in this build": (
        "init: running without SSL\nbuild: 5123 (0a1b2c3d) with cc for x86_64\n"
        + "the server is built without SSL support\nmain: failed to initialize HTTP server\n",
        "missing_lib",
        "without SSL support",
    ),
    "key file": (
        "error while handling argument \"--api-key-file\": error: failed to open file '/etc/keys'\n\n"
        + "usage:\n--api-key-file FNAME    path to file containing API keys (default: none)\n",
        "bad_flag",
        "--api-key-file",
    ),
    "no assets": (
        BOOT_NEWEST.replace("loading model", "x") + "0.1 E srv  init: static assets path not found: /x\n" + _END_NEWEST,
        "bad_config",
        "static assets",
    ),
    "router, all ports taken": (
        _ROUTER.replace("llama_server: listening on", "start: couldn't bind HTTP server socket, hostname: ")
        + _END_NEWEST,
        "port_in_use",
        "couldn't bind",
    ),
}

HEALTHY: dict[str, tuple[str, str]] = {
    "2023": (_JSON_2023 + _LOADED_2023 + _LISTENING_2023, "ready"),
    "2023, still loading": (_JSON_2023 + _LOADED_2023, "loading"),
    "early 2024, listening before it loads": (_JSON_2023 + _LISTENING_2023 + _LOADED_2023, "loading"),
    "early 2024": (_JSON_2023 + _LISTENING_2023 + _LOADED_2023 + _LOADED_2024, "ready"),
    "2024, loading": (_JSON_2024, "loading"),
    "2024": (_JSON_2024 + _LOADED_2024, "ready"),
    "router": (_ROUTER, "ready"),
    "router, a child of which died": (_ROUTER + _CHILD_DIED, "ready"),
    "a drafter whose words are translated": (
        READY_B5.replace(
            "main: model loaded",
            "common_speculative_are_compatible: draft model special tokens must match target model to use speculation\n"
            "the target and draft vocabs are not compatible - tokens will be translated between the two\n"
            "main: model loaded",
        ),
        "ready",
    ),
    "a template that is replaced": (
        BOOT_B5
        + "srv    load_model: load_model: Chat template parsing error: unexpected end\n"
        + "srv    load_model: load_model: The chat template is not yet supported, falling back to chatml.\n",
        "loading",
    ),
    "no leave for a priority": (BOOT_B5 + "failed to set process priority 2 : Permission denied (13)\n", "loading"),
    "no preset on the hub": (
        "common_download_file_single_online: HEAD invalid http status code received: 404\n"
        "no remote preset found, skipping\n" + READY_NEWEST,
        "ready",
    ),
    "more than its memory, at first": (
        READY_NEWEST.replace(
            "0.00.914.864",
            "0.00.9 W common_fit_params: failed to fit params to free device memory: "
            "n_gpu_layers already set by user to 99, abort\n0.00.914.864",
        ),
        "ready",
    ),
    "clients and their words": (
        READY_B5
        + "srv    send_error: task id = 1, error: CUDA error: out of memory\n"
        + "slot process_toke: id  0 | task 1 | n_decoded = 5, next token:   123 ' Segmentation fault'\n"
        + "srv  update_chat_: Parsing chat message: GGML_ASSERT(x) failed, Aborted\n"
        + 'srv  log_server_r: request:  {"prompt":"why does cudaMalloc failed: out of memory appear"}\n',
        "ready",
    ),
    "stopped": (READY_B5 + "srv    operator(): operator(): cleaning up before exit...\n", "stopped"),
    "stopped twice": (READY_B5 + "Received second interrupt, terminating immediately.\n", "stopped"),
    "ik": (READY_B3.replace("main: server is listening on 127.0.0.1:8080 - starting the main loop\n", ""), "ready"),
}

PREFIXES = {
    "compose": "llm-1  | ",
    "docker with time": "2026-08-21T19:42:37.123456789Z ",
    "kubernetes": "2026-08-21T19:42:37.123Z stdout F ",
    "kubectl": "[pod/llm-7d9c/server] ",
    "journald": "Jan 26 17:48:20 host llama-server[123]: ",
    "journald, precise": "Jan 26 17:48:20.123456 host llama-server[123]: ",
    "journald, iso": "2026-01-26T17:48:20+0100 host llama-server[123]: ",
    "go": "2026/01/26 17:48:20 ",
}
