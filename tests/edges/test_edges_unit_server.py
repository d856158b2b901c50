"""A server as a systemd unit: real processes, a real bus, stand-ins for systemd and the helper behind real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import threading
from pathlib import Path

import anyio
import pytest

from agent.core.model import Exit
from agent.edges.processes import command_of
from agent.edges.systemd import path_of
from agent.errors import EdgeError
from tests.edges.edges_house import nothing_more_than, until
from tests.edges.unit_house import Host, looked
from tests.fakes.systemd import BOOT_ID

pytestmark = pytest.mark.anyio

PYTHON = sys.executable
ENDS = [PYTHON, "-S", "-c", "import sys; sys.exit(3)"]
ENDS_WELL = [PYTHON, "-S", "-c", "pass"]
SILENT_S = 0.4
"""Nothing more may be told within it: twice what the edge waits for evidence."""


async def reader_of(pipe: Path) -> int:
    """Waits until somebody reads it; the end to write to."""

    async def opened() -> int | None:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody has opened it
            return None

    writer: int = await until(opened, "a reader")
    return writer


# -- launch ------------------------------------------------------------------------------------------


async def test_a_launch_gives_the_process_that_became_the_server(host: Host) -> None:
    server = host.server()
    main = await host.launched(server)
    assert command_of(main.pid) == (b"/bin/sleep", b"1000")
    tree = await server.look()
    assert (tree.main, tree.all, tree.invocation, tree.ordered) == (main, (main,), "i1", True)
    assert host.started == 0


async def test_a_launch_waits_until_the_launcher_has_become_the_server(host: Host) -> None:
    server = host.server()
    host.unit.plan["hold"] = str(host.folder / "go")
    launch = asyncio.create_task(host.launched(server))
    await host.sees("the record", (host.folder / "records" / "demo.launch.json").exists)
    tree = await server.look()
    assert tree.main is None
    assert len(tree.all) == 1
    assert tree.invocation == "i1"
    assert not launch.done()
    (host.folder / "go").touch()
    assert (await launch).pid == tree.all[0].pid


@pytest.mark.parametrize("record", [True, False])
async def test_a_launch_that_fails_says_why_with_its_own_slug(host: Host, record: bool) -> None:
    server = host.server()
    host.unit.plan |= {"fail": "gpuagent-launch: exec_missing: /opt/llm: No such file", "record": record}
    with pytest.raises(EdgeError, match="/opt/llm: No such file") as caught:
        await host.launched(server)
    assert caught.value.slug == "exec_missing"
    await anyio.sleep(SILENT_S)
    assert host.exits == []
    assert (await server.look()).main is None


async def test_a_launch_after_a_failed_one_is_not_taken_for_it(host: Host) -> None:
    server = host.server()
    host.unit.plan["fail"] = "gpuagent-launch: exec_missing: gone"
    with pytest.raises(EdgeError):
        await host.launched(server)
    host.unit.plan["fail"] = ""
    main = await host.launched(server, "i2")
    assert (await server.look()).main == main


@pytest.mark.parametrize(
    ("answer", "slug", "words"),
    [
        (b'{"ok": false, "slug": "left_overs", "why": "pid 7 is left over", "pids": [7]}', "left_overs", "pid 7"),
        (b'{"ok": false, "slug": "not_allowed", "why": "no"}', "not_allowed", "no"),
        (b"[]", "launch_failed", "none that we know"),
        (b"", "launch_failed", "without an answer"),
    ],
)
async def test_a_refusal_of_the_helper_is_told_in_its_words(host: Host, answer: bytes, slug: str, words: str) -> None:
    server = host.server()
    host.helper.answer = answer
    with pytest.raises(EdgeError, match=words) as caught:
        await host.launched(server)
    assert caught.value.slug == slug
    assert host.unit.starts == 0


async def test_another_definition_on_the_disk_is_refused_with_what_to_do(host: Host) -> None:
    server = host.server()
    host.helper.digest = "d2"
    with pytest.raises(EdgeError, match="reload") as caught:
        await host.launched(server)
    assert caught.value.slug == "digest_differs"


async def test_two_launches_start_one_process(host: Host) -> None:
    server, other = host.server(), host.server()
    results = await asyncio.gather(host.launched(server), host.launched(other, "i2"), return_exceptions=True)
    refused = [one for one in results if isinstance(one, EdgeError)]
    assert [one.slug for one in refused] == ["left_overs"]
    assert host.unit.starts == 1


async def test_without_a_helper_nothing_is_launched(host: Host) -> None:
    server = host.server()
    host.helper.path.unlink()
    with pytest.raises(EdgeError, match="No such file") as caught:
        await host.launched(server)
    assert caught.value.slug == "launch_failed"


# -- ends --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "expected"),
    [(ENDS, Exit(code=3, oom=False)), (ENDS_WELL, Exit(code=0, oom=False))],
)
async def test_an_exit_is_told_with_its_code_also_by_a_unit_that_is_forgotten_at_once(
    host: Host, command: list[str], expected: Exit
) -> None:
    server = host.server()
    # A unit that ends well is forgotten with its code: its record is what systemd has written before.
    host.unit.command, host.unit.writes_exit = command, expected.code == 0
    await host.launched(server)
    assert await host.exit() == expected


@pytest.mark.parametrize("heard", [True, False])
async def test_a_death_by_signal_is_told_with_it_by_the_bus_or_by_the_record(host: Host, heard: bool) -> None:
    server = host.server()
    main = await host.launched(server)
    host.fake.silent, host.unit.writes_exit = not heard, not heard
    os.kill(main.pid, signal.SIGSEGV)
    how = await host.exit()
    assert (how.signal, how.code, how.asked, how.stopped) == (signal.SIGSEGV, None, False, False)
    await anyio.sleep(SILENT_S)
    assert len(host.exits) == 1


async def test_a_kill_for_memory_is_told(host: Host) -> None:
    server = host.server()
    host.unit.result_of_kill, host.unit.writes_exit = "oom-kill", False
    main = await host.launched(server)
    os.kill(main.pid, signal.SIGKILL)
    how = await host.exit()
    assert (how.signal, how.oom) == (signal.SIGKILL, True)


async def test_an_end_without_evidence_is_told_as_unknown(host: Host) -> None:
    server = host.server()
    main = await host.launched(server)
    host.fake.silent, host.unit.writes_exit = True, False
    os.kill(main.pid, signal.SIGKILL)
    assert await host.exit() == Exit()


async def test_with_the_bus_away_an_end_is_told_from_the_record(host: Host) -> None:
    server = host.server()
    main = await host.launched(server)
    await host.bus_away()
    assert (await server.look()).main == main
    os.kill(main.pid, signal.SIGABRT)
    assert (await host.exit()).signal == signal.SIGABRT


async def test_the_word_of_another_start_is_not_the_end_of_this_one(host: Host) -> None:
    server = host.server()
    await host.launched(server)
    pid = host.unit.service["ExecMainPID"]
    host.unit.service |= {"ExecMainPID": 1, "ExecMainCode": 2, "ExecMainStatus": 9}
    host.unit.changed()
    host.unit.number = "00" * 16
    host.unit.changed()
    host.unit.service |= {"ExecMainPID": pid}
    host.unit.changed()
    await anyio.sleep(SILENT_S)
    assert host.exits == []


async def test_an_end_that_we_asked_for_is_told_so(host: Host) -> None:
    server = host.server()
    await host.launched(server)
    await server.terminate(whole=False)
    assert await host.exit() == Exit(signal=signal.SIGTERM, oom=False, asked=True)
    assert [one["verb"] for one in host.helper.asked] == ["start", "terminate"]


async def test_the_whole_tree_is_killed_through_the_helper(host: Host) -> None:
    server = host.server()
    await host.launched(server)
    other = await asyncio.create_subprocess_exec("/bin/sleep", "1000")
    host.unit.holds(*host.unit.pids(), other.pid)
    assert len((await server.look()).all) == 2
    await server.kill()
    await other.wait()
    tree = await looked(server, lambda tree: not tree.all, "the end of both")
    assert tree.main is None
    assert (await host.exit()).asked


# -- administrators ------------------------------------------------------------------------------------


@pytest.mark.parametrize("heard", [True, False])
async def test_an_administrators_stop_is_told_as_one_by_the_bus_or_by_the_record(host: Host, heard: bool) -> None:
    server = host.server()
    await host.launched(server)
    host.fake.silent, host.unit.writes_exit = not heard, not heard
    host.unit.stop()
    assert await host.exit() == Exit(signal=signal.SIGTERM, oom=False, stopped=True)


async def test_a_stop_by_the_hosts_shutdown_is_no_administrators(host: Host) -> None:
    server = host.server()
    await host.launched(server)
    host.fake.tell_manager("JobNew", "uos", 7, "/j", "shutdown.target")
    host.unit.stop()
    assert await host.exit() == Exit(signal=signal.SIGTERM, oom=False, shutdown=True)


async def test_a_stop_of_a_server_that_we_are_ending_is_ours(host: Host) -> None:
    server = host.server()
    host.unit.command = [PYTHON, "-S", "-c", "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"]
    main = await host.launched(server)
    await anyio.sleep(0.2)  # until it ignores the signal
    await server.terminate(whole=False)
    host.unit.stop()
    os.kill(main.pid, signal.SIGKILL)
    how = await host.exit()
    assert (how.asked, how.stopped) == (True, False)


@pytest.mark.parametrize("heard", [True, False])
async def test_an_administrators_start_is_adopted_and_told_once(host: Host, heard: bool) -> None:
    server = host.server()
    host.fake.silent = not heard
    await host.unit.start("abcd-0", ordered=False)
    tree = await looked(server, lambda tree: tree.main is not None, "the server")
    assert (tree.invocation, tree.ordered) == ("abcd-0", False)
    await server.look()
    assert host.started == 1


async def test_an_administrators_start_is_told_by_the_bus_alone(host: Host) -> None:
    host.server()
    host.unit.plan["wait"] = str(host.folder / "go")
    await host.unit.start("abcd-0", ordered=False)
    assert host.started == 0
    (host.folder / "go").touch()
    await host.sees("the start", lambda: host.started == 1)


async def test_a_start_under_way_is_no_left_over(host: Host) -> None:
    server = host.server()
    main = await host.launched(server)
    os.kill(main.pid, signal.SIGKILL)
    await host.exit()
    host.unit.plan["wait"] = str(host.folder / "go")
    await host.unit.start("abcd-0", ordered=False)
    await host.sees("the launcher", lambda: b"run" in command_of(host.unit.pids()[0]))
    look = asyncio.create_task(server.look())
    await anyio.sleep(0.1)
    assert not look.done()
    (host.folder / "go").touch()
    tree = await look
    assert tree.main is not None
    assert tree.invocation == "abcd-0"


async def test_a_look_in_whose_midst_the_launcher_becomes_the_server_takes_it_for_no_left_over(host: Host) -> None:
    server = host.server()
    os.kill((await host.launched(server)).pid, signal.SIGKILL)
    await host.exit()
    record = host.folder / "records" / "demo.launch.json"
    earlier = record.read_bytes()
    host.fake.silent = True  # nobody but the look reads the record
    host.unit.plan["wait"] = str(host.folder / "go")
    await host.unit.start("abcd-0", ordered=False)
    (pid,) = host.unit.pids()
    await host.sees("the launcher", lambda: b"run" in command_of(pid))
    record.unlink()
    os.mkfifo(record)  # whoever reads it now waits for us
    look = asyncio.create_task(server.look())
    writer = await reader_of(record)
    (host.folder / "go").touch()
    await host.sees("the server", lambda: command_of(pid) == (b"/bin/sleep", b"1000"))
    os.write(writer, earlier)
    os.close(writer)
    tree = await look
    assert (tree.main is not None, tree.invocation, tree.ordered) == (True, "abcd-0", False)


@pytest.mark.parametrize(
    "name", ["(python)", "/usr/lib/systemd/systemd-executor", "/lib/systemd/systemd", "/sbin/init"]
)
async def test_what_systemd_has_forked_and_not_executed_yet_is_no_left_over(host: Host, name: str) -> None:
    server = host.server()
    await host.launched(server)
    host.unit.process.kill()
    await host.exit()
    forked = await asyncio.create_subprocess_exec(
        name, "-S", "-c", "import sys; sys.stdin.read()", executable=PYTHON, stdin=asyncio.subprocess.PIPE
    )
    host.unit.holds(forked.pid)
    look = asyncio.create_task(server.look())
    await anyio.sleep(0.1)
    assert not look.done()
    forked.stdin.close()
    await forked.wait()
    tree = await look
    assert [process.pid for process in tree.all] == list(tree.ending)  # dead, at most
    await looked(server, lambda tree: tree.all == (), "its end")


@pytest.mark.parametrize("verb", ["stopping", "ended"])
async def test_what_systemd_runs_to_write_down_an_end_is_nothing_that_the_server_has_left(
    host: Host, verb: str
) -> None:
    server = host.server()
    await host.launched(server)
    host.unit.process.kill()
    await host.exit()
    plan = host.folder / "records" / "demo.plan.json"
    waits = {"wait": str(host.folder / "go"), "record": False, "fail": "done"}
    plan.write_text(json.dumps({**json.loads(plan.read_text()), **waits}))
    last = await asyncio.create_subprocess_exec(
        str(host.fake.python), "-I", "-m", "agent.privileged.launch", verb, "demo",
        env={"RECORDS": str(host.folder / "records")},
    )  # fmt: skip
    host.unit.holds(last.pid)
    look = asyncio.create_task(server.look())
    await anyio.sleep(0.1)
    assert not look.done()
    (host.folder / "go").touch()
    await last.wait()
    tree = await look
    assert [process.pid for process in tree.all] == list(tree.ending)  # dead, at most


# -- adoption ------------------------------------------------------------------------------------------


async def test_a_new_agent_adopts_what_runs_and_hears_of_its_end(host: Host) -> None:
    first = host.server()
    main = await host.launched(first)
    first.close()
    second = host.server()
    tree = await second.look()
    assert (tree.main, tree.invocation) == (main, "i1")
    os.kill(main.pid, signal.SIGSEGV)
    assert (await host.exit()).signal == signal.SIGSEGV


async def test_an_end_while_no_agent_ran_is_told_from_the_record_of_that_attempt(host: Host) -> None:
    first = host.server()
    main = await host.launched(first)
    first.close()
    host.unit.stop()
    await host.sees("its record", (host.folder / "records" / "demo.exit.json").exists)
    second = host.server()
    tree = await second.look()
    assert main not in tree.all
    assert second.last_exit("i1") == Exit(signal=signal.SIGTERM, oom=False, stopped=True, at=5.0)
    assert second.last_exit("i2") is None


async def test_left_overs_are_a_tree_without_a_first_process(host: Host) -> None:
    server = host.server()
    main = await host.launched(server)
    other = await asyncio.create_subprocess_exec("/bin/sleep", "1000")
    host.unit.holds(main.pid, other.pid)
    os.kill(main.pid, signal.SIGKILL)
    await host.exit()
    tree = await server.look()
    assert (tree.main, [one.pid for one in tree.all], tree.invocation) == (None, [other.pid], "i1")
    with pytest.raises(EdgeError) as caught:
        await host.launched(server, "i2")
    assert caught.value.slug == "left_overs"
    other.kill()
    await other.wait()


async def test_a_record_of_another_boot_names_nobody(host: Host) -> None:
    host.unit.plan["boot_id"] = BOOT_ID[::-1]
    await host.unit.start("i1")
    server = host.server()
    tree = await looked(server, lambda tree: bool(tree.all), "the process")
    assert (tree.main, tree.invocation) == (None, None)


async def test_a_process_outside_the_group_is_never_the_server(host: Host) -> None:
    await host.unit.start("i1")
    server = host.server()
    await looked(server, lambda tree: tree.main is not None, "the server")
    host.unit.holds()
    tree = await server.look()
    assert (tree.main, tree.all) == (None, ())


async def test_a_group_that_never_was_is_an_empty_tree(host: Host) -> None:
    tree = await host.server().look()
    assert (tree.main, tree.all, tree.invocation) == (None, (), None)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}', '{"boot_id": 1}'])
async def test_a_record_that_is_none_is_unknown(host: Host, text: str) -> None:
    for kind in ("launch", "exit"):
        (host.folder / "records" / f"demo.{kind}.json").write_text(text)
    server = host.server()
    assert server.last_exit("i1") is None
    assert (await server.look()).main is None


async def test_what_is_closed_leaves_nothing_open_and_the_server_running(host: Host) -> None:
    descriptors, threads = set(os.listdir("/proc/self/fd")), set(threading.enumerate())
    server = host.server()
    await host.unit.start("i1")
    tree = await looked(server, lambda tree: tree.main is not None, "the server")
    server.close()
    server.close()
    assert tree.main is not None
    os.kill(tree.main.pid, 0)
    await host.unit.close()
    await nothing_more_than(descriptors, threads)
    assert host.exits == []


# -- signs of life ---------------------------------------------------------------------------------------


async def test_signs_of_life_come_from_the_group_where_it_counts_them(host: Host) -> None:
    server = host.server()
    await host.launched(server)
    plain = (await server.look()).life
    assert plain.memory_mib < 100
    (host.unit.group / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (host.unit.group / "memory.current").write_text(f"{300 << 20}\n")
    (host.unit.group / "io.stat").write_text("8:0 rbytes=100 wbytes=7 rios=1\n259:0 rbytes=20 wbytes=0\n")
    life = (await server.look()).life
    assert (life.cpu_s, life.memory_mib, life.read_bytes) == (2.5, 300, 120)


async def test_processes_of_groups_below_are_seen(host: Host) -> None:
    server = host.server()
    main = await host.launched(server)
    below = host.unit.group / "workers" / "one"
    below.mkdir(parents=True)
    (below / "cgroup.procs").write_text(f"{os.getppid()}\n")
    tree = await server.look()
    assert tree.main == main
    assert {one.pid for one in tree.all} == {main.pid, os.getppid()}
    shutil.rmtree(host.unit.group / "workers")


async def test_the_bus_path_of_a_unit_is_that_of_systemd() -> None:
    path = "/org/freedesktop/systemd1/unit/gpuagent_2dserver_40my_2d7b_2eservice"
    assert path_of("gpuagent-server@my-7b.service") == path
    assert path_of("7.service").endswith("/_37_2eservice")
