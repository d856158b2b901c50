"""Every server that is known is read truly: steps, facts, causes and ends."""

from __future__ import annotations

import pytest

from agent.core.model import Exit, Health
from agent.families import FAMILIES
from agent.families.cause import find_cause
from agent.families.explain import explain
from agent.families.reader import Reader
from tests.families import sglang_logs, vllm_logs
from tests.families.other_builds import PREFIXES
from tests.families.other_servers import CAUSES, HARMLESS, READY, WRAPPED
from tests.families.pytorch_lines import CAUSES as PYTORCH_CAUSES

_STARTS = [(family, *start) for family, starts in READY.items() for start in starts]
_OWN = [(family, slug, line) for family, slugs in CAUSES.items() for slug, lines in slugs.items() for line in lines]
_SHARED = [
    (family, slug, line)
    for family in ("tgi", "transformers", "tensorrt_llm", "lmdeploy", "triton")
    for slug, lines in PYTORCH_CAUSES.items()
    for line in lines
]
_ALL_READY = [
    *((family, log) for family, log, _, _ in _STARTS),
    *(("vllm", log) for log in vllm_logs.READY.values()),
    *(("sglang", log) for log in sglang_logs.READY.values()),
]


def told(log: str) -> dict:  # type: ignore[type-arg] - a JSON document
    return explain(log.encode())


@pytest.mark.parametrize(("family", "log", "steps", "facts"), _STARTS)
def test_a_start_is_told_with_its_steps_and_facts(
    family: str, log: str, steps: object, facts: dict[str, object]
) -> None:
    story = told(log)
    assert (story["family"], story["outcome"], story["cause"]) == (family, "ready", None)
    assert [(step["step"], step["line"]) for step in story["steps"]] == steps
    assert {name: story["facts"].get(name) for name in facts} == facts


@pytest.mark.parametrize(("family", "slug", "line"), _OWN)
def test_what_only_it_says_is_known(family: str, slug: str, line: str) -> None:
    log = WRAPPED[family]
    story = told(log.replace("THE LINE", line))
    assert (story["family"], story["outcome"], story["cause"]["slug"]) == (family, "crash", slug)
    assert story["cause"]["line"] == log[: log.index("THE LINE")].count("\n") + 1


@pytest.mark.parametrize(("family", "slug", "line"), _SHARED)
def test_what_every_server_on_pytorch_says_is_known(family: str, slug: str, line: str) -> None:
    log = WRAPPED[family]
    story = explain(log.replace("THE LINE", line).encode(), FAMILIES[family])
    assert (story["outcome"], story["cause"]["slug"]) == ("crash", slug)
    assert story["cause"]["line"] == log[: log.index("THE LINE")].count("\n") + 1


@pytest.mark.parametrize(("family", "line"), [(family, line) for family, lines in HARMLESS.items() for line in lines])
def test_what_only_sounds_bad_is_no_cause(family: str, line: str) -> None:
    for log, *_ in READY[family]:
        assert told(log + line + "\n")["cause"] is None
        assert told(log.replace("\n", f"\n{line}\n", 1))["cause"] is None


@pytest.mark.parametrize(("family", "log"), _ALL_READY)
def test_no_beginning_of_a_good_start_has_a_cause(family: str, log: str) -> None:
    lines = log.splitlines(keepends=True)
    for count in range(len(lines) + 1):
        story = explain("".join(lines[:count]).encode(), FAMILIES[family])
        assert story["cause"] is None
        assert story["outcome"] in {"loading", "ready"}


@pytest.mark.parametrize(("family", "log"), _ALL_READY)
def test_a_good_start_has_no_cause_even_if_its_family_is_not_known(family: str, log: str) -> None:
    assert explain(log.encode(), FAMILIES["plain"])["cause"] is None


@pytest.mark.parametrize(("family", "log"), _ALL_READY)
def test_a_log_with_windows_line_ends_is_the_same(family: str, log: str) -> None:
    story, bare = told(log.replace("\n", "\r\n")), told(log)
    assert story == bare


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize(("family", "log"), [*_ALL_READY, *WRAPPED.items()])
def test_foreign_prefixes_change_nothing(prefix: str, family: str, log: str) -> None:
    log = log.replace("THE LINE", "RuntimeError: CUDA error: out of memory")
    bare, story = told(log), told("\n".join(prefix + line for line in log.split("\n")))
    assert (story["family"], story["outcome"], story["cause"]) == (family, bare["outcome"], bare["cause"])
    assert [(s["step"], s["line"]) for s in story["steps"]] == [(s["step"], s["line"]) for s in bare["steps"]]
    assert story["facts"] == bare["facts"]


@pytest.mark.parametrize(
    ("family", "stop"),
    [
        ("tgi", "2024-02-14T07:00:00Z  INFO text_generation_launcher: Terminating webserver\nError: WebserverFailed\n"),
        ("transformers", "INFO:     Shutting down\nINFO:     Application shutdown complete.\n"),
        ("tensorrt_llm", "INFO:     Shutting down\nINFO:     Finished server process [145]\n"),
        ("lmdeploy", "INFO:     Shutting down\nINFO:     Finished server process [2439]\n"),
        ("triton", "Signal (15) received.\nI0803 19:00:00.0 1 server.cc:331] Timeout 30: Found 1 live models\n"),
    ],
)
def test_a_stop_is_a_stop(family: str, stop: str) -> None:
    story = told(READY[family][0][0] + stop)
    assert (story["outcome"], story["cause"]) == ("stopped", None)


def test_a_runner_of_ollama_that_died_is_got_over_with_the_next_model() -> None:
    up, loaded = READY["ollama"][0][0], READY["ollama"][1][0].removeprefix(READY["ollama"][0][0])
    died = WRAPPED["ollama"].replace("THE LINE", "CUDA error: out of memory").removeprefix(up)
    assert told(up + died)["cause"]["slug"] == "cuda_oom"
    assert (told(up + died + loaded)["outcome"], told(up + died + loaded)["cause"]) == ("ready", None)


def test_a_kernel_that_killed_a_child_for_memory_is_told_by_its_name() -> None:
    log = "Aug 01 18:01:30 host kernel: x invoked oom-killer: gfp_mask=0x1\n"
    log += "Aug 01 18:01:30 host kernel: Out of memory: Killed process 21394 (cicc) total-vm:1kB, anon-rss:1kB\n"
    story = told(log)
    assert (story["outcome"], story["cause"]["slug"], story["cause"]["line"]) == ("crash", "host_oom", 2)
    assert "21394 (cicc)" in story["cause"]["text"]


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_every_family_tells_what_a_launcher_must_know(family) -> None:  # type: ignore[no-untyped-def]
    assert family.answers[200] is Health.OK
    assert family.health_path.startswith("/")
    assert family.terms_s
    assert family.probe_timeout_s > 0
    assert {0, -15} <= family.clean_exits
    assert family.name == "plain" or family.default_port
    assert family.name == "plain" or family.signature is not None
    assert set(family.outcomes) <= {"ready", "stopped", "crash", "hang", "boot"}


def test_a_server_that_exits_with_zero_after_its_engine_died_has_a_cause() -> None:
    vllm = FAMILIES["vllm"]
    reader = Reader(vllm)
    reader.feed((vllm_logs.V1 + vllm_logs.DEAD % "KeyError: 'x'").encode())
    assert find_cause(vllm, reader, Exit(code=0)).text == "KeyError: 'x'"
