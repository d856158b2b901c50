"""The configuration: what is wrong is said all at once, where it is and what to do about it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from agent.config import (
    AgentConfig,
    DiskConfig,
    LogConfig,
    RestartConfig,
    RivalsConfig,
    ServerConfig,
    load,
    read_environment_file,
)
from agent.config.model import NeedsConfig
from agent.config.rules import address_of, port_of
from agent.config.values import default_state_dir
from agent.errors import ConfigError

EXAMPLE = Path(__file__).parents[1] / "config" / "gpuagent.toml"
TABLES = ("needs", "restart", "disk", "log")
"""Keys of a server that are tables of their own in the example."""

PROTECTED = (
    "gpuagent.service", "gpuagent-server@x.service", "systemd-logind.service", "dbus.socket", "dbus-broker.service",
    "ssh.socket", "ssh@1.service", "sshd.service", "nvidia-persistenced.service", "nvidia-fabricmanager.service",
    "nvidia-dcgm.service", "dcgm-exporter.service", "nvidia-mps.service", "mps.service", "gdm3.service",
    "lightdm.service", "sddm.service", "display-manager.service", "user@1000.service", "getty@tty1.service",
    "serial-getty@.service", "NetworkManager.service", "NetworkManager-wait-online.service", "networking.service",
    "wpa_supplicant@wlan0.service",
)  # fmt: skip

SMALL = """
[servers.demo]
command = ["python3", "-m", "http.server", "8000"]
family = "plain"
port = 8000
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "gpuagent.toml"
    path.write_text(text)
    return path


def faults(folder: Path, text: str) -> list[str]:
    """What `load` says is wrong, without the name of the file, which every fault must begin with."""
    path = write(folder, text)
    with pytest.raises(ConfigError) as raised:
        load(path)
    assert all(fault.startswith(f"{path}: ") for fault in raised.value.faults)
    return [fault.removeprefix(f"{path}: ") for fault in raised.value.faults]


def server(line: str) -> str:
    """A file whose one server is right but for `line`."""
    return f"{SMALL}{line}\n"


def test_a_small_file_is_enough_and_the_rest_has_defaults(tmp_path: Path) -> None:
    config = load(write(tmp_path, SMALL))
    demo = config.servers["demo"]
    assert demo.command == ("python3", "-m", "http.server", "8000")
    assert (demo.port, demo.gpus, demo.autostart, demo.on_stall) == (8000, (), False, "report")
    assert config.agent.listen_address == ("127.0.0.1", 8900)
    assert config.agent.log_dir == config.agent.state_dir / "log"


