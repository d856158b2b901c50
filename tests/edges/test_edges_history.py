"""The history on real files: damaged, newer, full, read-only, held, killed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.core.chronicle import Outcome, Start
from agent.core.model import Exit, Step
from agent.core.outage import Outage
from agent.edges import history
from agent.edges.history import VERSION, HistoryFile
from agent.errors import EdgeError
from tests.edges.edges_house import until
from tests.edges.test_edges_store import no_file_larger_than

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]

START = Start(
    server="one",
    invocation="r-1",
    attempt=2,
    digest="d",
    boot_id=None,
    launched=1_700_000_000.25,
    began=12.5,
)
WHOLE = replace(
    START,
    boot_id="b",
    steps=((Step.LAUNCHED, 0.0), (Step.LOADING_WEIGHTS, 1.5)),
    marks=((Step.LOADING_WEIGHTS, 3, 2.5),),
    ready_s=9.75,
    ended_s=100.5,
    outcome=Outcome.CRASHED,
    cause_slug="oom",
    cause_text="out of memory \udcff\x00 'quoted'; --",
    cause_quoted=True,
    exit=Exit(signal=9, oom=True),
    watched=False,
    outage=Outage(since=1_699_999_999.5, tries=3, lasted_s=4.25),
    missed=1_700_000_100.75,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "history.sqlite"


@pytest.fixture
async def past(path: Path) -> AsyncIterator[HistoryFile]:
    past = HistoryFile(path)
    yield past
    await past.close()


async def again(path: Path, server: str = "one") -> list[Start]:
    """What another run of the agent reads."""
    past = HistoryFile(path)
    try:
        return await past.starts(server, 1000)
    finally:
        await past.close()


def asides(path: Path) -> list[str]:
    """Databases that were set aside."""
    return sorted(each.name for each in path.parent.glob("history.sqlite.broken-*Z"))


# -- kept ------------------------------------------------------------------------------------------


async def test_a_history_that_is_not_there_is_empty_and_no_fault(past: HistoryFile, path: Path) -> None:
    assert await past.starts("one", 10) == []
    assert past.faults == []
    assert stat.S_IMODE(os.stat(path).st_mode) & 0o007 == 0  # causes may quote a log


async def test_every_part_of_a_start_comes_back(past: HistoryFile, path: Path) -> None:
    await past.put(WHOLE)
    await past.put(replace(START, invocation="r-2"))
    kept = replace(WHOLE, cause_text="out of memory ?\x00 'quoted'; --")  # half of a surrogate pair cannot be stored
    assert await again(path) == [replace(START, invocation="r-2"), kept]


async def test_a_start_that_is_put_again_stands_in_its_place(past: HistoryFile, path: Path) -> None:
    await past.put(START)
    await past.put(replace(START, invocation="r-2"))
    await past.put(replace(START, ready_s=3.0))
    assert [(start.invocation, start.ready_s) for start in await again(path)] == [("r-2", None), ("r-1", 3.0)]


async def test_servers_may_have_the_same_invocation_and_do_not_see_each_others_starts(
    past: HistoryFile, path: Path
) -> None:
    await past.put(START)
    await past.put(replace(START, server="two", attempt=7))
    assert [start.attempt for start in await again(path)] == [2]
    assert [start.attempt for start in await again(path, "two")] == [7]


async def test_the_limit_counts_from_the_newest(past: HistoryFile) -> None:
    for number in range(5):
        await past.put(replace(START, invocation=f"r-{number}", launched=float(-number)))  # the clock was set back
    assert [start.invocation for start in await past.starts("one", 2)] == ["r-4", "r-3"]


async def test_only_so_many_starts_are_kept_of_a_server_and_of_all(path: Path) -> None:
    past = HistoryFile(path, kept=3, kept_in_all=5)
    for number in range(6):
        await past.put(replace(START, invocation=f"r-{number}"))
    for number in range(4):
        await past.put(replace(START, server="two", invocation=f"r-{number}"))
    assert [start.invocation for start in await past.starts("two", 9)] == ["r-3", "r-2", "r-1"]
    assert [start.invocation for start in await past.starts("one", 9)] == ["r-5", "r-4"]
    await past.close()


async def test_a_long_line_of_a_log_is_cut(past: HistoryFile, path: Path) -> None:
    await past.put(replace(WHOLE, cause_text="x" * 1_000_000))
    (start,) = await again(path)
    assert start.cause_text == "x" * 500


async def test_a_shell_of_sqlite_may_read_while_the_agent_writes(past: HistoryFile, path: Path) -> None:
    await past.put(WHOLE)
    with sqlite3.connect(path) as reader:
        row = reader.execute("SELECT json_extract(steps, '$[1][0]'), outcome FROM starts").fetchone()
        assert row == ("loading-weights", "crashed")
        await past.put(replace(START, invocation="r-2"))
    reader.close()


FIRST_TABLE = """
CREATE TABLE starts (seq INTEGER PRIMARY KEY AUTOINCREMENT, server TEXT NOT NULL, invocation TEXT NOT NULL,
    attempt INTEGER NOT NULL, digest TEXT NOT NULL, boot_id TEXT, launched REAL NOT NULL, began REAL NOT NULL,
    steps TEXT NOT NULL, marks TEXT NOT NULL, ready_s REAL, ended_s REAL, outcome TEXT, cause_slug TEXT,
    cause_text TEXT, cause_quoted INTEGER NOT NULL, exit TEXT, watched INTEGER NOT NULL, UNIQUE (server, invocation));
