"""`gpus`: who holds the memory, as a person reads it."""

from __future__ import annotations

import json

import click

from tests.cli.conftest import Call
from tests.cli.fake_agent import FakeAgent, gpu, gpus, holder
from tests.cli.test_cli_reading import NASTY


def test_each_gpu_is_a_line_and_its_holders_are_below_it_largest_first(call: Call, fake: FakeAgent) -> None:
    small = holder(7, mib=512, kind="stray", owner="/user.slice", name="python3", user="ann", protected="it is X")
    fake.gpus = gpus(gpu(holders=[small, holder()], used_mib=63_181, free_mib=79_975), gpu(1))
    lines = call("gpus").stdout.splitlines()
    assert lines[0] == "GPU 0  NVIDIA H200  61.7 GiB used, 78.1 GiB free  7 % busy  41 C  112 W  GPU-0"
    assert lines[1].startswith("     61.2 GiB  unit vllm.service  pid 4123  VLLM::Worker  vllm  for ")
    assert lines[2].startswith("      0.5 GiB  stray /user.slice  pid 7  python3  ann  for ")
    assert lines[2].endswith("  (never signalled: it is X)")
    assert lines[3].startswith("GPU 1  ")
    assert len(lines) == 4


def test_what_is_wrong_comes_with_its_remedy(call: Call, fake: FakeAgent) -> None:
    fake.gpus = gpus(state="no_driver", why="the driver is not loaded", remedy="load it")
    assert call("gpus").stdout.splitlines() == ["GPUs: no driver: the driver is not loaded", "  remedy: load it"]
    lost = gpu(state="gpu_lost", why="lost", remedy="reset it", holders=None, used_mib=None, free_mib=None, watts=None)
    fake.gpus = gpus(lost | {"faults": [{"field": "power", "code": 15, "text": "GPU is lost"}]})
    assert call("gpus").stdout.splitlines() == [
        "GPU 0  NVIDIA H200  memory not known  7 % busy  41 C  GPU-0",
        "  GPU 0: gpu lost: lost",
        "  remedy: reset it",
        "    who holds its memory is not known",
        "    not known: power: GPU is lost",
    ]


def test_what_nobody_has_read_yet_is_no_fault(call: Call, fake: FakeAgent) -> None:
    fake.gpus = gpus(state="not_read")
    result = call("gpus")
    assert (result.exit_code, result.stdout) == (0, "the GPUs have not been read yet: ask again in a moment\n")


def test_as_json_it_is_the_agents_document(call: Call, fake: FakeAgent) -> None:
    fake.gpus = gpus(gpu(holders=[holder()]))
    assert json.loads(call("gpus", "--json").stdout) == fake.gpus


def test_nothing_that_a_process_calls_itself_is_obeyed_by_the_terminal(call: Call, fake: FakeAgent) -> None:
    fake.gpus = gpus(gpu(holders=[holder(name=NASTY, owner=NASTY)], name=NASTY))
    shown = call("gpus", color=True).stdout
    assert click.unstyle(shown) == "".join(c for c in click.unstyle(shown) if c == "\n" or c.isprintable())
