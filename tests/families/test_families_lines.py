"""What other programs put before a line is taken off, and tells who wrote it."""

from __future__ import annotations

import pytest

from agent.families.lines import below_error, parted, rank

LINE = "RuntimeError: x"


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "(EngineCore pid=12) ",
        "(APIServer pid=1) (EngineCore_DP0 pid=68) ",
        "(RayWorkerWrapper pid=45, ip=10.0.0.2) ERROR 03-02 10:00:00 [v1/executor/ray_utils.py:44] ",
        "ERROR 04-24 09:33:04 ray_utils.py:44] ",
        "(VllmWorker rank=1 pid=2) ERROR 08-11 10:45:36 [multiproc_executor.py:511] ",
        "[2025-01-01 00:00:00 DP3 TP7] ",
        "[12-16 14:27:08] ",
        "[12/07/2025-00:20:15] [TRT-LLM] [RANK 2] [E] ",
        "[TensorRT-LLM][ERROR] ",
        "[TM][ERROR] ",
        "E0803 18:43:44.778509 1525575 file.cc:123] ",
        "[rank3]:",
        "[rank3]: ",
        "[rank0]:[E910 12:22:14.798 ProcessGroupNCCL.cpp:1624] ",
        "[1,3]<stderr>:",
        "2024-05-07T12:39:20.293016Z ERROR shard-manager: text_generation_launcher: ",
        "2024-05-07T12:39:20.293016Z ERROR text_generation_router_v3: backends/v3/src/lib.rs:125: ",
        "2025-11-28 15:28:09,929 - lmdeploy - ERROR - turbomind.py:234 - ",
        "2025-11-28 15:28:09,929 - ERROR - autotuner.py:256 - ",
        "llm-1  | 2026-08-21T19:42:37.1Z (Worker_TP0 pid=1) ERROR 08-01 21:09:13 [x.py:1] ",
        "Jan 26 17:48:20 host vllm[12]: (EngineCore pid=1) ERROR 08-01 21:09:13 [x.py:1] ",
        "Mon 2026-01-26 17:48:20 CET host python3[12]: ",
        "Jan 26 17:48:20 ",
        "0|vllm  | ",
    ],
)
def test_a_line_is_the_same_behind_every_prefix(prefix: str) -> None:
    assert parted(prefix + LINE) == (prefix, LINE)


@pytest.mark.parametrize(
    "line", ["INFO: x", "[x] y", "(a) b", "E: 1", "Error 5: x", "2 x", "10:00:00", "WARN: ERROR x: y"]
)
def test_what_only_resembles_a_prefix_stays(line: str) -> None:
    assert parted(line)[1] == line


def test_a_line_of_docker_itself_loses_its_end_too() -> None:
    assert parted('{"log":"a \\"b\\"\\n","stream":"stderr","time":"2026-01-01T00:00:00Z"}')[1] == 'a "b"'


@pytest.mark.parametrize(
    ("prefix", "same", "other"),
    [
        ("(Worker_TP0 pid=1) ", "(Worker_TP0 pid=1) INFO 08-01 21:09:13 [x.py:1] ", "(Worker_TP1 pid=2) "),
        ("(VllmWorker rank=0 pid=1) ", "(VllmWorker rank=0 pid=1) ", "(VllmWorker rank=1 pid=2) "),
        ("[2025-01-01 00:00:00 TP0] ", "[2025-01-01 00:00:09 TP0] ", "[2025-01-01 00:00:00 TP1] "),
        ("[12/07/2025-00:20:15] [TRT-LLM] [RANK 2] [I] ", "[12/07/2025-00:20:16] [TRT-LLM] [RANK 2] [I] ", "[RANK 3] "),
        ("[rank1]: ", "[rank1]:", "[rank2]: "),
        ("llm-1  | 2026-08-21T19:42:37Z ", "", "(Worker_TP0 pid=1) "),
    ],
)
def test_ranks_are_told_apart_and_clocks_are_not_ranks(prefix: str, same: str, other: str) -> None:
    assert rank(prefix) == rank(same)
    assert rank(prefix) != rank(other)


@pytest.mark.parametrize(
    ("prefix", "harmless"),
    [
        ("(EngineCore pid=1) INFO 08-01 21:09:13 [x.py:1] ", True),
        ("WARNING 08-01 21:09:13 x.py:1] ", True),
        ("(EngineCore pid=1) ERROR 08-01 21:09:13 [x.py:1] ", False),
        ("CRITICAL 02-25 11:11:34 launcher.py:101] ", False),
        ("[12/07/2025-00:20:15] [TRT-LLM] [W] ", True),
        ("[12/07/2025-00:20:15] [TRT-LLM] [RANK 2] [E] ", False),
        ("[TensorRT-LLM][WARNING] ", True),
        ("W0803 18:43:44.100000 1 server.cc:249] ", True),
        ("E0803 18:43:44.100000 1 server.cc:249] ", False),
        ("[rank0]:[W910 12:22:14.798 ProcessGroupNCCL.cpp:1624] ", True),
        ("[rank0]:[E910 12:22:14.798 ProcessGroupNCCL.cpp:1624] ", False),
        ("2024-05-07T12:39:20Z  WARN text_generation_launcher: ", True),
        ("2025-11-28 15:28:09,929 - lmdeploy - WARNING - ", True),
        ("[2025-01-01 00:00:00 TP0] ", False),
        ("info-1  | ", False),
        ("", False),
    ],
)
def test_a_line_that_its_writer_takes_for_no_error_is_known(prefix: str, harmless: bool) -> None:
    assert below_error(prefix) is harmless
