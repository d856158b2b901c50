"""Logs written by hand after the formats of llama.cpp's server of several ages. No line is from a real host."""

from __future__ import annotations

READY_B5 = """\
build: 5123 (0a1b2c3d) with cc (Debian 12.2.0) 12.2.0 for x86_64-linux-gnu
system info: n_threads = 8, n_threads_batch = 8, total_threads = 16

system_info: n_threads = 8 (n_threads_batch = 8) / 16 | CPU : AVX2 = 1 |

main: binding port with default address family
main: HTTP server is listening, hostname: 127.0.0.1, port: 8080, http threads: 15
main: loading model
srv    load_model: loading model '/models/some.gguf'
llama_model_loader: loaded meta data with 26 key-value pairs and 291 tensors from /models/some.gguf (version GGUF V3)
llama_model_loader: - kv   1:                               general.name str = CUDA error: out of memory
load_tensors: loading model tensors, this can take a while... (mmap = true)
load_tensors: offloaded 33/33 layers to GPU
load_tensors:   CPU_Mapped model buffer size =    70.50 MiB
load_tensors:        CUDA0 model buffer size =  4000.25 MiB
load_tensors:        CUDA1 model buffer size =  3000.00 MiB
...................................................................................................
llama_context: constructing llama_context
llama_context: n_ctx         = 4096
llama_kv_cache_unified:      CUDA0 KV buffer size =   256.00 MiB
llama_kv_cache_unified:      CUDA0 KV buffer size =    64.00 MiB
common_init_from_params: warming up the model with an empty run - please wait ... (--no-warmup to disable)
srv          init: initializing slots, n_slots = 2
main: model loaded
main: server is listening on http://127.0.0.1:8080 - starting the main loop
srv  update_slots: all slots are idle
"""

READY_B3 = """\
INFO [                    main] build info | tid="1" timestamp=1720000000 build=3300 commit="0a1b2c3d"
INFO [                    main] system info | tid="1" timestamp=1720000000 n_threads=8
INFO [                    main] HTTP server is listening | tid="1" hostname="127.0.0.1" port="8080"
INFO [                    main] loading model | tid="1"
llama_model_loader: loaded meta data with 22 key-value pairs and 291 tensors from a.gguf (version GGUF V3 (latest))
llm_load_tensors: offloaded 33/33 layers to GPU
llm_load_tensors:      CUDA0 buffer size =  3820.94 MiB
..................................................................................................
llama_new_context_with_model: n_ctx      = 2048
llama_kv_cache_init:      CUDA0 KV buffer size =   256.00 MiB
INFO [                    init] initializing slots | tid="1" n_slots=1
INFO [                    main] model loaded | tid="1"
main: server is listening on 127.0.0.1:8080 - starting the main loop
"""

READY_NEWEST = """\
0.00.000.425 I srv  llama_server: initializing ...
0.00.002.997 I srv  llama_server: build_info: b11434-0a1b2c3d
0.00.003.007 I cmn  common_param: common_params_print_info: verbosity = 3 (adjust with the `-lv N` CLI arg)
0.00.003.863 W srv  llama_server: security: no API key is set and CORS allows all origins (see the manual)
0.00.005.698 I srv  llama_server: loading model
0.00.005.774 I srv    load_model: loading model '/models/some.gguf'
0.00.914.864 I cmn          init: llama threadpool init, n_threads = 2
0.00.915.937 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 512, kv_unified = 'true'
0.00.918.832 I srv  llama_server: model loaded
0.00.918.862 I srv  llama_server: listening on http://127.0.0.1:8080
"""

READY_WHEEL = READY_NEWEST.replace("llama_server:", "        init:") + "ready: http://127.0.0.1:8080\n"

BOOT_B5 = READY_B5[: READY_B5.index("llama_model_loader: loaded")]  # up to line 9
BOOT_NEWEST = READY_NEWEST[: READY_NEWEST.index("0.00.914")]  # up to line 6
BOOT_LLAMAFILE = """\
server_main: n_parallel is set to auto, using n_parallel = 4 and kv_unified = true
build_info: b1700000000-0a1b2c3d
system_info: n_threads = 16 (n_threads_batch = 16) / 32 | CPU : LLAMAFILE = 1 |
init: using 31 threads for HTTP server
"""

