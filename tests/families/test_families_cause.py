"""The root cause is named, not the last line; what was got over is no cause."""

from __future__ import annotations

import pytest

from agent.core.model import Cause, Exit, Retry
from agent.families import FAMILIES
from agent.families.cause import CATALOG, cause_of, find_cause
from agent.families.reader import Reader
from tests.families.samples import BOOT_NEWEST, CAUSES, HARMLESS, READY, READY_B5, crash_b5, crash_newest

LLAMA, PLAIN = FAMILIES["llama_cpp"], FAMILIES["plain"]
FAILED = Exit(code=1)


def cause(log: str, end: Exit | None = FAILED, family: str = "llama_cpp") -> Cause:
    reader = Reader(FAMILIES[family], secrets=["swordfish"])
    reader.feed(log.encode())
    reader.close()
    return find_cause(FAMILIES[family], reader, end)


_EACH = [(slug, line) for slug, lines in CAUSES.items() for line in lines]
_GENERAL = (
    "failed to load draft model",
    "nobody has ever read",
    "something new",
    "exiting due to HTTP",
    "create context",
)


@pytest.mark.parametrize(("slug", "line"), _EACH)
def test_an_older_server_names_its_cause(slug: str, line: str) -> None:
    found = cause(crash_b5(line))
    assert (found.slug, found.line, found.quoted) == (slug, 10, True)
    assert line.strip() in found.text


@pytest.mark.parametrize(("slug", "line"), _EACH)
def test_the_newest_server_names_its_cause_and_not_the_traceback_behind_it(slug: str, line: str) -> None:
    found = cause(crash_newest(line))
    assert (found.slug, found.line, found.quoted) == (slug, 7, True)


@pytest.mark.parametrize(("slug", "line"), [each for each in _EACH if not any(g in each[1] for g in _GENERAL)])
def test_a_specific_line_wins_over_general_ones_before_it(slug: str, line: str) -> None:
    found = cause(BOOT_NEWEST + "srv load_model: failed to load model, 'x'\nCUDA error: new\n" + line + "\n")
    assert (found.slug, found.line) == (slug, 9)


@pytest.mark.parametrize("line", HARMLESS)
def test_a_harmless_line_is_no_cause(line: str) -> None:
    assert cause(BOOT_NEWEST + line + "\n").slug == "unknown"


@pytest.mark.parametrize("kind", READY)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_healthy_log_never_has_a_cause(kind: str, family: str) -> None:
    assert cause(READY[kind], family=family).line is None


def test_an_error_before_the_last_new_step_was_got_over() -> None:
    log = BOOT_NEWEST + "CUDA error: out of memory\nllama_context: constructing llama_context\n"
    assert cause(log).slug == "unknown"
    assert cause(log + "ggml_aligned_malloc: insufficient memory\n").slug == "host_oom"


def test_an_error_before_the_server_was_ready_was_got_over() -> None:
    log = READY_B5 + "cudaMalloc failed: out of memory\nsrv  update_slots: all slots are idle\n"
    assert cause(log, Exit(signal=9, oom=False)).slug == "external_kill"


def test_an_allocation_that_was_tried_again_smaller_is_no_cause() -> None:
    log = READY_B5 + (
        "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 99\n"
        "llama_context: compute buffer allocation failed, retrying without pipeline parallelism\n"
    )
    assert cause(log).slug == "unknown"
    assert cause(log + "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 9\n").slug == "cuda_oom"


def test_a_request_that_was_served_leaves_earlier_errors_behind() -> None:
    log = READY_B5 + "CUDA error: out of memory\nsrv  log_server_r: request: POST /completion 127.0.0.1 200\n"
    assert cause(log).slug == "unknown"


def test_a_crash_while_serving_is_found_behind_the_start() -> None:
    found = cause(READY_B5 + "CUDA error: an illegal memory access was encountered\n", Exit(signal=6))
    assert (found.slug, found.line) == ("illegal_memory", READY_B5.count("\n") + 1)


def test_lines_of_an_asynchronous_logger_behind_the_traceback_still_count() -> None:
    log = "Traceback (most recent call last):\nRuntimeError: Failed to init server, please check the input params.\n"
    log += (
        BOOT_NEWEST.replace("loading model", "loaded") + "0.1 E srv start: couldn't bind HTTP server socket, port: 1\n"
    )
    assert cause(log).slug == "port_in_use"