def test_every_fault_is_reported_at_once(tmp_path: Path) -> None:
    found = faults(
        tmp_path,
        """
        colour = "red"
        [agent]
        listen = "0.0.0.0:8900"
        [servers.Big]
        command = ["run"]
        family = "plain"
        port = "8000"
        [servers.demo]
        commands = ["run"]
        [servers.other]
        command = ["run"]
        family = "plain"
        need_mib = 5
        unhealthy_s = 0
        [servers.other.restart]
        attempt = 3
        """,
    )
    assert [fault.partition(": ")[0] for fault in found] == [
        "colour",
        "agent.listen",
        "servers.Big",
        "servers.Big.port",
        "servers.demo.command",
        "servers.demo.commands",
        "servers.other.unhealthy_s",
        "servers.other.restart.attempt",
        "servers.other.need_mib",
        "servers.other.port",
    ]
    assert all("; " in fault for fault in found), "each says what to do"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("prt = 3", "servers.demo.prt: is not a known key; did you mean port?"),
        ('stop_s = "30"', "servers.demo.stop_s: must be a number, not text; write it without quotes"),
        ("stop_s = true", "servers.demo.stop_s: must be a number, not true or false; write it without quotes"),
        ("stop_s = inf", "servers.demo.stop_s: must be a finite number; give a number, or leave the key out"),
        ("stop_s = -1", "servers.demo.stop_s: must be more than 0; give a larger number"),
        ('autostart = "yes"', "servers.demo.autostart: must be true or false, not text; write it without quotes"),
        ('model = "x.gguf"', "servers.demo.model: must be a list, not text; put what belongs in it between [ and ]"),
        ("environment = { A = 1 }", "servers.demo.environment.A: must be text, not a whole number; put it in quotes"),
        ('environment = { "A B" = "1" }', "servers.demo.environment.'A B': is no variable's name; use letters"),
        ("environment = 3", "servers.demo.environment: must be a table, not a whole number; write {"),
        ("restart = 3", "servers.demo.restart: must be a table, not a whole number; write its keys below [servers"),
        ('on_stall = "kill"', 'servers.demo.on_stall: must be "report" or "restart"; write one of them'),
        ("working_dir = 2026-01-01", "servers.demo.working_dir: must be a path, not a date; put it in quotes"),
        ('working_dir = "~/x"', "servers.demo.working_dir: must be an absolute path; begin it with /"),
        ('model = ["x.gguf"]', "servers.demo.model[0]: is a relative path; give it from the root, or set working_dir"),
        ("gpus = [true]", "servers.demo.gpus[0]: names no GPU; give its index (0) or its UUID"),
        ('gpus = [0, "GPU-1"]', "servers.demo.gpus[1]: names no GPU; give its index (0) or its UUID"),
        ("gpus = [0, 0]", "servers.demo.gpus: names a GPU twice; name each once"),
        ("need_mib = 1", "servers.demo.need_mib: needs to know on which GPUs; name them in gpus"),
        ("gpus = [0]\nneed_mib = 1.5", "servers.demo.need_mib: must be a whole number, not a number; write it"),
        ('host = "localhost"', "servers.demo.host: must be an address in digits; write"),
        ('health_path = "health"', "servers.demo.health_path: must be the path of a URL; begin it with /"),
        ("restart.pauses_s = [5, 2]", "servers.demo.restart.pauses_s: must not shrink; sort the pauses"),
        ("restart.pauses_s = []", "servers.demo.restart.pauses_s: must not be empty; give at least one"),
        ("restart.attempts = 0", "servers.demo.restart.attempts: must be 1 or more; give a larger number"),
        (
            'gpus = [0]\nenvironment = { CUDA_VISIBLE_DEVICES = "0" }',
            "servers.demo.environment.CUDA_VISIBLE_DEVICES: is set from gpus; remove one of the two",
        ),
    ],
)
def test_a_faulty_key_is_told_with_its_path_and_a_remedy(tmp_path: Path, line: str, said: str) -> None:
    (fault,) = faults(tmp_path, server(line))
    assert fault.startswith(said)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('command = "llama-server -m x"\nport = 1', "command: must be a list, not text; put what belongs in it"),
        ('command = ["llama-server -m x"]\nport = 1', "command: is a whole line in one text, and no shell parts it"),
        ("command = []\nport = 1", "command: must not be empty; give at least one"),
        ('command = [""]\nport = 1', "command: names no program; put the program first"),
        ('command = ["run", 8000]\nport = 1', "command[1]: must be text, not a whole number; put it in quotes"),
        ('command = ["run", "\\u0000"]\nport = 1', "command[1]: has a NUL character"),
        ('command = ["bin/run"]\nport = 1', "command[0]: is a relative path; give it from the root, or set working"),
        ("port = 1", "command: is missing; add it"),
        ('command = ["run"]\nfamily = "no-such"\nport = 1', "family: is no family; use one of "),
        ('command = ["run"]', "port: is missing, and the command does not tell it; give the port"),
        ('command = ["run"]\nport = 65536', "port: must be 65535 or less; give a smaller number"),
        ('command = ["run"]\nport = 8900', "port: 8900 is the agent's own (agent.listen); give one of them another"),
    ],
)
def test_a_command_that_cannot_be_run_or_reached_is_a_fault(tmp_path: Path, table: str, said: str) -> None:
    family = "" if "family" in table else 'family = "plain"\n'
    (fault,) = faults(tmp_path, f"[servers.x]\n{family}{table}\n")
    assert fault.startswith(f"servers.x.{said}")


def test_a_syntax_error_is_told_with_line_and_column(tmp_path: Path) -> None:
    assert faults(tmp_path, "[agent]\nlisten = = 3\n") == [
        "line 2, column 10: Invalid value; correct it, TOML cannot be read past it"
    ]
    assert faults(tmp_path, "[agent]\n[agent]\n")[0].startswith("line 2, column 7: Cannot declare ('agent',) twice")
    assert faults(tmp_path, "a = 1\na = 2\n")[0].startswith("line 2, column 6: Cannot overwrite a value")
    assert "not closed" in faults(tmp_path, 'a = """')[0]


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: cannot be read: No such file or directory; name a file"):
        load(tmp_path / "absent.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xe9")
    with pytest.raises(ConfigError, match="byte 2 is not UTF-8; save the file as UTF-8"):
        load(tmp_path / "latin.toml")