"""
FIRST_ROW = """
INSERT INTO starts VALUES (1, 'one', 'r-0', 1, 'd', 'b', 1700000000.25, 12.5, '[["launched", 0.0]]', '[]', 9.5, NULL,
    NULL, NULL, NULL, 0, '[0, null, false, true, false]', 1)
"""


async def test_a_history_of_the_first_version_is_read_and_written_and_stays_one(path: Path) -> None:
    path.parent.mkdir()
    run_sql(path, FIRST_TABLE, FIRST_ROW, f"PRAGMA user_version = {VERSION}")
    past = HistoryFile(path)
    try:
        (old,) = await past.starts("one", 10)
        assert (old.invocation, old.ready_s, old.outage, old.missed) == ("r-0", 9.5, None, None)
        await past.put(WHOLE)
        assert [each.invocation for each in await again(path)] == ["r-1", "r-0"]
        assert past.faults == []
    finally:
        await past.close()
    assert (await again(path))[0].outage == WHOLE.outage


async def test_it_is_known_when_an_agent_was_last_here(past: HistoryFile, path: Path) -> None:
    assert await past.last_seen() is None
    await past.still_here()
    at = await past.last_seen()
    assert at == pytest.approx(time.time(), abs=600)
    os.utime(path.with_name("agent-seen"), (1.0, 1_600_000_000.0))
    assert await HistoryFile(path).last_seen() == 1_600_000_000.0


async def test_the_trace_of_an_agent_is_no_link_to_elsewhere(past: HistoryFile, path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    path.with_name("agent-seen").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EdgeError):
        await past.still_here()
    assert not (tmp_path / "elsewhere").exists()


# -- damaged ---------------------------------------------------------------------------------------


Spoil = Callable[[Path], None]


def spoiled(path: Path, spoil: Spoil) -> bytes:
    """What the file is then."""
    spoil(path)
    return content_of(path)


def content_of(path: Path) -> bytes:
    return path.read_bytes()


def make_garbage(path: Path) -> None:
    path.write_bytes(b"no database " * 1000)


def make_torn(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def make_scribbled(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(4096))


def make_newer(path: Path) -> None:
    run_sql(path, f"PRAGMA user_version = {VERSION + 1}")


def make_foreign(path: Path) -> None:
    path.unlink()
    run_sql(path, "CREATE TABLE notes (text)")


def make_changed(path: Path) -> None:
    run_sql(path, "ALTER TABLE starts RENAME COLUMN ready_s TO ready")


def run_sql(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        db.execute(statement)
    db.close()


@pytest.mark.parametrize(
    "spoil", [make_garbage, make_torn, make_scribbled, make_newer, make_foreign, make_changed], ids=lambda f: f.__name__
)
async def test_a_database_that_is_not_understood_is_set_aside_and_said_and_a_new_one_begun(
    path: Path, spoil: Spoil
) -> None:
    past = HistoryFile(path)
    for number in range(200):
        await past.put(replace(WHOLE, invocation=f"old-{number}"))
    await past.close()
    before = spoiled(path, spoil)
    past = HistoryFile(path)
    assert await past.starts("one", 10) == []
    (fault,) = past.faults
    (aside,) = asides(path)
    assert "begun anew" in fault
    assert aside in fault
    assert content_of(path.parent / aside) == before
    await past.put(START)
    await past.close()
    assert await again(path) == [START]
    assert len(asides(path)) == 1


async def test_a_database_that_breaks_while_it_is_used_is_set_aside_too(path: Path) -> None:
    past = HistoryFile(path)
    await past.put(WHOLE)
    await past.close()
    await past.starts("one", 1)  # open
    make_garbage(path)
    await past.close()
    await past.put(START)
    assert len(past.faults) == len(asides(path)) == 1
    assert await past.starts("one", 10) == [START]
    await past.close()


async def test_a_row_that_is_not_understood_is_left_out_and_said(past: HistoryFile, path: Path) -> None:
    for number in range(4):
        await past.put(replace(START, invocation=f"r-{number}"))
    run_sql(
        path,
        "UPDATE starts SET steps = 'nonsense' WHERE invocation = 'r-0'",
        "UPDATE starts SET outcome = 'vaporised' WHERE invocation = 'r-1'",
        """UPDATE starts SET steps = '[["launched", 0], ["dreaming", 1]]' WHERE invocation = 'r-2'""",
    )
    found = await past.starts("one", 10)
    assert [start.invocation for start in found] == ["r-3", "r-2"]
    assert found[1].steps == ((Step.LAUNCHED, 0.0),)  # a step of another version
    assert past.faults == [f"{path}: 2 starts of one are not understood"]


# -- the disk --------------------------------------------------------------------------------------


async def test_a_disk_that_takes_no_more_is_an_edge_error_and_nothing_is_lost(past: HistoryFile, path: Path) -> None:
    await past.put(START)

    async def fill() -> None:
        for number in range(100):
            await past.put(replace(WHOLE, invocation=f"full-{number}", cause_text="x" * 500))

    with no_file_larger_than(65536), pytest.raises(EdgeError, match="history: write"):
        await fill()
    assert past.faults == asides(path) == []
    await past.put(replace(START, invocation="later"))
    found = [start.invocation for start in await again(path)]
    assert (found[0], found[1:]) == ("later", [*(f"full-{n}" for n in reversed(range(len(found) - 2))), "r-1"])


ON_A_SMALL_DISK = """
import asyncio, json, subprocess, sys
from dataclasses import replace
from pathlib import Path
from agent.edges.history import HistoryFile
from agent.errors import EdgeError
from tests.edges.test_edges_history import START, asides

