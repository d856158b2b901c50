"""A real launch, by root, of real programs that become another user; its folders are the test's."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.launch_spec import digest
from agent.privileged import checking, logs, policy, records
from tests.privileged.privileged_house import DEADLINE_S

USER, UID = "nobody", 65534
READER, READER_UID = "daemon", 1
LAUNCH = """
import sys
from pathlib import Path
from agent.privileged import launch
verb, folder = sys.argv[1], Path(sys.argv[2])
places = launch.Places(folder / "gpuagent.toml", folder / "records", folder / "logs", sys.argv[3], ())
launch.VERBS[verb]("demo", places)
"""
UNIT_INVOCATION = "ab12cd34" * 4
OURS = {
    "INVOCATION_ID": UNIT_INVOCATION,
    "NOTIFY_SOCKET": "/run/x",
    "WATCHDOG_USEC": "1",
    "LISTEN_FDS": "1",
    "LEAK": "1",
}
FOREIGN_GROUP = 4242


class Place:
    """A folder that everybody may enter, with a configuration of one server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("records", "logs"):
            (folder / name).mkdir(0o755)
        self.configure(["/bin/true"])

    def configure(self, command: list[str], environment: Mapping[str, str] | None = None, **keys: Any) -> None:
        lines = ["[servers.demo]", *(f"{key} = {json.dumps(each)}" for key, each in {"user": USER, **keys}.items())]
        lines += [f"command = {json.dumps(command)}", "[servers.demo.environment]"]
        lines += [f"{key} = {json.dumps(each)}" for key, each in (environment or {}).items()]
        (self.folder / "gpuagent.toml").write_text("\n".join(lines) + "\n")

    def digest(self) -> str:
        return digest(policy.load(self.folder / "gpuagent.toml").spec("demo"))

    def order(self, invocation: str = "0123abcd-7", **other: Any) -> None:
        at = time.clock_gettime(time.CLOCK_BOOTTIME)
        order = {"invocation": invocation, "digest": self.digest(), "at": at, **other}
        records.write("demo", "order", order, 0o600, self.folder / "records")

    def do(self, verb: str, *, variables: Mapping[str, str] = OURS, fds: tuple[int, ...] = ()) -> int:
        """As the unit does it; its exit status."""
        done = subprocess.run(
            [sys.executable, "-c", LAUNCH, verb, str(self.folder), READER],
            env=dict(variables),
            extra_groups=[FOREIGN_GROUP],
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=DEADLINE_S,
            check=False,
        )
        (self.folder / "journal").write_bytes(done.stdout + done.stderr)
        return done.returncode

    def record(self, kind: str) -> dict[str, Any]:
        found = records.read("demo", kind, self.folder / "records")
        assert found is not None, kind
        return found

    def log_path(self, invocation: str = "0123abcd-7") -> Path:
        return self.folder / "logs" / "demo" / f"{invocation}.log"

    def shell(self, script: str, **keys: Any) -> str:
        """What a server that is this script writes to its log."""
        self.configure(["/bin/sh", "-c", script], **keys)
        self.order()
        assert self.do("run") == 0
        return self.log_path().read_text()


@pytest.fixture
def place() -> Iterator[Place]:
    """Not in tmp_path, which is root's alone."""
    folder = Path(tempfile.mkdtemp(prefix="gpuagent-launch-"))
    folder.chmod(0o755)
    yield Place(folder)
    shutil.rmtree(folder)


# -- who the server is ----------------------------------------------------------------------------------


def test_the_server_is_its_user_with_that_users_groups_and_none_of_roots(place: Place) -> None:
    assert place.shell("id -u; id -g; id -G").split() == [str(UID), str(UID), str(UID)]


def test_the_server_cannot_become_root_again(place: Place) -> None:
    status = place.shell("cat /proc/self/status")
    found = dict(line.split(":\t", 1) for line in status.splitlines())
    assert found["Uid"].split() == [str(UID)] * 4
    assert found["Gid"].split() == [str(UID)] * 4
    assert {int(found[key], 16) for key in ("CapPrm", "CapEff", "CapAmb")} == {0}


def test_signals_are_the_servers_to_set(place: Place) -> None:
    status = place.shell("exec cat /proc/self/status")
    found = dict(line.split(":\t", 1) for line in status.splitlines())
    for key in ("SigBlk", "SigIgn"):
        marked = {number for number in range(1, 65) if int(found[key], 16) >> number - 1 & 1}
        # The C library's own (32, 33) no program can change, whoever ignored them before the tests began.
        assert not marked & signal.valid_signals(), key


