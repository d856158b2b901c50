"""`extends`: what a variant takes from its base, and where a fault in it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config import Config, ServerConfig, load
from agent.config.extends import ADDED, DEPTH, MERGED, OWN, resolve
from agent.config.faults import Fault
from agent.definition import define
from agent.errors import ConfigError

BIG = """
[servers.big]
command = ["serve", "/m", "--port", "8000"]
family = "plain"
port = 8000
gpus = [0, 1]
autostart = true
environment = { A = "1", B = "2" }
restart.attempts = 3
restart.pauses_s = [1, 2]
log.max_mib = 16
"""


def loaded(folder: Path, text: str) -> Config:
    path = folder / "gpuagent.toml"
    path.write_text(text)
    return load(path)


def faults(folder: Path, text: str) -> list[str]:
    """What `load` says is wrong, without the name of the file."""
    with pytest.raises(ConfigError) as raised:
        loaded(folder, text)
    return [fault.partition(": ")[2] for fault in raised.value.faults]


# -- what is taken ---------------------------------------------------------------------------------


def test_a_variant_takes_every_key_that_it_does_not_set(tmp_path: Path) -> None:
    config = loaded(tmp_path, f'{BIG}[servers.v]\nextends = "big"\nport = 8000\nstop_s = 5.0\n')
    big, variant = config.servers["big"], config.servers["v"]
    assert variant == big.model_copy(update={"stop_s": 5.0, "autostart": False})


def test_tables_are_merged_key_by_key(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        f"""{BIG}
        [servers.v]
        extends = "big"
        environment = {{ B = "3", C = "4" }}
        restart.attempts = 5
        log.keep_attempts = 1
        """,
    )
    variant = config.servers["v"]
    assert variant.environment == {"A": "1", "B": "3", "C": "4"}
    assert (variant.restart.attempts, variant.restart.pauses_s) == (5, (1.0, 2.0))
    assert (variant.log.max_mib, variant.log.keep_attempts) == (16, 1)


def test_lists_are_replaced_but_arguments_are_added_the_bases_first(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        """
        [servers.a]
        command = ["serve", "--port", "1"]
        arguments = ["--x", "1"]
        family = "plain"
        port = 1
        gpus = [0, 1]
        [servers.b]
        extends = "a"
        arguments = ["--x", "2"]
        gpus = [2]
        [servers.c]
        extends = "b"
        arguments = ["--y"]
        command = ["other"]
        """,
    )
    assert config.servers["a"].command == ("serve", "--port", "1", "--x", "1")
    assert config.servers["b"].command == ("serve", "--port", "1", "--x", "1", "--x", "2")
    assert config.servers["c"].command == ("other", "--x", "1", "--x", "2", "--y")
    assert [each.arguments for each in config.servers.values()] == [()] * 3
    assert config.servers["c"].gpus == (2,)


def test_autostart_is_not_inherited_so_that_a_base_may_have_it(tmp_path: Path) -> None:
    config = loaded(tmp_path, f'{BIG}[servers.v]\nextends = "big"\n')
    assert [server.autostart for server in config.servers.values()] == [True, False]


def test_a_base_and_its_variants_are_alternatives(tmp_path: Path) -> None:
    config = loaded(tmp_path, f'{BIG}[servers.v]\nextends = "big"\n[servers.w]\nextends = "v"\n')
    assert define(config)["w"].policy.overlaps == {"big", "v"}


def test_a_port_among_the_added_arguments_is_where_the_server_is_asked(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        """
        [servers.a]
        command = ["llama-server", "--port", "8081"]
        [servers.b]
        extends = "a"
        arguments = ["--port", "8082"]
        """,
    )
    assert [each.port for each in define(config).values()] == [8081, 8082]


def test_servers_stand_in_the_order_of_the_file_wherever_their_base_is(tmp_path: Path) -> None:
    config = loaded(tmp_path, f'[servers.v]\nextends = "big"\n{BIG}')
    assert list(config.servers) == ["v", "big"]


def test_a_template_is_no_server_and_need_not_be_complete(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        """
        [servers.shared]
        template = true
        family = "plain"
        need_mib = 5
        [servers.a]
        extends = "shared"
        command = ["run"]
        port = 1
        gpus = [0]
        """,
    )
    assert list(config.servers) == ["a"]
    assert config.servers["a"].need_mib == 5
    assert not config.servers["a"].template


def test_a_chain_may_be_long_but_not_longer_than_anybody_can_follow(tmp_path: Path) -> None:
    def chain(length: int) -> str:
        return BIG + "".join(f'[servers.v{n}]\nextends = "{f"v{n - 1}" if n else "big"}"\n' for n in range(length - 1))

    assert len(loaded(tmp_path, chain(DEPTH)).servers) == DEPTH
    assert faults(tmp_path, chain(DEPTH + 2)) == [
        f"servers.v0.extends: makes a chain of more than {DEPTH} servers; extend one that is nearer to the base",
        f"servers.v1.extends: makes a chain of more than {DEPTH} servers; extend one that is nearer to the base",
    ]


# -- faults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('extends = "bgi"', "servers.v.extends: names no server; did you mean big?"),
        ('extends = "hunter2"', "servers.v.extends: names no server; define it, or take this out"),
        ('extends = "v"', "servers.v.extends: leads back to itself (v, v); take it out of one of them"),
        ("extends = 3", "servers.v.extends: must be text, not a whole number; put it in quotes"),
        ('extends = "big"\ntemplate = 1', "servers.v.template: must be true or false, not a whole number; write it"),
        ('extends = "big"\narguments = "-x"', "servers.v.arguments: must be a list, not text; put what belongs"),
        ('extends = "big"\narguments = [3]', "servers.v.arguments[0]: must be text, not a whole number; put it"),
        ('extends = "big"\nenvironment = 3', "servers.v.environment: must be a table, not a whole number; write {"),
        ('extends = "big"\nlog.max_mib = 0', "servers.v.log.max_mib: must be 1 or more; give a larger number"),
        ('extends = "big"\nlog.max = 0', "servers.v.log.max: is not a known key; did you mean max_mib?"),
        ('extends = "big"\ngpus = []\nneed_mib = 3', "servers.v.need_mib: needs to know on which GPUs; name them"),
        ('extends = "big"\nautostart = true', "servers.v.autostart: both it and servers.big start by themselves and"),
        (
            'extends = "big"\ntemplate = true\nautostart = true',
            "servers.v.autostart: means nothing in a template; take one of the two out",
        ),
    ],
)
def test_a_faulty_variant_is_told_with_its_path_and_a_remedy(tmp_path: Path, line: str, said: str) -> None:
    (fault,) = faults(tmp_path, f"{BIG}[servers.v]\n{line}\n")
    assert fault.startswith(said)


def test_a_circle_is_told_once_however_many_lead_into_it(tmp_path: Path) -> None:
    links = {"c": "a", "a": "b", "b": "c", "d": "a", "e": "d"}
    text = BIG + "".join(f'[servers.{name}]\nextends = "{base}"\n' for name, base in links.items())
    assert faults(tmp_path, text) == [
        "servers.a.extends: leads back to itself (a, b, c, a); take it out of one of them"
    ]


VARIANTS = '[servers.v]\nextends = "base"\n[servers.w]\nextends = "v"\n[servers.x]\nextends = "base"\n'


@pytest.mark.parametrize("template", ["", "template = true\n"])
@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('command = ["run"]\nport = 1\nstop_s = "x"', "base.stop_s: must be a number"),
        ('command = ["run"]\nport = 1\nmodel = ["m.gguf"]', "base.model[0]: is a relative path"),
        ('command = ["bin/run"]\nport = 1', "base.command[0]: is a relative path"),
        ('command = ["run"]\nport = 8900', "base.port: 8900 is the agent's own"),
        ('command = ["run"]\nport = 1\nneed_mib = 3', "base.need_mib: needs to know on which GPUs"),
        ('command = ["run"]\nport = 1\nenvironment = { A = 1 }', "base.environment.A: must be text"),
        ('command = ["run"]\nport = 1\nprt = 1', "base.prt: is not a known key"),
        ('command = ["run"]\nport = 1\narguments = ["-x", 1]', "base.arguments[1]: must be text"),
        ('command = ["run"]\nport = 1\nrestart.attempts = 0', "base.restart.attempts: must be 1 or more"),
        ('command = ["run"]\narguments = ["-x", "--port", "y"]\nport = 1', "base.arguments[2]: is no port (--port)"),
    ],
)
def test_a_fault_in_what_others_inherit_is_told_where_it_is_written_and_once(
    tmp_path: Path, template: str, lines: str, said: str
) -> None:
    (fault,) = faults(tmp_path, f'[servers.base]\n{template}family = "plain"\n{lines}\n{VARIANTS}')
    assert fault.startswith(f"servers.{said}")


@pytest.mark.parametrize(("missing", "rest"), [("command", "port = 1"), ("port", 'command = ["run"]')])
def test_what_a_base_lacks_its_variants_lack_but_it_is_told_of_the_base_alone(
    tmp_path: Path, missing: str, rest: str
) -> None:
    (fault,) = faults(tmp_path, f'[servers.base]\nfamily = "plain"\n{rest}\n{VARIANTS}')
    assert fault.startswith(f"servers.base.{missing}: is missing")


def test_what_nobody_says_below_a_template_is_told_of_each_server(tmp_path: Path) -> None:
    text = f'[servers.base]\ntemplate = true\nfamily = "plain"\ncommand = ["run"]\n{VARIANTS}'
    assert [fault.partition(": ")[0] for fault in faults(tmp_path, text)] == ["servers.v.port", "servers.x.port"]


def test_a_value_that_is_right_in_the_base_and_wrong_in_the_variant_is_told_of_the_variant(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, f'{BIG}need_mib = 9\n[servers.v]\nextends = "big"\ngpus = []\n')
    assert fault.startswith("servers.v.need_mib: needs to know on which GPUs")


def test_nothing_is_concluded_from_a_base_that_is_faulty_itself(tmp_path: Path) -> None:
    text = (
        '[servers.base]\narguments = 3\ncommand = ["llama-server"]\n[servers.v]\nextends = "base"\narguments = ["-x"]\n'
    )
    assert [fault.partition(": ")[0] for fault in faults(tmp_path, text)] == ["servers.base.arguments"]
    assert [
        fault.partition(": ")[0] for fault in faults(tmp_path, 'servers.base = 3\n[servers.v]\nextends = "base"')
    ] == [
        "servers.v.extends",
        "servers.base",
    ]


def test_which_keys_are_special_is_said_of_keys_that_there_are() -> None:
    assert OWN | MERGED | {ADDED} <= ServerConfig.model_fields.keys()


# -- every file --------------------------------------------------------------------------------------

NAMES = ("a", "b", "c", "d")
VALUES = st.one_of(st.integers(0, 3), st.lists(st.integers(0, 3), max_size=2))
TABLE = st.fixed_dictionaries(
    {},
    optional={
        "extends": st.sampled_from((*NAMES, "none")),
        "port": VALUES,
        "autostart": st.booleans(),
        "arguments": st.one_of(st.lists(st.integers(0, 3), max_size=3), st.just(9)),
        "environment": st.one_of(st.dictionaries(st.sampled_from("XYZ"), VALUES, max_size=2), st.just(9)),
    },
)


def at(tables: Any, where: tuple[str | int, ...]) -> Any:
    """What the file says at a place."""
    for part in where[1:]:
        tables = tables[part]
    return tables


@given(st.dictionaries(st.sampled_from(NAMES), TABLE, max_size=4))
def test_every_part_of_what_is_taken_is_found_again_where_it_is_said_to_be_written(tables: dict[str, Any]) -> None:
    found: list[Fault] = []
    resolved = resolve(tables, found)
    assert len(set(map(str, found))) == len(found), "each fault once"
    assert bool(found) == (len(resolved) < len(tables))
    for name, each in resolved.items():
        assert OWN & each.table.keys() == OWN & tables[name].keys()
        assert tables[name].keys() <= each.table.keys()
        assert each.base is None or list(resolved).index(each.base) < list(resolved).index(name)
        for key, value in each.table.items():
            parts: Any = {}
            if isinstance(value, dict):
                parts = value
            elif key == "arguments" and isinstance(value, list):
                parts = dict(enumerate(value))
            for part, inner in parts.items():
                place = each.place((key, part))
                assert place is not None
                assert at(tables, place) == inner
            if not parts:
                place = each.place((key,))
                assert place is not None
                assert at(tables, place) == value


def test_what_stands_in_the_example_of_a_sweep_is_what_it_says() -> None:
    config = load(Path(__file__).parents[1] / "config" / "examples" / "sweep.toml")
    commands = {name: server.command[-4:] for name, server in config.servers.items()}
    assert commands["small-batch"] == ("--gpu-memory-utilization", "0.90", "--max-num-seqs", "16")
    assert commands["large-batch-full"] == ("--max-num-seqs", "256", "--gpu-memory-utilization", "0.95")
    assert set(config.servers["large-batch-debug"].environment) == {"HF_HUB_OFFLINE", "VLLM_LOGGING_LEVEL"}