async def main(path):
    past, why = HistoryFile(path), []
    number = 0
    try:
        while number < 10_000:
            number += 1
            await past.put(replace(START, invocation=f"r-{number}", cause_text="x" * 500))
    except EdgeError as error:
        why.append(error.why)
    kept = [start.invocation for start in await past.starts("one", 10_000)]
    whole = kept == [f"r-{each}" for each in range(number - 1, max(0, number - 1 - len(kept)), -1)]
    await past.close()
    subprocess.run(["mount", "-o", "remount,ro", path.parent], check=True)
    try:
        await past.put(START)
    except EdgeError as error:
        why.append(error.why)
    return why, whole, len(kept), past.faults, asides(path)

folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], check=True)
print(json.dumps(asyncio.run(main(folder / "history.sqlite"))))
"""


def test_a_full_disk_and_a_read_only_one_are_edge_errors_and_what_was_written_is_kept(tmp_path: Path) -> None:
    in_own_mounts = ["unshare", "--mount"]  # what is mounted there is gone with the process
    if subprocess.run([*in_own_mounts, "mount", "-t", "tmpfs", "tmpfs", tmp_path], capture_output=True).returncode:
        pytest.skip("this user may not mount")
    done = subprocess.run(
        [*in_own_mounts, sys.executable, "-c", ON_A_SMALL_DISK, tmp_path],
        capture_output=True,
        check=True,
        text=True,
        cwd=ROOT,
    )
    why, whole, kept, faults, aside = json.loads(done.stdout)
    assert "full" in why[0] or "disk I/O" in why[0]
    assert kept > 10
    assert "Read-only" in why[1] or "readonly" in why[1]
    assert whole
    assert (faults, aside) == ([], [])


async def test_a_folder_that_cannot_be_made_is_an_edge_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    past = HistoryFile(tmp_path / "file" / "history.sqlite")
    with pytest.raises(EdgeError):
        await past.starts("one", 1)
    await past.close()


async def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "history.sqlite").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EdgeError):
        await HistoryFile(tmp_path / "history.sqlite").put(START)
    assert not (tmp_path / "elsewhere").exists()


async def test_a_file_that_somebody_else_holds_is_an_edge_error_and_works_again_afterwards(
    past: HistoryFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "BUSY_S", 0.05)
    await past.put(START)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(EdgeError, match="locked"):
        await past.put(replace(START, invocation="r-2"))
    other.execute("ROLLBACK")
    other.close()
    await past.put(replace(START, invocation="r-2"))
    assert len(await again(path)) == 2
    assert asides(path) == []


PUTS_WITHOUT_END = """
import asyncio, sys
from dataclasses import replace
from pathlib import Path
from agent.edges.history import HistoryFile
from tests.edges.test_edges_history import START

