"""The looks at what a launch needs of the host: real files, real mounts, a real frozen disk."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.core.seen import Need
from agent.families.catalog import CATALOG
from agent.preconditions import Preconditions
from agent.privileged import become, checking, looks, mounts, space, weights
from agent.privileged.asking import Asking, Say
from agent.privileged.known import Known
from tests import weights as made
from tests.disks import Disk, disk
from tests.privileged.privileged_house import DEADLINE_S

OTHER_UUID = "00000000-0000-4000-8000-000000000000"


def needs(known: Known | None = None, **keys: Any) -> list[Need]:
    """Those that a server of these needs has, which is else without any."""
    models, forgotten = keys.pop("models", ()), keys.pop("forgotten", ())
    wanted = looks.Wanted(
        command=keys.pop("command", ("/bin/true",)),
        search="/bin",
        base=keys.pop("base", Path("/")),
        models=tuple(map(str, models)),
        environment_file=keys.pop("environment_file", None),
        preconditions=Preconditions(**keys),
        forgotten=tuple(map(str, forgotten)),
    )
    found = looks.needs(wanted, known or Known(), lambda path: None)
    assert all(need.cause.slug in CATALOG and need.cause.text and need.cause.remedy for need in found)
    return found


def need(**keys: Any) -> Need:
    (found,) = needs(**keys)
    return found


@pytest.fixture
def a_disk(tmp_path: Path) -> Iterator[Disk]:
    with disk(tmp_path) as made_one:
        yield made_one


# -- weights ---------------------------------------------------------------------------------------------


def test_a_model_that_is_whole_needs_nothing(tmp_path: Path) -> None:
    made.sharded(tmp_path)
    single, ggml = made.safetensors(tmp_path / "one.safetensors"), made.gguf(tmp_path / "one.gguf")
    (tmp_path / "vocabulary.bin").write_bytes(b"x")
    assert needs(models=[tmp_path, single, ggml, tmp_path / "vocabulary.bin"]) == []


@pytest.mark.parametrize("by", [1, 4096, 4096 + 20])
def test_a_shard_that_was_cut_short_is_named_with_both_sizes(tmp_path: Path, by: int) -> None:
    _, shard, _ = made.sharded(tmp_path)
    whole = shard.stat().st_size
    made.cut(shard, by)
    found = need(models=[tmp_path])
    assert (found.cause.slug, found.heals, found.subject) == ("missing_weights", False, str(tmp_path))
    assert shard.name in found.cause.text
    assert str(whole - by) in found.cause.text


def test_a_shard_that_the_index_names_and_that_is_not_there_is_named(tmp_path: Path) -> None:
    shards = made.sharded(tmp_path, 4)
    for shard in shards[2:]:
        shard.unlink()
    text = need(models=[tmp_path]).cause.text
    assert f"{shards[2].name}, and 1 more of the 4 shards" in text


def test_weights_beside_an_index_are_not_judged_and_without_one_each_is(tmp_path: Path) -> None:
    made.sharded(tmp_path)
    spare = made.safetensors(tmp_path / "spare.safetensors")
    made.cut(spare, 1)
    assert needs(models=[tmp_path]) == []
    (tmp_path / "model.safetensors.index.json").unlink()
    assert spare.name in need(models=[tmp_path]).cause.text


def test_shards_of_another_format_must_be_there_and_are_not_read(tmp_path: Path) -> None:
    index = {"weight_map": {"a": "pytorch_model-1.bin", "b": "pytorch_model-2.bin"}}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    (tmp_path / "pytorch_model-1.bin").write_bytes(b"any")
    assert "pytorch_model-2.bin of the 2 shards" in need(models=[tmp_path]).cause.text


@pytest.mark.parametrize("content", ["", "{", "[]", '{"weight_map": 1}', "[" * 100_000])
def test_an_index_that_is_broken_is_told_and_one_of_another_kind_is_left_alone(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.index.json").write_text(content)
    broken = content in ("", "{") or len(content) > 1000
    assert [each.cause.slug for each in needs(models=[tmp_path])] == (["missing_weights"] if broken else [])


@pytest.mark.parametrize(
    "head", [b"", b"1234567", b"\xff" * 8, b"\x02" + bytes(7) + b"[]", b"\x05" + bytes(7) + b'{"a":', bytes(100)]
)
def test_a_file_that_is_none_of_safetensors_is_told(tmp_path: Path, head: bytes) -> None:
    (tmp_path / "x.safetensors").write_bytes(head)
    assert need(models=[tmp_path / "x.safetensors"]).cause.slug == "missing_weights"


@pytest.mark.parametrize("left", [3, 4, 20, 24, 60, 150, 400, -2000, -100])
def test_a_gguf_file_that_was_cut_short_is_told_as_far_as_its_header_shows_it(tmp_path: Path, left: int) -> None:
    file = made.gguf(tmp_path / "x.gguf")
    whole = file.stat().st_size
    made.cut(file, -left if left < 0 else whole - left)
    found = needs(models=[file])
    in_the_last_tensor = left < 0 and -left < 2048
    assert [each.cause.slug for each in found] == ([] if in_the_last_tensor else ["missing_weights"])


def test_every_part_of_a_model_in_parts_must_be_there(tmp_path: Path) -> None:
    parts = [made.gguf(tmp_path / f"m-{number:05}-of-00003.gguf") for number in (1, 2, 3)]
    assert needs(models=[parts[0]]) == []
    parts[2].unlink()
    assert f"{parts[2].name} is not there" in need(models=[parts[0]]).cause.text


def test_what_is_not_understood_is_not_judged(tmp_path: Path) -> None:
    file = made.gguf(tmp_path / "x.gguf")
    content = bytearray(file.read_bytes())
    content[4] = 9  # a version of the format that is yet to come
    file.write_bytes(content[:100])
    assert needs(models=[file]) == []


@pytest.mark.parametrize("name", ["x.safetensors", "x.gguf", "x.index.json"])
def test_a_pipe_in_the_place_of_weights_is_told_and_waited_for_by_nobody(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    assert f"{tmp_path / name}: is no regular file" in need(models=[tmp_path]).cause.text


def nested(tmp_path: Path) -> None:
    lists = struct.pack("<IQ", 9, 1) * 5000
    word = struct.pack("<Q", 1) + b"k" + struct.pack("<I", 9) + lists
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + word)


def header(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)


@pytest.mark.parametrize(
    "make",
    [
        nested,
        lambda folder: header(folder, b'{"a":{"data_offsets":[0,1e999]}}'),
        lambda folder: header(folder, b'{"a":{"data_offsets":[0,NaN]}}'),
        lambda folder: header(folder, b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"),
        lambda folder: (folder / "x.index.json").write_text(json.dumps({"weight_map": {"a": "\0", "b": "x" * 5000}})),
        lambda folder: (folder / "x.index.json").write_text(json.dumps({"weight_map": {"a": "\ud800"}})),
        lambda folder: (folder / "x.index.json").write_text("[" * 5000),
    ],
    ids=["nested gguf", "infinite", "no number", "nested header", "odd shards", "surrogate", "nested index"],
)
def test_no_file_of_weights_ends_the_look(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path)
    assert len(needs(models=[tmp_path])) <= 1


def test_headers_are_read_again_only_when_their_file_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = made.sharded(tmp_path)
    read: list[str] = []
    true = weights._safetensors

    def counted(file: Path) -> str | None:
        read.append(file.name)
        return true(file)

    monkeypatch.setattr(weights, "_safetensors", counted)
    first = Known()
    assert needs(first, models=[tmp_path]) == []
    second = Known(json.loads(json.dumps(first.kept)))  # as it comes back from the disk
    read.clear()
    made.cut(shards[1], 1)
    assert [each.cause.slug for each in needs(second, models=[tmp_path])] == ["missing_weights"]
    assert read == [shards[1].name]


@pytest.mark.parametrize("told", [{"safetensors x": 1}, {"x": []}, {"safetensors x": [[1], None]}])
def test_what_an_earlier_look_has_told_amiss_is_not_believed(tmp_path: Path, told: dict[str, Any]) -> None:
    made.cut(made.safetensors(tmp_path / "x.safetensors"), 1)
    assert len(needs(Known(told), models=[tmp_path])) == 1


# -- content ---------------------------------------------------------------------------------------------


def test_a_patch_that_is_missing_is_told_and_gone_once_it_is_applied(tmp_path: Path) -> None:
    file = tmp_path / "engine.py"
    file.write_text("def run(): pass\n")
    found = need(contains={str(file): "local fix 17"})
    assert (found.name, found.cause.slug, found.heals) == ("patch", "patch_missing", False)
    file.write_text("def run(): pass  # local fix 17\n")
    assert needs(contains={str(file): "local fix 17"}) == []


def test_a_file_with_another_digest_is_told_with_its_own(tmp_path: Path) -> None:
    file = tmp_path / "serve.sh"
    file.write_text("exec serve\n")
    digest = hashlib.sha256(b"exec serve\n").hexdigest()
    assert needs(sha256={str(file): digest.upper()}) == []
    found = need(sha256={str(file): "0" * 64})
    assert (found.cause.slug, found.heals) == ("file_changed", False)
    assert digest in found.cause.text


def test_a_file_that_is_too_large_to_be_hashed_at_every_look_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate((64 << 20) + 1)
    assert "64 MiB" in need(sha256={str(tmp_path / "large"): "0" * 64}).cause.text


@pytest.mark.parametrize("key", ["files", "contains", "sha256"])
def test_a_file_that_is_not_there_is_named_whatever_is_asked_of_it(tmp_path: Path, key: str) -> None:
    path = str(tmp_path / "none")
    asked: Any = [path] if key == "files" else {path: "0" * 64}
    found = need(**{key: asked})
    assert (found.cause.slug, found.subject, found.heals) == ("file_missing", path, False)
    assert needs(files=[str(tmp_path)]) == []


# -- space -----------------------------------------------------------------------------------------------


def test_little_free_space_and_few_inodes_are_waited_for_with_their_figures(a_disk: Disk) -> None:
    folder = str(a_disk.kept / "cache" / "yet to be made")
    assert needs(free_mib={folder: 1}, free_inodes={folder: 10}) == []
    found = needs(free_mib={folder: 1 << 20}, free_inodes={folder: 1 << 30})
    assert [(each.name, each.cause.slug, each.heals, each.subject) for each in found] == [
        ("space", "space_low", True, folder),
        ("inodes", "space_low", True, folder),
    ]
    assert f"of {1 << 20} MiB needed" in found[0].cause.text


def test_shared_memory_that_is_too_small_is_refused_and_that_is_taken_is_waited_for(tmp_path: Path) -> None:
    state = os.statvfs(tmp_path)
    size, free = state.f_blocks * state.f_frsize >> 20, state.f_bavail * state.f_frsize >> 20
    assert space.shared_memory(0, 0, "/no/such/folder") is None
    assert space.shared_memory(size, free // 2, str(tmp_path)) is None
    small, taken = space.shared_memory(size + 1, 0, str(tmp_path)), space.shared_memory(1, size + 1, str(tmp_path))
    assert small is not None
    assert taken is not None
    assert [(small.cause.slug, small.heals), (taken.cause.slug, taken.heals)] == [
        ("shm_small", False),
        ("space_low", True),
    ]


# -- mounts ----------------------------------------------------------------------------------------------


def test_a_folder_on_which_nothing_is_mounted_is_waited_for_and_nothing_else_is_judged(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    for folder in (tmp_path / "models", tmp_path / "none"):
        found = need(mounts=[str(folder)], files=[str(folder / "x")], models=[folder / "m"], command=("/no/such",))
        assert (found.name, found.cause.slug, found.heals) == ("mount", "mount_missing", True)
        assert str(folder) in found.cause.text


def test_a_mount_is_met_at_its_own_place_alone_and_through_symlinks_too(a_disk: Disk, tmp_path: Path) -> None:
    (a_disk.kept / "inner").mkdir()
    (tmp_path / "link").symlink_to(a_disk.kept)
    assert needs(mounts=[str(a_disk.kept)]) == []
    assert needs(mounts=[str(tmp_path / "link")]) == []
    assert need(mounts=[str(a_disk.kept / "inner")]).cause.slug == "mount_missing"


def test_the_file_system_counts_and_not_its_device(a_disk: Disk) -> None:
    place = str(a_disk.kept)
    assert needs(filesystems={place: a_disk.uuid.upper()}) == []
    before = a_disk.device
    a_disk.detach()
    a_disk.attach(other_than=before)
    assert a_disk.device != before
    assert needs(filesystems={place: a_disk.uuid}) == []
    a_disk.detach()
    assert need(filesystems={place: a_disk.uuid}).cause.text == f"Nothing is mounted at {place}"


def test_another_file_system_in_its_place_is_told_by_its_uuid(a_disk: Disk) -> None:
    found = need(filesystems={str(a_disk.kept): OTHER_UUID})
    assert (found.cause.slug, found.heals) == ("mount_missing", True)
    assert a_disk.uuid in found.cause.text


def test_where_the_kernel_does_not_tell_a_uuid_udevs_names_do(
    a_disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "by-uuid").mkdir()
    (tmp_path / "by-uuid" / "ABCD-1234").symlink_to(a_disk.device)
    (tmp_path / "by-uuid" / "dangling").symlink_to("/no/such/device")
    monkeypatch.setattr(mounts, "BY_UUID", str(tmp_path / "by-uuid"))
    monkeypatch.setattr(mounts, "GET_UUID", 0)
    assert needs(filesystems={str(a_disk.kept): "abcd-1234"}) == []
    (tmp_path / "by-uuid" / "ABCD-1234").unlink()
    assert "does not tell its UUID" in need(filesystems={str(a_disk.kept): OTHER_UUID}).cause.text


ODD_MOUNT = """
import os, subprocess, sys
from agent.privileged import mounts
place = os.path.join(os.fsencode(sys.argv[1]), os.fsencode(sys.argv[2]))
os.mkdir(place)
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
assert mounts.mounted(os.fsdecode(place), None) is None
"""


@pytest.mark.parametrize("name", ["a\rb", "a\u2028b", "a\x0cb", "a\x1cb", "a\udcffb", "a b\nc\\", "-"])
def test_no_name_of_a_mount_ends_the_look(tmp_path: Path, name: str) -> None:
    """Any user may have one: with FUSE."""
    subprocess.run(["unshare", "--mount", sys.executable, "-c", ODD_MOUNT, tmp_path, name], check=True)


def test_the_device_that_a_file_system_of_a_users_own_names_proves_nothing(
    a_disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FUSE has whoever mounts it say its source."""
    (tmp_path / "by-uuid").mkdir()
    (tmp_path / "by-uuid" / "abcd-1234").symlink_to(a_disk.device)
    monkeypatch.setattr(mounts, "BY_UUID", str(tmp_path / "by-uuid"))
    for kind, found in (("btrfs", {"abcd-1234"}), ("fuse", set()), ("fuse.mine", set())):
        said = mounts.Mount(1, 0, str(tmp_path), kind, a_disk.device)
        assert mounts.uuids("/proc", said) == found


