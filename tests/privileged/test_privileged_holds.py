"""Holds, as root makes them: real files, real records; systemctl is a stand-in with units of its own."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.hold_file import NAME, text_of
from agent.privileged.bucket import Bucket
from agent.privileged.helper import Verbs
from agent.privileged.hold_files import HoldError, HoldFiles
from agent.privileged.hold_records import HoldRecords
from agent.privileged.holds import Holds
from agent.privileged.rival_units import RivalUnits
from agent.privileged.units import SystemdError, Units

NOBODY = 65534
STAND_IN = Path(__file__).parents[1] / "fakes" / "systemctl.py"
CUT_OFF = 9
CHANGES = ("open", "rename", "unlink", "mkdir", "rmdir", "fsync")
"""By these the file system is read and changed."""


class Host:
    """A folder of units, of records, and a systemctl."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.system, self.records = folder, folder / "system", folder / "holds"
        units = RivalUnits(str(folder / "systemctl"))
        self.holds = Holds(units, HoldFiles(self.system), HoldRecords(self.records))
        self.listed: set[str] = set()

    def units(self, **units: dict[str, Any]) -> None:
        """What there is; `_` stands for the dot and `__` for the at of a name."""
        names = {key.replace("__", "@").replace("_", "."): about for key, about in units.items()}
        (self.folder / "units.json").write_text(json.dumps(names))
        subprocess.run([self.folder / "systemctl", "-", "daemon-reload"], check=True)
        (self.folder / "calls").unlink()

    def active(self, unit: str) -> str:
        state: str = json.loads((self.folder / "units.json").read_text())[unit]["active"]
        return state

    def hold(self, *units: str) -> None:
        self.holds.hold(units, {*units, *self.listed})

    def release(self, *units: str) -> None:
        self.holds.release(units)

    def calls(self, *verbs: str) -> list[str]:
        """What was called since the last time, of these verbs."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [line for line in lines if line.split()[0] in (verbs or ("daemon-reload", "stop"))]

    def file(self, unit: str) -> Path:
        return self.system / f"{unit}.d" / NAME

    def is_held(self, *units: str) -> bool:
        return all(self.file(each).read_text() == text_of(each, self.system) for each in units)

    def is_read(self, unit: str) -> bool:
        """Whether systemd knows of its drop-ins as they are."""
        known = json.loads((self.folder / "loaded.json").read_text())[unit]
        there: bool = known == [str(path) for path in (self.system / f"{unit}.d").glob("*.conf")]
        return there

    def record(self, unit: str) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.records / f"{unit}.json").read_text())
        return record

    def tree(self) -> dict[str, tuple[int, int, bytes]]:
        """Every file and folder: mode, time of files in ns, bytes."""
        found = {}
        for path in self.system.rglob("*"):
            state, plain = path.lstat(), path.is_file()
            content = path.read_bytes() if plain else b""
            found[str(path)] = (state.st_mode, state.st_mtime_ns if plain else 0, content)
        return found


@pytest.fixture
def host(tmp_path: Path) -> Host:
    (tmp_path / "system").mkdir()
    (tmp_path / "holds").mkdir()
    (tmp_path / "units.json").write_text("{}")
    (tmp_path / "systemctl").write_text(f"#!{sys.executable} -IS\n" + STAND_IN.read_text())
    (tmp_path / "systemctl").chmod(0o755)
    made = Host(tmp_path)
    made.units(vllm_service={"active": "active", "enabled": "enabled"})
    return made


def refusal(act: Callable[[], None]) -> tuple[str, str]:
    with pytest.raises(HoldError) as raised:
        act()
    return raised.value.slug, str(raised.value)


# -- hold and release -----------------------------------------------------------------------------------


def test_a_hold_writes_what_was_then_the_file_reloads_once_and_stops_without_waiting(host: Host) -> None:
    host.hold("vllm.service")
    assert host.calls() == ["daemon-reload", "stop --no-block -- vllm.service"]
    assert f"\nConditionPathExists=!{host.file('vllm.service')}\n" in host.file("vllm.service").read_text()
    assert host.file("vllm.service").stat().st_mode & 0o777 == 0o644
    record = host.record("vllm.service")
    assert (record["active"], record["enabled"], record["made_folder"], record["prior"]) == (
        "active", "enabled", True, False,
    )  # fmt: skip
    assert (host.records / "vllm.service.json").stat().st_mode & 0o777 == 0o644


def test_a_release_leaves_nothing_reloads_once_and_starts_nothing(host: Host) -> None:
    before = host.tree()
    host.hold("vllm.service")
    host.calls()
    host.release("vllm.service")
    assert host.calls("daemon-reload", "stop", "start", "restart") == ["daemon-reload"]
    assert host.tree() == before
    assert list(host.records.iterdir()) == []


def test_what_is_held_already_and_what_is_not_held_cost_no_reload(host: Host) -> None:
    host.hold("vllm.service")
    host.calls()
    record = host.record("vllm.service")
    host.hold("vllm.service")
    assert (host.calls(), host.record("vllm.service")) == ([], record)
    host.release("other.service")
    assert host.calls() == []


def test_several_units_are_one_reload(host: Host) -> None:
    host.units(a_service={"active": "active"}, b_service={"active": "failed"}, c_timer={"active": "active"})
    host.hold("a.service", "b.service", "c.timer", "absent.service")
    assert host.calls() == ["daemon-reload", "stop --no-block -- a.service c.timer"]
    assert host.is_held("a.service", "b.service", "c.timer", "absent.service")
    host.release("a.service", "b.service", "c.timer", "absent.service")
    assert host.calls() == ["daemon-reload"]
    assert host.tree() == {}


def test_drop_ins_of_others_are_not_touched(host: Host) -> None:
    other = host.system / "vllm.service.d" / "10-own.conf"
    other.parent.mkdir(mode=0o750)
    other.write_text("[Service]\nNice=5\n")
    before = host.tree()
    host.hold("vllm.service")
    assert host.record("vllm.service")["made_folder"] is False
    host.release("vllm.service")
    assert host.tree() == before


def test_a_file_of_our_name_that_was_there_comes_back_with_its_mode_and_time(host: Host) -> None:
    path = host.file("vllm.service")
    path.parent.mkdir()
    path.write_bytes(b"# mine\xff\n")
    path.chmod(0o600)
    os.utime(path, ns=(1_000_000_007, 1_000_000_007))
    before = host.tree()
    host.hold("vllm.service")
    assert host.is_held("vllm.service")
    host.hold("vllm.service")
    host.release("vllm.service")
    assert host.tree() == before
    assert list(host.records.iterdir()) == []


def test_a_folder_that_others_use_by_now_stays_with_their_files(host: Host) -> None:
    host.hold("vllm.service")
    later = host.system / "vllm.service.d" / "50-later.conf"
    later.write_text("[Unit]\n")
    host.release("vllm.service")
    assert [*host.tree()] == [str(later.parent), str(later)]


def test_drift_is_repaired_and_what_was_before_is_not_forgotten(host: Host) -> None:
    path = host.file("vllm.service")
    path.parent.mkdir()
    path.write_text("# mine\n")
    before = host.tree()
    host.hold("vllm.service")
    host.calls()
    for spoil in (path.unlink, lambda: path.write_text("[Unit]\n"), lambda: shutil.rmtree(path.parent)):
        spoil()
        host.hold("vllm.service")
        assert host.is_held("vllm.service")
        assert host.calls() == ["daemon-reload"]
    host.release("vllm.service")
    assert {path: (mode, content) for path, (mode, _, content) in host.tree().items()} == {
        path: (mode, content) for path, (mode, _, content) in before.items()
    }


def test_a_unit_that_came_up_again_is_stopped_again_without_a_reload(host: Host) -> None:
    host.hold("vllm.service")
    host.calls()
    units = {"active": "activating"}
    (host.folder / "units.json").write_text(json.dumps({"vllm.service": units}))
    host.hold("vllm.service")
    assert host.calls() == ["stop --no-block -- vllm.service"]


def test_a_unit_whose_start_is_queued_is_stopped(host: Host) -> None:
    host.units(vllm_service={"active": "inactive", "job": True})
    host.hold("vllm.service")
    assert host.calls()[-1] == "stop --no-block -- vllm.service"


def test_a_masked_unit_that_runs_is_stopped_and_kept_off_for_when_it_is_unmasked(host: Host) -> None:
    host.units(vllm_service={"active": "active", "load": "masked"})
    host.hold("vllm.service")
    assert host.calls() == ["daemon-reload", "stop --no-block -- vllm.service"]
    host.hold("vllm.service")
    assert host.calls() == []


# -- triggers -------------------------------------------------------------------------------------------


def test_what_triggers_it_is_stopped_first_and_held_too_and_released_with_it(host: Host) -> None:
    host.units(
        vllm_service={"active": "active"},
        vllm_socket={"active": "active", "triggers": ["vllm.service"]},
        nightly_timer={"active": "active", "triggers": ["vllm.service"]},
        vllm_path={"active": "inactive", "triggers": ["vllm.service"]},
        vllm_timer={"active": "active", "triggers": ["other.service"]},
    )
    host.hold("vllm.service")
    assert host.calls() == [
        "stop --no-block -- nightly.timer vllm.socket", "daemon-reload", "stop --no-block -- vllm.service",
    ]  # fmt: skip
    assert host.is_held("vllm.service", "vllm.socket", "nightly.timer", "vllm.path")
    assert not host.file("vllm.timer").exists()
    assert host.record("vllm.socket")["of"] == ["vllm.service"]
    slug, why = refusal(lambda: host.release("vllm.socket"))
    assert (slug, why) == ("not_allowed", "vllm.socket is held because it triggers vllm.service: release that")
    host.release("vllm.service")
    assert host.tree() == {}


def test_a_trigger_that_comes_later_is_held_with_the_next_hold(host: Host) -> None:
    host.hold("vllm.service")
    host.units(vllm_service={"active": "inactive"}, new_timer={"active": "active", "triggers": ["vllm.service"]})
    host.hold("vllm.service")
    assert host.calls() == ["stop --no-block -- new.timer", "daemon-reload"]
    host.release("vllm.service")
    assert host.tree() == {}


def test_a_trigger_that_is_listed_itself_stays_held_when_its_service_is_released(host: Host) -> None:
    host.units(vllm_service={"active": "active"}, vllm_socket={"active": "active", "triggers": ["vllm.service"]})
    host.hold("vllm.service", "vllm.socket")
    host.release("vllm.service")
    assert host.is_held("vllm.socket")
    assert not host.file("vllm.service").exists()
    host.release("vllm.socket")
    assert host.tree() == {}


def test_a_template_covers_its_instances_and_the_socket_that_makes_them(host: Host) -> None:
    host.units(
        foo__1_service={"active": "active"},
        foo__b_service={"active": "inactive"},
        food__1_service={"active": "active"},
        foo_socket={"active": "active", "triggers": ["foo@1.service"]},
        each_timer={"active": "active", "triggers": ["foo@b.service"]},
    )
    host.hold("foo@.service")
    assert host.calls() == [
        "stop --no-block -- each.timer foo.socket", "daemon-reload", "stop --no-block -- foo@1.service",
    ]  # fmt: skip
    assert host.is_held("foo@.service", "foo.socket", "each.timer")
    assert host.active("food@1.service") == "active"
    host.hold("foo@.service")
    assert host.calls() == []
    host.release("foo@.service")
    assert host.tree() == {}


def test_one_instance_leaves_the_others_alone(host: Host) -> None:
    host.units(foo__1_service={"active": "active"}, foo__2_service={"active": "active"})
    host.hold("foo@1.service")
    assert (host.active("foo@1.service"), host.active("foo@2.service")) == ("inactive", "active")


def test_a_name_with_an_escape_in_it_is_taken_literally(host: Host) -> None:
    name = "a\\x2db.service"
    (host.folder / "units.json").write_text(json.dumps({name: {"active": "active"}, "a\\x2db@1.service": {}}))
    host.hold(name, "a\\x2db@.service")
    assert host.is_held(name, "a\\x2db@.service")
    assert host.active(name) == "inactive"
    host.hold(name)
    host.release(name, "a\\x2db@.service")
    assert host.tree() == {}


# -- refusals -------------------------------------------------------------------------------------------


def test_what_is_not_listed_or_protected_is_refused_and_the_rest_is_held(host: Host) -> None:
    host.units(
        vllm_service={"active": "active"},
        alias_service={"active": "active", "names": ["alias.service", "gdm.service"]},
        mine_service={"active": "active"},
        ssh_socket={"active": "active", "triggers": ["mine.service"]},
    )
    units = ("vllm.service", "strange.service", "sshd.service", "alias.service", "mine.service")
    slug, why = refusal(lambda: host.holds.hold(units, set(units) - {"strange.service"}))
    assert slug == "not_listed"
    reasons = why.split("; ")
    assert reasons[0].startswith("strange.service is not listed: add it to [rivals] units")
    assert [part.split()[0] for part in reasons if "protected" in part] == [
        "sshd.service", "alias.service", "mine.service",
    ]  # fmt: skip
    assert host.is_held("vllm.service")
    assert {path.name for path in host.records.iterdir()} == {"vllm.service.json"}
    assert host.calls() == ["daemon-reload", "stop --no-block -- vllm.service"]


def _link_folder(host: Host) -> None:
    (host.folder / "elsewhere").mkdir()
    (host.system / "vllm.service.d").symlink_to(host.folder / "elsewhere")


def _link_file(host: Host) -> None:
    host.file("vllm.service").parent.mkdir()
    host.file("vllm.service").symlink_to(host.folder / "elsewhere")


def _others_folder(host: Host) -> None:
    host.file("vllm.service").parent.mkdir()
    os.chown(host.file("vllm.service").parent, NOBODY, NOBODY)


def _open_folder(host: Host) -> None:
    host.file("vllm.service").parent.mkdir()
    host.file("vllm.service").parent.chmod(0o777)


def _linked_twice(host: Host) -> None:
    host.file("vllm.service").parent.mkdir()
    (host.folder / "elsewhere").write_text("x")
    os.link(host.folder / "elsewhere", host.file("vllm.service"))


def _is_a_folder(host: Host) -> None:
    host.file("vllm.service").mkdir(parents=True)


UNSAFE = [_link_folder, _link_file, _others_folder, _open_folder, _linked_twice, _is_a_folder]


@pytest.mark.parametrize("spoil", UNSAFE)
def test_where_somebody_else_could_lead_root_nothing_is_done_and_the_rest_is_held(
    host: Host, spoil: Callable[[Host], None]
) -> None:
    host.units(vllm_service={"active": "active"}, other_service={"active": "active"})
    spoil(host)
    before = host.tree()
    slug, why = refusal(lambda: host.hold("vllm.service", "other.service"))
    assert slug == "unsafe_path"
    assert str(host.file("vllm.service").parent) in why
    assert host.is_held("other.service")
    assert host.active("vllm.service") == "active"
    host.release("other.service")
    assert host.tree() == before
    assert list(host.records.iterdir()) == []


@pytest.mark.parametrize("spoil", UNSAFE)
def test_a_release_past_such_a_place_is_refused_and_done_once_it_is_mended(
    host: Host, spoil: Callable[[Host], None]
) -> None:
    host.hold("vllm.service")
    shutil.rmtree(host.file("vllm.service").parent)
    spoil(host)
    assert refusal(lambda: host.release("vllm.service"))[0] == "unsafe_path"
    assert host.record("vllm.service")["of"] == ["vllm.service"]
    place = host.file("vllm.service").parent
    place.unlink() if place.is_symlink() else shutil.rmtree(place)
    host.release("vllm.service")
    assert list(host.records.iterdir()) == []
    assert host.tree() == {}


def test_a_release_that_is_refused_again_and_again_costs_no_reload(host: Host) -> None:
    host.units(vllm_service={"active": "active"}, t_timer={"active": "active", "triggers": ["vllm.service"]})
    host.hold("vllm.service")
    folder = host.file("t.timer").parent
    folder.chmod(0o777)
    for reloads in (["daemon-reload"], [], []):  # the first has undone the service's own
        host.calls()
        assert refusal(lambda: host.release("vllm.service"))[0] == "unsafe_path"
        assert host.calls("daemon-reload") == reloads
    folder.chmod(0o755)
    host.release("vllm.service")
    assert host.calls("daemon-reload") == ["daemon-reload"]
    assert list(host.records.iterdir()) == []


def test_a_folder_above_that_is_not_roots_alone_is_refused(host: Host) -> None:
    os.chown(host.system, NOBODY, NOBODY)
    slug, why = refusal(lambda: host.hold("vllm.service"))
    assert (slug, f"chown root:root {host.system}" in why) == ("unsafe_path", True)


def test_a_record_that_is_broken_is_said_and_never_overwritten(host: Host) -> None:
    host.hold("vllm.service")
    record = host.records / "vllm.service.json"
    record.write_text("{}")
    for act in (host.hold, host.release):
        slug, why = refusal(lambda act=act: act("vllm.service"))
        assert (slug, str(record) in why) == ("record_broken", True)
    assert (record.read_text(), host.is_held("vllm.service")) == ("{}", True)


@pytest.mark.parametrize("how", ["full", "read-only"])
@pytest.mark.parametrize("place", ["records", "units"])
def test_a_disk_that_takes_no_file_is_named_in_full(host: Host, place: str, how: str) -> None:
    folder = host.records if place == "records" else host.system
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", folder], check=True)
    try:
        if how == "full":
            (folder / "fill").write_bytes(bytes(4096))
        else:
            subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        with pytest.raises(OSError, match=r"No space left on device|Read-only file system") as error:
            host.hold("vllm.service")
    finally:
        subprocess.run(["umount", folder], check=True)
    assert str(error.value.filename).startswith(f"{folder}/")


# -- cut off --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["daemon-reload", "stop"])
def test_what_systemctl_fails_at_is_done_with_the_next_hold(host: Host, verb: str) -> None:
    (host.folder / "broken").write_text(verb)
    with pytest.raises(SystemdError, match="broken"):
        host.hold("vllm.service")
    if verb == "daemon-reload":
        assert host.active("vllm.service") == "active"  # it is turned off only once it is held
    (host.folder / "broken").unlink()
    host.calls()
    host.hold("vllm.service")
    assert host.active("vllm.service") == "inactive"
    assert ("daemon-reload" in host.calls()) == (verb == "daemon-reload")


def test_who_asks_without_end_does_not_keep_systemd_reloading_and_the_rest_is_done_later(host: Host) -> None:
    host.holds._reloads = Bucket(3, 0.0)
    host.hold("vllm.service")
    host.release("vllm.service")
    host.hold("vllm.service")
    host.calls()
    assert refusal(lambda: host.release("vllm.service"))[0] == "too_many"
    assert host.calls("daemon-reload") == []
    host.holds._reloads = Bucket(1, 0.0)
    host.release("vllm.service")
    assert host.calls("daemon-reload") == ["daemon-reload"]
    assert (host.tree(), list(host.records.iterdir())) == ({}, [])


def test_a_release_whose_reload_failed_is_done_with_the_next(host: Host) -> None:
    host.hold("vllm.service")
    (host.folder / "broken").write_text("daemon-reload")
    with pytest.raises(SystemdError, match="broken"):
        host.release("vllm.service")
    (host.folder / "broken").unlink()
    host.calls()
    host.release("vllm.service")
    assert host.calls() == ["daemon-reload"]
    assert list(host.records.iterdir()) == []


def _cut(act: Callable[[], None], after: int) -> bool:
    """Whether the process that does it ended after so many calls, as if the power were cut."""
    child = os.fork()
    if not child:
        code = 1
        try:
            _end_after(after)
            act()
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, CUT_OFF)
    return code == CUT_OFF


def _end_after(calls: int) -> None:
    counter = itertools.count()

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def first(*words: Any, **keys: Any) -> Any:
            if next(counter) == calls:
                os._exit(CUT_OFF)
            return call(*words, **keys)

        return first

    for name in CHANGES:
        setattr(os, name, counted(getattr(os, name)))


@pytest.fixture(params=[False, True], ids=["nothing before", "a file before"])
def first(host: Host, request: pytest.FixtureRequest) -> dict[str, tuple[int, int, bytes]]:
    """The tree as it was first. The unit is one of which systemd does not say which drop-ins it has read."""
    host.units(vllm_service={"active": "active", "load": "masked"})
    if request.param:
        host.file("vllm.service").parent.mkdir()
        host.file("vllm.service").write_text("# mine\n")
        subprocess.run([host.folder / "systemctl", "-", "daemon-reload"], check=True)
    return host.tree()


def test_wherever_a_hold_is_cut_off_the_next_one_goes_on_and_the_first_state_comes_back(
    host: Host, first: dict[str, tuple[int, int, bytes]]
) -> None:
    units, after = (host.folder / "units.json").read_text(), 1
    while _cut(lambda: host.hold("vllm.service"), after):
        host.hold("vllm.service")
        assert host.is_held("vllm.service")
        assert host.is_read("vllm.service")
        assert host.active("vllm.service") == "inactive"
        _comes_back(host, first)
        (host.folder / "units.json").write_text(units)
        after += 4
    assert after > 20


def test_wherever_a_release_is_cut_off_the_next_one_goes_on(
    host: Host, first: dict[str, tuple[int, int, bytes]]
) -> None:
    host.hold("vllm.service")
    after = 1
    while _cut(lambda: host.release("vllm.service"), after):
        _comes_back(host, first)
        host.hold("vllm.service")
        after += 4
    assert after > 10


def _comes_back(host: Host, first: dict[str, tuple[int, int, bytes]]) -> None:
    host.release("vllm.service")
    assert host.tree() == first
    assert list(host.records.iterdir()) == []
    assert host.is_read("vllm.service")


# -- as verbs -------------------------------------------------------------------------------------------


def _verbs(host: Host) -> Verbs:
    config = host.folder / "gpuagent.toml"
    config.write_text('[servers.demo]\ncommand = ["x"]\n[rivals]\nunits = ["vllm.service", "gone.service"]\n')
    config.chmod(0o644)
    return Verbs(Units(str(host.folder / "systemctl"), host.folder), config, host.folder, host.holds)


def _ask(verbs: Verbs, **request: Any) -> tuple[dict[str, Any], str]:
    return verbs.answer(json.dumps(request).encode())


def test_the_roots_own_configuration_says_what_may_be_held(host: Host) -> None:
    verbs = _verbs(host)
    reply, asked = _ask(verbs, verb="hold", units=["vllm.service"])
    assert (reply, asked) == ({"ok": True}, "hold vllm.service")
    reply, asked = _ask(verbs, verb="hold", units=["gone.service", "strange.service"])
    assert (reply["ok"], reply["slug"], asked) == (False, "not_listed", "hold gone.service strange.service")
    assert host.is_held("gone.service")


def test_a_release_needs_no_word_of_the_configuration(host: Host) -> None:
    verbs = _verbs(host)
    host.hold("vllm.service")
    (host.folder / "gpuagent.toml").chmod(0o666)
    assert _ask(verbs, verb="hold", units=["vllm.service"])[0]["slug"] == "policy_unreadable"
    assert _ask(verbs, verb="release", units=["vllm.service"])[0] == {"ok": True}
    assert host.tree() == {}


@pytest.mark.parametrize("verb", ["hold", "release"])
@pytest.mark.parametrize("units", ["vllm.service", [1], None, {}, ["vllm.service", "vllm.service"], ["../x.service"]])
def test_what_is_no_list_of_units_is_refused(host: Host, verb: str, units: Any) -> None:
    verbs = _verbs(host)
    reply, _ = _ask(verbs, verb=verb, units=units)
    assert (reply["ok"], reply["slug"] in ("bad_request", "not_listed")) == (False, True)
    assert (host.tree(), list(host.records.iterdir())) == ({}, [])


@pytest.mark.parametrize("rivals", ["1", "{units = 1}", "{units = [1]}", '{units = "vllm.service"}'])
def test_a_configuration_whose_rivals_make_no_sense_allows_nothing(host: Host, rivals: str) -> None:
    verbs = _verbs(host)
    (host.folder / "gpuagent.toml").write_text(f'rivals = {rivals}\n[servers.demo]\ncommand = ["x"]\n')
    assert _ask(verbs, verb="hold", units=["vllm.service"])[0]["slug"] == "policy_unreadable"