READY = {"b3": READY_B3, "b5": READY_B5, "newest": READY_NEWEST, "wheel": READY_WHEEL}

_FAILED = """\
llama_model_load: error loading model: llama_model_loader: failed to load model from /models/some.gguf
llama_model_load_from_file_impl: failed to load model
common_init_from_params: failed to load model '/models/some.gguf'
srv    load_model: failed to load model, '/models/some.gguf'
srv    operator(): operator(): cleaning up before exit...
main: exiting due to model loading error
"""
_TRACEBACK = """\
Traceback (most recent call last):
  File "/srv/launch.py", line 20, in <module>
    server = Server(params)
RuntimeError: Failed to init server, please check the input params.
"""

# slug -> lines, each of which says by itself that this is the cause
CAUSES: dict[str, list[str]] = {
    "missing_weights": [
        "gguf_init_from_file_impl: failed to read magic",
        "gguf_init_from_file: failed to open '/m/x.gguf': 'No such file or directory'",
        "gguf_init_from_file: failed to open GGUF file '/m/x.gguf' (No such file or directory)",
        "gguf_init_from_reader: invalid magic characters: '<htm', expected 'GGUF'",
        "gguf_init_from_reader: failed to read key-value pairs",
        "llama_model_load: error loading model: tensor 'blk.0.ffn_up.weight' data is not within the file bounds, "
        "model is corrupted or incomplete",
        "llama_model_load: error loading model: missing tensor 'token_embd.weight'",
        "llama_model_load: error loading model: invalid split file idx: 1 (file: x), expected 2",
        "clip_init: failed to load CLIP model from /m/mmproj.gguf. Does this file exist?",
        "llama_model_load: error loading model: something that nobody has ever read",
        "srv    load_model: failed to load draft model, '/m/d.gguf'",
    ],
    "cuda_oom": [
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 99.5 MiB on device 0: cudaMalloc failed: out of memory",
        "alloc_tensor_range: failed to allocate CUDA1 buffer of size 15185167462",
        "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
        "llama_model_load: error loading model: unable to allocate Vulkan0 buffer",
        "ggml_gallocr_reserve_n_impl: failed to allocate ROCm0 buffer of size 313",
        "CUDA error: out of memory",
        "ggml_vulkan: Device memory allocation of size 1073741824 failed.",
    ],
    "host_oom": [
        "ggml_aligned_malloc: insufficient memory (attempted to allocate 46878.00 MB)",
        "llama_model_load: error loading model: unable to allocate CPU buffer",
        "llama_model_load: error loading model: unable to allocate CUDA_Host buffer",
        "llama_model_load: error loading model: mmap failed: Cannot allocate memory",
        "  what():  std::bad_alloc",
        "  what():  Resource temporarily unavailable",
    ],
    "port_in_use": [
        "main: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080",
        "start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080",
        "srv         start: couldn't bind HTTP server socket, hostname: no.such.host.invalid, port: 8080",
        "server_main: exiting due to HTTP server error",
    ],
    "unsupported_model": [
        "llama_model_load: error loading model: unknown model architecture: 'martian'",
        "llama_model_load: error loading model: error loading model architecture: unknown model architecture: 'x'",
        "gguf_init_from_reader: this GGUF file is version 99 but this software only supports up to version 3",
        "gguf_init_from_file: GGUFv1 is no longer supported, please use a more up-to-date version",
        "gguf_init_from_file_impl: tensor 'a' has invalid ggml type 77. should be in [0, 40)",
        "llama_model_load: error loading model: done_getting_tensors: wrong number of tensors; expected 292, got 291",
        "clip_init: unknown projector type: martian",
    ],
    "tokenizer": [
        "llama_model_load: error loading model: error loading model vocabulary: unknown pre-tokenizer type: 'mars-bpe'"
    ],
    "bad_flag": [
        "error: invalid argument: --no-such-flag",
        "error: unknown argument: --no-such-flag",
        'error while handling argument "--port": stoi',
        "llama-server: error: unrecognized arguments: --no-such-flag",
        "launch.py: error: argument --port: invalid int value: 'x'",
        "error: unknown value for --flash-attn: 'maybe'",
    ],
    "bad_env": ['error while handling environment variable "LLAMA_ARG_PORT": stoi'],
    "chat_template": [
        'error while handling argument "--chat-template": error: the supplied chat template is not supported: x',
        "srv          init: init: chat template parsing error: unexpected end of input",
    ],
    "no_gpu": [
        "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected",
        'error while handling argument "--device": invalid device: CUDA0',
        "llama-server: error while loading shared libraries: libcuda.so.1: cannot open shared object file",
    ],
    "driver_mismatch": [
        "ggml_cuda_init: failed to initialize CUDA: CUDA driver version is insufficient for CUDA runtime version",
        "CUDA error: the provided PTX was compiled with an unsupported toolchain.",
    ],
    "arch_unsupported": [
        "CUDA error: no kernel image is available for execution on the device",
        "CUDA error: device kernel image is invalid",
    ],
    "illegal_memory": ["CUDA error: an illegal memory access was encountered"],
    "gpu_fault": [
        "CUDA error: unspecified launch failure",
        "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        "CUDA error: something new",
    ],
    "missing_lib": [
        "llama-server: error while loading shared libraries: libggml.so: cannot open shared object file: No such file",
        "ModuleNotFoundError: No module named 'xllamacpp'",
        "llama_model_load_from_file_impl: no backends are loaded. hint: use ggml_backend_load()",
    ],
    "permission_denied": [
        "gguf_init_from_file: failed to open GGUF file '/m/x.gguf' (Permission denied)",
        "llama_model_load: error loading model: failed to open /m/x.gguf: Permission denied",
    ],
    "disk_full": ["common_download_file_single: error writing to file: No space left on device"],
    "gated_repo": [
        "error: error from HF API (https://hub.example/v2/x), response code: 401, data: {}",
        "common_download_file_single_online: download failed: https://hub.example/x (status: 403)",
    ],
    "hf_unreachable": [
        "common_get_file: error: cannot make GET request: Could not establish connection",
        "curl_perform_with_retry: curl_easy_perform() failed after 3 attempts",
        "common_download_file_single: required file is not available in cache (offline mode): /c/x.gguf",
    ],
    "lora_failed": ["common_init_from_params: failed to load lora adapter '/m/a.gguf'"],
    "draft_mismatch": ["common_speculative_init: draft model vocab type must match target model to use speculation"],
    "bad_config": [
        "llama_init_from_model: V cache quantization requires flash_attn",
        "llama_init_from_model: failed to initialize the context: quantized V cache was requested, "
        "but this requires Flash Attention",
    ],
    "kv_cache_too_small": [
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache",
        "common_init_from_params: failed to create context with model '/models/some.gguf'",
    ],
}

