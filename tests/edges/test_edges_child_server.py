"""A server as a child process: launch, end, tree, signals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, Popen

import anyio
import pytest

from agent.core.model import Exit, Process
from agent.edges import child_server, processes
from agent.edges.child_server import ChildServer
from agent.edges.server_tree import LAUNCH_LIMIT_S, LAUNCHED, mark_environment
from agent.errors import EdgeError
from agent.ports import Tree
from tests.edges.edges_house import FAKE, Attempt, nothing_more_than, until

pytestmark = pytest.mark.anyio

SHOW = """
import json, os, signal, sys
links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
fds = {os.path.basename(link): os.readlink(link) for link in links if os.path.lexists(link)}
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
print(json.dumps({"argv": sys.argv[1:], "env": dict(os.environ), "fds": fds, "sid": os.getsid(0), "pid": os.getpid(),
    "blocked": status["SigBlk"], "ignored": status["SigIgn"], "cwd": os.getcwd()}), flush=True)
"""


async def show(attempt: Attempt, *words: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> dict:
    server = attempt.server(sys.executable, "-S", "-c", SHOW, *words, env=env, cwd=cwd)
    await server.launch("i1", attempt.log())
    assert (await attempt.exit()).code == 0, attempt.log().read_text()
    return json.loads(attempt.log().read_text())


async def tree_of(server: ChildServer, size: int) -> Tree:
    async def grown() -> Tree | None:
        tree = await server.look()
        return tree if len(tree.all) == size else None

    tree: Tree = await until(grown, f"{size} processes in the tree")
    return tree


async def gone(server: ChildServer) -> None:
    await tree_of(server, 0)


@contextmanager
def other(*command: str, session: bool = False, env: dict[str, str] | None = None) -> Iterator[Popen[bytes]]:
    """A child of the agent that is no server."""
    process = Popen(command, stdout=DEVNULL, env=env, start_new_session=session)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


# -- launch ---------------------------------------------------------------------------------------------


async def test_words_that_a_shell_would_read_arrive_as_they_are(attempt: Attempt) -> None:
    words = ["$HOME", "`id`", "a;b", "*", "'", '"', "a b", "", "|", "&&", "\\", "ü"]
    assert (await show(attempt, *words))["argv"] == words


async def test_the_server_leads_a_session_of_its_own_and_inherits_no_descriptor(attempt: Attempt) -> None:
    leaked = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    try:
        seen = await show(attempt)
    finally:
        os.close(leaked)
    assert seen["sid"] == seen["pid"]
    assert seen["fds"]["0"] == "/dev/null"
    assert seen["fds"]["1"] == seen["fds"]["2"] == str(attempt.log())
    assert set(seen["fds"]) == {"0", "1", "2"}


async def test_what_is_meant_for_the_agent_does_not_reach_the_server(attempt: Attempt) -> None:
    for_agent = dict.fromkeys(("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID"), "1")
    env = (await show(attempt, env={**for_agent, "LISTEN_FDNAMES": "x", "KEPT": "y", "NO_PROXY": "a.example"}))["env"]
    assert not {*for_agent, "LISTEN_FDNAMES"} & set(env)
    assert env["KEPT"] == "y"
    assert env["GPUAGENT_MARK"] == f"{attempt.mark}:demo:i1"
    assert env["NO_PROXY"] == "a.example,localhost,127.0.0.1,::1"


async def test_ignored_and_blocked_signals_of_the_agent_are_not_inherited(attempt: Attempt) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        seen = await show(attempt)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGHUP, before)
    assert int(seen["blocked"], 16) == 0
    ignored = {number for number in range(1, 65) if int(seen["ignored"], 16) >> number - 1 & 1}
    # Python ignores these two itself; and no program can change the C library's own (32, 33), whoever ignored them
    assert ignored & signal.valid_signals() <= {signal.SIGPIPE, signal.SIGXFSZ}


async def test_the_working_folder_is_the_one_given(attempt: Attempt, tmp_path: Path) -> None:
    assert (await show(attempt, cwd=tmp_path))["cwd"] == str(tmp_path)


async def test_the_log_is_new_and_append_only(attempt: Attempt) -> None:
    await show(attempt)
    assert stat.S_IMODE(attempt.log().stat().st_mode) & ~0o640 == 0
    with pytest.raises(EdgeError) as refused:
        await attempt.made[0].launch("i1", attempt.log())
    assert refused.value.slug == "log_unwritable"


async def test_a_log_below_a_file_is_log_unwritable_and_nothing_is_started(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    server = attempt.fake()
    with pytest.raises(EdgeError) as refused:
        await server.launch("i1", tmp_path / "file" / "a.log")
    assert refused.value.slug == "log_unwritable"
    assert (await server.look()).all == ()


@pytest.mark.parametrize(
    ("content", "mode", "slug", "word"),
    [
        (None, 0, "exec_missing", "No such file"),
        ("#!/bin/sh\n", 0o644, "exec_not_executable", "Permission denied"),
        ("#!/no/such/interpreter\n", 0o755, "exec_not_executable", "interpreter"),
        ("neither script nor program", 0o755, "exec_not_executable", "Exec format error"),
    ],
)
async def test_a_program_that_cannot_be_started_is_refused_with_its_cause(
    attempt: Attempt, tmp_path: Path, content: str | None, mode: int, slug: str, word: str
) -> None:
    program = tmp_path / "program"
    if content is not None:
        program.write_text(content)
        program.chmod(mode)
    server = attempt.server(str(program))
    with pytest.raises(EdgeError, match=word) as refused:
        await server.launch("i1", attempt.log())
    assert refused.value.slug == slug
    assert (await server.look()).all == ()


async def test_a_missing_working_folder_and_too_long_an_argument_are_named(attempt: Attempt, tmp_path: Path) -> None:
    with pytest.raises(EdgeError, match="working folder") as refused:
        await attempt.server(*FAKE, cwd=tmp_path / "none").launch("i1", attempt.log())
    assert refused.value.slug == "launch_failed"
    with pytest.raises(EdgeError, match="too long") as refused:
        await attempt.server("/bin/true", "x" * 3_000_000).launch("i2", attempt.log("i2"))
    assert refused.value.slug == "launch_failed"


async def test_the_program_is_sought_in_the_servers_own_path(attempt: Attempt, tmp_path: Path) -> None:
    program = tmp_path / "only-here"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    await attempt.server("only-here", env={"PATH": str(tmp_path)}).launch("i1", attempt.log())
    await attempt.says("found")


async def test_an_environment_that_cannot_be_read_refuses_the_launch(attempt: Attempt) -> None:
    def unreadable() -> dict[str, str]:
        raise EdgeError("environment", "read environment_file", "no such file", "bad_env")

    server = ChildServer("demo", FAKE, unreadable, None, attempt.mark)
    with pytest.raises(EdgeError, match="no such file") as refused:
        await server.launch("i1", attempt.log())
    assert refused.value.slug == "bad_env"


async def test_a_launch_that_nobody_waits_for_any_more_is_undone(attempt: Attempt) -> None:
    server = attempt.fake()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await server.launch("i1", attempt.log())
    await server.launch("i2", attempt.log("i2"))  # waits for the thread of the first
    await attempt.says("up", "i2")
    tree = await tree_of(server, 1)
    assert tree.invocation == "i2"
    assert attempt.exits == []


async def test_a_second_launch_beside_a_living_server_is_refused(attempt: Attempt) -> None:
    server = attempt.fake()
    await server.launch("i1", attempt.log())
    with pytest.raises(EdgeError, match="still runs"):
        await server.launch("i2", attempt.log("i2"))


# -- the end --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--exit-code", "0"], Exit(code=0, oom=False)),
        (["--exit-code", "3"], Exit(code=3, oom=False)),
        (["--die-signal", "11"], Exit(signal=11, oom=False)),
    ],
)
async def test_the_exit_is_told_once_with_its_code_or_signal(
    attempt: Attempt, flags: list[str], expected: Exit
) -> None:
    await attempt.fake("--die-after", "0", *flags).launch("i1", attempt.log())
    assert await attempt.exit() == expected
    assert attempt.exits == [("i1", expected)]


async def test_an_exit_that_was_asked_for_says_so(attempt: Attempt) -> None:
    server = attempt.fake()
    await server.launch("i1", attempt.log())
    await attempt.says("up")
    await server.terminate(whole=False)
    assert await attempt.exit() == Exit(signal=15, oom=False, asked=True)


async def test_a_stray_sigkill_is_not_called_an_oom_kill(attempt: Attempt) -> None:
    main = await attempt.fake().launch("i1", attempt.log())
    os.kill(main.pid, signal.SIGKILL)
    ended = await attempt.exit()
    assert ended.signal == 9
    assert not ended.asked


async def test_many_short_lives_are_each_told_with_their_own_code(attempt: Attempt) -> None:
    server = attempt.server("/bin/sh", "-c", "exit 7")
    for n in range(30):
        await server.launch(f"i{n}", attempt.log(f"i{n}"))

        async def told(n: int = n) -> bool:
            await server.look()  # a look must not take the status away
            return len(attempt.exits) == n + 1

        await until(told, "the exit")
    assert {exit_.code for _, exit_ in attempt.exits} == {7}


# -- the tree -------------------------------------------------------------------------------------------


async def test_a_child_that_double_forks_and_leaves_the_session_is_found_and_killed(attempt: Attempt) -> None:
    server = attempt.fake("--orphan", "--ignore-term")
    main = await server.launch("i1", attempt.log())
    await attempt.says("up")
    tree = await tree_of(server, 2)
    assert tree.main == main
    assert tree.invocation == "i1"
    os.kill(main.pid, signal.SIGKILL)
    await attempt.exit()
    left = await server.look()
    assert left.main is None
    assert left.invocation == "i1"
    assert len(left.all) == 1
    assert processes.stat(left.all[0].pid).ppid == os.getpid()  # type: ignore[union-attr]  # it lives
    await server.kill()
    await gone(server)
    assert processes.stat(left.all[0].pid) is None, "inherited and waited for"


async def test_a_child_without_environment_is_found_by_descent_and_after_its_parents_end(attempt: Attempt) -> None:
    server = attempt.fake("--bare-child")
    main = await server.launch("i1", attempt.log())
    await attempt.says("up")
    await tree_of(server, 2)
    os.kill(main.pid, signal.SIGKILL)
    await attempt.exit()
    await tree_of(server, 1)
    await server.kill()
    await gone(server)


async def test_a_bare_child_of_a_first_process_that_ended_before_any_look_is_found_by_session(attempt: Attempt) -> None:
    server = attempt.fake("--bare-child", "--die-after", "0")
    await server.launch("i1", attempt.log())
    await attempt.exit()
    tree = await server.look()
    assert len(tree.all) == 1
    assert tree.invocation == "i1"


async def test_a_server_that_ignores_sigterm_ends_by_kill(attempt: Attempt) -> None:
    server = attempt.fake("--ignore-term", "--orphan")
    main = await server.launch("i1", attempt.log())
    await attempt.says("up")
    await tree_of(server, 2)
    await server.terminate(whole=True)
    await tree_of(server, 1)  # the sleeper minds it
    assert (await server.look()).all == (main,)
    await server.kill()
    assert (await attempt.exit()).signal == 9
    await gone(server)


async def test_zombies_are_not_left_overs(attempt: Attempt) -> None:
    server = attempt.fake("--zombie")
    main = await server.launch("i1", attempt.log())
    await attempt.says("up")

    async def has_zombie() -> bool:
        return any(one.ppid == main.pid and one.state == "Z" for one in processes.scan().values())

    await until(has_zombie, "a zombie")
    assert (await server.look()).all == (main,)


async def test_a_process_whose_first_thread_has_ended_is_no_zombie(attempt: Attempt) -> None:
    code = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "print('up', flush=True)\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    server = attempt.server(sys.executable, "-c", code)
    main = await server.launch("i1", attempt.log())
    await attempt.says("up")

    async def leader_ended() -> bool:
        one = processes.stat(main.pid)
        return one is not None and one.state == "Z"

    await until(leader_ended, "the end of the first thread")
    assert (await server.look()).main == main
    assert attempt.exits == []
    await server.kill()
    await gone(server)


HOPPER = """
import os, time
print("up", flush=True)
for _ in range(20_000):  # it ends by itself, should the test be cut short
    if os.fork():
        os._exit(0)
    os.setsid()
    time.sleep(0.002)
