"""The journal's file: whether it is sound, and what becomes of one that is not."""

import json
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from dally.errors import DallyError
from slurm_plugin.controller.tickets import Ticket, from_data

NAME = "journal.sqlite"
BUSY_S = 10.0
"""How long another process may keep the journal from being written, seconds."""

SCHEMA = 1
_COLUMNS = {
    ("facts", "name"),
    ("facts", "value"),
    ("tickets", "job"),
    ("tickets", "body"),
    ("events", "body"),
}

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


class Look(NamedTuple):
    """A file as `stat` shows it: what changes when anybody writes to it or puts another in its place."""

    inode: int
    changed_ns: int
    size: int


def look_of(path: Path) -> Look:
    """A file as it is now."""
    status = path.stat()
    return Look(status.st_ino, status.st_mtime_ns, status.st_size)


def as_text(raw: bytes) -> str:
    """Text of the journal, whatever has become of its bytes."""
    return raw.decode(errors="replace")


def tickets_in(database: sqlite3.Connection) -> tuple[dict[str, Ticket], str]:
    """The tickets that can be read, and why one of the others cannot; empty if all can."""
    tickets: dict[str, Ticket] = {}
    lost = ""
    for job, body in database.execute("SELECT job, body FROM tickets"):
        try:
            ticket = from_data(json.loads(body, parse_constant=_no_number))
            if ticket.job_id != job:
                raise ValueError(f"it is of job {ticket.job_id}")
            tickets[job] = ticket
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError, DallyError) as error:
            lost = f"ticket of job {job}: {error!r}"
    return tickets, lost


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number")


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
            return _wrong(database) or "ok"
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


def _wrong(database: sqlite3.Connection) -> str:
    """What is wrong with a database that can be looked at; empty if nothing is."""
    said = str(database.execute("PRAGMA quick_check").fetchone()[0])
    if said != "ok":
        return said
    columns = {
        (table, column)
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (column,) in database.execute("SELECT name FROM pragma_table_info(?)", (table,))
    }
    if not columns:
        return ""
    if not columns >= _COLUMNS:
        return "it is another kind of database"
    schema = database.execute("SELECT value FROM facts WHERE name = 'schema'").fetchone()
    if schema not in (None, (str(SCHEMA),)):
        return f"it is of version {schema[0]}"
    database.execute("SELECT name, value FROM facts").fetchall()
    database.execute("SELECT job, body FROM tickets").fetchall()
    database.execute("BEGIN IMMEDIATE")  # files of a later format can be read and not written
    database.execute("ROLLBACK")
    return ""
