"""vLLM's logs are read truly: its steps, facts, causes, ranks and ends, of both engines and of all ages."""

# ruff: noqa: E501 - lines of logs are as long as they are

from __future__ import annotations

import pytest

from agent.core.model import Exit, Retry, Step
from agent.families import FAMILIES
from agent.families.cause import find_cause
from agent.families.explain import explain
from agent.families.reader import Reader
from tests.families.other_builds import PREFIXES
from tests.families.pytorch_lines import CAUSES, HARMLESS
from tests.families.vllm_logs import (
    BOOT,
    DEAD,
    FACTS,
    READY,
    SERVED,
    STEPS,
    STOP,
    V1,
    V1_NEW,
    WEDGED,
    crash,
    crash_v0,
)

VLLM = FAMILIES["vllm"]
LOADING = V1[: V1.index("\rLoading")]
_EACH = [(slug, line) for slug, lines in CAUSES.items() for line in lines]


def told(log: str) -> dict:  # type: ignore[type-arg] - a JSON document
    return explain(log.encode())


def read(log: str) -> Reader:
    reader = Reader(VLLM)
    reader.feed(log.encode())
    reader.close()
    return reader


@pytest.mark.parametrize("age", READY)
def test_a_start_is_told_step_by_step(age: str) -> None:
    story = told(READY[age])
    assert (story["family"], story["outcome"], story["cause"]) == ("vllm", "ready", None)
    assert [(step["step"], step["line"]) for step in story["steps"]] == STEPS[age]


@pytest.mark.parametrize("age", READY)
def test_its_facts_are_found(age: str) -> None:
    facts = told(READY[age])["facts"]
    assert {name: facts.get(name) for name in FACTS[age]} == FACTS[age]


@pytest.mark.parametrize("age", READY)
def test_no_beginning_of_a_good_start_has_a_cause(age: str) -> None:
    lines = READY[age].splitlines(keepends=True)
    for count in range(len(lines) + 1):
        story = told("".join(lines[:count]))
        assert story["cause"] is None
        assert story["outcome"] in {"loading", "ready"}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize("log", [*READY.values(), crash("RuntimeError: CUDA error: out of memory")])
def test_foreign_prefixes_change_nothing(prefix: str, log: str) -> None:
    bare = told(log)
    story = told("\n".join(prefix + line for line in log.split("\n")))
    assert story["outcome"] == bare["outcome"]
    assert [(s["step"], s["line"]) for s in story["steps"]] == [(s["step"], s["line"]) for s in bare["steps"]]
    assert story["facts"] == bare["facts"]
    assert story["cause"] == bare["cause"]


@pytest.mark.parametrize(("slug", "line"), _EACH)
def test_the_newest_names_its_cause_where_it_was_said_first(slug: str, line: str) -> None:
    story = told(crash(line))
    assert (story["outcome"], story["cause"]["slug"], story["cause"]["line"]) == ("crash", slug, 14)


@pytest.mark.parametrize(("slug", "line"), _EACH)
def test_an_old_one_names_its_cause(slug: str, line: str) -> None:
    story = told(crash_v0(line))
    assert (story["outcome"], story["cause"]["slug"], story["cause"]["line"]) == ("crash", slug, 8)


@pytest.mark.parametrize("line", HARMLESS)
def test_what_only_sounds_bad_is_no_cause(line: str) -> None:
    assert told(BOOT + line + "\n")["cause"] is None
    assert told(V1 + line + "\n")["cause"] is None
    assert told(V1.replace("INFO:     Started", line + "\nINFO:     Started"))["cause"] is None


def test_an_exception_that_no_rule_knows_is_told_where_it_was_said_first() -> None:
    story = told(crash("KeyError: 'layers.0.mlp'"))
    assert (story["cause"]["slug"], story["cause"]["line"]) == ("unknown", 14)
    assert "KeyError: 'layers.0.mlp'" in story["cause"]["text"]


def test_a_rank_that_failed_before_another_went_on_is_not_forgotten() -> None:
    failed = "(Worker_TP1 pid=2) ERROR 08-03 21:49:23 [multiproc_executor.py:5] torch.OutOfMemoryError: CUDA out of memory.\n"
    went_on = "(Worker_TP0 pid=1) INFO 08-03 21:49:24 [backends.py:1] Dynamo bytecode transform time: 1.0 s\n"
    dies = "(EngineCore pid=3) ERROR 08-03 21:49:25 [core.py:1] EngineCore failed to start.\n"
    assert told(BOOT + failed + went_on)["cause"] is None
    story = told(BOOT + failed + went_on + dies)
    assert (story["cause"]["slug"], story["cause"]["line"]) == ("cuda_oom", 12)