"""


async def test_a_process_that_forks_and_ends_without_pause_is_killed_all_the_same(attempt: Attempt) -> None:
    server = attempt.server(sys.executable, "-S", "-c", HOPPER)
    await server.launch("i1", attempt.log())
    await attempt.says("up")
    await attempt.exit()

    async def caught() -> bool:
        await server.kill()
        return not (await server.look()).all

    await until(caught, "the end of the chase")


async def test_two_servers_do_not_see_each_other(attempt: Attempt, tmp_path: Path) -> None:
    other = Attempt(tmp_path, attempt.mark, "demo2")
    one, two = attempt.fake("--orphan"), other.fake("--orphan")
    attempt.made.append(two)
    await one.launch("i1", attempt.log())
    await two.launch("i1", other.log())
    await attempt.says("up")
    await other.says("up")
    first, second = await tree_of(one, 2), await tree_of(two, 2)
    assert not set(first.all) & set(second.all)
    await one.kill()
    await gone(one)
    assert (await two.look()).all == second.all
    assert other.exits == []


async def test_a_process_is_told_from_a_later_one_by_its_start_time() -> None:
    with other(*FAKE) as process:
        real = processes.stat(process.pid)
        assert real is not None
        assert not processes.send(Process(process.pid, real.started - 1), signal.SIGKILL)
        assert process.poll() is None
        assert processes.send(real.process, signal.SIGKILL)
        assert process.wait() == -9
        assert not processes.send(real.process, signal.SIGKILL)


@pytest.mark.parametrize("name", ["ab) R 1 1 1", "(((", "a\nb) Z 0", ") S 1 1"])
async def test_a_strange_command_name_does_not_mislead(attempt: Attempt, name: str) -> None:
    server = attempt.fake("--title", name)
    main = await server.launch("i1", attempt.log())
    await attempt.says("up")
    one = processes.stat(main.pid)
    assert one is not None
    assert (one.comm, one.ppid, one.session) == (name, os.getpid(), main.pid)
    assert (await server.look()).all == (main,)


async def test_signs_of_life_grow_with_work(attempt: Attempt) -> None:
    code = "print('up', flush=True)\nx = bytearray(64 << 20)\nwhile True: open('/proc/self/stat').read()"
    server = attempt.server(sys.executable, "-S", "-c", code)
    await server.launch("i1", attempt.log())
    await attempt.says("up")
    before = (await server.look()).life

    async def grown() -> bool:
        now = (await server.look()).life
        return now.cpu_s > before.cpu_s and now.read_bytes > before.read_bytes and now.memory_mib >= 64

    await until(grown, "signs of life")


async def test_compilers_in_the_tree_are_counted(attempt: Attempt) -> None:
    server = attempt.fake("--title", "cicc")
    await server.launch("i1", attempt.log())
    await attempt.says("up")
    assert (await server.look()).life.compilers == 1


# -- a restarted agent ----------------------------------------------------------------------------------


async def test_a_restarted_agent_adopts_the_tree_and_hears_of_its_end(attempt: Attempt) -> None:
    before = attempt.fake("--orphan")
    main = await before.launch("i1", attempt.log())
    await attempt.says("up")
    await tree_of(before, 2)
    before.close()  # as if the agent had been killed: nobody of it watches any more
    after = attempt.fake("--orphan")
    tree = await after.look()
    assert (tree.main, tree.invocation, len(tree.all)) == (main, "i1", 2)
    await after.terminate(whole=False)
    told = await attempt.exit()  # the code is unknown to an agent that is not the parent; here it is the same process
    assert told.asked
    left = await after.look()
    assert (left.main, left.invocation, len(left.all)) == (None, "i1", 1)


async def test_the_end_of_an_adopted_server_that_is_no_child_is_told_without_a_code(attempt: Attempt) -> None:
    launcher = (
        "import asyncio, os, sys\nfrom pathlib import Path\nfrom agent.edges.child_server import ChildServer\n"
        "server = ChildServer('demo', sys.argv[3:], lambda: dict(os.environ), None, sys.argv[1])\n"
        "print(asyncio.run(server.launch('i1', Path(sys.argv[2]))).pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    words = [sys.executable, "-c", launcher, attempt.mark, str(attempt.log()), *FAKE]
    killed_agent = await anyio.run_process(words, check=False)
    after = attempt.fake()
    tree = await after.look()
    assert tree.main is not None
    assert (tree.main.pid, tree.invocation) == (int(killed_agent.stdout), "i1")
    os.kill(tree.main.pid, signal.SIGKILL)
    ended = await attempt.exit()
    assert (ended.code, ended.asked) == (None, False)
    await gone(after)


@contextmanager
def marked(attempt: Attempt, *, begun_s: float, session: bool = True, invocation: str = "i1") -> Iterator[Popen[bytes]]:
    """A process as an earlier run of the agent left it, whose launch had begun `begun_s` before its fork."""
    marks = mark_environment(attempt.mark, attempt.name, invocation)
    launched = int(marks[LAUNCHED]) - int(begun_s * processes.TICKS_PER_S)
    with other(*FAKE, session=session, env={**os.environ, **marks, LAUNCHED: str(launched)}) as process:
        yield process


async def test_a_server_whose_launch_was_slow_to_fork_is_adopted(attempt: Attempt) -> None:
    with marked(attempt, begun_s=10) as slow:
        tree = await attempt.fake().look()
        assert tree.main is not None
        assert (tree.main.pid, tree.invocation) == (slow.pid, "i1")


async def test_of_several_that_lead_a_session_the_oldest_is_the_server(attempt: Attempt) -> None:
    with marked(attempt, begun_s=10) as first:
        await anyio.sleep(0.05)  # some ticks
        with marked(attempt, begun_s=10.05):
            tree = await attempt.fake().look()
    assert tree.main is not None
    assert tree.main.pid == first.pid
    assert len(tree.all) == 2


@pytest.mark.parametrize(("begun_s", "session"), [(LAUNCH_LIMIT_S + 1, True), (10, False)])
async def test_a_left_over_that_came_later_or_leads_no_session_is_not_adopted(
    attempt: Attempt, begun_s: float, session: bool
) -> None:
    with marked(attempt, begun_s=begun_s, session=session) as left:
        tree = await attempt.fake().look()
    assert tree.main is None
    assert tree.invocation == "i1"
    assert [one.pid for one in tree.all] == [left.pid]


async def test_a_launch_that_took_too_long_is_undone_though_the_loop_was_too_busy_to_say_so(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process would be a left-over to the next run of the agent."""
    watch = os.pidfd_open

    def slow(pid: int) -> int:
        time.sleep(0.5)
        return watch(pid)

    monkeypatch.setattr(child_server, "LAUNCH_LIMIT_S", 0.25)
    monkeypatch.setattr(os, "pidfd_open", slow)
    server = attempt.fake()
    asyncio.get_running_loop().call_later(0.01, time.sleep, 2)
    with pytest.raises(EdgeError):
        await server.launch("i1", attempt.log())
    monkeypatch.undo()
    await gone(server)
    assert attempt.exits == []