@pytest.mark.parametrize(
    ("end", "slug", "word"),
    [
        (Exit(code=0), "exited_zero", "code 0"),
        (Exit(signal=9, oom=True), "host_oom", "kernel"),
        (Exit(signal=9), "external_kill", "SIGKILL"),
        (Exit(signal=9, oom=False), "external_kill", "SIGKILL"),
        (Exit(signal=15), "external_kill", "SIGTERM"),
        (Exit(signal=2), "external_kill", "SIGINT"),
        (Exit(signal=11), "worker_signal", "SIGSEGV"),
        (Exit(signal=6), "worker_signal", "SIGABRT"),
        (Exit(signal=4), "worker_signal", "SIGILL"),
        (Exit(signal=7), "worker_signal", "SIGBUS"),
        (Exit(signal=40), "worker_signal", "signal 40"),
        (Exit(code=139), "worker_signal", "SIGSEGV"),
        (Exit(code=137), "external_kill", "137"),
        (Exit(code=3), "unknown", "code 3"),
        (Exit(), "unknown", "unseen"),
        (None, "unknown", "unseen"),
    ],
)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_silent_death_is_told_by_its_exit(end: Exit | None, slug: str, word: str, family: str) -> None:
    found = cause(READY_B5, end, family)
    assert (found.slug, found.quoted, found.line) == (slug, False, None)
    assert word in found.text


def test_only_an_unknown_killer_may_have_been_the_kernel() -> None:
    assert "memory" in cause("", Exit(signal=9)).text
    assert "memory" not in cause("", Exit(signal=9, oom=False)).text
    assert "memory" not in cause("", Exit(signal=15)).text


def test_a_kernel_kill_for_memory_beats_what_the_log_says() -> None:
    assert cause(crash_b5("CUDA error: x"), Exit(signal=9, oom=True)).slug == "host_oom"


def test_an_instruction_that_the_cpu_lacks_is_not_tried_again() -> None:
    assert cause("", Exit(signal=4)).retry is Retry.NO
    assert cause("", Exit(code=132)).retry is Retry.NO


@pytest.mark.parametrize("family", FAMILIES)
def test_an_unknown_exception_is_quoted_the_last_of_them(family: str) -> None:
    log = "Traceback (most recent call last):\nKeyError: 'a'\n\nDuring it:\nmy.pkg.OddError: swordfish --api-key x\n"
    found = cause(log, family=family)
    assert (found.slug, found.line, found.quoted) == ("unknown", 5, True)
    assert found.text == "my.pkg.OddError: *** --api-key ***"


def test_the_last_words_of_an_abort_say_more_than_its_signal() -> None:
    found = cause(BOOT_NEWEST + "/src/ggml.c:12: GGML_ASSERT(n > 0) failed\n", Exit(signal=6))
    assert (found.slug, found.line) == ("worker_signal", 7)


@pytest.mark.parametrize(
    ("line", "slug"),
    [
        ("OSError: [Errno 98] Address already in use", "port_in_use"),
        ("ModuleNotFoundError: No module named 'x'", "missing_lib"),
        ("PermissionError: [Errno 13] Permission denied: '/x'", "permission_denied"),
        ("OSError: [Errno 28] No space left on device", "disk_full"),
        ("MemoryError", "host_oom"),
        ("OSError: [Errno 12] Cannot allocate memory", "host_oom"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 MiB", "cuda_oom"),
        ("RuntimeError: No CUDA GPUs are available", "no_gpu"),
        ("x.py: error: unrecognized arguments: --x", "bad_flag"),
        ("OSError: [Errno 24] Too many open files", "too_many_files"),
        ("RuntimeError: NCCL error: unhandled cuda error", "nccl"),
        ("Error 803: system has unsupported display driver / cuda driver combination", "driver_mismatch"),
    ],
)
def test_a_server_that_we_know_nothing_of_says_what_any_program_says(line: str, slug: str) -> None:
    found = cause(f"starting\nweb-1  | 2026-01-01T00:00:00Z {line}\nbye\n", family="plain")
    assert (found.slug, found.line) == (slug, 2)
    assert line in found.text


def test_source_lines_of_a_traceback_are_no_cause() -> None:
    assert cause('    raise OSError("Address already in use")\n', family="plain").slug == "unknown"


def test_every_slug_that_a_rule_can_name_has_a_remedy() -> None:
    for family in FAMILIES.values():
        assert {rule.slug for rule in family.causes} <= CATALOG.keys()
    assert all(remedy.text and remedy.remedy for remedy in CATALOG.values())


@pytest.mark.parametrize(
    "slug", ["bad_flag", "missing_weights", "unsupported_model", "exec_missing", "arch_unsupported"]
)
def test_what_would_fail_the_same_way_again_is_not_retried(slug: str) -> None:
    assert cause_of(slug).retry is Retry.NO


def test_memory_that_somebody_else_holds_is_waited_for() -> None:
    assert cause_of("gpu_memory_taken").retry is Retry.WAIT


def test_an_unknown_slug_has_a_remedy_too() -> None:
    assert cause_of("never heard of").remedy == CATALOG["unknown"].remedy
