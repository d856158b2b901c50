"""The port: who listens, whether it is ours, what it answers."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress
from subprocess import PIPE, Popen, run

import pytest

from agent.core.model import Health, Process
from agent.edges import probe as probe_module
from agent.edges import processes, sockets
from agent.edges.probe import HttpProbe
from agent.edges.sockets import Proof
from agent.errors import EdgeError
from tests.edges.edges_house import background, nothing_more_than, until

pytestmark = pytest.mark.anyio

ANSWERS = {200: Health.OK, 503: Health.LOADING}
HIDDEN = """
import ctypes, socket, sys, time
PR_SET_DUMPABLE = 4
ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
time.sleep(600)
"""
ASK = """
import asyncio, os, sys
from agent.core.model import Health
from agent.edges.probe import HttpProbe
probe = HttpProbe("127.0.0.1", int(sys.argv[1]), "/", {200: Health.OK}, 20.0)
if os.geteuid() == 0:
    os.setuid(65534)
print(*asyncio.run(probe.ask(frozenset({int(sys.argv[2])}))), sep="\\n")
"""


@pytest.fixture
async def probe(port: int) -> AsyncIterator[HttpProbe]:
    one = HttpProbe("127.0.0.1", port, "/health", ANSWERS, 20.0)
    yield one
    await one.close()


async def ask_with(
    port: int, *flags: str, host: str = "127.0.0.1", listen: str = "127.0.0.1", timeout_s: float = 20.0
) -> tuple[Health, str]:
    with background("--port", str(port), "--host", listen, *flags, first="listening") as server:
        probe = HttpProbe(host, port, "/health", ANSWERS, timeout_s)
        try:
            return await probe.ask(frozenset({server.pid}))
        finally:
            await probe.close()


async def test_a_closed_port_is_refused(probe: HttpProbe) -> None:
    assert (await probe.ask(frozenset({os.getpid()})))[0] is Health.REFUSED


async def test_a_port_that_is_bound_and_does_not_listen_is_refused(probe: HttpProbe, port: int) -> None:
    with background("--port", str(port), "--bound-only", first="bound") as server:
        assert (await probe.ask(frozenset({server.pid})))[0] is Health.REFUSED


@pytest.mark.parametrize(
    ("flags", "health", "word"),
    [
        ([], Health.OK, "200"),
        (["--load-s", "600"], Health.LOADING, "503: loading model"),
        (["--status", "500", "--body", "boom\x1b[31m"], Health.SICK, "500: boom[31m"),
        (["--status", "404"], Health.SICK, "404"),
        (["--status", "302", "--location", "http://127.0.0.1:1/"], Health.SICK, "302"),
        (["--garbage"], Health.SICK, "/health"),
    ],
)
async def test_each_answer_has_its_health(port: int, flags: list[str], health: Health, word: str) -> None:
    got, words = await ask_with(port, *flags)
    assert got is health
    assert word in words


@pytest.mark.parametrize("flag", ["--hang", "--drip", "--drip-headers"])
async def test_a_server_that_hangs_or_drips_is_a_timeout(port: int, flag: str) -> None:
    got, words = await ask_with(port, flag, timeout_s=0.5)
    assert got is Health.TIMEOUT
    assert "0.5 s" in words


async def test_a_body_without_end_is_read_up_to_a_limit(port: int) -> None:
    assert (await ask_with(port, "--body", "x" * 120_000))[0] is Health.OK


async def test_a_proxy_of_the_environment_is_not_asked(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert (await ask_with(port))[0] is Health.OK


@pytest.mark.parametrize(
    ("host", "listen"),
    [
        ("0.0.0.0", "0.0.0.0"),
        ("127.0.0.1", "0.0.0.0"),
        ("::", "::"),
        ("localhost", "127.0.0.1"),
        ("localhost", "::1"),
        ("[::1]", "::1"),
        ("127.0.0.1", "::"),
        ("0.0.0.0", "::"),
        ("no-such-host.example", "127.0.0.1"),
        ("127.0.0.2", "127.0.0.2"),
    ],
)
async def test_the_address_to_ask_follows_from_what_listens(port: int, host: str, listen: str) -> None:
    got, words = await ask_with(port, host=host, listen=listen)
    assert got is Health.OK, words


async def test_a_listener_that_takes_no_such_connection_is_refused(port: int) -> None:
    """It stands in the table as one for any address, and is for IPv6 alone."""
    with socket.socket(socket.AF_INET6) as one:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(("::", port))
        one.listen()
        probe = HttpProbe("127.0.0.1", port, "/health", ANSWERS, 20.0)
        got, words = await probe.ask(frozenset({os.getpid()}))
        await probe.close()
    assert got is Health.REFUSED
    assert words == f"connection to 127.0.0.1:{port} refused"


async def test_a_host_that_cannot_connect_knows_nothing_of_the_server(port: int) -> None:
    """No TCP connection goes to a broadcast address: the kernel says so at once, as for a network that is down."""
    with pytest.raises(EdgeError, match=r"connect to 255\.255\.255\.255:\d+: Network is unreachable"):
        await ask_with(port, host="255.255.255.255", listen="0.0.0.0")


async def test_a_listener_of_somebody_else_is_foreign_and_named(probe: HttpProbe, port: int) -> None:
    with background("--port", str(port), "--title", "impostor", first="listening") as server, background() as other:
        for _ in range(2):
            got, words = await probe.ask(frozenset({other.pid}))
            assert got is Health.FOREIGN
            assert f"pid {server.pid} (impostor)" in words
        assert (await probe.ask(frozenset()))[0] is Health.FOREIGN, "nobody is ours"
        assert (await probe.ask(frozenset({server.pid})))[0] is Health.OK


def test_a_listener_that_may_be_ours_is_not_said_to_be_somebody_elses(port: int) -> None:
    """Its process hides its descriptors from all but root, and the one who asks is not root."""
    hidden = [sys.executable, "-c", HIDDEN, str(port)]
    with Popen(hidden, stdout=PIPE) as server:
        assert server.stdout is not None
        try:
            assert server.stdout.readline() == b"listening\n"
            answer = run([sys.executable, "-c", ASK, str(port), str(server.pid)], stdout=PIPE, text=True, check=True)
        finally:
            server.kill()
    health, words = answer.stdout.splitlines()
    assert health == "foreign"
    assert f"not provably ours (the descriptors of pid {server.pid} may not be seen)" in words


async def test_a_proof_is_good_as_long_as_that_process_holds_the_listener(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as ours:
        (end,) = sockets.listeners(port)
        proof = sockets.ownership([end], frozenset({os.getpid()})).proofs[end.inode]
        assert proof == Proof(processes.stat(os.getpid()).process, ours.fileno())  # type: ignore[union-attr]  # it lives
        assert proof.holds(end.inode)
        assert not proof.holds(end.inode + 1)
        assert not Proof(Process(os.getpid(), proof.process.started - 1), proof.fd).holds(end.inode)
    assert not proof.holds(end.inode)


async def test_a_server_that_was_proved_is_not_sought_again(
    probe: HttpProbe, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches: list[int] = []
    scandir = os.scandir

    def counted(path: str) -> Iterator[os.DirEntry[str]]:
        searches.append(threading.get_ident())
        return scandir(path)

    with background("--port", str(port), first="listening") as server, background() as other:
        ours = frozenset({server.pid, other.pid})
        monkeypatch.setattr(os, "scandir", counted)
        assert (await probe.ask(ours))[0] is Health.OK
        assert searches
        assert threading.get_ident() not in searches, "not in the loop's thread"
        searches.clear()
        for _ in range(3):
            assert (await probe.ask(ours))[0] is Health.OK
        assert searches == []
        assert (await probe.ask(frozenset({other.pid})))[0] is Health.FOREIGN, "proved, but ours no more"
        assert searches


async def test_a_search_that_hangs_is_given_up(probe: HttpProbe, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    thaw, scandir = threading.Event(), os.scandir

    def frozen(path: str) -> Iterator[os.DirEntry[str]]:
        thaw.wait()
        return scandir(path)

    monkeypatch.setattr(probe_module, "SEARCH_S", 0.05)
    with background("--port", str(port), first="listening") as server:
        monkeypatch.setattr(os, "scandir", frozen)
        try:
            with pytest.raises(EdgeError, match="no answer within"):
                await probe.ask(frozenset({server.pid}))
            with pytest.raises(EdgeError, match="still hangs"):
                await probe.ask(frozenset({server.pid}))
        finally:
            thaw.set()

        async def answers() -> bool:
            with suppress(EdgeError):
                return (await probe.ask(frozenset({server.pid})))[0] is Health.OK
            return False

        await until(answers, "an answer, once /proc answers")


async def test_neither_descriptor_nor_thread_is_left(port: int) -> None:
    with background("--port", str(port), first="listening") as server:
        before = set(os.listdir("/proc/self/fd")), set(threading.enumerate())
        for _ in range(5):
            probe = HttpProbe("127.0.0.1", port, "/health", ANSWERS, 20.0)
            assert (await probe.ask(frozenset({server.pid})))[0] is Health.OK
            await probe.close()
            await probe.close()
        await nothing_more_than(*before)


async def test_an_impostor_that_shares_the_port_makes_it_foreign(probe: HttpProbe, port: int) -> None:
    flags = ("--port", str(port), "--reuseport")
    with background(*flags, first="listening") as server:
        ours = frozenset({server.pid})
        assert (await probe.ask(ours))[0] is Health.OK
        with background(*flags, first="listening") as impostor:
            got, words = await probe.ask(ours)
            assert got is Health.FOREIGN
            assert f"pid {impostor.pid} " in words
            assert (await probe.ask(ours | {impostor.pid}))[0] is Health.OK
        assert (await probe.ask(ours))[0] is Health.OK


async def test_a_listener_on_another_address_of_the_same_port_is_no_impostor(probe: HttpProbe, port: int) -> None:
    with ExitStack() as both:
        server = both.enter_context(background("--port", str(port), first="listening"))
        both.enter_context(background("--port", str(port), "--host", "127.0.0.2", first="listening"))
        assert (await probe.ask(frozenset({server.pid})))[0] is Health.OK


def test_a_child_forked_since_the_last_look_is_ours(port: int) -> None:
    listening = socket.create_server(("127.0.0.1", port))
    listening.set_inheritable(True)
    with background() as other, Popen(["sleep", "600"], pass_fds=[listening.fileno()]) as child:
        listening.close()  # only the child has it now
        ends = sockets.listeners(port)
        try:
            late = sockets.ownership(ends, frozenset({os.getpid()}))
            assert late.strangers == ()
            assert [proof.process.pid for proof in late.proofs.values()] == [child.pid]
            assert sockets.ownership(ends, frozenset({other.pid})).strangers == ends
        finally:
            child.kill()


def test_an_ipv4_address_in_ipv6_clothes_is_read_as_ipv4(port: int) -> None:
    with socket.socket(socket.AF_INET6) as one:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        one.bind(("::ffff:127.0.0.1", port))
        one.listen()
        ends = sockets.listeners(port)
        assert [end.address for end in ends] == ["127.0.0.1"]
        assert sockets.reached(ends, "127.0.0.1") == ends
        assert sockets.target(ends[0], "::") == "127.0.0.1"
        assert sockets.who(ends[0]).startswith(f"pid {os.getpid()} ")


def test_connections_are_told_from_listeners(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as server, socket.create_connection(("127.0.0.1", port)):
        accepted, _ = server.accept()
        accepted.close()
        assert len(sockets.listeners(port)) == 1
        assert sockets.connections(port)


def test_the_listeners_of_a_port_are_not_those_of_another(port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)):
        assert sockets.listeners(port) == ()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_the_kernels_two_ways_of_telling_agree(port: int, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as server:
        (end,) = asked = sockets.listeners(port)
        assert (end.address, end.port, end.uid, end.v6) == (host, port, os.getuid(), ":" in host)
        assert end.inode == os.fstat(server.fileno()).st_ino
        monkeypatch.setattr(sockets, "NETLINK_SOCK_DIAG", 31)  # a protocol that does not exist, as in gVisor
        assert sockets.listeners(port) == asked
