"""`gpuagent explain` says what a log tells, and says so when it does not tell why."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Call
from tests.families.vllm_logs import V1_NEW, WEDGED, crash

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total capacity of 93.09 GiB "
)
OOM += "of which 739.81 MiB is free."


def test_it_tells_family_outcome_steps_facts_and_cause_with_its_figures(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    file.write_text(crash(OOM))
    result = call("explain", str(file))
    assert f"{file}: vllm, crash" in result.stdout
    assert "loading-weights   line 9" in result.stdout
    assert "checkpoint_gib: 92.5" in result.stdout
    assert "cuda_oom (line 14)" in result.stdout
    assert "896.00 MiB were asked for, 739.81 MiB of 93.09 GiB were free on GPU 0" in result.stdout
    assert "remedy:" in result.stdout


def test_several_files_and_the_standard_input_are_told_in_one_go(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    file.write_text(V1_NEW)
    result = call("explain", "--json", str(file), "-", input=crash(OOM).encode())
    told = json.loads(result.stdout)
    assert [(each["file"], each["outcome"]) for each in told] == [(str(file), "ready"), ("-", "crash")]
    assert set(told[1]["cause"]) == {"slug", "line", "text", "remedy"}


def test_it_says_so_when_the_log_does_not_tell_why(call: Call) -> None:
    result = call("explain", "-", input=(WEDGED * 3).encode())
    assert "-: vllm, hang" in result.stdout
    assert "wait for one another" in result.stdout
    result = call("explain", "-", "--family", "sglang", input=b"[2026-01-01 00:00:00] Received sigquit from a child\n")
    assert "-: sglang, crash" in result.stdout
    assert "does not tell why" in result.stdout
