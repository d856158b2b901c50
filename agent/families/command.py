"""What a command line starts behind all that stands before it: wrappers, interpreters, shells. By its words alone."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """A program that starts another one: which of its options take a word, how many words come before the program."""

    value_flags: frozenset[str] = frozenset()
    words: int = 0


_CONDA = _Wrapper(frozenset({"-n", "--name", "-p", "--prefix", "--cwd"}), words=1)
_UV = _Wrapper(
    frozenset({"--with", "--from", "-p", "--python", "--directory", "--project", "--env-file", "--extra", "--group"})
    | frozenset({"--with-requirements", "--index", "--index-url", "--extra-index-url", "--torch-backend"}),
    words=1,
)
_RUN = _Wrapper(words=1)  # poetry run, pixi run, ...
_WRAPPERS: Mapping[str, _Wrapper] = {
    "accelerate": _Wrapper(frozenset({"--config_file", "--num_processes", "--num_machines", "--main_process_port"}), 1),
    "chrt": _Wrapper(words=1),
    "conda": _CONDA,
    "env": _Wrapper(frozenset({"-u", "--unset", "-C", "--chdir"})),
    "exec": _Wrapper(),
    "gosu": _Wrapper(words=1),
    "hatch": _RUN,
    "ionice": _Wrapper(frozenset({"-c", "--class", "-n", "--classdata"})),
    "mamba": _CONDA,
    "micromamba": _CONDA,
    "mpirun": _Wrapper(frozenset({"-n", "-np", "--np", "-H", "--host", "--hostfile", "-x", "--map-by", "--bind-to"})),
    "nice": _Wrapper(frozenset({"-n", "--adjustment"})),
    "nohup": _Wrapper(),
    "nsys": _Wrapper(frozenset({"-o", "--output", "-t", "--trace"}), words=1),
    "numactl": _Wrapper(
        frozenset({"-i", "--interleave", "-p", "--preferred", "-m", "--membind", "-N", "--cpunodebind"})
        | frozenset({"-C", "--physcpubind", "-w", "--weighted-interleave", "-P", "--preferred-many"})
    ),
    "pdm": _RUN,
    "pipenv": _RUN,
    "pixi": _Wrapper(frozenset({"-e", "--environment", "--manifest-path"}), words=1),
    "poetry": _RUN,
    "prlimit": _Wrapper(),
    "setpriv": _Wrapper(frozenset({"--reuid", "--regid", "--groups", "--inh-caps", "--bounding-set"})),
    "setsid": _Wrapper(),
    "srun": _Wrapper(frozenset({"-n", "--ntasks", "-N", "--nodes", "-p", "--partition", "-G", "--gpus", "-c", "-w"})),
    "stdbuf": _Wrapper(frozenset({"-i", "--input", "-o", "--output", "-e", "--error"})),
    "sudo": _Wrapper(frozenset({"-u", "--user", "-g", "--group", "-D", "--chdir"})),
    "taskset": _Wrapper(words=1),
    "time": _Wrapper(frozenset({"-f", "--format", "-o", "--output"})),
    "timeout": _Wrapper(frozenset({"-s", "--signal", "-k", "--kill-after"}), words=1),
    "tini": _Wrapper(frozenset({"-p", "-e"})),
    "dumb-init": _Wrapper(frozenset({"-r", "--rewrite"})),
    "uv": _UV,
    "uvx": _Wrapper(_UV.value_flags),
}
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*[tw]?(?:\.exe)?")
_PYTHON_VALUE_FLAGS = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_TORCHRUN = frozenset({"torchrun", "torch.distributed.run", "torch.distributed.launch"})
_TORCHRUN_FLAGS = frozenset({"--no-python", "--standalone", "--run-path", "--module"})  # the others take a word
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_ENDING = re.compile(r"\.(?:exe|py|pyz|sh|bin)$")
_SUFFIX = re.compile(r"[-.](?:v?b?\d[\w.-]*|cpu|cuda\d*|hip|metal|rocm|sycl|vulkan)$")
_SHELL_WORD = re.compile(
    r"\\\n|[ \t\r]+|(?P<end>[;&|\n()]+)|(?P<word>(?:\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|[^\s;&|()'\"\\])+|.)"
)
_QUOTED = re.compile(r"'(?P<raw>[^']*)'|\"(?P<soft>(?:\\.|[^\"\\])*)\"|\\(?P<one>.)")
_NESTED = 4  # shells in shells


def expanded(command: Sequence[str]) -> list[list[str]]:
    """The commands that `command` stands for: itself, or those that it gives to a shell (`bash -c "a && exec b"`)."""
    found = [list(command)]
    for _ in range(_NESTED):
        opened = [inner for words in found for inner in _opened(words)]
        if opened == found:
            break
        found = opened
    return found


def names(command: Sequence[str]) -> Iterator[str]:
    """What the program at the end of all wrappers may be called, the most telling name first. `command`: expanded."""
    words = list(command)
    while words:
        base = _base(words[0])
        if _PYTHON.fullmatch(base):
            words = yield from _python(words[1:])
        elif base in _TORCHRUN:
            words = yield from _python(_behind_torchrun(words[1:]))
        elif base in _SHELLS:
            yield from _script(_first_word(words[1:]))
            return
        elif base in _WRAPPERS:
            words = _behind(_WRAPPERS[base], words[1:])
        else:
            yield from _spellings(base)
            if base.endswith(".sh"):
                yield from _script(words[0])
            return


def _base(program: str) -> str:
    return program.replace("\\", "/").rpartition("/")[2].lower()


def _opened(words: list[str]) -> list[list[str]]:
    """The commands that a shell at the end of all wrappers is given with -c; else the command itself."""
    rest = words
    while rest and _base(rest[0]) in _WRAPPERS:
        rest = _behind(_WRAPPERS[_base(rest[0])], rest[1:])
    if not rest or _base(rest[0]) not in _SHELLS:
        return [words]
    for at, word in enumerate(rest[1:], start=1):
        if not word.startswith("-"):
            break
        if not word.startswith("--") and word.endswith("c") and at + 1 < len(rest):
            return _shell_commands(rest[at + 1]) or [words]
    return [words]


def _shell_commands(text: str) -> list[list[str]]:
    """The simple commands of a shell's program, their quotes taken off. Nothing is looked up, so variables stay."""
    found: list[list[str]] = [[]]
    for match in _SHELL_WORD.finditer(text):
        if match.group("end"):
            found.append([])
        elif match.group("word"):
            found[-1].append(_QUOTED.sub(_bare, match.group("word")))
    return [_without_assignments(words) for words in found if words]


