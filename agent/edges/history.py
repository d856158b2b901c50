"""The history: every start with its steps and how it ended, in SQLite."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from agent.core.chronicle import KEPT, Start
from agent.edges.bounded import BoundedThread
from agent.edges.start_row import ADDED, COLUMNS, from_row, to_row
from agent.errors import EdgeError

T = TypeVar("T")

VERSION = 1
LIMIT_S = 5.0
BUSY_S = 2.0  # somebody else, with a shell of SQLite, may hold it for a moment
KEPT_IN_ALL = 10 * KEPT
"""Of servers, too, that are defined no more. Not by age: the clock of a host that has just booted may lie by years."""
SIDES = ("", "-wal", "-shm")
"""The database and what SQLite keeps beside it."""

CREATE = f"""
CREATE TABLE starts (seq INTEGER PRIMARY KEY AUTOINCREMENT, {", ".join(COLUMNS.values())}, UNIQUE (server, invocation));
CREATE INDEX starts_of_server ON starts (server, seq);
PRAGMA user_version = {VERSION};
"""
NAMES = ", ".join(COLUMNS)
PUT = (
    f"INSERT INTO starts ({NAMES}) VALUES ({', '.join('?' * len(COLUMNS))}) "  # noqa: S608  names of our own
    f"ON CONFLICT (server, invocation) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in COLUMNS)}"
)
READ = f"SELECT {NAMES} FROM starts WHERE server = ? ORDER BY seq DESC LIMIT ?"  # noqa: S608  names of our own
FORGET = """DELETE FROM starts WHERE server = :server AND seq <=
    (SELECT seq FROM starts WHERE server = :server ORDER BY seq DESC LIMIT 1 OFFSET :kept)"""
FORGET_IN_ALL = "DELETE FROM starts WHERE seq <= (SELECT seq FROM starts ORDER BY seq DESC LIMIT 1 OFFSET ?)"


class Unfit(Exception):  # noqa: N818  what the file is, not what went wrong
    """The file is no history that this agent can read."""


class HistoryFile:
    """Implements `agent.ports.History`. A file that cannot be understood is set aside, and a new one begun."""

    def __init__(self, path: Path, kept: int = KEPT, kept_in_all: int = KEPT_IN_ALL) -> None:
        self._path = path
        self._seen = path.with_name("agent-seen")
        self._kept = kept
        self._kept_in_all = kept_in_all
        self._thread = BoundedThread("history")
        self._db: sqlite3.Connection | None = None
        self._faults: list[str] = []

    @property
    def faults(self) -> list[str]:
        """See `agent.ports.History`."""
        return list(self._faults)

    async def starts(self, server: str, limit: int) -> list[Start]:
        """See `agent.ports.History`. A row that is not understood is left out, and said."""

        def read(db: sqlite3.Connection) -> list[Start]:
            rows = db.execute(READ, (server, limit)).fetchall()
            starts = [start for row in rows if (start := from_row(row)) is not None]
            if len(starts) < len(rows):
                self._faults.append(f"{self._path}: {len(rows) - len(starts)} starts of {server} are not understood")
            return starts

        return await self._do("read", read)

    async def put(self, start: Start) -> None:
        """See `agent.ports.History`. A put that comes too late is done all the same: it says nothing wrong."""

        def write(db: sqlite3.Connection) -> None:
            with db:  # one transaction: begun by the first statement, taken back by an error
                db.execute("BEGIN IMMEDIATE")
                db.execute(PUT, to_row(start))
                db.execute(FORGET, {"server": start.server, "kept": self._kept})
                db.execute(FORGET_IN_ALL, (self._kept_in_all,))

        await self._do("write", write)

    async def last_seen(self) -> float | None:
        """See `agent.ports.History`: the time of a file beside it, which costs no write to its contents."""
        return await self._thread.run("see when an agent was here", LIMIT_S, lambda given_up: self._last_seen())

    async def still_here(self) -> None:
        """See `agent.ports.History`."""
        await self._thread.run("say that an agent is here", LIMIT_S, lambda given_up: self._still_here())

    async def close(self) -> None:
        """See `agent.ports.History`."""
        await self._thread.run("close", LIMIT_S, lambda given_up: self._let_go())

    # -- in the thread --------------------------------------------------------------------------------

    def _last_seen(self) -> float | None:
        try:
            return self._seen.stat(follow_symlinks=False).st_mtime
        except FileNotFoundError:
            return None

    def _still_here(self) -> None:
        self._seen.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._seen, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
        try:
            os.utime(fd)
        finally:
            os.close(fd)

    async def _do(self, what: str, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._thread.run(what, LIMIT_S, lambda given_up: self._try_twice(what, work))

    def _try_twice(self, what: str, work: Callable[[sqlite3.Connection], T]) -> T:
        """Once more with a new file, when the old one turns out to be none."""
        try:
            return self._try(work)
        except Unfit as error:
            self._set_aside(str(error))
        except sqlite3.Error as error:
            if not _is_broken(error):
                raise EdgeError("history", f"{what} {self._path}", str(error)) from error
            self._set_aside(str(error))
        try:
            return self._try(work)
        except (Unfit, sqlite3.Error) as error:
            raise EdgeError("history", f"{what} {self._path}", str(error)) from error

    def _try(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._db is None:
                self._db = self._open()
            return work(self._db)
        except BaseException:
            self._let_go()  # what made it fail may have changed by the next time, the file itself too
            raise

    def _let_go(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Ours to name its mode, and no link: SQLite gives the files beside it the same mode.
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640))
        db = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            db.text_factory = lambda text: text.decode("utf-8", "replace")
            _check(db)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")  # a power cut may take the last seconds, never the file
            if _number(db, "PRAGMA user_version") == 0:
                db.executescript(f"BEGIN IMMEDIATE; {CREATE} COMMIT;")
            for name in sorted(set(ADDED) - _columns(db)):  # an older agent that comes back knows how to do without
                db.execute(f"ALTER TABLE starts ADD COLUMN {COLUMNS[name]}")
            db.execute(READ, ("", 0))
        except BaseException:
            db.close()
            raise
        return db

    def _set_aside(self, why: str) -> None:
        """Keep the file under another name, for a person. OSError: it cannot be."""
        aside = f"{self._path.name}.broken-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        for side in reversed(SIDES):  # the database last: with it gone, what is beside it would be taken for another's
            path = self._path.with_name(self._path.name + side)
            if path.exists():
                os.replace(path, self._path.with_name(aside + side))
        self._faults.append(f"{self._path}: it is not understood ({why}): begun anew; set aside as {aside}")


def _check(db: sqlite3.Connection) -> None:
    """Unfit: it is not ours, or of a newer agent. sqlite3.DatabaseError: it is damaged."""
    version = _number(db, "PRAGMA user_version")
    if version > VERSION or version < 0:
        raise Unfit(f"version {version}, and this agent knows {VERSION}")
    if (found := db.execute("PRAGMA quick_check(1)").fetchone()) != ("ok",):
        raise Unfit(f"damaged: {found[0] if found else 'no answer'}")
    if version == VERSION and not _columns(db) >= set(COLUMNS) - set(ADDED):
        raise Unfit("columns are missing")
    if version == 0 and _number(db, "SELECT count(*) FROM sqlite_schema"):
        raise Unfit("it is another program's database")


def _columns(db: sqlite3.Connection) -> set[str]:
    return {row[1] for row in db.execute("PRAGMA table_info(starts)")}


def _number(db: sqlite3.Connection, query: str) -> int:
    return int(db.execute(query).fetchone()[0])


def _is_broken(error: sqlite3.Error) -> bool:
    """Whether the file itself is at fault, and not the disk or somebody who holds it."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest says more, of no use here
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
