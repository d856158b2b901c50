"""One sentence on a cause, with the figures that its line holds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_SIZE = r"[\d.,]+ ?(?:[KMGT]i?B|[Bb]ytes)"

_SAID: Mapping[str, Sequence[tuple[str, str]]] = {
    "cuda_oom": (
        (
            rf"[Tt]ried to allocate (?P<asked>{_SIZE})\D.*?GPU (?P<gpu>\d+) has a total capacity of (?P<total>{_SIZE})"
            rf" of which (?P<free>{_SIZE}) is free",
            "GPU memory ran out: {asked} were asked for, {free} of {total} were free on GPU {gpu}",
        ),
        (
            rf"[Tt]ried to allocate (?P<asked>{_SIZE}) \(GPU (?P<gpu>\d+); (?P<total>{_SIZE}) total capacity;.*?"
            rf"(?P<free>{_SIZE}) free",
            "GPU memory ran out: {asked} were asked for, {free} of {total} were free on GPU {gpu}",
        ),
        (rf"[Tt]ried to allocate (?P<asked>{_SIZE})", "GPU memory ran out: {asked} were asked for"),
        (
            r"allocating (?P<asked>[\d.]+ MiB) on device (?P<gpu>\d+): cudaMalloc failed",
            "GPU memory ran out: {asked} were asked for on device {gpu}",
        ),
        (
            r"failed to allocate (?P<gpu>\w+) buffer of size (?P<asked>\d+)",
            "GPU memory ran out: {asked} bytes were asked for on {gpu}",
        ),
    ),
    "gpu_memory_taken": (
        (
            r"\((?P<free>[\d.]+)/(?P<total>[\d.]+ GiB)\) on startup is less than desired GPU memory utilization "
            r"\((?P<part>[\d.]+), (?P<asked>[\d.]+ GiB)\)",
            "somebody else holds the GPU memory: {free} of {total} are free, {asked} (a part of {part}) are to be used",
        ),
    ),
    "kv_cache_too_small": (
        (
            r"max seq len \((?P<context>\d+)\).*?\((?P<asked>[\d.]+ GiB) KV cache is needed.*?"
            r"available KV cache memory \((?P<free>[\d.]+ GiB)\).*?maximum model length is (?P<most>\d+)",
            "no room for the context: {context} tokens need {asked} of KV cache, {free} are there; at most {most} fit",
        ),
        (
            r"max seq len \((?P<context>\d+)\).*?\((?P<asked>[\d.]+ GiB) KV cache is needed.*?"
            r"available KV cache memory \((?P<free>[\d.]+ GiB)\)",
            "no room for the context: {context} tokens need {asked} of KV cache, {free} are there",
        ),
        (
            r"max seq len \((?P<context>\d+)\) is larger than the maximum number of tokens that can be stored in "
            r"KV cache \((?P<most>\d+)\)",
            "no room for the context: {context} tokens are to fit, at most {most} do",
        ),
        (
            r"Not enough memory to handle (?P<asked>\d+) prefill tokens",
            "no room for a prefill of {asked} tokens",
        ),
    ),
    "bad_config": (
        (
            r"max_model_len \((?P<asked>\d+)\) is greater than the derived max_model_len \(\w+=(?P<most>\d+)",
            "the context is longer than the model's: {asked} tokens are asked for, the model has {most}",
        ),
        (
            r"attention heads \((?P<heads>\d+)\) must be divisible by tensor parallel size \((?P<ranks>\d+)\)",
            "the tensor parallel size {ranks} does not divide the {heads} attention heads of the model",
        ),
        (
            r"[Ww]orld size \((?P<ranks>\d+)\) is larger than the number of available GPUs \((?P<gpus>\d+)\)",
            "{ranks} GPUs are asked for, and there are {gpus}",
        ),
    ),
    "bad_flag": (
        (r"unrecognized arguments: (?P<flag>.{1,200})", "the server does not know: {flag}"),
        (r"invalid argument: (?P<flag>\S{1,200})", "the server does not know: {flag}"),
        (r"[Nn]o such option:? '?(?P<flag>[^\s']{1,200})", "the server does not know: {flag}"),
        (r"unexpected argument '(?P<flag>[^']{1,200})'", "the server does not know: {flag}"),
    ),
    "port_in_use": (
        (
            r"server socket has failed to (?:bind|listen).*?(?:\]|\d+(?:\.\d+){3}):(?P<port>\d+)",
            "the port {port}, at which the ranks of the server meet, is taken (it is not the port of its API)",
        ),
        (
            r"server socket has failed to listen.*?port: (?P<port>\d+)",
            "the port {port}, at which the ranks of the server meet, is taken (it is not the port of its API)",
        ),
        (
            r"bind on address \('(?P<host>[^']+)', (?P<port>\d+)\)",
            "the server cannot listen on {host}, port {port}: the address is in use",
        ),
        (r"hostname: (?P<host>\S+), port: (?P<port>\d+)", "the server cannot listen on {host}, port {port}"),
        (r"listen tcp \S*?:(?P<port>\d+): bind", "the server cannot listen on port {port}: the address is in use"),
    ),
    "disk_full": (
        (
            r"expected file size is: (?P<asked>[\d.]+ MB).*?only has (?P<free>[\d.]+ MB)",
            "the disk is full: a file of {asked} does not fit into {free}",
        ),
    ),
    "shm_too_small": (
        (
            r"shared memory segment (?P<file>\S+) \(size (?P<asked>\d+)\)",
            "the shared memory is too small: {asked} bytes were asked for in {file}",
        ),
    ),
    "nccl": (
        (
            r"Timeout\(ms\)=(?P<limit>\d+)\) ran for (?P<ran>\d+) milliseconds",
            "a rank did not come to a common operation (NCCL): given up after {ran} ms, the limit is {limit} ms",
        ),
    ),
    "watchdog": (
        (
            r"watchdog_timeout=(?P<limit>[\d.]+)",
            "a step of the server hung for longer than its own watchdog allows ({limit} s)",
        ),
    ),
    "worker_signal": (
        (r"exit code: -(?P<signal>\d+)", "a process of the server was ended by signal {signal}"),
        (r"signaled to shutdown with signal (?P<signal>\d+)", "a process of the server was ended by signal {signal}"),
        (r"with exit code -(?P<signal>\d+)", "a process of the server was ended by signal {signal}"),
        (r"Exit code: -(?P<signal>\d+)", "a process of the server was ended by signal {signal}"),
        (r"\{'(?P<who>\w+)': -(?P<signal>\d+)", "the process {who} of the server was ended by signal {signal}"),
    ),
    "host_oom": (
        (
            r"Killed process (?P<pid>\d+) \((?P<name>[^)]+)\)",
            "the host's memory ran out, and the kernel killed process {pid} ({name})",
        ),
    ),
    "missing_weights": (
        (r"No such file or directory: '?(?P<file>[^']{1,400})", "a file of the model is missing: {file}"),
        (r"Cannot find any model weights with '?(?:`)?(?P<model>[^'`]{1,400})", "there are no weights at {model}"),
    ),
}

_PATTERNS = {slug: tuple((re.compile(pattern), text) for pattern, text in said) for slug, said in _SAID.items()}


def sentence(slug: str, line: str) -> str | None:
    """What `line` says of that cause, in a sentence with its figures; None: the line must speak for itself."""
    for pattern, text in _PATTERNS.get(slug, ()):
        match = pattern.search(line)
        if match is not None:
            return text.format(**match.groupdict())
    return None
