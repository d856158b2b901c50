"""Scores the reading of logs against what is known of them: `make read-samples DIR=...`.

DIR holds logs and an INDEX.tsv with the columns file, server, version, outcome, stages_in_order, root_cause,
root_cause_line, notes. `stages_in_order` is "mark@line>mark@line>..." (see MARKS), `root_cause` a slug or "-". Outcome,
slug, line of the cause and order of the steps must be right. A step that was seen to begin in another line than the
mark is only told: a bar, say, shows it before the line that the mark stands for.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from agent.core.model import Step
from agent.families.explain import explain

MARKS = {
    "boot": Step.LAUNCHED,
    "config": Step.LAUNCHED,
    "engine_init": Step.INITIALIZING,
    "download": Step.DOWNLOADING,
    "download_done": Step.DOWNLOADING,
    "weights_local": Step.LOADING_WEIGHTS,
    "load_weights": Step.LOADING_WEIGHTS,
    "weights_done": Step.LOADING_WEIGHTS,
    "compile": Step.COMPILING,
    "profile": Step.PROFILING,
    "kv_cache": Step.ALLOCATING_KV,
    "autotune": Step.TUNING,
    "graph_capture": Step.CAPTURING_GRAPHS,
    "graph_done": Step.CAPTURING_GRAPHS,
    "engine_done": Step.WARMING_UP,
    "warmup": Step.WARMING_UP,
    "http_listening_early": Step.LISTENING,
    "http_start": Step.LISTENING,
    "app_startup_complete": Step.LISTENING,
    "uvicorn_running": Step.LISTENING,
}
"""The others (ready, drain, shutdown) belong to no step."""


def expected_steps(stages: str) -> dict[str, int]:
    """The steps of a sample and the line of the first mark of each."""
    steps: dict[str, int] = {}
    for stage in stages.split(">"):
        mark, _, line = stage.partition("@")
        if mark in MARKS:
            steps.setdefault(str(MARKS[mark]), int(line))
    return steps


def differences(row: dict[str, str], log: bytes) -> tuple[list[str], list[str]]:
    """What is wrong in the reading of one sample, and what is only worth telling."""
    told = explain(log)
    cause = told["cause"] or {"slug": "-", "line": 0}
    compared = [
        ("outcome", told["outcome"], row["outcome"]),
        ("cause", cause["slug"], row["root_cause"]),
        ("line of the cause", str(cause["line"]), row["root_cause_line"]),
    ]
    wrong = [f"{what}: {got}, not {expected}" for what, got, expected in compared if got != expected]
    steps, expected = {step["step"]: step["line"] for step in told["steps"]}, expected_steps(row["stages_in_order"])
    if list(steps) != list(expected):
        wrong.append(f"steps: {', '.join(steps) or '-'}, not {', '.join(expected) or '-'}")
    if wrong:
        return wrong, []
    return wrong, [f"{step}: line {steps[step]}, not {line}" for step, line in expected.items() if steps[step] != line]


def main(folder: Path) -> int:
    """Prints what is not right; 0 if all is."""
    with (folder / "INDEX.tsv").open(newline="") as index:
        rows = list(csv.DictReader(index, delimiter="\t"))
    right = 0
    for row in rows:
        wrong, moved = differences(row, (folder / row["file"]).read_bytes())
        right += not wrong
        for line in wrong:
            print(f"{row['file']}: {line}")
        for line in moved:
            print(f"{row['file']}: (right, but) {line}")
    print(f"{right} of {len(rows)} samples are read as they should be")
    return 0 if right == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
