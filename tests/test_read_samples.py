"""A folder of samples is scored: `make read-samples`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.families.read_samples import expected_steps, main
from tests.families.vllm_logs import V0, crash

HEAD = "file\tserver\tversion\toutcome\tstages_in_order\troot_cause\troot_cause_line\tnotes\n"
STAGES = "boot@1>engine_init@3>load_weights@4>weights_done@9>"
STAGES += "kv_cache@10>graph_capture@11>graph_done@12>http_start@13>ready@15"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.log").write_text(V0)
    (tmp_path / "bad.log").write_text(crash("RuntimeError: CUDA error: out of memory"))
    return tmp_path


def test_what_is_read_as_it_should_be_is_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = "boot@2>engine_init@7>load_weights@9>download_done@10"
    index = f"good.log\tvllm\t0.6\tready\t{STAGES}\t-\t0\t\nbad.log\tvllm\t0.25\tcrash\t{bad}\tcuda_oom\t14\t\n"
    (folder / "INDEX.tsv").write_text(HEAD + index)
    assert main(folder) == 0
    assert capsys.readouterr().out == "2 of 2 samples are read as they should be\n"


def test_what_is_not_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = f"good.log\tvllm\t0.6\tloading\t{STAGES}>compile@99\t-\t0\t\nbad.log\tvllm\t0.25\tcrash\t-\tnccl\t3\t\n"
    (folder / "INDEX.tsv").write_text(HEAD + index)
    assert main(folder) == 1
    out = capsys.readouterr().out
    assert "good.log: outcome: ready, not loading" in out
    assert "bad.log: cause: cuda_oom, not nccl" in out
    assert "bad.log: line of the cause: 14, not 3" in out
    assert "0 of 2" in out


def test_a_step_is_expected_where_its_first_mark_stands() -> None:
    assert expected_steps("boot@3>config@7>ready@9>drain@11") == {"launched": 3}
    assert expected_steps("-") == {}