# -- what a boot forgets ---------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["command", "script", "base", "models", "environment_file"])
def test_what_the_next_launch_needs_may_not_lie_where_a_boot_forgets_it(tmp_path: Path, key: str) -> None:
    file = tmp_path / "kept" / "serve.sh"
    file.parent.mkdir()
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    keys: dict[str, Any] = {
        "command": {"command": (str(file),)},
        "script": {"command": ("/bin/sh", "-e", str(file))},
        "base": {"base": file.parent},
        "models": {"models": [file]},
        "environment_file": {"environment_file": str(file)},
    }[key]
    assert needs(**keys, forgotten=[tmp_path / "elsewhere"]) == []
    found = need(**keys, forgotten=[tmp_path])
    assert (found.name, found.cause.slug, found.heals) == ("volatile", "volatile_path", False)
    assert str(file.parent) in found.cause.text


def test_secrets_may_lie_where_a_unit_lays_them_anew_at_each_boot(tmp_path: Path) -> None:
    with tempfile.NamedTemporaryFile(dir="/run") as secrets:
        assert needs(environment_file=secrets.name, forgotten=["/run", tmp_path]) == []
        secrets.write(b"x")
        secrets.flush()
        assert need(models=[secrets.name], forgotten=["/run"]).cause.slug == "volatile_path"


