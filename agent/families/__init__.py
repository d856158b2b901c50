"""What each kind of inference server prints, answers and exits with: data, one file a family.

`find(command)` tells the family from a command line, `find_by_log(head)` from the first lines of a log.
To add a family, see CONTRIBUTING.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent.families.family import CauseRule, Family, Remedy, StepRule, flag_value, model_files
from agent.families.llama_cpp import LLAMA_CPP
from agent.families.plain import PLAIN

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

FAMILIES: Mapping[str, Family] = {family.name: family for family in (PLAIN, LLAMA_CPP)}


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """A program that starts another one: which of its options take a word, how many words come before the program."""

    value_flags: frozenset[str] = frozenset()
    words: int = 0


_WRAPPERS: Mapping[str, _Wrapper] = {
    "chrt": _Wrapper(words=1),
    "env": _Wrapper(frozenset({"-u", "--unset", "-C", "--chdir"})),
    "exec": _Wrapper(),
    "ionice": _Wrapper(frozenset({"-c", "--class", "-n", "--classdata"})),
    "nice": _Wrapper(frozenset({"-n", "--adjustment"})),
    "nohup": _Wrapper(),
    "numactl": _Wrapper(
        frozenset({"-i", "--interleave", "-p", "--preferred", "-m", "--membind", "-N", "--cpunodebind"})
        | frozenset({"-C", "--physcpubind", "-w", "--weighted-interleave", "-P", "--preferred-many"})
    ),
    "prlimit": _Wrapper(),
    "setpriv": _Wrapper(frozenset({"--reuid", "--regid", "--groups", "--inh-caps", "--bounding-set"})),
    "setsid": _Wrapper(),
    "stdbuf": _Wrapper(frozenset({"-i", "--input", "-o", "--output", "-e", "--error"})),
    "taskset": _Wrapper(words=1),
    "timeout": _Wrapper(frozenset({"-s", "--signal", "-k", "--kill-after"}), words=1),
}
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*[tw]?(?:\.exe)?")
_PYTHON_VALUE_FLAGS = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_ENDING = re.compile(r"\.(?:exe|py|pyz|sh|bin)$")
_SUFFIX = re.compile(r"[-.](?:v?b?\d[\w.-]*|cpu|cuda\d*|hip|metal|rocm|sycl|vulkan)$")


def find(command: Sequence[str]) -> Family:
    """The family of the server that `command` starts; plain if it is none that we know."""
    for name in _names(command):
        for family in FAMILIES.values():
            if name in family.executables:
                return family
    return PLAIN


def find_by_log(head: str) -> Family:
    """The family that printed `head`, the first lines of a log; plain if it is none that we know."""
    for family in FAMILIES.values():
        if family.signature is not None and family.signature.search(head):
            return family
    return PLAIN


def _names(command: Sequence[str]) -> Iterator[str]:
    """What the program at the end of all wrappers may be called, the most telling name first."""
    words = list(command)
    while words:
        base = words[0].replace("\\", "/").rpartition("/")[2].lower()
        if _PYTHON.fullmatch(base):
            yield from _python_names(words[1:])
            return
        wrapper = _WRAPPERS.get(base)
        if wrapper is None:
            yield from _spellings(base)
            return
        words = _behind(wrapper, words[1:])


def _behind(wrapper: _Wrapper, words: list[str]) -> list[str]:
    """The command that a wrapper starts, from its arguments."""
    at, skip = 0, wrapper.words
    while at < len(words):
        word = words[at]
        if word == "--" or _ASSIGNMENT.match(word):
            at += 1
        elif word.startswith("-"):
            at += 2 if word in wrapper.value_flags else 1
        elif skip:
            skip -= 1
            at += 1
        else:
            break
    return words[at:]


def _python_names(words: list[str]) -> Iterator[str]:
    """The script or module that Python's arguments name."""
    at = 0
    while at < len(words):
        word = words[at]
        if word == "-c" or (word.startswith("-m") and not word.startswith("--")):
            module = word[2:] or (words[at + 1] if at + 1 < len(words) else "")
            if word != "-c":
                yield from _spellings(module.lower())
                yield from _spellings(module.lower().rpartition(".")[2])
            return
        if not word.startswith("-"):
            yield from _spellings(word.rpartition("/")[2].lower())
            return
        at += 2 if word in _PYTHON_VALUE_FLAGS else 1


def _spellings(base: str) -> Iterator[str]:
    """A base name without its ending, and without a version or flavour behind it."""
    name = _ENDING.sub("", base).replace("_", "-")
    while name:
        yield name
        shorter = _SUFFIX.sub("", name)
        if shorter == name:
            break
        name = shorter
    if base.endswith(".llamafile"):  # a model with its server in one file, under the model's name
        yield "llamafile"
