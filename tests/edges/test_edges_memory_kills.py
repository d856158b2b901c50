"""Whether the kernel kills for memory: its own files, written by hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.edges import memory_kills
from agent.edges.memory_kills import MemoryKills

PID = 4711


class Host:
    """A /proc and a control group file system."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.groups = folder / "proc", folder / "cgroup"
        self.belongs("self", "/agent.slice/agent.service")
        self.belongs(str(PID), "/run.slice/server.scope")
        self.killed(host=3)

    def belongs(self, process: str, group: str) -> None:
        (self.proc / process).mkdir(parents=True, exist_ok=True)
        (self.proc / process / "cgroup").write_text(f"4:memory:/elsewhere\n0::{group}\n")

    def killed(self, host: int, in_group: int | None = None, group: str = "run.slice/server.scope") -> None:
        """So often by now."""
        (self.proc / "vmstat").write_text(f"pgfault 12\noom_kill {host}\nnuma_hit 9\n")
        if in_group is not None:
            (self.groups / group).mkdir(parents=True, exist_ok=True)
            (self.groups / group / "memory.events").write_text(f"oom 7\noom_kill {in_group}\noom_group_kill 0\n")

    def count(self) -> MemoryKills:
        return memory_kills.count(PID, self.proc, self.groups)

    def since(self, before: MemoryKills) -> bool | None:
        return memory_kills.killed_since(before, self.proc, self.groups)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_where_nothing_was_killed_it_was_not_for_memory(host: Host) -> None:
    assert host.since(host.count()) is False


def test_a_kill_somewhere_on_the_host_may_have_been_of_another_process(host: Host) -> None:
    before = host.count()
    host.killed(host=4)
    assert host.since(before) is None


def test_a_kill_in_the_servers_own_control_group_was_of_it(host: Host) -> None:
    host.killed(host=3, in_group=1)
    before = host.count()
    host.killed(host=4, in_group=2)
    assert host.since(before) is True


def test_a_kill_elsewhere_on_the_host_is_not_told_of_its_group(host: Host) -> None:
    host.killed(host=3, in_group=1)
    before = host.count()
    host.killed(host=4, in_group=1)
    assert host.since(before) is None


@pytest.mark.parametrize("group", ["/agent.slice/agent.service", "/agent.slice", "/", "/../other.slice"])
def test_a_group_in_which_others_are_killed_too_proves_nothing(host: Host, group: str) -> None:
    host.belongs(str(PID), group)
    host.killed(host=3, in_group=1, group=group.strip("/") or ".")
    before = host.count()
    host.killed(host=4, in_group=2, group=group.strip("/") or ".")
    assert (before.group, host.since(before)) == (None, None)


def test_a_group_whose_name_begins_like_the_agents_is_another(host: Host) -> None:
    host.belongs(str(PID), "/agent.slice/agent.serv")
    host.killed(host=3, in_group=1, group="agent.slice/agent.serv")
    before = host.count()
    host.killed(host=4, in_group=2, group="agent.slice/agent.serv")
    assert host.since(before) is True


def test_a_group_that_is_gone_tells_nothing(host: Host) -> None:
    host.killed(host=3, in_group=1)
    before = host.count()
    (host.groups / "run.slice/server.scope/memory.events").unlink()
    assert host.since(before) is False
    host.killed(host=4)
    assert host.since(before) is None


def test_a_kernel_that_tells_nothing_leaves_it_unknown(host: Host) -> None:
    (host.proc / "vmstat").unlink()
    (host.proc / str(PID) / "cgroup").write_text("4:memory:/elsewhere\n")
    before = host.count()
    assert before == MemoryKills(None, None, None)
    assert host.since(before) is None


def test_this_kernel_is_understood() -> None:
    with open("/proc/vmstat") as file:
        if "oom_kill " not in file.read():
            pytest.skip("this kernel does not count")
    now = memory_kills.count(os.getpid())
    assert now.host is not None
    assert now.group is None, "our own group is never the server's"