def test_a_rank_that_goes_on_after_another_has_died_hides_nothing() -> None:
    dies = "(Worker_TP1 pid=2) ERROR 08-03 21:49:23 [multiproc_executor.py:5] WorkerProc failed to start.\n"
    oom = "(Worker_TP1 pid=2) ERROR 08-03 21:49:23 [multiproc_executor.py:5] torch.OutOfMemoryError: CUDA out of memory.\n"
    went_on = "(Worker_TP0 pid=1) INFO 08-03 21:49:24 [backends.py:1] Dynamo bytecode transform time: 1.0 s\n"
    story = told(BOOT + dies + oom + went_on)
    assert (story["outcome"], story["cause"]["slug"], story["cause"]["line"]) == ("crash", "cuda_oom", 13)


def test_a_stop_that_was_asked_for_is_no_crash_whatever_noise_it_makes() -> None:
    story = told(V1_NEW + SERVED + STOP)
    assert (story["outcome"], story["cause"]) == ("stopped", None)


def test_a_stop_while_it_loads_is_a_stop() -> None:
    log = (
        BOOT
        + "(APIServer pid=10) Traceback (most recent call last):\n(APIServer pid=10) KeyboardInterrupt: terminated\n"
    )
    log += "(APIServer pid=10) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
    assert (told(log)["outcome"], told(log)["cause"]) == ("stopped", None)


@pytest.mark.parametrize(
    ("line", "slug"),
    [
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "illegal_memory"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "gpu_fault"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.", "cuda_oom"),
        ("RuntimeError: NCCL error: unhandled cuda error", "nccl"),
        ("IndexError: list index out of range", "unknown"),
    ],
)
def test_an_engine_that_dies_while_serving_says_why(line: str, slug: str) -> None:
    story = told(V1_NEW + SERVED + DEAD % line)
    assert (story["outcome"], story["cause"]["slug"]) == ("crash", slug)
    assert story["cause"]["line"] == V1_NEW.count("\n") + 5


def test_an_engine_that_dies_without_a_word_is_a_dead_worker_even_if_the_server_exits_with_0() -> None:
    died = (
        "ERROR 11-08 11:01:29 [multiproc_executor.py:135] Worker proc VllmWorker-3 died unexpectedly, shutting down.\n"
    )
    found = find_cause(VLLM, read(V1 + died + DEAD % "RuntimeError: cancelled"), Exit(code=0))
    assert (found.slug, found.line) == ("worker_died", V1.count("\n") + 1)
    found = find_cause(
        VLLM, read(V1 + "CRITICAL 02-25 11:11:34 launcher.py:101] MQLLMEngine is already dead, x\n"), None
    )
    assert found.slug == "worker_died"


def test_an_engine_that_was_killed_is_a_dead_worker_though_the_front_process_only_warns_of_it() -> None:
    log = V1_NEW + SERVED
    log += "(APIServer pid=10) WARNING 12-01 03:45:01 [core_client.py:817] [shutdown] MPClient: engine core exited "
    log += "unexpectedly; starting cleanup\n" + STOP[STOP.index("(APIServer pid=10) ERROR") :]
    found = find_cause(VLLM, read(log), Exit(code=0))
    assert (found.slug, found.line) == ("worker_died", (V1_NEW + SERVED).count("\n") + 1)
    assert told(log)["outcome"] == "crash"


def test_a_signal_that_ended_a_worker_is_told() -> None:
    failed = (
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
    )
    found = find_cause(VLLM, read(BOOT + failed + "{'EngineCore': -11}\n"), Exit(code=1))
    assert found.slug == "worker_signal"
    assert "EngineCore" in found.text
    assert "signal 11" in found.text


def test_a_request_that_failed_is_no_crash() -> None:
    failed = (
        "ERROR 11-08 11:01:30 [serving_chat.py:1] ValueError: This model's maximum context length is 4096 tokens.\n"
    )
    failed += "FileNotFoundError: [Errno 2] No such file or directory: '/tmp/image.json'\n"
    assert told(V1 + failed)["cause"] is None
    assert told(V1 + failed)["outcome"] == "ready"


def test_what_was_served_afterwards_shows_that_it_was_got_over() -> None:
    error = "RuntimeError: CUDA error: out of memory\n"
    assert told(V1 + error)["cause"]["slug"] == "cuda_oom"
    assert told(V1 + error + SERVED)["cause"] is None
    tokens = "INFO 08-21 10:20:43 [loggers.py:273] Engine 000: Avg prompt throughput: 9.9 tokens/s, "
    assert told(V1 + error + tokens + "Avg generation throughput: 8.1 tokens/s, Running: 1 reqs\n")["cause"] is None
    assert told(V1 + error + tokens + "Avg generation throughput: 0.0 tokens/s, Running: 1 reqs\n")["cause"] is not None


