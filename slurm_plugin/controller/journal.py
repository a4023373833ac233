"""The controller's journal: managed_jobs, what the policy has learnt, and every event, in one SQLite file."""

import fcntl
import json
import os
import secrets
import socket
import sqlite3
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from typing import Any, TextIO

from dally.errors import DallyError
from dally.runs.records import in_current_words, is_event
from slurm_plugin.controller.job_data import job_to_data
from slurm_plugin.controller.journal_file import BUSY_S as BUSY_S
from slurm_plugin.controller.journal_file import NAME as NAME
from slurm_plugin.controller.journal_file import (
    SCHEMA,
    TABLES,
    UNREADABLE,
    as_text,
    file_stat,
    managed_jobs_in,
    migrate,
    passes,
    set_aside_if_broken,
)
from slurm_plugin.controller.managed_job import ManagedJob

KEEP_S = 60 * 86_400.0
"""Events older than this are dropped."""

MOST_EVENTS = 1_000_000
"""So are the oldest beyond this many."""

MOST_AHEAD_S = 300.0
"""A sign of life from farther ahead is none: Slurm's own clocks may not differ by more (munge)."""

GONE = "GONE"
"""The end of a job that Slurm no longer shows, and of which nobody knows more."""

_LAST_EVENTS = 20
"""The end of a job is among so many of its last events."""

_READ_BUSY_S = 5.0
_MOST_READ = 1_000
_TRIM_EVERY = 1_000
_MOST_UNWRITTEN = 100_000


class JournalError(DallyError):
    """The journal cannot be written: the controller must not act until it can."""


class FencedError(DallyError):
    """Another controller has taken over: this one must not act any more."""


class BusyError(DallyError):
    """Another controller is at work on this machine."""


@dataclass(frozen=True, slots=True)
class JournalContents:
    """What a journal remembers.

    Attributes:
        managed_jobs: By number of the job.
        policy: Specification of the policy that learnt; empty if there was none.
        learnt: What it learnt.
        believed: What was learnt of how long jobs take; empty if nothing was.
        costs: What step times taught of costs; empty if nothing was.
        now_s: The last time the controller acted at.
        lost: Why an earlier journal could not be read; empty if it could, or there was none.
    """

    managed_jobs: dict[str, ManagedJob]
    policy: str
    learnt: Mapping[str, Any]
    believed: Mapping[str, Any]
    costs: Mapping[str, Any]
    now_s: float
    lost: str


@dataclass(frozen=True, slots=True)
class KnownEnd:
    """How a job ended, and which one it was: its submission, as Slurm last gave it, restarts and tag."""

    status: str
    submit_s: float
    restarts: int
    tag: str


