"""The preconditions of a launch, on real files and ports."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent.core.model import Need
from agent.edges import bounded, port_check
from agent.edges.checks import FileChecks
from agent.errors import EdgeError
from tests.edges.edges_house import background

pytestmark = pytest.mark.anyio


def made(tmp_path: Path, **changes: Any) -> FileChecks:
    path = changes.pop("path", "/usr/bin:/bin")
    given: dict[str, Any] = {"command": ["true"], "environment": lambda: {"PATH": path}, "log_folder": tmp_path / "a/b"}
    return FileChecks(**{**given, **changes})


async def one_need(checks: FileChecks, ours: frozenset[int] = frozenset()) -> Need:
    (need,) = await checks.needs(ours)
    assert need.heals == (need.name in ("address", "port")), "a port may get free; a missing file stays missing"
    assert need.cause.remedy
    return need


def program(tmp_path: Path, text: str, mode: int = 0o755) -> str:
    path = tmp_path / "program"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


async def test_nothing_is_needed_when_all_is_there(tmp_path: Path, port: int) -> None:
    (tmp_path / "model.bin").write_text("weights")
    (tmp_path / "secrets").touch()
    whole = made(
        tmp_path,
        working_dir=tmp_path,
        files=[Path("model.bin"), tmp_path],
        environment_file=tmp_path / "secrets",
        port=port,
    )
    assert await whole.needs(frozenset()) == ()
    assert not (tmp_path / "a").exists(), "a look makes nothing"


async def test_a_program_that_is_nowhere_in_the_servers_path_is_missing(tmp_path: Path) -> None:
    need = await one_need(made(tmp_path, command=["ls"], path=str(tmp_path)))
    assert need.cause.slug == "exec_missing"
    assert str(tmp_path) in need.cause.text
    need = await one_need(made(tmp_path, command=["/no/such"]))
    assert need.cause.slug == "exec_missing"


async def test_a_later_program_in_the_path_counts_when_an_earlier_one_is_not_executable(tmp_path: Path) -> None:
    (tmp_path / "true").touch(mode=0o644)
    assert await made(tmp_path, path=f"{tmp_path}:/bin:/usr/bin").needs(frozenset()) == ()
    need = await one_need(made(tmp_path, path=str(tmp_path)))
    assert need.cause.slug == "exec_not_executable"


@pytest.mark.parametrize(("text", "mode"), [("x", 0o644), ("#!/no/such/python\n", 0o755), ("#!\n", 0o755)])
async def test_a_program_that_no_exec_would_take_is_not_executable(tmp_path: Path, text: str, mode: int) -> None:
    need = await one_need(made(tmp_path, command=[program(tmp_path, text, mode)]))
    assert need.cause.slug == "exec_not_executable"


async def test_a_folder_is_no_program(tmp_path: Path) -> None:
    need = await one_need(made(tmp_path, command=[str(tmp_path)]))
    assert need.cause.slug == "exec_not_executable"


async def test_a_relative_program_is_sought_in_the_working_folder(tmp_path: Path) -> None:
    program(tmp_path, "#!/bin/sh\n")
    assert await made(tmp_path, command=["./program"], working_dir=tmp_path).needs(frozenset()) == ()


async def test_a_missing_working_folder_is_named(tmp_path: Path) -> None:
    need = await one_need(made(tmp_path, working_dir=tmp_path / "none"))
    assert need.name == "working_dir"
    assert "does not exist" in need.cause.text


async def test_a_model_that_is_missing_or_empty_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    (tmp_path / "folder").mkdir()
    expected = {"none": "missing_weights", "empty.gguf": "missing_weights", "folder": "missing_weights"}
    for name, slug in expected.items():
        assert (await one_need(made(tmp_path, files=[tmp_path / name]))).cause.slug == slug


async def test_a_pipe_in_place_of_a_file_does_not_hang_the_look(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with anyio.fail_after(30):
        await made(tmp_path, files=[tmp_path / "pipe"], environment_file=tmp_path / "pipe").needs(frozenset())


async def test_a_missing_environment_file_is_named(tmp_path: Path) -> None:
    need = await one_need(made(tmp_path, environment_file=tmp_path / "none"))
    assert (need.name, need.cause.slug) == ("environment_file", "bad_env")


async def test_a_wrong_line_in_the_environment_file_is_a_need(tmp_path: Path) -> None:
    def wrong() -> dict[str, str]:
        raise EdgeError("environment", "read environment_file", "line 3 has no '='", "bad_env")

    need = await one_need(made(tmp_path, environment=wrong))
    assert need.cause.slug == "bad_env"
    assert "line 3" in need.cause.text


async def test_a_log_folder_that_is_a_file_or_below_one_is_unwritable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "a" / "b"):
        assert (await one_need(made(tmp_path, log_folder=path))).cause.slug == "log_unwritable"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
async def test_what_the_user_may_not_read_or_write_is_named(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("x")
    (tmp_path / "model").chmod(0)
    (tmp_path / "logs").mkdir(mode=0o555)
    slugs = [
        need.cause.slug
        for need in await made(tmp_path, files=[tmp_path / "model"], log_folder=tmp_path / "logs").needs(frozenset())
    ]
    assert slugs == ["model_unreadable", "log_unwritable"]


# -- port -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::", "localhost"])
async def test_a_port_on_which_somebody_listens_is_taken_by_name(tmp_path: Path, port: int, host: str) -> None:
    with background("--port", str(port), "--title", "rival", first="listening") as server:
        one = made(tmp_path, host=host, port=port)
        need = await one_need(one)
        assert need.cause.slug == "port_taken"
        assert f"Port {port} is taken by pid {server.pid} (rival)" in need.cause.text
        assert await one.needs(frozenset({server.pid})) == (), "the server's own"
    assert await one.needs(frozenset()) == ()


async def test_a_port_shared_with_somebody_else_is_taken_even_while_ours_listens(tmp_path: Path, port: int) -> None:
    flags = ("--port", str(port), "--reuseport")
    with background(*flags, first="listening") as server, background(*flags, first="listening") as rival:
        need = await one_need(made(tmp_path, port=port), frozenset({server.pid}))
        assert f"pid {rival.pid} " in need.cause.text


async def test_a_port_that_is_bound_and_does_not_listen_yet_is_taken(tmp_path: Path, port: int) -> None:
    with background("--port", str(port), "--bound-only", first="bound"):
        need = await one_need(made(tmp_path, port=port))
        assert need.cause.slug == "port_taken"
        assert "does not listen yet" in need.cause.text


async def test_connections_that_wait_out_their_time_are_no_conflict(tmp_path: Path, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as server:
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        accepted.close()  # this side closes first, and waits
        client.close()
    assert port_check._bind_error(socket.AF_INET, ("127.0.0.1", port), reuse=False) is not None, "TIME_WAIT is there"
    assert await made(tmp_path, port=port).needs(frozenset()) == ()


async def test_a_connection_out_of_that_very_port_takes_it(tmp_path: Path, port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.bind(("127.0.0.1", port))
        client.connect(server.getsockname())
        need = await one_need(made(tmp_path, port=port))
        assert f"pid {os.getpid()} " in need.cause.text


async def test_an_address_of_another_host_is_named(tmp_path: Path, port: int) -> None:
    need = await one_need(made(tmp_path, host="192.0.2.1", port=port))  # TEST-NET: nobody's
    assert (need.name, need.cause.slug) == ("address", "address_unavailable")


async def test_another_address_with_the_same_port_is_no_conflict(tmp_path: Path, port: int) -> None:
    with background("--port", str(port), "--host", "127.0.0.2", first="listening"):
        assert await made(tmp_path, host="127.0.0.1", port=port).needs(frozenset()) == ()


# -- a frozen disk --------------------------------------------------------------------------------------


async def test_a_call_that_hangs_costs_one_thread_and_the_next_is_refused_at_once() -> None:
    thread = bounded.BoundedThread("disk")
    thaw = threading.Event()
    late: list[bool] = []

    def frozen(given_up: threading.Event) -> None:
        thaw.wait()
        late.append(given_up.is_set())

    with pytest.raises(EdgeError, match=r"no answer within 0\.1 s"):
        await thread.run("read", 0.1, frozen)
    for _ in range(5):
        with pytest.raises(EdgeError, match="still hangs"):
            await thread.run("read", 1000, lambda _: None)
    assert [one.name for one in threading.enumerate()].count("gpuagent-disk") == 1
    thaw.set()
    with anyio.fail_after(30):
        while True:
            try:
                assert await thread.run("read", 30, lambda _: 7) == 7
                break
            except EdgeError:
                await anyio.sleep(0.01)
    assert late == [True]


async def test_a_call_after_a_cancelled_one_waits_for_its_thread() -> None:
    thread = bounded.BoundedThread("disk")
    go = threading.Event()
    with anyio.move_on_after(0.05):
        await thread.run("read", 30, lambda _: go.wait())
    threading.Timer(0.1, go.set).start()
    assert await thread.run("read", 30, lambda given_up: given_up.is_set()) is False


async def test_an_error_of_the_outside_is_an_edge_error() -> None:
    def fail(_: threading.Event) -> None:
        raise TimeoutError(110, "Connection timed out")

    with pytest.raises(EdgeError, match="disk: read: Connection timed out"):
        await bounded.BoundedThread("disk").run("read", 30, fail)