HARMLESS = [
    "common_download_file_single_online: HEAD failed, status: 404",
    "common_download_file_single: using cached file (HEAD failed): /c/x.gguf",
    "warning: failed to mlock 1000-byte buffer (after previously locking 0 bytes): Cannot allocate memory",
    "ggml_cuda_host_malloc: failed to allocate 512.00 MiB of pinned memory: out of memory",
    "load_backend: failed to find ggml_backend_init in /usr/lib/libggml-cuda.so",
    "warning: no usable GPU found, --gpu-layers option will be ignored",
    "common_chat_templates_init: failed to parse chat template (defaulting to chatml): x",
    "common_fit_params: failed to fit params to free device memory: was unable to fit model into system memory, abort",
    "common_fit_params: encountered an error while trying to fit params to free device memory: failed to load model",
    "print_info: general.name     = failed to load model",
    "llama_model_loader: - kv   3:  general.description str  = Traceback: RuntimeError: CUDA out of memory",
    "srv  log_server_r: request: GET /permission denied 127.0.0.1 404",
    'srv  operator(): got exception: {"error":{"message":"failed to load model"}}',
    "main: chat template, chat_template: x, example_format: 'CUDA out of memory'",
]


def crash_b5(line: str) -> str:
    """An older server that loads and dies of `line`, with all that it prints behind it. The cause is line 10."""
    return BOOT_B5 + line + "\n" + _FAILED


def crash_newest(line: str) -> str:
    """The newest server in its Python wheel, dying of `line`, twice as it tries twice. The cause is line 7."""
    again = f"0.00.006.033 E {line}\n0.00.006.046 E cmn  common_init_: failed to load model 'x'\n"
    return BOOT_NEWEST + f"0.00.005.790 E {line}\n" + again + _TRACEBACK