def test_workers_that_wait_for_one_another_while_serving_hang_but_not_while_they_start() -> None:
    assert told(V1 + WEDGED * 2)["outcome"] == "ready"
    assert told(V1 + WEDGED * 3)["outcome"] == "hang"
    assert told(V1 + WEDGED * 2 + SERVED + WEDGED)["outcome"] == "ready"
    assert told(BOOT + WEDGED * 9)["outcome"] == "loading"
    assert told(WEDGED * 3)["outcome"] == "hang"


def test_a_port_that_was_taken_after_the_load_is_the_cause_though_it_said_that_it_was_ready() -> None:
    bind = "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use\n"
    story = told(V1 + bind + "INFO:     Waiting for application shutdown.\nINFO:     Application shutdown complete.\n")
    assert (story["outcome"], story["cause"]["slug"]) == ("crash", "port_in_use")
    assert "8000" in story["cause"]["text"]


def test_a_second_start_in_the_same_log_is_told_without_the_first() -> None:
    story = told(crash("RuntimeError: CUDA error: out of memory") + V1_NEW)
    assert (story["outcome"], story["cause"]) == ("ready", None)
    first = crash("x").count("\n")
    assert [(s["step"], s["line"] - first) for s in story["steps"]] == STEPS["V1, new"]
    story = told(crash("RuntimeError: CUDA error: out of memory") + crash("OSError: [Errno 24] Too many open files"))
    assert (story["cause"]["slug"], story["cause"]["line"]) == ("too_many_files", first + 14)


def test_what_would_fail_in_the_same_way_is_not_retried_and_memory_of_a_stranger_is_waited_for() -> None:
    taken = find_cause(VLLM, read(crash(CAUSES["gpu_memory_taken"][0])), Exit(code=1))
    assert taken.retry is Retry.WAIT
    assert "7.34" in taken.text
    assert "125.75" in taken.text
    assert find_cause(VLLM, read(crash(CAUSES["bad_flag"][0])), Exit(code=2)).retry is Retry.NO


def bar(rank: int, done: int) -> bytes:
    return (
        f"(Worker_TP{rank} pid={rank + 1}) \rLoading safetensors checkpoint shards: {done:3}% Completed | {done}/100 [00:01]\n"
    ).encode()


def test_the_progress_is_that_of_the_slowest_rank() -> None:
    reader = Reader(VLLM)
    reader.feed(LOADING.encode())
    assert reader.feed(bar(0, 50)).progress == 0.5
    assert reader.feed(bar(1, 20)).progress == 0.2
    assert reader.feed(bar(0, 100)).progress is None
    assert reader.feed(bar(1, 90)).progress == 0.9


def test_a_bar_counts_before_its_line_ends() -> None:
    reader = Reader(VLLM)
    reader.feed(V1_NEW[: V1_NEW.index("(EngineCore pid=20) \rCapturing")].encode())
    news = reader.feed(b"\rCapturing CUDA graphs (decode, FULL):  25%|##5       | 8/32 [00:06<0")
    assert (news.step, news.progress) == (Step.CAPTURING_GRAPHS, 0.25)
    assert reader.feed(b"0:00, 5.02it/s]\rCapturing CUDA graphs (decode, FULL):  50%|#####     | 16/32").progress == 0.5


def test_a_bar_that_is_drawn_anew_is_the_progress_of_now() -> None:
    reader = Reader(VLLM)
    reader.feed(LOADING.encode())
    assert reader.feed(bar(0, 100)).progress == 1.0
    assert reader.feed(bar(0, 10)).progress == 0.1


def test_a_log_of_docker_itself_is_read_too() -> None:
    lines = (
        '{"log":"INFO 05-12 02:45:15 [api_server.py:1] vLLM API server version 0.8.5\\n","stream":"stdout","time":"2025-05-12T02:45:15Z"}\n'
        '{"log":"RuntimeError: Cannot find any model weights with `/m/x`\\n","stream":"stderr","time":"2025-05-12T02:45:16Z"}\n'
    )
    story = told(lines)
    assert story["facts"]["version"] == "0.8.5"
    assert (story["cause"]["slug"], story["cause"]["line"]) == ("missing_weights", 2)
    assert "stream" not in story["cause"]["text"]