def _bare(match: re.Match[str]) -> str:
    raw, soft, one = match.groups()
    return raw if raw is not None else re.sub(r"\\(.)", r"\1", soft) if soft is not None else one


def _without_assignments(words: list[str]) -> list[str]:
    at = next((at for at, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    return words[at:]


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


def _behind_torchrun(words: list[str]) -> list[str]:
    """What torchrun gives to Python: its own options take a word each, or have it behind "="."""
    at = 0
    while at < len(words) and words[at].startswith("-") and not re.fullmatch(r"-m|--module", words[at]):
        at += 1 if "=" in words[at] or words[at] in _TORCHRUN_FLAGS else 2
    return ["-m" if word == "--module" else word for word in words[at:]]


def _first_word(words: list[str]) -> str:
    return next((word for word in words if not word.startswith("-")), "")


def _python(words: list[str]) -> Generator[str, None, list[str]]:
    """Yields the names of the script or module that Python's arguments name; returns the command behind a launcher."""
    at = 0
    while at < len(words):
        word = words[at]
        if word == "-c":
            return []
        if word.startswith("-m") and not word.startswith("--"):
            module = (word[2:] or (words[at + 1] if at + 1 < len(words) else "")).lower()
            rest = words[at + (1 if word[2:] else 2) :]
            if module in _TORCHRUN:
                return ["python", *_behind_torchrun(rest)]
            if module == "accelerate.commands.launch":
                return ["accelerate", "launch", *rest]
            yield from _modules(module)
            return []
        if not word.startswith("-"):
            yield from _script_of_python(word)
            return []
        at += 2 if word in _PYTHON_VALUE_FLAGS else 1
    return []


def _modules(module: str) -> Iterator[str]:
    """`a.b.c` may be known as a whole, by its last part, or by its package, which is given with a dot behind it."""
    yield from _spellings(module)
    yield from _spellings(module.rpartition(".")[2])
    yield module.partition(".")[0].replace("_", "-") + "."


def _script_of_python(path: str) -> Iterator[str]:
    """`/x/pkg/mod/file.py` may be known as file, mod.file or pkg.mod.file."""
    parts = [part for part in _ENDING.sub("", path.replace("\\", "/").lower()).split("/") if part]
    yield from _spellings(_base(path))
    for count in range(2, min(len(parts), 5) + 1):
        yield ".".join(parts[-count:]).replace("_", "-")


def _script(path: str) -> Iterator[str]:
    """A shell script is known by words of its name, run_vllm.sh; they are given behind a "~"."""
    yield from _spellings(_base(path))
    yield "~" + re.sub(r"[^a-z0-9]+", "-", _ENDING.sub("", _base(path)))


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
