"""A server that we know nothing of: it answers on its health path, and its log may hold what any program prints."""

from __future__ import annotations

import re

from agent.families.family import CauseRule, Family
from agent.families.pytorch import PYTORCH_CAUSES, PYTORCH_GENERAL, PYTORCH_NOISE

GENERAL_CAUSES: tuple[CauseRule, ...] = (
    CauseRule(
        "cuda_oom",
        re.compile(
            r"CUDA out of memory|torch\.(?:cuda\.)?OutOfMemoryError: |CUDA error: out of memory"
            r"|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|cudaMalloc failed: out of memory"
            r"|CUDA runtime error: out of memory"
        ),
    ),
    CauseRule("port_in_use", re.compile(r"[Aa]ddress already in use|\[Errno 98\]|EADDRINUSE")),
    CauseRule("gated_repo", re.compile(r"401 Client Error|403 Client Error|access a gated repo|access gated repo")),
    CauseRule("disk_full", re.compile(r"No space left on device")),
    CauseRule("too_many_files", re.compile(r"Too many open files")),
    CauseRule("host_oom", re.compile(r"^MemoryError\b|std::bad_alloc|ut of memory: Killed process")),
    CauseRule("host_oom", re.compile(r"killed by the OOM killer|Failed with result 'oom-kill'")),
    CauseRule(
        "host_oom",
        re.compile(
            r"Cannot allocate memory|what\(\):\s+Resource temporarily unavailable"
            r"|RuntimeError: Resource temporarily unavailable|^Resource temporarily unavailable \("
            r"|can't start new thread|pthread_create failed|libgomp: Thread creation failed"
        ),
    ),
    CauseRule(
        "driver_mismatch",
        re.compile(
            r"system has unsupported display driver|CUDA driver version is insufficient|Driver/library version mismatch"
            r"|NVIDIA driver on your system is too old|forward compatibility was attempted|unsupported toolchain"
        ),
    ),
    CauseRule(
        "no_gpu",
        re.compile(r"No CUDA GPUs are available|no CUDA-capable device|libcuda\.so\.1: cannot open shared object"),
    ),
    CauseRule("arch_unsupported", re.compile(r"no kernel image is available|device kernel image is invalid")),
    CauseRule("illegal_memory", re.compile(r"an illegal memory access was encountered|device-side assert triggered")),
    CauseRule(
        "gpu_fault",
        re.compile(r"uncorrectable ECC error|unspecified launch failure|fallen off the bus|NVRM: Xid"),
    ),
    CauseRule("nccl", re.compile(r"NCCL error: |ncclSystemError|ncclInternalError|ncclUnhandledCudaError")),
    CauseRule(
        "missing_lib",
        re.compile(
            r"^ModuleNotFoundError: |^ImportError: |error while loading shared libraries|symbol lookup error"
            r"|You can install it with|not found in your environment"
        ),
    ),
    CauseRule("permission_denied", re.compile(r"[Pp]ermission denied|\[Errno 13\]")),
    CauseRule(
        "bad_flag",
        re.compile(
            r"error: unrecognized arguments|error: argument |error: the following arguments are required"
            r"|error: No such option|error: unexpected argument|error: invalid argument: "
            r"|error: unknown argument|error: unknown option"
        ),
    ),
    CauseRule(  # the last words of C++
        "worker_signal",
        re.compile(
            r"what\(\):  |terminating due to uncaught|terminating with uncaught|: Assertion .{0,400}' failed"
            r"|double free or corruption|stack smashing detected|free\(\): invalid "
        ),
        specific=False,
    ),
    # What a shell, systemd or docker compose says of the end of what it started
    CauseRule(
        "worker_signal",
        re.compile(
            r"Segmentation fault\s*(?:$|\(core dumped\))|Illegal instruction\s*(?:$|\(core dumped\))"
            r"|\bBus error\s*(?:$|\(core dumped\))|Floating point exception\s*(?:$|\(core dumped\))"
            r"|Aborted\s*(?:$|\(core dumped\))"
            r"|process exited, code=(?:dumped|killed), status=(?:4/ILL|6/ABRT|7/BUS|8/FPE|11/SEGV)"
            r"|exited with code 13[24569]\b"
        ),
        specific=False,
    ),
    CauseRule(
        "external_kill",
        re.compile(r"process exited, code=killed, status=9/KILL|exited with code 137\b|^Killed\s*$|\b\d+ Killed {2}"),
        specific=False,
    ),
    CauseRule("host_oom", re.compile(r"oom-kill:constraint"), specific=False),
)
"""What any program may say before it dies of it."""

GENERAL_NOISE: tuple[re.Pattern[str], ...] = (
    re.compile(r"Call to bind failed: Address already in use"),  # NCCL's RAS port: harmless
    re.compile(
        r"non-default args: |server_args=|Namespace\(|\bArgs \{|LLM Args:|^model='"
    ),  # dumps of the configuration: any words
    re.compile(r"potential root causes"),  # advice, not a finding
    re.compile(r"llama_model_loader: - |print_info: |llm_load_print_meta: "),  # words of a model
    re.compile(r"^\s*raise \w"),  # a source line inside a traceback
    re.compile(r"might be asynchronously reported|For debugging consider passing"),
)

PLAIN = Family(
    name="plain",
    outcomes={
        "ready": re.compile(r"Uvicorn running on|Application startup complete|[Ll]istening (?:on|at) |Serving HTTP on"),
        "stopped": re.compile(r"Application shutdown complete|Finished server process"),
    },
    noise=(*GENERAL_NOISE, *PYTORCH_NOISE),
    causes=(*PYTORCH_CAUSES, *GENERAL_CAUSES, *PYTORCH_GENERAL),
)