def test_no_descriptor_of_ours_reaches_the_server(place: Place) -> None:
    secret = place.folder / "secret"
    secret.write_text("hf_canary")
    place.configure(["/bin/ls", "-l", "/proc/self/fd"])
    place.order()
    with secret.open() as file:
        assert place.do("run", fds=(file.fileno(),)) == 0
    log = place.log_path().read_text()
    assert "secret" not in log
    assert {line.split()[-3] for line in log.splitlines() if "->" in line} == {"0", "1", "2", "3"}  # 3: ls's own


def test_the_environment_is_the_servers_own(place: Place) -> None:
    (place.folder / "secret.env").write_text("HF_TOKEN=hf_canary\n")
    (place.folder / "secret.env").chmod(0o600)
    keys: dict[str, Any] = {
        "gpus": [1],
        "environment": {"A": "said"},
        "environment_file": str(place.folder / "secret.env"),
    }
    place.configure(["/usr/bin/env"], **keys)
    place.order()
    assert place.do("run") == 0
    assert dict(line.split("=", 1) for line in place.log_path().read_text().splitlines()) == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "HOME": "/nonexistent",
        "USER": USER,
        "LOGNAME": USER,
        "SHELL": "/bin/sh",
        "A": "said",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "1",
        "HF_TOKEN": "hf_canary",
    }
    assert "hf_canary" not in "".join(each.read_text() for each in (place.folder / "records").iterdir())


def test_the_working_folder_is_entered_as_the_servers_user(place: Place) -> None:
    assert place.shell("pwd", working_dir=str(place.folder)) == f"{place.folder}\n"
    (place.folder / "closed").mkdir(0o700)
    place.configure(["/bin/true"], working_dir=str(place.folder / "closed"))
    place.order("0123abcd-8")
    assert place.do("run") == 78
    assert "gpuagent-launch: launch_failed: working folder" in place.log_path("0123abcd-8").read_text()


def test_the_program_is_sought_in_the_servers_own_path(place: Place) -> None:
    program = place.folder / "only-here"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    place.configure(["only-here"], environment={"PATH": f"{place.folder}:/bin"})
    place.order()
    assert place.do("run") == 0
    assert place.log_path().read_text() == "found\n"


# -- what is written of it ------------------------------------------------------------------------------


def test_the_record_names_the_process_that_the_server_is(place: Place) -> None:
    said = place.shell("exec cat /proc/self/stat")
    launch = place.record("launch")
    assert launch["pid"] == int(said.split()[0])
    assert launch["started"] == int(said.rpartition(")")[2].split()[19])
    assert (launch["invocation"], launch["unit_invocation"]) == ("0123abcd-7", UNIT_INVOCATION)
    assert (launch["ordered"], launch["digest"]) == (True, place.digest())
    assert not (place.folder / "records" / "demo.order.json").exists()


@pytest.mark.parametrize("age_s", [None, 100.0], ids=["none", "too old"])
def test_without_an_order_it_is_an_administrators_start(place: Place, age_s: float | None) -> None:
    if age_s is not None:
        place.order(at=time.clock_gettime(time.CLOCK_BOOTTIME) - age_s)
    assert place.do("run") == 0
    assert (place.record("launch")["ordered"], place.record("launch")["invocation"]) == (False, "ab12cd34-0")
    assert place.log_path("ab12cd34-0").exists()


def test_the_log_is_the_readers_and_its_folder_roots(place: Place) -> None:
    place.shell("true")
    log, folder = place.log_path().stat(), place.log_path().parent.stat()
    assert (log.st_uid, log.st_mode & 0o777) == (READER_UID, 0o640)
    assert (folder.st_uid, folder.st_mode & 0o777) == (0, 0o755)


def test_what_the_server_writes_is_appended_whoever_else_writes(place: Place) -> None:
    said = place.shell("echo one; grep -h flags /proc/self/fdinfo/1 /proc/self/fdinfo/2")
    flags = [int(line.split()[1], 8) for line in said.splitlines()[1:]]
    assert len(flags) == 2
    assert all(each & os.O_APPEND for each in flags)


def test_surplus_logs_of_earlier_attempts_go_the_oldest_first(place: Place) -> None:
    folder = place.log_path().parent
    folder.mkdir(0o755)
    for number in range(1, 6):
        (folder / f"0123abcd-{number}.log").write_text("old\n")
        os.utime(folder / f"0123abcd-{number}.log", (number, number))
    (folder / "notes.txt").touch()
    place.shell("echo new")
    assert len(list(folder.iterdir())) == 7
    logs.forget("demo", "0123abcd-7", {"keep_attempts": 2}, place.folder / "logs")
    kept = {"0123abcd-4.log", "0123abcd-5.log", "0123abcd-7.log", "notes.txt"}
    assert {each.name for each in folder.iterdir()} == kept
    logs.forget("demo", "0123abcd-7", {"keep_mib": 0}, place.folder / "logs")
    assert {each.name for each in folder.iterdir()} == {"0123abcd-7.log", "notes.txt"}


