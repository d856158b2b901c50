"""What systemd hears, on a real datagram socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.edges.notify import Notifier


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield listening


def test_each_word_reaches_systemd_in_utf_8_and_on_one_line(systemd: socket.socket) -> None:
    notifier = Notifier()
    notifier.ready()
    notifier.status("loading 43 %\nMAINPID=1 · 3 min")
    notifier.stopping()
    notifier.watchdog()
    heard = [systemd.recv(4096).decode() for _ in range(4)]
    assert heard == ["READY=1", "STATUS=loading 43 % MAINPID=1 · 3 min", "STOPPING=1", "WATCHDOG=1"]


def test_no_child_inherits_what_is_meant_for_the_agent(systemd: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    monkeypatch.setenv("LISTEN_FDS", "1")
    assert Notifier().watchdog_s == 30
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS"} & set(os.environ)


def test_a_watchdog_for_another_process_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert Notifier().watchdog_s is None


def test_without_systemd_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notifier = Notifier()
    notifier.ready()
    notifier.status("x")


def test_a_systemd_that_does_not_read_never_delays_the_agent(systemd: socket.socket) -> None:
    notifier = Notifier()
    for _ in range(5_000):  # more than any queue holds
        notifier.watchdog()
