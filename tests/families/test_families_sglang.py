"""SGLang's logs are read truly: its steps, facts, causes, ranks and ends."""

# ruff: noqa: E501 - lines of logs are as long as they are

from __future__ import annotations

import pytest

from agent.core.model import Exit, Health, Step
from agent.families import FAMILIES
from agent.families.cause import find_cause
from agent.families.explain import explain
from agent.families.reader import Reader
from tests.families.other_builds import PREFIXES
from tests.families.pytorch_lines import CAUSES, HARMLESS
from tests.families.sglang_logs import BOOT, DEAD, FACTS, NEW, OLD, READY, STEPS, STOP, crash

SGLANG = FAMILIES["sglang"]


def told(log: str) -> dict:  # type: ignore[type-arg] - a JSON document
    return explain(log.encode())


@pytest.mark.parametrize("age", READY)
def test_a_start_is_told_step_by_step(age: str) -> None:
    story = told(READY[age])
    assert (story["family"], story["outcome"], story["cause"]) == ("sglang", "ready", None)
    assert [(step["step"], step["line"]) for step in story["steps"]] == STEPS[age]


@pytest.mark.parametrize("age", READY)
def test_its_facts_are_found(age: str) -> None:
    facts = told(READY[age])["facts"]
    assert {name: facts.get(name) for name in FACTS[age]} == FACTS[age]


@pytest.mark.parametrize("age", READY)
def test_no_beginning_of_a_good_start_has_a_cause_and_only_its_end_is_ready(age: str) -> None:
    lines = READY[age].splitlines(keepends=True)
    for count in range(len(lines)):
        story = told("".join(lines[:count]))
        assert (story["outcome"], story["cause"]) == ("loading", None)


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize("log", [*READY.values(), crash("RuntimeError: CUDA error: out of memory")])
def test_foreign_prefixes_change_nothing(prefix: str, log: str) -> None:
    bare = told(log)
    story = told("\n".join(prefix + line for line in log.split("\n")))
    assert (story["outcome"], story["facts"], story["cause"]) == (bare["outcome"], bare["facts"], bare["cause"])
    assert [(s["step"], s["line"]) for s in story["steps"]] == [(s["step"], s["line"]) for s in bare["steps"]]


@pytest.mark.parametrize(("slug", "line"), [(slug, line) for slug, lines in CAUSES.items() for line in lines])
def test_a_rank_that_dies_names_its_cause(slug: str, line: str) -> None:
    story = told(crash(line))
    assert (story["outcome"], story["cause"]["slug"], story["cause"]["line"]) == ("crash", slug, 12)


@pytest.mark.parametrize("line", HARMLESS)
def test_what_only_sounds_bad_is_no_cause(line: str) -> None:
    assert told(BOOT + line + "\n")["cause"] is None
    assert told(NEW + line + "\n")["cause"] is None


@pytest.mark.parametrize(
    ("lines", "slug", "at"),
    [
        ("[2025-06-22 16:13:55 TP0] Watchdog timeout (self.watchdog_timeout=300)\n", "watchdog", 1),
        (
            "[2026-06-22 16:13:55 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n",
            "watchdog",
            1,
        ),
        (
            "[2024-12-13 01:47:34] Initialization failed. warmup error: Traceback (most recent call last):\n",
            "warmup_failed",
            1,
        ),
        (
            "[12-16 14:27:08] Rank 0 scheduler is dead. Please check the logs.\n[12-16 14:27:10] Exit code: -9\n",
            "worker_signal",
            2,
        ),
        (
            "RuntimeError: Rank 0 scheduler died during initialization (exit code: -3). If exit code is -9, x\n",
            "worker_signal",
            1,
        ),
        ("RuntimeError: Rank 2 scheduler died during initialization (exit code: 1). x\n", "worker_died", 1),
        (
            "[2026-12-01 03:52:06] Subprocess scheduler_0 (pid=21) crashed with exit code -9. Triggering SIGQUIT for cleanup...\n",
            "worker_signal",
            1,
        ),
        ("[2025-06-22 16:13:55] Port 30000 is not available.\n", "port_in_use", 1),
    ],
)
def test_its_own_words_are_known(lines: str, slug: str, at: int) -> None:
    story = told(BOOT + lines + "Killed\n")
    assert (story["outcome"], story["cause"]["slug"]) == ("crash", slug)
    assert story["cause"]["line"] == BOOT.count("\n") + at