async def test_a_session_led_by_somebody_else_is_not_swept_up(attempt: Attempt) -> None:
    server = attempt.fake()
    await server.launch("i1", attempt.log())
    marked = {"GPUAGENT_MARK": f"{attempt.mark}:demo:i1"}
    shell = "import os, subprocess, sys, json\nsubprocess.run(sys.argv[1:], env=json.loads(os.environ['ENV']))"
    words = [sys.executable, "-S", "-c", shell, *FAKE]
    with other(*words, session=True, env={"ENV": json.dumps(marked)}) as user:
        tree = await tree_of(server, 2)
        assert user.pid not in {one.pid for one in tree.all}
        await server.kill()
        assert await anyio.to_thread.run_sync(user.wait) == 0, "it ended by itself, after its child"


async def test_the_status_of_other_children_of_the_agent_is_left_to_them(attempt: Attempt) -> None:
    server = attempt.fake("--orphan")
    await server.launch("i1", attempt.log())
    with other("/bin/sh", "-c", "exit 5") as mine:

        async def zombie() -> bool:
            await server.look()
            one = processes.stat(mine.pid)
            return one is not None and one.gone

        await until(zombie, "its end")
        await server.look()
        assert mine.wait() == 5


# -- letting go -----------------------------------------------------------------------------------------


