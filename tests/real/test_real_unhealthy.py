"""A server that is alive and does not answer. Named so that it comes last: it has been frozen since the floor began."""

from __future__ import annotations

from tests.real.real_house import Agent


def test_a_frozen_server_becomes_unhealthy_and_is_restarted(frozen: Agent) -> None:
    frozen.until(lambda server: server["attempt"] == 2 and server["stage"] == "ready", "the restart")
    told = frozen.own_log.read_text()
    assert "stage=unhealthy" in told
    assert "cause=unhealthy" in told
    assert frozen.end() == 0