# -- what fails -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "slug"),
    [
        (["/no/such/program"], "exec_missing"),
        (["no-such-program"], "exec_missing"),
        (["/etc/passwd/x"], "exec_missing"),
        (["/etc/passwd"], "exec_not_executable"),
        (["/tmp"], "exec_not_executable"),
        (["FOLDER/no-interpreter"], "exec_not_executable"),
        (["no-interpreter"], "exec_not_executable"),
        (["FOLDER/no-format"], "exec_not_executable"),
    ],
    ids=str,
)
def test_a_failed_exec_is_told_in_the_logs_last_line(place: Place, command: list[str], slug: str) -> None:
    for name, text in (("no-interpreter", "#!/no/such/interpreter\n"), ("no-format", "nothing that runs\n")):
        (place.folder / name).write_text(text)
        (place.folder / name).chmod(0o755)
    words = [each.replace("FOLDER", str(place.folder)) for each in command]
    place.configure(words, environment={"PATH": f"{place.folder}:/bin"})
    place.order()
    assert place.do("run") == 78
    assert place.log_path().read_text().splitlines()[-1].startswith(f"gpuagent-launch: {slug}: ")


@pytest.mark.parametrize(
    ("keys", "slug", "says"),
    [
        ({"user": "no-such-user"}, "launch_failed", "no-such-user does not exist"),
        ({"user": "root"}, "launch_failed", "does not run as root"),
        ({"user": "0"}, "launch_failed", "user 0 does not exist"),
        ({"environment_file": "/no/such/file"}, "bad_env", "/no/such/file"),
        ({"environment_file": "/etc/passwd"}, "bad_env", "/etc/passwd: line 1"),
        ({"working_dir": "/no/such/folder"}, "launch_failed", "/no/such/folder"),
        ({"working_dir": "/a\0b"}, "launch_failed", "null"),
    ],
    ids=str,
)
def test_a_definition_that_cannot_be_carried_out_launches_nothing(
    place: Place, keys: dict[str, Any], slug: str, says: str
) -> None:
    place.order()
    place.configure(["/bin/echo", "launched"], **keys)
    (place.folder / "records" / "demo.order.json").unlink()
    assert place.do("run") == 78
    log = place.log_path("ab12cd34-0").read_text()
    assert log.startswith(f"gpuagent-launch: {slug}: ")
    assert says in log
    assert "root:" not in log  # nothing of a file that root alone might read


def test_an_order_of_another_definition_launches_nothing(place: Place) -> None:
    place.order(digest="0" * 16)
    place.configure(["/bin/echo", "launched"])
    assert place.do("run") == 78
    assert "the definition has changed" in place.log_path().read_text()
    assert records.read("demo", "launch", place.folder / "records") is None


def test_a_configuration_that_others_may_write_launches_nothing(place: Place) -> None:
    place.order()
    (place.folder / "gpuagent.toml").chmod(0o666)
    assert place.do("run") == 78
    assert "chmod go-w" in place.log_path().read_text()


def test_a_log_that_is_there_already_is_never_written_to(place: Place) -> None:
    place.shell("echo first")
    place.order()
    assert place.do("run") == 78
    assert place.log_path().read_text() == "first\n"
    assert "gpuagent-launch: log_unwritable: " in (place.folder / "journal").read_text()


@pytest.mark.parametrize("what", ["the file", "its folder", "the folder above"])
def test_a_symlink_on_the_way_to_the_log_is_refused(place: Place, what: str) -> None:
    victim = place.folder / "victim"
    victim.mkdir()
    link = {
        "the file": place.log_path(),
        "its folder": place.log_path().parent,
        "the folder above": place.folder / "logs",
    }
    if what == "the folder above":
        (place.folder / "logs").rmdir()
    else:
        link[what].parent.mkdir(0o755, exist_ok=True)
    link[what].symlink_to(victim / "file" if what == "the file" else victim)
    place.order()
    assert place.do("run") == 78
    assert list(victim.iterdir()) == []


@pytest.mark.parametrize("what", ["another user's", "writable by others"])
@pytest.mark.parametrize("which", ["logs", "logs/demo"])
def test_a_log_folder_that_is_not_roots_alone_is_refused(place: Place, which: str, what: str) -> None:
    (place.folder / "logs" / "demo").mkdir(0o755)
    if what == "another user's":
        os.chown(place.folder / which, UID, UID)
    else:
        (place.folder / which).chmod(0o777)
    place.order()
    assert place.do("run") == 78
    assert not place.log_path().exists()
    assert "log_unwritable" in (place.folder / "journal").read_text()