async def test_neither_descriptor_nor_thread_is_left_of_servers_that_were_closed(attempt: Attempt) -> None:
    before = set(os.listdir("/proc/self/fd")), set(threading.enumerate())
    for n in range(5):
        server = attempt.fake()
        await server.launch(f"i{n}", attempt.log(f"i{n}"))
        await attempt.says("up", f"i{n}")
        await server.look()
        server.close()
        server.close()
        successor = attempt.fake()
        assert (await successor.look()).invocation == f"i{n}"
        await successor.kill()

        async def told(count: int = n + 1) -> bool:
            return len(attempt.exits) == count

        await until(told, "the exit")
        successor.close()
    await nothing_more_than(*before)


async def test_a_look_that_is_under_way_while_it_is_closed_watches_nothing(attempt: Attempt) -> None:
    await attempt.fake().launch("i1", attempt.log())
    before = set(os.listdir("/proc/self/fd")), set(threading.enumerate())
    late = attempt.fake()
    async with asyncio.TaskGroup() as tasks:
        look = tasks.create_task(late.look())
        await asyncio.sleep(0)
        late.close()
    assert look.result().invocation == "i1"
    await nothing_more_than(*before)


async def test_a_launch_that_is_under_way_while_it_is_closed_is_not_watched(attempt: Attempt) -> None:
    before = set(os.listdir("/proc/self/fd")), set(threading.enumerate())
    late = attempt.fake()
    async with asyncio.TaskGroup() as tasks:
        launch = tasks.create_task(late.launch("i1", attempt.log()))
        await asyncio.sleep(0)
        late.close()
    await nothing_more_than(*before)
    tree = await attempt.fake().look()
    assert tree.main == launch.result()
