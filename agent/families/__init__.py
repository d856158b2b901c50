"""What each kind of inference server prints, answers and exits with: data, one file a family.

`find(command)` tells the family from a command line, `find_by_log(head)` from the first lines of a log.
To add a family, see CONTRIBUTING.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.families.command import expanded, names
from agent.families.family import CauseRule, Family, Remedy, StepRule, flag_value, model_files
from agent.families.llama_cpp import LLAMA_CPP
from agent.families.lmdeploy import LMDEPLOY
from agent.families.ollama import OLLAMA
from agent.families.plain import PLAIN
from agent.families.sglang import SGLANG
from agent.families.tensorrt_llm import TENSORRT_LLM
from agent.families.tgi import TGI
from agent.families.transformers import TRANSFORMERS
from agent.families.triton import TRITON
from agent.families.vllm import VLLM

__all__ = [
    "FAMILIES",
    "CauseRule",
    "Family",
    "Remedy",
    "StepRule",
    "find",
    "find_by_log",
    "flag_value",
    "model_files",
]

_EACH = (PLAIN, LLAMA_CPP, SGLANG, TENSORRT_LLM, TGI, LMDEPLOY, TRITON, OLLAMA, VLLM, TRANSFORMERS)
"""Where the logs of two look alike, the one whose marks are rarer comes first."""

FAMILIES: Mapping[str, Family] = {family.name: family for family in _EACH}


def find(command: Sequence[str]) -> Family:
    """The family of the server that `command` starts; plain if it is none that we know."""
    for words in reversed(expanded(command)):  # a shell's last command is the one that stays
        for name in names(words):
            for family in FAMILIES.values():
                if _is_called(family, name):
                    return family
    return PLAIN


def find_by_log(head: str) -> Family:
    """The family that printed `head`, the first lines of a log; plain if it is none that we know."""
    for family in FAMILIES.values():
        if family.signature is not None and family.signature.search(head):
            return family
    return PLAIN


def _is_called(family: Family, name: str) -> bool:
    """`name`: one of those of `command.names`."""
    if name.startswith("~"):
        return any(f"-{known}-" in f"-{name[1:]}-" for known in family.executables | family.packages)
    return name in family.executables or (name.endswith(".") and name[:-1] in family.packages)
