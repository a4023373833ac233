"""The journal's file: whether it is sound, and what becomes of one that is not."""

import json
import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from dally.errors import DallyError
from slurm_plugin.controller.job_data import in_todays_form, job_from_data
from slurm_plugin.controller.managed_job import ManagedJob

NAME = "journal.sqlite"
BUSY_S = 10.0
"""How long another process may keep the journal from being written, seconds."""

SCHEMA = 3
"""Jobs of earlier ones are read, too: `in_todays_form`. In 1 (Dally 0.1) they are in a table `tickets`."""

_READ_SCHEMAS = ("1", "2", "3")

TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (job TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS events (number INTEGER PRIMARY KEY, t REAL NOT NULL, job TEXT, body TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS events_of_job ON events (job);
"""
_COLUMNS = {("facts", "name"), ("facts", "value"), ("events", "body")}
_JOBS_OF_SCHEMA_1, _JOBS = "SELECT job, body FROM tickets", "SELECT job, body FROM jobs"

_NOT_TODAY = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
}
"""What keeps a sound journal from being used; all else that SQLite says means that it is broken."""

UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite raises of a broken journal; its words about broken names need not be UTF-8."""


class FileStat(NamedTuple):
    """A file as `stat` shows it: what changes when anybody writes to it or puts another in its place."""

    inode: int
    changed_ns: int
    size: int


def file_stat(path: Path) -> FileStat:
    """A file as it is now."""
    status = path.stat()
    return FileStat(status.st_ino, status.st_mtime_ns, status.st_size)


def as_text(raw: bytes) -> str:
    """Text of the journal, whatever has become of its bytes."""
    return raw.decode(errors="replace")


def managed_jobs_in(database: sqlite3.Connection) -> tuple[dict[str, ManagedJob], str]:
    """The jobs that can be read, and why one of the others cannot; empty if all can."""
    managed_jobs: dict[str, ManagedJob] = {}
    lost = ""
    for job, body in database.execute(_JOBS_OF_SCHEMA_1 if _is_of_schema_1(database) else _JOBS):
        try:
            managed = job_from_data(in_todays_form(_loads(body)))
            if managed.job_id != job:
                raise ValueError(f"it is of job {managed.job_id}")
            managed_jobs[job] = managed
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError, DallyError) as error:
            lost = f"record of job {job}: {error!r}"
    return managed_jobs, lost


def migrate(database: sqlite3.Connection) -> None:
    """Bring the jobs of an older journal into the form of today; called within a transaction."""
    schema = database.execute("SELECT value FROM facts WHERE name = 'schema'").fetchone()
    old = _is_of_schema_1(database)
    if not old and schema in (None, (str(SCHEMA),)):
        return
    for job, body in database.execute(_JOBS_OF_SCHEMA_1 if old else _JOBS).fetchall():
        with suppress(AttributeError, KeyError, TypeError, ValueError, RecursionError):
            body = json.dumps(in_todays_form(_loads(body)))
        # Else it stays as it is: whoever loads it says that it is lost.
        database.execute("INSERT OR REPLACE INTO jobs VALUES (?, ?)", (job, body))
    if old:
        database.execute("DROP TABLE tickets")


def _is_of_schema_1(database: sqlite3.Connection) -> bool:
    return bool(database.execute("SELECT 1 FROM sqlite_master WHERE name = 'tickets'").fetchone())


def _loads(body: str) -> Any:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no number")

    return json.loads(body, parse_constant=refuse)


def set_aside_if_broken(path: Path, known: str = "") -> str:
    """Move a journal that is broken out of the way; why, or nothing if it is sound or not there.

    Args:
        path: The journal.
        known: What is known to be wrong with it.
    """
    if not path.exists():
        return ""
    verdict = known or _verdict(path)
    if verdict == "ok":
        return ""
    aside = path.with_name(f"{NAME}.broken-{int(time.time())}")
    path.rename(aside)
    for tail in ("-journal", "-wal", "-shm"):
        path.with_name(NAME + tail).unlink(missing_ok=True)
    return f"the journal was broken ({verdict}) and is now {aside.name}"


def _verdict(path: Path) -> str:
    """What is wrong with a journal, or ok.

    Raises:
        sqlite3.Error: It cannot be looked at now, whatever is in it.
    """
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)) as database:
            database.text_factory = as_text
            said = str(database.execute("PRAGMA quick_check").fetchone()[0])
            if said != "ok":
                return said
            columns = {
                (table, column)
                for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                for (column,) in database.execute("SELECT name FROM pragma_table_info(?)", (table,))
            }
            if not columns:
                return "ok"
            jobs = "tickets" if _is_of_schema_1(database) else "jobs"
            if not columns >= _COLUMNS | {(jobs, "job"), (jobs, "body")}:
                return "it is another kind of database"
            schema = database.execute("SELECT value FROM facts WHERE name = 'schema'").fetchone()
            if schema is not None and schema[0] not in _READ_SCHEMAS:
                return f"it is of version {schema[0]}"
            database.execute("SELECT name, value FROM facts").fetchall()
            database.execute(_JOBS_OF_SCHEMA_1 if jobs == "tickets" else _JOBS).fetchall()
            database.execute("BEGIN IMMEDIATE")  # files of a later format can be read and not written
            database.execute("ROLLBACK")
            return "ok"
    except sqlite3.Error as error:
        if passes(error, path):
            raise
        return str(error)
    except UnicodeDecodeError:
        return "its names are no text"


def passes(error: sqlite3.Error, path: Path) -> bool:
    """Whether an error comes from outside of the journal: from a lock, the disk, or rights."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_READONLY:  # what SQLite also says of a file of a later format
        return not os.access(path, os.W_OK)
    return code in _NOT_TODAY