# -- how it ended ---------------------------------------------------------------------------------------

KILLED = {"SERVICE_RESULT": "signal", "EXIT_CODE": "killed", "EXIT_STATUS": "TERM"}


@pytest.mark.parametrize("asked", [True, False])
def test_an_end_is_written_down_with_who_wanted_it(place: Place, asked: bool) -> None:
    place.shell("true")
    place.do("stopping", variables={**OURS, **({"MAINPID": "77"} if asked else {})})
    assert place.do("ended", variables={**OURS, **KILLED}) == 0
    record = place.record("exit")
    assert {key: value for key, value in record.items() if key != "at"} == {
        "invocation": "0123abcd-7",
        "unit_invocation": UNIT_INVOCATION,
        "asked": asked,
        "result": "signal",
        "code": "killed",
        "status": "TERM",
    }
    assert not (place.folder / "records" / "demo.stopping.json").exists()


def test_the_end_of_another_activation_is_not_taken_for_this_ones(place: Place) -> None:
    place.shell("true")
    place.do("stopping", variables={**OURS, "MAINPID": "77"})
    place.do("ended", variables={**OURS, "INVOCATION_ID": "f" * 32})
    assert (place.record("exit")["invocation"], place.record("exit")["asked"]) == ("", False)


# -- the look beforehand --------------------------------------------------------------------------------


def test_a_look_that_finds_all_it_needs_says_so(place: Place) -> None:
    assert place.do("check") == 0
    assert (place.record("check")["digest"], place.record("check")["needs"]) == (place.digest(), [])


def test_a_look_is_with_the_users_eyes_and_reads_secrets_with_roots(place: Place) -> None:
    for name in ("model.gguf", "secret.env"):
        (place.folder / name).write_text("A=hf_canary\n")
        (place.folder / name).chmod(0o600)
    keys: dict[str, Any] = {
        "model": [str(place.folder / "model.gguf")],
        "environment_file": str(place.folder / "secret.env"),
    }
    place.configure(["/bin/true"], **keys)
    assert place.do("check") == 0
    assert [need["slug"] for need in place.record("check")["needs"]] == ["model_unreadable"]
    assert "hf_canary" not in json.dumps(place.record("check"))


@pytest.mark.parametrize(
    ("command", "keys", "slugs"),
    [
        (["/no/such/program"], {}, ["exec_missing"]),
        (
            ["llama-server", "-m", "/no/such/model.gguf"],
            {"environment": {"PATH": "/no"}},
            ["exec_missing", "missing_weights"],
        ),
        (["/bin/true"], {"working_dir": "/no/such/folder"}, ["launch_failed"]),
        (["/bin/true"], {"environment_file": "/no/such/file"}, ["bad_env"]),
        (["/bin/true"], {"user": "no-such-user"}, ["launch_failed"]),
        (["/bin/true"], {"user": "root"}, ["launch_failed"]),
    ],
    ids=str,
)
def test_a_look_names_what_is_missing(place: Place, command: list[str], keys: dict[str, Any], slugs: list[str]) -> None:
    place.configure(command, **keys)
    record = checking.checked("demo", place.folder / "gpuagent.toml")
    assert [need["slug"] for need in record["needs"]] == slugs
    assert all(need["text"] and need["remedy"] for need in record["needs"])


@pytest.mark.parametrize("verb", ["run", "check"])
@pytest.mark.parametrize("what", ["a link to another's", "a file of the server's user", "in a folder of his", "a pipe"])
def test_root_reads_no_secrets_that_others_could_have_laid_there(place: Place, verb: str, what: str) -> None:
    """Else the server's user would have root read another server's secrets to him."""
    other_env = place.folder / "another.env"
    other_env.write_text("TOKEN=hf_canary\n")
    other_env.chmod(0o600)
    home = place.folder / "home"
    home.mkdir()
    mine = home / "mine.env"
    if what == "a link to another's":
        mine.symlink_to(other_env)
    elif what == "a pipe":
        os.mkfifo(mine)
    else:
        mine.write_text("TOKEN=mine\n")
        shutil.chown(mine if what == "a file of the server's user" else home, USER)
    place.configure(["/usr/bin/env"], environment_file=str(mine))
    place.order()
    place.do(verb)
    said = json.dumps(place.record("check")["needs"]) if verb == "check" else place.log_path().read_text()
    assert "bad_env" in said
    assert "hf_canary" not in said
