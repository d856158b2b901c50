"""What a new configuration changes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from agent.config import Config, load
from agent.config.reload import Changes, changes

AGENT = 'listen = "off"\nstate_dir = "/s"\n'
A = '[servers.a]\ncommand = ["run", "-x"]\nfamily = "plain"\nport = 1\n'
B = '[servers.b]\ncommand = ["run"]\nfamily = "plain"\nport = 2\n'
RIVALS = '[rivals]\nunits = ["{}.service", "{}.service"]\n'


def config(servers: str, agent: str = AGENT) -> Config:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "gpuagent.toml")
        path.write_text(f"[agent]\n{agent}{servers}")
        return load(path)


@pytest.mark.parametrize(
    "same",
    [
        A + B,
        B + A,
        A.replace('["run", "-x"]', '["run"]\narguments = ["-x"]') + B,
        f"{A}autostart = false\nunhealthy_s = 120\nrestart.attempts = 6\nlog.max_mib = 256\n{B}",
        A + "[servers.t]\ntemplate = true\nport = 2\n" + B.replace("port = 2", 'extends = "t"'),
    ],
    ids=["same", "order", "arguments", "defaults", "extends"],
)
def test_a_file_that_says_the_same_in_other_words_changes_nothing(same: str) -> None:
    assert changes(config(A + B), config(same)) == Changes()


def test_servers_come_and_go() -> None:
    assert changes(config(A), config(A + B)) == Changes(added=("b",))
    assert changes(config(A + B), config(B)) == Changes(removed=("a",))
    assert changes(config(A), config(B)) == Changes(added=("b",), removed=("a",))


@pytest.mark.parametrize(
    "line", ["stop_s = 1", 'environment = { X = "1" }', "log.keep_mib = 1", "autostart = true", 'arguments = ["-y"]']
)
def test_a_server_that_is_defined_otherwise_has_changed(line: str) -> None:
    assert changes(config(A + B), config(f"{A}{line}\n{B}")) == Changes(changed=("a",))


def test_a_base_that_changes_changes_those_that_take_from_it_and_no_other() -> None:
    variants = f'[servers.v]\nextends = "a"\n[servers.w]\nextends = "a"\nstop_s = 9\n{B}'
    new = config(f"{A}stop_s = 5\n{variants}")
    assert changes(config(A + variants), new) == Changes(changed=("a", "v"))


def test_keys_of_the_agent_wait_for_its_next_start_and_are_named() -> None:
    new = config(A, 'listen = "127.0.0.1:9"\nstate_dir = "/t"\nsocket = "/x/y"\n')
    assert changes(config(A), new) == Changes(
        later=("agent.listen", "agent.socket", "agent.state_dir", "agent.log_dir")
    )
    assert changes(config(A), config(A, f'{AGENT}log_dir = "/s/log"\n')) == Changes()


def test_units_that_are_listed_and_not_listed_any_more_are_named() -> None:
    old, new = config(A + RIVALS.format("a", "b")), config(A + RIVALS.format("b", "c"))
    assert changes(old, new) == Changes(listed=("c.service",), unlisted=("a.service",))
    assert changes(config(A), new) == Changes(listed=("b.service", "c.service"))
