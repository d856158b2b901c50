"""`transformers serve`: 4.5x and 5. Told a model, it loads it and then listens; told none, it listens at once and loads
with the first request, so that its health says nothing of a model. It ends with -15 after a clean stop.
"""

from __future__ import annotations

import re

from agent.core.model import Health, Step
from agent.families.family import Family, bars, causes, steps
from agent.families.plain import GENERAL_CAUSES, GENERAL_NOISE
from agent.families.pytorch import PYTORCH_CAUSES, PYTORCH_GENERAL, PYTORCH_NOISE, UVICORN_STOPPED

TRANSFORMERS = Family(
    name="transformers",
    executables=frozenset(
        {"transformers", "transformers-cli", "transformers.commands.serving", "transformers.cli.transformers"}
    ),
    packages=frozenset({"transformers"}),
    default_host="localhost",
    default_port=8000,
    model_flags=("--force-model", "--force_model", "--model-name-or-path", "--model_name_or_path"),
    model_words=("serve",),
    hub=True,
    answers={200: Health.OK},
    terms_s=(30.0,),
    clean_exits=frozenset({0, -15, 143, -2, 130, 1}),  # 1: after SIGINT
    steps=steps(
        (Step.LAUNCHED, r"transformers[ -](?:cli )?serve|Setting up the server"),
        (Step.DOWNLOADING, r"\.safetensors: +\d{1,3}%\||Downloading \(incomplete total|Downloading shards: "),
        (Step.LOADING_WEIGHTS, r"\bLoading \S+@\S+\s*$|Loading model: |Loading .{1,200} into memory"),
        (Step.WARMING_UP, r"Warming up |^Loaded model |Loaded .{1,200} in [\d.]+ ?s"),
        (
            Step.LISTENING,
            r"Started server process|Waiting for application startup|Application startup complete|Uvicorn running on",
        ),
    ),
    bars=bars(
        (Step.DOWNLOADING, r"Fetching \d+ files"),
        (Step.LOADING_WEIGHTS, r"Loading checkpoint shards"),
        (Step.LOADING_WEIGHTS, r"Loading weights"),
    ),
    outcomes={
        "ready": re.compile(r"Application startup complete|Uvicorn running on"),
        "stopped": re.compile(rf"{UVICORN_STOPPED}|^KeyboardInterrupt"),
    },
    facts={"bound_url": re.compile(r"Uvicorn running on (\S+)")},
    noise=(*GENERAL_NOISE, *PYTORCH_NOISE, re.compile(r"was removed from memory after|is not set, using")),
    recoveries=(re.compile(r"\"POST /\S{1,200} HTTP/[\d.]+\" 200"),),
    causes=(
        *causes(
            ("missing_lib", r"Missing dependencies for the serving CLI|dependencies .{0,80} not (?:found|installed)")
        ),
        *PYTORCH_CAUSES,
        *GENERAL_CAUSES,
        *PYTORCH_GENERAL,
    ),
    signature=re.compile(
        r"transformers/(?:commands|cli)/serv|\btransformers(?:-cli)? serve\b"
        r"|(?:\A|\n)[^\n]{0,120}\bLoading \S+@main\s*(?:\n|\Z)"
    ),
)