class Journal:
    """The one place where the controller keeps what Slurm does not; every action follows a commit to it.

    Opening it takes a lock on this machine and a new epoch: a controller elsewhere that shares the file finds
    at its next commit, before its next action, that the epoch is no longer its own. The file may lie on a
    network file system, so it keeps to SQLite's rollback journal, which only needs locks there.

    Args:
        folder: The state directory; made if missing.
        tell: Told each event as it is written.

    Raises:
        BusyError: A controller holds the lock.
        JournalError: The folder or file cannot be written.
    """

    def __init__(self, folder: Path, tell: Callable[..., None] = lambda now, event, **said: None) -> None:
        self._path, self._tell = folder / NAME, tell
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
            for path, mode in ((self._path.parent, 0o700), (self._path, 0o600)):
                if path.exists() and path.stat().st_mode & 0o077:
                    path.chmod(mode)  # who may read a journal may lock it, too, and so stop the controller
            self._lock = _locked(self._path.parent / "lock")
        except OSError as error:
            raise JournalError(f"cannot open the journal {self._path}: {error}") from error
        try:
            self._lost = set_aside_if_broken(self._path)
            self._connect()
            self._take_over()
            self._left = file_stat(self._path)
        except (OSError, *UNREADABLE) as error:
            self._lock.close()
            raise JournalError(f"cannot open the journal {self._path}: {error}") from error

    def _connect(self) -> None:
        self._broken = ""
        self._written: dict[str, str] = {}  # the facts as this process wrote them last
        self._database = sqlite3.connect(self._path, isolation_level=None, timeout=BUSY_S)
        self._database.text_factory = as_text

    def _take_over(self) -> None:
        self._database.execute("PRAGMA journal_mode=DELETE")
        self._database.executescript(TABLES)
        with self._transaction():
            migrate(self._database)
            self._set("schema", SCHEMA)
            self._set("epoch", self._epoch)
            self._set("owner", f"{socket.gethostname()}, process {os.getpid()}")

    def renew_if_lost(self) -> str:
        """Begin a new journal if this one was deleted or damaged; why, or nothing if it is as it was left.

        All managed_jobs are then to be written.

        Raises:
            FencedError: Another controller has begun one in its place.
            JournalError: It cannot be begun.
        """
        try:
            found = file_stat(self._path)
            if self._broken or found != self._left:
                return self._renew(found.inode)
        except FileNotFoundError:
            self.close()
            try:
                self._open()
            except BusyError as error:
                raise FencedError(f"the journal {self._path} was deleted, and {error}") from error
            return "somebody had deleted the journal"
        except (OSError, *UNREADABLE) as error:
            raise JournalError(f"cannot look after the journal {self._path}: {error}") from error
        return ""

    def _renew(self, inode: int) -> str:
        """Somebody else has written to it: set it aside if that broke it; a sound one is opened again."""
        same = inode == self._left.inode
        lost = set_aside_if_broken(self._path, self._broken if same else "")
        if not (lost or same):
            raise FencedError(f"another controller has taken over: {self._path} is another journal now")
        if not lost and self._path.stat().st_size == 0:
            lost = "somebody had emptied the journal"
        self._database.close()
        self._connect()
        if lost:
            self._take_over()
        self._left = file_stat(self._path)
        return lost

    def load(self) -> JournalContents:
        """What is remembered; jobs that cannot be read are left out, they are met as new ones.

        Raises:
            JournalError: It cannot be read.
        """
        try:
            managed_jobs, lost = managed_jobs_in(self._database)
            now_s = self._plain("now_s")
            return JournalContents(
                managed_jobs=managed_jobs,
                policy=self._fact("policy") or "",
                learnt=self._checked("learnt"),
                believed=self._checked("believed"),
                costs=self._checked("costs"),
                now_s=now_s if isinstance(now_s, int | float) and isfinite(now_s) else 0.0,
                lost=lost or self._lost,
            )
        except UNREADABLE as error:
            raise JournalError(f"cannot read the journal {self._path}: {error}") from error

    def _plain(self, name: str) -> Any:
        """A fact that is JSON; None if it is not there or cannot be read."""
        try:
            return json.loads(self._fact(name) or "null")
        except (ValueError, RecursionError):
            return None

    def _checked(self, name: str) -> Mapping[str, Any]:
        """A fact that is a table; empty if not a byte of it may be trusted."""
        text, written = self._fact(name), self._fact(f"{name}_crc")
        found = self._plain(name) if text and written in (None, _crc(text)) else None
        return found if isinstance(found, dict) else {}

    def _set_checked(self, name: str, said: Mapping[str, Any] | None) -> None:
        text = json.dumps(said)
        self._set(name, text)
        self._set(f"{name}_crc", _crc(text))

    def end_of(self, job_id: str) -> KnownEnd | None:
        """The last end of a job by that number that Slurm was seen to tell; None if there is none.

        Raises:
            JournalError: It cannot be read.
        """
        query = "SELECT body FROM events WHERE job = ? ORDER BY number DESC LIMIT ?"
        try:
            for (body,) in self._database.execute(query, (job_id, _LAST_EVENTS)):
                with suppress(ValueError, RecursionError, KeyError, TypeError):
                    said = json.loads(body)
                    if said["event"] == "end" and said["status"] != GONE:
                        which = float(said["submit_s"]), int(said["restarts"]), str(said["tag"])
                        return KnownEnd(str(said["status"]), *which)
        except UNREADABLE as error:
            if isinstance(error, sqlite3.Error) and passes(error, self._path):
                raise JournalError(f"cannot read the journal {self._path}: {error}") from error
            self._broken = str(error)  # nobody knows, and the next commit begins a new one
        return None

    def write(self, now: float, event: str, **said: object) -> None:
        """Add an event, as in the run folder's events.jsonl; it is on disk after the next commit."""
        body = json.dumps({"t": round(now, 3), "event": event, **said})
        self._events.append((now, str(said["job"]) if "job" in said else None, body))
        self._tell(now, event, **said)

    def commit(
        self,
        now: float,
        changed: Iterable[ManagedJob] = (),
        gone: Iterable[str] = (),
        policy: str | None = None,
        learnt: Mapping[str, Any] | None = None,
        believed: Mapping[str, Any] | None = None,
        costs: Mapping[str, Any] | None = None,
    ) -> None:
        """Put on disk, all or nothing, what has changed; None: it has not.

        Raises:
            FencedError: Another controller has opened the journal.
            JournalError: It cannot be written.
        """
        try:
            with self._transaction():
                if self._fact("epoch") != self._epoch:
                    raise FencedError(f"another controller has taken over: {self._fact('owner')}")
                self._database.executemany(
                    "INSERT OR REPLACE INTO jobs VALUES (?, ?)",
                    [(managed.job_id, json.dumps(job_to_data(managed))) for managed in changed],
                )
                self._database.executemany("DELETE FROM jobs WHERE job = ?", [(job,) for job in gone])
                self._database.executemany("INSERT INTO events (t, job, body) VALUES (?, ?, ?)", self._events)
                self._set("now_s", now)
                self._set("heartbeat_s", time.time())
                if policy is not None:
                    self._set("policy", policy)
                    self._set_checked("learnt", learnt)
                if believed:
                    self._set_checked("believed", believed)
                if costs:
                    self._set_checked("costs", costs)
                if self._commits % _TRIM_EVERY == 0:
                    self._database.execute("DELETE FROM events WHERE t < ?", (now - KEEP_S,))
                    last = "(SELECT max(number) FROM events)"
                    self._database.execute(f"DELETE FROM events WHERE number <= {last} - ?", (MOST_EVENTS,))
            self._left = file_stat(self._path)
        except (OSError, *UNREADABLE) as error:
            if isinstance(error, sqlite3.Error) and not passes(error, self._path):
                self._broken = str(error)
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
            self._written.clear()
            raise

    def _fact(self, name: str) -> str | None:
        row = self._database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def _set(self, name: str, value: object) -> None:
        """Write a fact that changes: while the epoch is ours nobody else does, and most stay as they are."""
        text = str(value)
        if self._written.get(name) != text:
            self._database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, text))
            self._written[name] = text


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