@pytest.mark.parametrize("text", ["", "servers = {}", "[agent]\n", "[servers.base]\ntemplate = true\n"])
def test_a_file_without_a_server_is_good(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gpuagent.toml"
    path.write_text(text)
    assert load(path).servers == {}


def test_the_file_that_is_installed_is_good_as_it_is() -> None:
    assert load(EXAMPLE).servers == {}


@pytest.mark.parametrize("text", ["servers = 3", "servers = [1]"])
def test_servers_that_are_no_table_are_a_fault(tmp_path: Path, text: str) -> None:
    assert faults(tmp_path, text)[0].startswith("servers: must be a table, not a ")


@pytest.mark.parametrize(
    ("value", "address"),
    [("off", None), ("127.0.0.1:9", ("127.0.0.1", 9)), ("127.8.0.1:9", ("127.8.0.1", 9)), ("[::1]:9", ("::1", 9))],
)
def test_the_agent_listens_on_loopback_or_nowhere(value: str, address: tuple[str, int] | None) -> None:
    assert AgentConfig(listen=value).listen_address == address


@pytest.mark.parametrize("value", ["0.0.0.0:8900", "10.0.0.1:8900", "[::]:8900"])
def test_listening_for_others_is_refused_with_the_reason(tmp_path: Path, value: str) -> None:
    (fault,) = faults(tmp_path, f'agent.listen = "{value}"\n{SMALL}')
    assert fault.startswith("agent.listen: must be a loopback address: this listener asks nobody who they are; ")


@pytest.mark.parametrize("value", ["8900", "localhost:8900", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:x", ""])
def test_an_address_to_listen_on_is_in_digits_with_a_port(tmp_path: Path, value: str) -> None:
    (fault,) = faults(tmp_path, f'agent.listen = "{value}"\n{SMALL}')
    assert fault.startswith("agent.listen: must be ADDRESS:PORT in digits")


def test_a_socket_path_that_the_kernel_cannot_hold_is_a_fault(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, f'agent.socket = "/{"x" * 107}"\n{SMALL}')
    assert fault == "agent.socket: is too long for a unix socket; use at most 107 bytes"


PAIR = """
[servers.a]
command = ["run"]
family = "plain"
port = {a}
gpus = {a_gpus}
autostart = true
[servers.b]
command = ["run"]
family = "plain"
port = {b}
gpus = {b_gpus}
autostart = {b_starts}
"""


@pytest.mark.parametrize(
    ("b", "b_gpus", "shared"), [(8001, [2], "port 8001"), (8002, [1, 2], "GPU 1"), (8001, [1], "port 8001")]
)
def test_two_servers_that_start_by_themselves_and_overlap_are_a_fault(
    tmp_path: Path, b: int, b_gpus: list[int], shared: str
) -> None:
    text = PAIR.format(a=8001, a_gpus=[0, 1], b=b, b_gpus=b_gpus, b_starts="true")
    (fault,) = faults(tmp_path, text)
    assert fault.startswith(f"servers.b.autostart: both it and servers.a start by themselves and use {shared}; ")


def test_alternatives_and_servers_side_by_side_are_fine(tmp_path: Path) -> None:
    load(write(tmp_path, PAIR.format(a=8001, a_gpus=[0], b=8001, b_gpus=[0], b_starts="false")))
    load(write(tmp_path, PAIR.format(a=8001, a_gpus=[0], b=8002, b_gpus=[1], b_starts="true")))


def test_the_port_comes_from_the_command_and_must_agree_with_the_key(tmp_path: Path) -> None:
    said = '[servers.x]\ncommand = ["llama-server", "--port", "{}"]\n'
    assert port_of(load(write(tmp_path, said.format(8081))).servers["x"]) == 8081
    (fault,) = faults(tmp_path, said.format("http"))
    assert fault == "servers.x.command[2]: is no port (--port); give a number from 1 to 65535"
    (fault,) = faults(tmp_path, said.format(8081) + "port = 8082")
    assert fault.startswith("servers.x.port: is not the one in the command (--port 8081); give the same")


def test_a_server_on_every_address_is_asked_on_loopback_and_a_name_is_not_guessed(tmp_path: Path) -> None:
    said = '[servers.x]\ncommand = ["llama-server", "--host", "{}"]\n'
    asked_at = {"0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1", "10.1.2.3": "10.1.2.3"}
    for host, address in asked_at.items():
        assert address_of(load(write(tmp_path, said.format(host))).servers["x"]) == address
    named = said.format("gpu7.example")
    (fault,) = faults(tmp_path, named)
    assert fault.startswith("servers.x.host: cannot be told: the command has a name; add the address in digits")
    assert address_of(load(write(tmp_path, f'{named}host = "10.1.2.3"')).servers["x"]) == "10.1.2.3"


def test_no_value_that_may_be_secret_is_repeated(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("hunter2\nTOKEN='hunter2\nhunter2=1\nhunter2=2\n9hunter2=x\n")
    found = faults(
        tmp_path,
        server(f'environment = {{ K = ["hunter2"], J = "hunter2\\u0000" }}\nenvironment_file = "{tmp_path}/env"'),
    )
    assert len(found) == 6
    assert not any("hunter2" in fault for fault in found)
    config = load(write(tmp_path, server('environment = { K = "hunter2" }')))
    assert "hunter2" not in repr(config)


def test_an_environment_file_gives_its_variables(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text("# a comment\n\nA=1\n  B = two words \nC=\"quoted # =\"\nD='x'\r\nE=\nF=a=b#c\n")
    assert read_environment_file(path) == {
        "A": "1",
        "B": "two words",
        "C": "quoted # =",
        "D": "x",
        "E": "",
        "F": "a=b#c",
    }


def test_an_environment_file_names_every_faulty_line(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text("A=1\nA=2\nexport B=1\nnothing\nC='x\n=1\n")
    with pytest.raises(ConfigError) as raised:
        read_environment_file(path)
    assert [fault.removeprefix(f"{path}: ").partition("; ")[0] for fault in raised.value.faults] == [
        "line 2: sets a variable for the second time",
        "line 3: is written for a shell",
        "line 4: has no =",
        "line 5: has a quote that is not closed",
        "line 6: has no variable's name before the =",
    ]
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_environment_file(tmp_path / "absent")
    with pytest.raises(ConfigError, match="is no regular file"):
        read_environment_file(tmp_path)


def test_an_environment_file_that_is_not_there_yet_is_left_to_the_launch(tmp_path: Path) -> None:
    load(write(tmp_path, server('environment_file = "/absent/env"')))


def test_state_is_kept_where_the_user_may_write() -> None:
    assert default_state_dir({}, root=True) == Path("/var/lib/gpuagent")
    assert default_state_dir({"XDG_STATE_HOME": "/x"}, root=False) == Path("/x/gpuagent")
    assert default_state_dir({"XDG_STATE_HOME": "x"}, root=False) == Path.home() / ".local/state/gpuagent"
    assert default_state_dir({"STATE_DIRECTORY": "/var/lib/gpuagent", "XDG_STATE_HOME": "/x"}, root=False) == Path(
        "/var/lib/gpuagent"
    )


def uncommented(text: str) -> str:
    """The example with every key set: "#" right before a key or a table is a key; "# " is prose."""
    return re.sub(r"^#(?=[\[a-z])", "", text, flags=re.MULTILINE)


def test_the_example_is_valid_with_every_key_uncommented(tmp_path: Path) -> None:
    config = load(write(tmp_path, uncommented(EXAMPLE.read_text())))
    demo = config.servers["demo"]
    for model, values in (
        (ServerConfig, demo),
        (NeedsConfig, demo.needs),
        (RestartConfig, demo.restart),
        (DiskConfig, demo.disk),
        (LogConfig, demo.log),
    ):
        for key, field in model.model_fields.items():
            if field.default not in (None, (), {}) and not field.is_required() and key not in TABLES:
                assert getattr(values, key) == field.default, f"{key} is shown with its default"
    assert config.agent.listen == AgentConfig.model_fields["listen"].default


def test_the_example_has_every_key_and_no_other() -> None:
    tables: dict[str, list[str]] = {}
    for line in uncommented(EXAMPLE.read_text()).splitlines():
        if table := re.fullmatch(r"\[(.*)\]", line):
            keys = tables.setdefault(table[1], [])
        elif key := re.match(r"([a-z0-9_]+) = ", line):
            keys.append(key[1])

    def keys_of(model: type[BaseModel]) -> list[str]:
        return [key for key in model.model_fields if key not in TABLES]

    assert tables == {
        "agent": keys_of(AgentConfig),
        "rivals": keys_of(RivalsConfig),
        "servers.base": ["template"],
        "servers.demo": keys_of(ServerConfig),
        "servers.demo.needs": keys_of(NeedsConfig),
        "servers.demo.restart": keys_of(RestartConfig),
        "servers.demo.disk": keys_of(DiskConfig),
        "servers.demo.log": keys_of(LogConfig),
    }


@pytest.mark.parametrize(
    ("unit", "what"),
    [
        ("vllm", "is no name of a unit"),
        ("vllm.mount", "is no name of a unit"),
        ("../x.service", "is no name of a unit"),
        ("nvidia-.service", "stands for every unit whose name begins so"),
        ("user-runtime-@.service", "stands for every unit whose name begins so"),
        ("user-runtime-@7.service", "stands for every unit whose name begins so"),
        (f"{'x' * 193}.service", "is no name of a unit"),
        *((unit, "is protected") for unit in PROTECTED),
    ],
)
def test_a_unit_that_may_not_be_kept_off_is_refused_where_it_stands(tmp_path: Path, unit: str, what: str) -> None:
    found = faults(tmp_path, f'{SMALL}[rivals]\nunits = ["ollama.service", "{unit}"]\n')
    assert len(found) == 1
    assert found[0].startswith(f"rivals.units[1]: {what}")


def test_units_to_be_kept_off_are_named_in_full_and_once(tmp_path: Path) -> None:
    units = ("ollama.service", "vllm@.service", "vllm@1.service", "x.timer", "a\\x2db.socket", "dbusiness.path")
    config = load(write(tmp_path, f"{SMALL}[rivals]\nunits = {json.dumps(units)}\n"))
    assert config.rivals.units == units
    assert faults(tmp_path, f'{SMALL}[rivals]\nunits = ["x.timer", "x.timer"]\n')[0].startswith("rivals.units: names a")
    assert load(write(tmp_path, SMALL)).rivals.units == ()


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ('mounts = ["models"]', "mounts[0]: must be an absolute path"),
        ('filesystems = { "/m" = "vg/models" }', "filesystems.'/m': is no UUID"),
        ('filesystems = { models = "ABCD-1234" }', "filesystems.models: must be an absolute path"),
        ('contains = { "/x" = "" }', "contains.'/x': must not be empty"),
        ('sha256 = { "/x" = "0123" }', "sha256.'/x': is no SHA-256"),
        ('free_mib = { "/x" = 0 }', "free_mib.'/x': must be 1 or more"),
        ("shm_mib = 1.5", "shm_mib: must be a whole number"),
        ("shm = 1", "shm: is not a known key; did you mean shm_mib?"),
    ],
)
def test_a_need_that_makes_no_sense_is_refused_where_it_stands(tmp_path: Path, line: str, where: str) -> None:
    (found,) = faults(tmp_path, f"{SMALL}[servers.demo.needs]\n{line}\n")
    assert found.startswith(f"servers.demo.needs.{where}")


@pytest.mark.parametrize("path", sorted((EXAMPLE.parent / "examples").glob("*.toml")), ids=lambda path: path.name)
def test_the_examples_are_valid(path: Path) -> None:
    load(path)


@pytest.mark.parametrize("user", ["root", "gpuagent", "", "Bob", "a b", "-x", "x" * 33])
def test_whom_no_server_runs_as_is_no_user(tmp_path: Path, user: str) -> None:
    path = tmp_path / "gpuagent.toml"
    path.write_text(f'[servers.x]\ncommand = ["y"]\nport = 1\nuser = "{user}"\n')
    with pytest.raises(ConfigError, match=r"servers\.x\.user"):
        load(path)


def test_a_warning_below_what_is_too_little_is_a_fault(tmp_path: Path) -> None:
    disk = "[servers.demo.disk]\nwarn_mib = 10\nlow_mib = 20\n"
    path = tmp_path / "gpuagent.toml"
    path.write_text(f'[servers.demo]\ncommand = ["x"]\nport = 1\n{disk}')
    with pytest.raises(ConfigError, match=r"servers\.demo\.disk\.warn_mib: is less than low_mib"):
        load(path)
