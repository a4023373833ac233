"""The folder of a measurement: raw files, partial until a run has finished, and who is writing to it."""

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dally.atomic_file import write_atomically
from dally.errors import DallyError
from profiler.messages import Message, format_line
from profiler.report.raw import RawRun, read_raw
from profiler.spec import MeasurementRun


class StoreError(DallyError):
    """The folder cannot be written, or another process writes to it."""


class MeasurementStore:
    """The folder OUT of a measurement; one process writes to it at a time.

    Attributes:
        out: The folder; profiles lie in it.
        raw: Its folder of raw files.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.raw = out / "raw"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder, and keep other processes from writing to it.

        Raises:
            StoreError: It cannot be written, or another process writes to it.
        """
        with locked_folder(self.raw, self.out):
            yield

    def partial(self, name: str) -> Path:
        """Where the messages of a run lie until it has finished."""
        return self.raw / f"{name}.partial.jsonl"

    def complete(self, name: str) -> Path:
        """Where the messages of a run lie when it has finished."""
        return self.raw / f"{name}.jsonl"

    def log(self, name: str) -> Path:
        """What the ranks of a run last wrote before they failed."""
        return self.raw / f"{name}.log"

    def find(self, name: str) -> tuple[Path, RawRun] | None:
        """The raw file of a run, or None; a partial one holds all that a complete one beside it does.

        Raises:
            InputError: It cannot be read or is wrong.
        """
        paths = (self.partial(name), self.complete(name))
        return next(((path, read_raw(path)) for path in paths if path.exists()), None)

    def begin(self, run: MeasurementRun, kept: Sequence[Message] = ()) -> None:
        """Make a run's partial file, with what is kept of an earlier one.

        Raises:
            StoreError: It cannot be written, for instance as the disk is full.
        """
        self.write(self.partial(run.name), "".join(f"{format_line(line)}\n" for line in (run, *kept)))
        with named(self.raw):
            for older in (self.complete(run.name), self.log(run.name)):
                older.unlink(missing_ok=True)

    def write(self, path: Path, text: str) -> None:
        """Write one of its files, whole or not at all.

        Raises:
            StoreError: It cannot be written.
        """
        with named(path):
            write_atomically(path, text)

    def add(self, name: str, message: Message) -> None:
        """Append a finding to a run's partial file.

        Raises:
            StoreError: It cannot be written.
        """
        path = self.partial(name)
        with named(path), path.open("a", encoding="utf-8") as file:
            file.write(f"{format_line(message)}\n")

    def finish(self, name: str) -> None:
        """Give a run's file its final name.

        Raises:
            StoreError: It cannot be renamed.
        """
        with named(self.raw):
            self.partial(name).replace(self.complete(name))


@contextmanager
def locked_folder(folder: Path, out: Path) -> Iterator[None]:
    """Make a folder of OUT, and keep other processes from writing to it.

    Raises:
        StoreError: It cannot be written, or another process writes to it.
    """
    with named(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(f"another profile-models is writing to {out}; wait for it") from error
        yield


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Turn what the system says against writing into one line that names the file."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error