def heartbeat_s(folder: Path) -> float | None:
    """When a controller last committed, seconds since 1970; None if no journal says so, or none that may be.

    A journal that cannot be read now, being written or broken, says when its file was last written.
    """
    try:
        with _reading(folder) as database:
            row = database.execute("SELECT value FROM facts WHERE name = 'heartbeat_s'").fetchone()
        beat_s = float(row[0])
    except UNREADABLE:
        try:
            beat_s = (folder / NAME).stat().st_mtime
        except OSError:
            beat_s = nan
    except (TypeError, ValueError, OverflowError):
        return None
    return beat_s if beat_s <= time.time() + MOST_AHEAD_S else None


def written_at(folder: Path) -> tuple[int, ...]:
    """When the files of a journal were last written, nanoseconds by their file system.

    Whatever clocks say, they differ between two looks if a controller has committed meanwhile.
    """
    times = []
    for name in (NAME, f"{NAME}-wal"):
        with suppress(OSError):
            times.append((folder / name).stat().st_mtime_ns)
    return tuple(times)


def read_managed_jobs(folder: Path) -> dict[str, ManagedJob]:
    """The managed_jobs of a journal that somebody else may be writing; none if it cannot be read."""
    try:
        with _reading(folder) as database:
            return managed_jobs_in(database)[0]
    except UNREADABLE:
        return {}


def read_events(folder: Path, job_id: str | None = None, most: int = _MOST_READ) -> list[dict[str, Any]]:
    """The last events, of one job or of all, oldest first, of a journal that somebody else may be writing.

    Events that are damaged are left out.

    Raises:
        JournalError: It cannot be read.
    """
    where, values = ("", []) if job_id is None else ("WHERE job = ?", [job_id])
    order = f"ORDER BY number DESC LIMIT {most}"
    try:
        with _reading(folder) as database:
            rows = database.execute(f"SELECT body FROM events {where} {order}", values).fetchall()
    except UNREADABLE as error:
        raise JournalError(f"cannot read the journal {folder / NAME}: {error}") from error
    events = []
    for (body,) in reversed(rows):
        try:
            event = json.loads(str(body))
        except (ValueError, RecursionError):
            continue
        if is_event(event):
            events.append(in_current_words(event))
    return events


@contextmanager
def _reading(folder: Path) -> Iterator[sqlite3.Connection]:
    """The journal in a folder, only to be read."""
    address = f"{(folder / NAME).absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, timeout=_READ_BUSY_S)) as database:
        database.text_factory = as_text
        yield database


def _crc(text: str) -> str:
    return str(zlib.crc32(text.encode()))
