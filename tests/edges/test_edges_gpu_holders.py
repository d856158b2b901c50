"""Whose the processes on the GPUs are, on real processes and, as far as this host has them, real control groups."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from agent.core.gpu_seen import GpuDevice, GpuReading, GpuState, GpuUse, HolderKind, ProcessOwner, as_seen_by
from agent.core.model import Process
from agent.edges import processes
from agent.edges.gpu_groups import group_of, path_of
from agent.edges.gpu_holders import KEPT, GpuHolders
from agent.protected_process import why_protected

ID = "3f2a9c" + "0" * 58
POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice"
GROUPS = [
    ("/system.slice/system-gpuagent\\x2dserver.slice/gpuagent-server@demo.service", "ours", "demo"),
    ("/gpuagent.slice/gpuagent-server@demo.service/workers", "ours", "demo"),
    ("/system.slice/vllm.service", "unit", "vllm.service"),
    ("/system.slice/system-vllm.slice/vllm@3.service/inner/x.service", "unit", "vllm@3.service"),
    ("/system.slice/run-u12.scope", "unit", "run-u12.scope"),
    ("/system.slice/slurmstepd.scope/job_5/step_0", "unit", "slurmstepd.scope"),
    (
        "/user.slice/user-1000.slice/user@1000.service/app.slice/ollama.service",
        "user_unit",
        "ollama.service of user 1000",
    ),
    ("/user.slice/user-1000.slice/user@1000.service/app.slice/app-x.scope", "stray", None),
    ("/user.slice/user-1000.slice/session-3.scope", "stray", None),
    ("/init.scope", "stray", None),
    ("/", "stray", None),
    (f"/system.slice/docker-{ID}.scope", "container", "docker 3f2a9c000000"),
    (f"/docker/{ID}", "container", "docker 3f2a9c000000"),
    (f"/docker/{ID}/docker/{'1' * 64}", "container", "docker 3f2a9c000000"),
    (f"/custom/{ID}", "container", "container 3f2a9c000000"),
    (f"/machine.slice/libpod-{ID}.scope/container", "container", "podman 3f2a9c000000"),
    (f"/libpod_parent/libpod-{ID}", "container", "podman 3f2a9c000000"),
    (f"/user.slice/user-7.slice/user@7.service/user.slice/libpod-{ID}.scope", "container", "podman 3f2a9c000000"),
    (f"/system.slice/llm.service/libpod-payload-{ID}", "unit", "llm.service"),
    (f"{POD}/cri-containerd-{ID}.scope", "container", "kubernetes 3f2a9c000000"),
    (f"{POD}/crio-{ID}.scope", "container", "kubernetes 3f2a9c000000"),
    (f"/kubepods/besteffort/pod1/{ID}", "container", "kubernetes 3f2a9c000000"),
    (
        f"/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:{ID}",
        "container",
        "kubernetes 3f2a9c000000",
    ),
    (f"/system.slice/nerdctl-{ID}.scope", "container", "containerd 3f2a9c000000"),
    ("/default/llm", "container", "containerd llm"),
    ("/lxc.payload.web/system.slice/x.service", "container", "lxc web"),
    ("/lxc/web", "container", "lxc web"),
    ("/machine.slice/machine-debian.scope/payload", "container", "machine debian"),
    ("/machine.slice/systemd-nspawn@debian.service/payload/system.slice/x.service", "container", "machine debian"),
    ("/system.slice/docker.service", "unit", "docker.service"),
]


@pytest.mark.parametrize(("path", "kind", "owner"), GROUPS, ids=[path for path, *_ in GROUPS])
def test_a_control_group_tells_whose_a_process_is(path: str, kind: str, owner: str | None) -> None:
    found = group_of(path)
    assert (found.kind, found.owner) == (kind, path if owner is None else owner)
    assert (found.engine == "") == (kind != "container")


def test_the_group_is_that_of_version_2_or_the_one_that_systemd_or_an_engine_keeps() -> None:
    assert path_of("0::/system.slice/a.service\n") == "/system.slice/a.service"
    assert path_of("5:devices:/docker/x\n1:name=systemd:/system.slice/a.service\n0::/\n") == "/system.slice/a.service"
    assert path_of("5:devices:/docker/x\n1:name=systemd:/\n0::/\n") == "/docker/x"
    assert path_of("0::/a:b\n") == "/a:b"
    assert path_of("") == path_of("0::/\n") == path_of("nonsense") == "/"


@pytest.fixture
def holders() -> Iterator[GpuHolders]:
    one = GpuHolders()
    yield one
    one.close()


@contextmanager
def process(program: str = "", *before: str) -> Iterator[Popen[bytes]]:
    """One that has run `program`, and waits."""
    command = [*before, sys.executable, "-c", f"{program}\nprint('up', flush=True)\ninput()"]
    with Popen(command, stdin=PIPE, stdout=PIPE) as one:
        assert one.stdout is not None
        assert b"up" in one.stdout.readline()
        try:
            yield one
        finally:
            one.kill()


def reading(*pids: int, began: float | None = None) -> GpuReading:
    uses = tuple(GpuUse(pid, 1000) for pid in pids)
    gpu = GpuDevice(index=0, uuid="GPU-0", uses=uses)
    return GpuReading(began=time.monotonic() if began is None else began, state=GpuState.OK, devices=(gpu,))


def owner(holders: GpuHolders, pid: int, began: float | None = None) -> ProcessOwner:
    (found,) = holders.resolve(reading(pid, began=began)).owners
    return found


def test_a_process_is_told_with_its_start_its_user_and_its_name(holders: GpuHolders) -> None:
    began = time.time()
    with process() as one:
        found = owner(holders, one.pid)
        now = processes.stat(one.pid)
        assert now is not None
        assert (found.pid, found.started, found.uid, found.name) == (one.pid, now.started, os.getuid(), now.comm)
        assert found.user in ("root", found.user)
        assert found.since is not None
        assert began - 60 < found.since < time.time() + 60
        assert found.kind is group_of(path_of(Path(f"/proc/{one.pid}/cgroup").read_text())).kind
        assert (found.gone, found.protected) == (False, "")
        assert owner(holders, one.pid) == found


def test_a_number_that_is_nobodys_is_a_ghost(holders: GpuHolders) -> None:
    with process() as one:
        pid = one.pid
        assert owner(holders, pid).kind is not HolderKind.GHOST
    found = owner(holders, pid)
    assert (found.kind, found.started) == (HolderKind.GHOST, None)
    assert found.protected


def test_a_number_that_went_to_another_process_after_the_reading_is_a_ghost(holders: GpuHolders) -> None:
    with process() as one:
        assert owner(holders, one.pid, began=time.monotonic() - 3600).kind is HolderKind.GHOST
        assert owner(holders, one.pid).kind is not HolderKind.GHOST


def test_a_process_of_another_pid_namespace_is_a_ghost_there(holders: GpuHolders) -> None:
    alone = ("unshare", "--pid", "--fork", "--mount-proc")
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("this user may not unshare")
    program = (
        "import json, sys, time\n"
        "from agent.core.gpu_seen import GpuDevice, GpuReading, GpuState, GpuUse\n"
        "from agent.edges.gpu_holders import GpuHolders\n"
        "gpu = GpuDevice(index=0, uuid='', uses=(GpuUse(int(sys.argv[1]), 1),))\n"
        "said = GpuReading(began=time.monotonic(), state=GpuState.OK, devices=(gpu,))\n"
        "print(json.dumps([one.kind for one in GpuHolders().resolve(said).owners]))"
    )
    with process() as one:
        done = subprocess.run([*alone, sys.executable, "-c", program, str(one.pid)], capture_output=True, text=True)
        assert json.loads(done.stdout) == ["ghost"], done.stderr


def test_a_zombie_is_told_as_one_that_nobody_can_end(holders: GpuHolders) -> None:
    with process() as one:
        os.kill(one.pid, 9)
        os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
        found = owner(holders, one.pid)
        assert (found.gone, "dead" in found.protected) == (True, True)


NAMES = ["nvidia-persiste", "nvidia-cuda-mps", "Xorg", "gnome-shell", "nv-hostengine"]


@pytest.mark.parametrize("name", NAMES)
def test_what_the_gpus_and_the_screens_need_is_protected_by_its_name(holders: GpuHolders, name: str) -> None:
    rename = f"open('/proc/self/comm', 'w').write({name!r})"
    with process(rename) as one:
        found = owner(holders, one.pid)
        assert (found.name, bool(found.protected)) == (name, True)


def test_no_name_of_a_server_is_protected() -> None:
    for name in ("VLLM::EngineCor", "python3", "sglang::router", "llama-server", "ollama", "ray::RayWorkerW"):
        assert why_protected(name) == ""
    assert why_protected("nvidia-cuda-mps-server") == why_protected("nvidia-cuda-mps")


def test_the_agent_its_ancestors_and_the_first_process_are_protected(holders: GpuHolders) -> None:
    for pid in {1, os.getpid(), os.getppid()}:
        assert owner(holders, pid).protected


def test_a_server_without_a_control_group_is_told_by_its_processes(holders: GpuHolders) -> None:
    with process() as one:
        now = processes.stat(one.pid)
        assert now is not None
        said = reading(one.pid)
        (found,) = holders.resolve(said, {now.process: "demo"}).owners
        assert (found.kind, found.owner) == (HolderKind.OURS, "demo")
        assert as_seen_by("demo", found) is HolderKind.OURS
        assert as_seen_by("other", found) is HolderKind.SIBLING
        (earlier,) = holders.resolve(said, {Process(one.pid, now.started - 1): "demo"}).owners
        assert earlier.kind is not HolderKind.OURS


@pytest.mark.parametrize(
    ("group", "kind"),
    [(f"docker-{ID}.scope", "container"), ("vllm.service", "unit"), ("gpuagent-server@demo.service", "ours")],
)
def test_a_process_in_a_real_control_group_is_resolved_to_its_owner(holders: GpuHolders, group: str, kind: str) -> None:
    with real_group(group) as folder, process() as one:
        (folder / "cgroup.procs").write_text(str(one.pid))
        assert owner(holders, one.pid).kind == kind


@contextmanager
def real_group(name: str) -> Iterator[Path]:
    """Below ours, of version 2 or else in systemd's own hierarchy; skips where we may make none."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    roots = [Path(words[1]) for words in mounts if words[2] == "cgroup2" or "name=systemd" in words[3].split(",")]
    for root in roots:
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::") or ":name=systemd:" in line:
                folder = root / line.split(":", 2)[2].strip("/") / name
                with suppress(OSError):
                    folder.mkdir()
                    break
        else:
            continue
        try:
            yield folder
        finally:
            _remove(folder)
        return
    pytest.skip("no control group can be made here")


def _remove(folder: Path) -> None:
    for _ in range(1000):
        try:
            folder.rmdir()
        except OSError:  # its last process is not reaped yet
            time.sleep(0.01)
        else:
            return


def test_descriptors_are_bounded_and_let_go(holders: GpuHolders) -> None:
    before = set(os.listdir("/proc/self/fd"))
    everyone = sorted(pid for pid in processes.scan() if pid != os.getpid())[: KEPT + 8]
    found = holders.resolve(reading(*everyone)).owners
    assert [one.pid for one in found] == everyone
    assert len(set(os.listdir("/proc/self/fd")) - before) <= KEPT
    holders.resolve(reading())
    assert set(os.listdir("/proc/self/fd")) <= before
    holders.resolve(reading(*everyone))
    holders.close()
    assert set(os.listdir("/proc/self/fd")) <= before
