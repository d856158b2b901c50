"""A log read offline: outcome, steps, facts and cause, in the shape that the CLI prints."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.families import FAMILIES
from agent.families.explain import explain
from tests.families.samples import BOOT_LLAMAFILE, BOOT_NEWEST, READY, READY_B5, READY_NEWEST, crash_b5, crash_newest

STOP = "srv    operator(): operator(): cleaning up before exit...\n"


def test_an_older_start_is_told_step_by_step() -> None:
    told = explain(READY_B5.encode())
    assert told["family"] == "llama_cpp"
    assert told["outcome"] == "ready"
    assert told["cause"] is None
    assert [(step["step"], step["line"]) for step in told["steps"]] == [
        ("launched", 1),
        ("listening", 6),
        ("loading-weights", 8),
        ("allocating-kv", 18),
        ("warming-up", 22),
    ]
    assert json.loads(json.dumps(told)) == told


def test_the_newest_start_is_told_with_the_clock_of_its_lines() -> None:
    told = explain(READY_NEWEST.encode())
    assert told["steps"] == [
        {"step": "launched", "line": 1, "at": "0.00.000.425"},
        {"step": "loading-weights", "line": 5, "at": "0.00.005.698"},
        {"step": "warming-up", "line": 7, "at": "0.00.914.864"},
        {"step": "listening", "line": 10, "at": "0.00.918.862"},
    ]
    assert told["facts"]["slots"] == 4


@pytest.mark.parametrize("kind", READY)
@pytest.mark.parametrize("family", [None, *FAMILIES.values()])
def test_a_healthy_log_has_no_cause(kind: str, family) -> None:  # type: ignore[no-untyped-def]
    assert explain(READY[kind].encode(), family)["cause"] is None


@pytest.mark.parametrize("kind", READY)
def test_a_start_that_was_ready_is_ready_and_a_stop_after_it_is_a_stop(kind: str) -> None:
    assert explain(READY[kind].encode())["outcome"] == "ready"
    assert explain((READY[kind] + STOP).encode())["outcome"] == "stopped"


def test_a_log_that_breaks_off_is_still_loading() -> None:
    assert explain(BOOT_NEWEST.encode())["outcome"] == "loading"
    assert explain(b"")["outcome"] == "loading"


def test_cleaning_up_after_a_failure_is_a_crash() -> None:
    told = explain(crash_b5("gguf_init_from_file_impl: failed to read magic").encode())
    assert told["outcome"] == "crash"
    assert told["cause"]["slug"] == "missing_weights"
    assert told["cause"]["line"] == 10
    assert set(told["cause"]) == {"slug", "line", "text", "remedy"}


def test_a_llamafile_that_cannot_bind_says_so() -> None:
    log = BOOT_LLAMAFILE + "start: couldn't bind HTTP server socket, hostname: /run/x.sock\n" + STOP
    told = explain((log + "server_main: exiting due to HTTP server error\n").encode())
    assert (told["family"], told["cause"]["slug"], told["cause"]["line"]) == ("llama_cpp", "port_in_use", 5)
    assert [step["step"] for step in told["steps"]] == ["launched", "listening"]


def test_an_exception_far_above_the_end_was_survived() -> None:
    survived = b"ValueError: odd\n" + b"working\n" * 100
    assert explain(survived)["outcome"] == "loading"
    assert explain(survived + b"ValueError: odd\n")["cause"]["line"] == 102


def test_a_file_may_come_in_pieces() -> None:
    data = (crash_newest("CUDA error: out of memory") + "x\n" * 30_000).encode()
    pieces = (data[at : at + 1_000] for at in range(0, len(data), 1_000))
    assert explain(pieces) == explain(data)


@given(st.binary(max_size=3_000))
def test_no_bytes_raise(data: bytes) -> None:
    told = explain(data)
    assert told["outcome"] in {"ready", "crash", "loading", "stopped"}
    json.dumps(told)