def test_a_warm_up_that_a_proxy_caught_is_not_a_hub_that_cannot_be_reached() -> None:
    log = OLD[: OLD.index("[2024-12-13 01:45:04] The")] + (
        "[2024-12-13 01:47:34] Initialization failed. warmup error: Traceback (most recent call last):\n"
        "requests.exceptions.ConnectionError: HTTPConnectionPool(host='127.0.0.1', port=30000): Max retries exceeded\n"
        "\nKilled\n"
    )
    assert told(log)["cause"]["slug"] == "warmup_failed"


def test_a_rank_whose_peer_died_first_is_not_the_cause() -> None:
    victim = (
        "Exception: Capture cuda graph failed: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [::1]:1"
    )
    assert told(crash(victim))["cause"]["slug"] == "cuda_graph_capture"
    oom = "[2026-08-01 23:38:00 TP0] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.\n"
    assert told(crash(victim) + oom)["cause"]["slug"] == "cuda_oom"


def test_a_death_while_serving_has_its_cause_before_the_exception() -> None:
    assertion = CAUSES["illegal_memory"][1]
    story = told(NEW + DEAD % assertion)
    assert (story["outcome"], story["cause"]["slug"]) == ("crash", "illegal_memory")
    assert story["cause"]["line"] == NEW.count("\n") + 2


def test_an_exception_that_no_rule_knows_is_quoted_and_a_bare_death_is_a_dead_worker() -> None:
    story = told(crash("KeyError: 'model.layers.0'"))
    assert (story["cause"]["slug"], story["cause"]["line"]) == ("unknown", 12)
    cut = crash("x")[: crash("x").index("  File")]
    assert (told(cut)["outcome"], told(cut)["cause"]["slug"]) == ("crash", "worker_died")


def test_a_drain_is_a_stop_though_it_ends_with_killed() -> None:
    assert (told(NEW + STOP)["outcome"], told(NEW + STOP)["cause"]) == ("stopped", None)


def test_a_bar_that_the_end_of_the_process_cut_off_is_a_crash_without_a_cause() -> None:
    log = BOOT + (
        "\rMulti-thread loading shards:  96% Completed | 47/49 [09:32<00:14,  7.50s/it]/v/multiprocessing/resource_tracker.py:"
        "279: UserWarning: resource_tracker: There appear to be 1 leaked semaphore objects to clean up at shutdown\n"
        "  warnings.warn('resource_tracker: There appear to be %d '\n"
    )
    assert (told(log)["outcome"], told(log)["cause"]) == ("crash", None)


def test_a_silent_kill_may_have_been_its_own() -> None:
    reader = Reader(SGLANG)
    reader.feed(BOOT.encode())
    found = find_cause(SGLANG, reader, Exit(signal=9, oom=False))
    assert found.slug == "external_kill"
    assert "by itself" in found.text


def test_the_first_step_of_a_slow_capture_shows_its_progress() -> None:
    reader = Reader(SGLANG)
    reader.feed(NEW[: NEW.index("\r  0%|")].encode())
    news = reader.feed(
        b"\r  0%|          | 0/58 [00:00<?, ?it/s]\rCapturing num tokens (num_tokens=8192 avail_mem=1 GB):   0%| "
    )
    assert (reader.steps[-1].step, news.progress) == (Step.CAPTURING_GRAPHS, 0.0)
    assert reader.feed(b"\rCapturing num tokens (num_tokens=8 avail_mem=1 GB):  50%|").progress == 0.5


def test_its_health_is_asked_rarely_and_its_refusal_is_loading() -> None:
    assert SGLANG.probe_s >= 15
    assert SGLANG.probe_timeout_s > 20
    assert SGLANG.answers[503] is Health.LOADING