async def main():
    past, number = HistoryFile(Path(sys.argv[1])), int(sys.argv[2])
    while True:
        number += 1
        await past.put(replace(START, invocation=f"r-{number}"))
        print(number, flush=True)

asyncio.run(main())
"""


def killed(path: Path, said: int, kill_after: int) -> int:
    """Writes until it is killed. The number of the last start that it said it had put; `said`: of an earlier one."""
    command = [sys.executable, "-c", PUTS_WITHOUT_END, str(path), str(said)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as writer:
        assert writer.stdout is not None
        for _ in range(kill_after):
            said = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        return max([said, *(int(line) for line in writer.stdout if line.endswith("\n"))])


async def test_a_kill_in_the_middle_of_puts_loses_nothing_that_was_put(path: Path) -> None:
    said = 0
    for kill_after in (1, 7, 40):
        said = killed(path, said, kill_after)
        newest = (await again(path))[0].invocation
        assert newest in (f"r-{said}", f"r-{said + 1}")  # the last one may have been written and not said
        said = int(newest.removeprefix("r-"))
    past = HistoryFile(path)
    assert len(await past.starts("one", 1000)) == said
    assert past.faults == []
    await past.close()


async def test_a_disk_that_hangs_costs_the_caller_only_its_deadline(
    past: HistoryFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "LIMIT_S", 0.2)
    await past.put(START)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(EdgeError, match="no answer"):
        await past.put(replace(START, invocation="r-2"))  # SQLite waits for longer
    with pytest.raises(EdgeError, match="still hangs"):
        await past.starts("one", 1)
    other.execute("ROLLBACK")
    other.close()

    async def works() -> bool:
        try:
            return len(await past.starts("one", 9)) == 2
        except EdgeError:
            return False

    await until(works, "the end of the hanging put")
