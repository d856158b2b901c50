"""NVIDIA Triton: 20.x to 26.x. It listens when all models are loaded, and drains for up to 30 s."""

from __future__ import annotations

import re

from agent.core.model import Health, Step
from agent.families.family import Family, causes, steps
from agent.families.plain import GENERAL_CAUSES, GENERAL_NOISE
from agent.families.pytorch import PYTORCH_CAUSES, PYTORCH_GENERAL, PYTORCH_NOISE

TRITON = Family(
    name="triton",
    executables=frozenset({"tritonserver", "triton-server"}),
    default_host="0.0.0.0",  # noqa: S104 - what it does, unless it is told
    default_port=8000,
    host_flags=("--http-address",),
    port_flags=("--http-port",),
    model_flags=("--model-repository", "--model-store"),
    health_path="/v2/health/ready",
    answers={200: Health.OK, 400: Health.LOADING, 503: Health.LOADING},  # 400: alive, and a model is not ready
    terms_s=(35.0, 10.0),
    clean_exits=frozenset({0, -15, 143, -2, 130}),
    workers=("triton_python_backend_stub",),
    steps=steps(
        (Step.LAUNCHED, r"Triton Inference Server|NVIDIA Release \d|Pinned memory pool is created"),
        (Step.INITIALIZING, r"CUDA memory pool is created|Initializing Python backend|TRITONBACKEND_Initialize"),
        (Step.LOADING_WEIGHTS, r"\bloading: \w|TRITONBACKEND_ModelInitialize|successfully loaded '"),
        (Step.WARMING_UP, r"is running warmup sample|Running warmup"),
        (
            Step.LISTENING,
            r"Started GRPCInferenceService|Started HTTPService|Started Metrics Service|Started Vertex"
            r"|Started Sagemaker",
        ),
    ),
    outcomes={
        "ready": re.compile(r"Started GRPCInferenceService|Started HTTPService|Started Metrics Service"),
        "stopped": re.compile(r"Signal \(\d+\) received|Interrupt signal \(\d+\) received"),
        "crash": re.compile(r"error: creating server: "),
    },
    facts={
        "version": re.compile(r"server_version +\| ([\d.]+)"),
        "bound_url": re.compile(r"Started HTTPService at (\S+)"),
        "pinned_bytes": re.compile(r"Pinned memory pool is created at '\w+' with size (\d+)"),
    },
    noise=(
        *GENERAL_NOISE,
        *PYTORCH_NOISE,
        re.compile(r"in-flight non-inference requests|TRITONBACKEND_Model(?:Instance)?Finalize|Waiting for in-flight"),
    ),
    causes=(
        *PYTORCH_CAUSES,
        *GENERAL_CAUSES,
        *causes(
            ("port_in_use", r"failed to start (?:HTTP|GRPC|Metrics) service|Failed to bind to|Unavailable - Socket"),
            (
                "missing_weights",
                r"failed to poll model repository|unable to find '.{0,400}' for model"
                r"|must specify (?:platform|backend)",
            ),
            ("missing_lib", r"unable to load shared library|unable to load backend library"),
            (
                "model_load_failed",
                r"failed to load '.{1,200}' version|failed to poll model '|Stub process .{1,120} is not healthy"
                r"|\| UNAVAILABLE: |Poll failed for model directory",
            ),
        ),
        *causes(("model_load_failed", r"failed to load all models|error: creating server: "), specific=False),
        *PYTORCH_GENERAL,
    ),
    signature=re.compile(
        r"\btritonserver\b|TRITONBACKEND_|Started GRPCInferenceService|Started HTTPService|model_lifecycle\.cc"
        r"|triton/core|Triton Inference Server|error: creating server: |pinned_memory_manager\.cc"
    ),
)