def test_a_symlink_hides_nothing_and_one_that_leads_out_is_fine(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "m.bin").write_bytes(b"x")
    (outside / "link").symlink_to(inside / "m.bin")
    (inside / "link").symlink_to(outside / "m.bin")
    assert need(models=[outside / "link"], forgotten=[inside]).cause.slug == "volatile_path"
    assert needs(models=[inside / "link"], forgotten=[inside]) == []


def test_a_disk_that_is_mounted_there_or_a_mount_that_is_named_is_no_such_place(a_disk: Disk) -> None:
    (a_disk.kept / "m.bin").write_bytes(b"x")
    asked: dict[str, Any] = {"models": [a_disk.kept / "m.bin"], "forgotten": [a_disk.kept.parent]}
    assert needs(**asked) == []
    asked["forgotten"] = [a_disk.kept]  # a disk of its own for /tmp is emptied all the same
    assert need(**asked).cause.slug == "volatile_path"
    assert needs(**asked, mounts=[str(a_disk.kept)]) == []


def test_an_argument_that_is_no_script_may_lie_anywhere(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("x")
    command = ("/bin/true", "--cache", str(tmp_path / "cache"), str(tmp_path / "cache"))
    assert needs(command=command, forgotten=[tmp_path]) == []
    assert needs(command=("/bin/sh", "-c", str(tmp_path / "cache")), forgotten=[tmp_path]) == []


# -- a frozen disk ---------------------------------------------------------------------------------------

CHECK = """
import sys
from pathlib import Path
from agent.privileged import launch
folder = Path(sys.argv[1])
launch.check("demo", launch.Places(folder / "gpuagent.toml", folder / "records", folder, "daemon", ()))
"""


@pytest.fixture
def open_disk() -> Iterator[Disk]:
    """Where another user may look."""
    with tempfile.TemporaryDirectory(prefix="gpuagent-needs-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "records").mkdir()
        with disk(folder) as made_one:
            yield made_one


def configure(folder: Path, **keys: str) -> None:
    lines = ["[servers.demo]", 'command = ["/bin/true"]', 'user = "nobody"', *(f'{k} = "{v}"' for k, v in keys.items())]
    (folder / "gpuagent.toml").write_text("\n".join(lines))


def told(folder: Path, slug: str | None, after: float = 0.0) -> dict[str, Any]:
    """The record of a look, once it names `slug` alone (None: nothing) and is younger than `after`."""
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        time.sleep(0.05)
        path = folder / "records" / "demo.check.json"
        record: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"at": -1.0, "needs": None}
        if record["at"] > after and record["needs"] is not None:
            slugs = [each["slug"] for each in record["needs"]]
            if slugs == ([] if slug is None else [slug]):
                return record
    raise AssertionError(f"no record with {slug} alone; the last one is {record}")


def test_a_look_at_a_frozen_disk_is_told_of_while_it_hangs_and_ends_once_it_thaws(open_disk: Disk) -> None:
    folder = open_disk.image.parent
    (open_disk.kept / "m").mkdir(mode=0o755)
    configure(folder, working_dir=str(open_disk.kept / "m"))
    open_disk.freeze()
    check = subprocess.Popen([sys.executable, "-c", CHECK, str(folder)])
    try:
        first = told(folder, "storage_stalled")
        again = told(folder, "storage_stalled", first["at"])
        assert again["needs"] == first["needs"], "since when it stalls does not change"
        assert f"Storage stalled: {open_disk.kept / 'm'} does not answer since " in first["needs"][0]["text"]
        assert first["needs"][0]["heals"]
        open_disk.thaw()
        assert check.wait(DEADLINE_S) == 0
        assert told(folder, None)["at"] < again["at"], "it holds as of when the look began"
    finally:
        open_disk.thaw()
        check.kill()
        check.wait()


def test_a_definition_that_turns_away_from_a_frozen_disk_ends_the_look_at_it(open_disk: Disk) -> None:
    folder = open_disk.image.parent
    configure(folder, working_dir=str(open_disk.kept))
    open_disk.freeze()
    check = subprocess.Popen([sys.executable, "-c", CHECK, str(folder)])
    try:
        told(folder, "storage_stalled")
        configure(folder)
        assert check.wait(DEADLINE_S) == 0, "though what it started hangs still"
        subprocess.run([sys.executable, "-c", CHECK, str(folder)], check=True, timeout=DEADLINE_S)
        assert json.loads((folder / "records" / "demo.check.json").read_text())["needs"] == []
    finally:
        open_disk.thaw()
        check.kill()
        check.wait()


@pytest.mark.parametrize(
    "work",
    [
        lambda say: os._exit(3),
        lambda say: os.kill(os.getpid(), 9),
        lambda say: say({"at": "/x"}),
        lambda say: say({"needs": None, "known": {}}),
        lambda say: say({"needs": [{"name": "x"}], "known": {}}),
        lambda say: say({"needs": [], "known": {}, "more": "x" * (5 << 20)}),
    ],
    ids=["ends", "is killed", "answers nothing", "no needs", "half a need", "too much"],
)
def test_a_child_that_does_not_answer_well_is_a_need_and_not_believed(
    tmp_path: Path, work: Callable[[Say], None]
) -> None:
    asking = Asking(work)
    until = time.monotonic() + DEADLINE_S
    while not asking.wait():
        assert time.monotonic() < until
    nobody = become.user_of("nobody")
    (found,) = checking._finished({"needs": []}, asking, nobody, "demo")["needs"]
    assert found["slug"] == "launch_failed"
    assert "as user nobody, failed" in found["text"]


def test_a_child_that_is_held_up_in_its_end_is_not_waited_for(tmp_path: Path) -> None:
    """Its user may stop it at any moment."""

    def work(say: Say) -> None:
        say({"needs": [], "known": {}})
        os.closerange(3, 100)
        os.kill(os.getpid(), signal.SIGSTOP)

    asking = Asking(work)
    until = time.monotonic() + DEADLINE_S
    while not asking.wait():
        assert time.monotonic() < until
    assert asking.answer() == {"needs": [], "known": {}}


WITH_THE_UNITS_RIGHTS = """
import sys, time
from agent.privileged import become
from agent.privileged.asking import Asking
def work(say):
    become.become(become.user_of("nobody"))
    while not sys.argv[1:]:
        time.sleep(1)
    while True:
        say({"more": "x" * 100_000})
asking = Asking(work)
if sys.argv[1:]:
    while not asking.wait():
        pass
    try:
        asking.answer()
    except ValueError as error:
        assert "-9" in str(error)
else:
    asking.wait()
    asking.leave()
"""


@pytest.mark.parametrize("too_much", [[], ["too much"]], ids=["left", "says too much"])
def test_the_units_rights_suffice_to_end_what_it_has_started(too_much: list[str]) -> None:
    unit = (Path(__file__).parents[2] / "systemd" / "gpuagent-check@.service").read_text()
    (rights,) = [line for line in unit.splitlines() if line.startswith("CapabilityBoundingSet=")]
    bounded = ",".join(f"+{each.lower()[4:]}" for each in rights.partition("=")[2].split())
    command = ["setpriv", f"--bounding-set=-all,{bounded}", "--no-new-privs", sys.executable, "-c"]
    done = subprocess.run([*command, WITH_THE_UNITS_RIGHTS, *too_much], stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def looked(folder: Path) -> dict[str, Any]:
    subprocess.run([sys.executable, "-c", CHECK, str(folder)], check=True, timeout=DEADLINE_S)
    record: dict[str, Any] = json.loads((folder / "records" / "demo.check.json").read_text())
    return record


@pytest.fixture
def open_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gpuagent-needs-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for each in ("records", "m"):
            (folder / each).mkdir(mode=0o755)
        yield folder


def models(folder: Path, user: str = "nobody") -> None:
    text = f'[servers.demo]\ncommand = ["/bin/true"]\nuser = "{user}"\nmodel = ["{folder / "m"}"]\n'
    (folder / "gpuagent.toml").write_text(text)


def test_a_file_that_would_take_all_memory_is_not_judged(open_folder: Path) -> None:
    models(open_folder)
    header(open_folder / "m", b'{"a":[' + b"{}," * ((22 << 20) // 3) + b"{}]}")
    assert looked(open_folder)["needs"] == []


def test_what_a_file_is_called_breaks_no_terminal_and_no_database(open_folder: Path) -> None:
    models(open_folder)
    made.cut(made.safetensors(open_folder / "m" / "ä\udcff\x1b[2J\n.safetensors"), 1)
    (found,) = looked(open_folder)["needs"]
    assert "ä\\udcff\\x1b[2J\\n.safetensors has " in found["text"]
    assert all(str(text).isprintable() for text in found.values())


def test_what_one_user_has_seen_of_a_file_is_not_believed_of_another(open_folder: Path) -> None:
    models(open_folder)
    file = made.safetensors(open_folder / "m" / "x.safetensors")
    file.chmod(0o600)
    os.chown(file, become.user_of("nobody").uid, 0)
    assert looked(open_folder)["needs"] == []
    assert looked(open_folder)["needs"] == []
    models(open_folder, "daemon")
    assert "Permission denied" in looked(open_folder)["needs"][0]["text"]


def test_a_look_changes_nothing_where_it_tries_a_write(open_disk: Disk) -> None:
    before = sorted(os.listdir(open_disk.kept))
    space.take_a_write(str(open_disk.kept))
    assert sorted(os.listdir(open_disk.kept)) == before


def test_the_models_of_a_command_are_told_from_look_to_look_and_anew_when_it_changes(open_folder: Path) -> None:
    def command(flag: str, file: str) -> None:
        words = f'["/bin/true", "{flag}", "{open_folder / file}", "--port", "8080"]'
        text = f'[servers.demo]\ncommand = {words}\nuser = "nobody"\nfamily = "llama_cpp"\n'
        (open_folder / "gpuagent.toml").write_text(text)

    def missing() -> list[str]:
        return [need["text"] for need in looked(open_folder)["needs"]]

    command("-m", "one.gguf")
    assert [missing(), missing()] == [[f"Model {open_folder / 'one.gguf'} does not exist"]] * 2
    command("--model", "two.gguf")
    assert missing() == [f"Model {open_folder / 'two.gguf'} does not exist"]
    (open_folder / "records" / "demo.known.json").write_text('{"uid": 65534, "models": [[], 5]}')
    assert missing() == [f"Model {open_folder / 'two.gguf'} does not exist"]
