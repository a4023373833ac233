"""The controller's journal: tickets, what the policy has learnt, and every event, in one SQLite file."""

import fcntl
import json
import os
import secrets
import socket
import sqlite3
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, TextIO

from dally.errors import DallyError
from slurm_plugin.control.tickets import Ticket, from_data, to_data

NAME = "journal.sqlite"
KEEP_S = 60 * 86_400.0
"""Events older than this are dropped."""

MOST_EVENTS = 1_000_000
"""So are the oldest beyond this many."""

BUSY_S = 10.0
"""How long another process may keep the journal from being written, seconds."""

_READ_BUSY_S = 5.0
_MOST_READ = 1_000
_TRIM_EVERY = 1_000
_MOST_UNWRITTEN = 100_000

_SCHEMA = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tickets (job TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS events (number INTEGER PRIMARY KEY, t REAL NOT NULL, job TEXT, body TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS events_of_job ON events (job);
"""
_COLUMNS = {
    ("facts", "name"),
    ("facts", "value"),
    ("tickets", "job"),
    ("tickets", "body"),
    ("events", "body"),
}


class JournalError(DallyError):
    """The journal cannot be written: the controller must not act until it can."""


class FencedError(DallyError):
    """Another controller has taken over: this one must not act any more."""


class BusyError(DallyError):
    """Another controller is at work on this machine."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What a journal remembers.

    Attributes:
        tickets: By number of the job.
        policy: Specification of the policy that learnt; empty if there was none.
        learnt: What it learnt.
        now_s: The last time the controller acted at.
        lost: Why an earlier journal could not be read; empty if it could, or there was none.
    """

    tickets: dict[str, Ticket]
    policy: str
    learnt: Mapping[str, Any]
    now_s: float
    lost: str


class Journal:
    """The one place where the controller keeps what Slurm does not; every action follows a commit to it.

    Opening it takes a lock on this machine and a new epoch: a controller elsewhere that shares the file finds
    at its next commit, before its next action, that the epoch is no longer its own. The file may lie on a
    network file system, so it keeps to SQLite's rollback journal, which only needs locks there.

    Args:
        folder: The state directory; made if missing.

    Raises:
        BusyError: A controller holds the lock.
        JournalError: The folder or file cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._events: deque[tuple[float, str | None, str]] = deque(maxlen=_MOST_UNWRITTEN)
        self._commits = 0
        self._lost = ""
        self._epoch = secrets.token_hex(8)
        self._open()

    def close(self) -> None:
        """Give up the lock."""
        self._database.close()
        self._lock.close()

    def _open(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = _locked(self._path.parent / "lock")
        except OSError as error:
            raise JournalError(f"cannot open the journal {self._path}: {error}") from error
        try:
            self._lost = _set_aside_if_broken(self._path)
            self._database = sqlite3.connect(self._path, isolation_level=None, timeout=BUSY_S)
            self._take_over()
            self._inode = self._path.stat().st_ino
        except (OSError, sqlite3.Error) as error:
            self._lock.close()
            raise JournalError(f"cannot open the journal {self._path}: {error}") from error

    def _take_over(self) -> None:
        self._database.execute("PRAGMA journal_mode=DELETE")
        self._database.executescript(_TABLES)
        with self._transaction():
            self._set("schema", _SCHEMA)
            self._set("epoch", self._epoch)
            self._set("owner", f"{socket.gethostname()}, process {os.getpid()}")

    def _trim(self, now: float) -> None:
        self._database.execute("DELETE FROM events WHERE t < ?", (now - KEEP_S,))
        last = "(SELECT max(number) FROM events)"
        self._database.execute(f"DELETE FROM events WHERE number <= {last} - ?", (MOST_EVENTS,))

    def recreate_if_deleted(self) -> bool:
        """Begin a new journal if somebody has deleted this one; True if so: all tickets are to be written.

        Raises:
            FencedError: Another controller has begun one in its place.
            JournalError: It cannot be begun.
        """
        try:
            inode = self._path.stat().st_ino
        except FileNotFoundError:
            self.close()
            try:
                self._open()
            except BusyError as error:
                raise FencedError(f"the journal {self._path} was deleted, and {error}") from error
            return True
        except OSError as error:
            raise JournalError(f"cannot find the journal {self._path}: {error}") from error
        if inode != self._inode:
            raise FencedError(f"another controller has taken over: {self._path} is another journal now")
        return False

    def load(self) -> Memory:
        """What is remembered; tickets that cannot be read are left out, their jobs are met as new."""
        tickets, lost = _tickets(self._database)
        now_s, learnt = self._plain("now_s"), self._plain("learnt")
        return Memory(
            tickets=tickets,
            policy=self._fact("policy") or "",
            learnt=learnt if isinstance(learnt, dict) else {},
            now_s=now_s if isinstance(now_s, int | float) and isfinite(now_s) else 0.0,
            lost=lost or self._lost,
        )

    def _plain(self, name: str) -> Any:
        """A fact that is JSON; None if it is not there or cannot be read."""
        try:
            return json.loads(self._fact(name) or "null")
        except ValueError:
            return None

    def write(self, now: float, event: str, **said: object) -> None:
        """Add an event, as in the run folder's events.jsonl; it is on disk after the next commit."""
        body = json.dumps({"t": round(now, 3), "event": event, **said})
        self._events.append((now, str(said["job"]) if "job" in said else None, body))

    def commit(
        self,
        now: float,
        changed: Iterable[Ticket] = (),
        gone: Iterable[str] = (),
        policy: str | None = None,
        learnt: Mapping[str, Any] | None = None,
    ) -> None:
        """Put on disk, all or nothing, what has changed.

        Raises:
            FencedError: Another controller has opened the journal.
            JournalError: It cannot be written.
        """
        try:
            with self._transaction():
                if self._fact("epoch") != self._epoch:
                    raise FencedError(f"another controller has taken over: {self._fact('owner')}")
                self._database.executemany(
                    "INSERT OR REPLACE INTO tickets VALUES (?, ?)",
                    [(ticket.job_id, json.dumps(to_data(ticket))) for ticket in changed],
                )
                self._database.executemany("DELETE FROM tickets WHERE job = ?", [(job,) for job in gone])
                self._database.executemany("INSERT INTO events (t, job, body) VALUES (?, ?, ?)", self._events)
                self._set("now_s", now)
                self._set("heartbeat_s", time.time())
                if policy is not None:
                    self._set("policy", policy)
                    self._set("learnt", json.dumps(learnt))
                if self._commits % _TRIM_EVERY == 0:
                    self._trim(now)
        except sqlite3.Error as error:
            raise JournalError(f"cannot write the journal {self._path}: {error}") from error
        self._events.clear()
        self._commits += 1

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            self._database.rollback()
            raise

    def _fact(self, name: str) -> str | None:
        row = self._database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def _set(self, name: str, value: object) -> None:
        self._database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, str(value)))


def heartbeat_s(folder: Path) -> float | None:
    """When a controller last committed, seconds since 1970; None if no journal says so."""
    if not (folder / NAME).exists():
        return None
    try:
        with _reading(folder) as database:
            row = database.execute("SELECT value FROM facts WHERE name = 'heartbeat_s'").fetchone()
    except sqlite3.Error:  # busy, or cut off in the middle of a commit: somebody wrote it when its file says
        return (folder / NAME).stat().st_mtime
    return None if row is None else float(row[0])


def read_tickets(folder: Path) -> dict[str, Ticket]:
    """The tickets of a journal that somebody else may be writing; none if it cannot be read."""
    try:
        with _reading(folder) as database:
            return _tickets(database)[0]
    except sqlite3.Error:
        return {}


def read_events(folder: Path, job_id: str | None = None) -> list[dict[str, Any]]:
    """The last events, of one job or of all, oldest first, of a journal that somebody else may be writing.

    Raises:
        JournalError: It cannot be read.
    """
    where, values = ("", []) if job_id is None else ("WHERE job = ?", [job_id])
    order = f"ORDER BY number DESC LIMIT {_MOST_READ}"
    try:
        with _reading(folder) as database:
            rows = database.execute(f"SELECT body FROM events {where} {order}", values).fetchall()
    except sqlite3.Error as error:
        raise JournalError(f"cannot read the journal {folder / NAME}: {error}") from error
    return [json.loads(body) for (body,) in reversed(rows)]


@contextmanager
def _reading(folder: Path) -> Iterator[sqlite3.Connection]:
    """The journal in a folder, only to be read."""
    address = f"{(folder / NAME).absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, timeout=_READ_BUSY_S)) as database:
        yield database


def _tickets(database: sqlite3.Connection) -> tuple[dict[str, Ticket], str]:
    """The tickets that can be read, and why one of the others cannot; empty if all can."""
    tickets: dict[str, Ticket] = {}
    lost = ""
    for job, body in database.execute("SELECT job, body FROM tickets"):
        try:
            tickets[job] = from_data(json.loads(body))
        except (AttributeError, KeyError, TypeError, ValueError, DallyError) as error:
            lost = f"ticket of job {job}: {error!r}"
    return tickets, lost


def _locked(path: Path) -> TextIO:
    file = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
    except BlockingIOError as error:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise BusyError(f"another controller is at work ({holder}); stop it first") from error
    except OSError:
        file.close()
        raise
    return file


def _set_aside_if_broken(path: Path) -> str:
    """Move a journal that cannot be read out of the way; why, or nothing if it is sound or not there."""
    if not path.exists():
        return ""
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_S)) as database:
            verdict = _verdict(database)
    except sqlite3.OperationalError:
        raise  # locked or unreadable today, not broken
    except sqlite3.DatabaseError as error:
        verdict = str(error)
    if verdict == "ok":
        return ""
    aside = path.with_name(f"{NAME}.broken-{int(time.time())}")
    path.rename(aside)
    for tail in ("-journal", "-wal", "-shm"):
        path.with_name(NAME + tail).unlink(missing_ok=True)
    return f"the journal was broken ({verdict}) and is now {aside.name}"


def _verdict(database: sqlite3.Connection) -> str:
    """What is wrong with a database, or ok."""
    said = str(database.execute("PRAGMA quick_check").fetchone()[0])
    columns = {
        (table, column)
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (column,) in database.execute("SELECT name FROM pragma_table_info(?)", (table,))
    }
    if said != "ok" or not columns:
        return said
    if not columns >= _COLUMNS:
        return "it is another kind of database"
    schema = database.execute("SELECT value FROM facts WHERE name = 'schema'").fetchone()
    return said if schema in (None, (str(_SCHEMA),)) else f"it is of version {schema[0]}"
