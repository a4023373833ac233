"""The run folder, one schema for simulated and real runs: jobs.csv, events.jsonl and run.json."""

import csv
import json
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from io import StringIO
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, TextIO, TypeGuard

import orjson

from dally.atomic_file import MOST_BYTES, open_plain, read_plain
from dally.errors import InputError

SCHEMA = 1
_LATEST_S, _LARGEST = 1e12, 1e18
_MOST_BYTES_OF_JOBS, _LONGEST_LINE = 2**30, 2**22
_LEVELS = re.compile(r"([^;]+:[0-9]{1,18}(;|$))*")
JOBS, EVENTS, RUN, CLUSTER = "jobs.csv", "events.jsonl", "run.json", "cluster.toml"


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One line of jobs.csv: what became of a job. Times in seconds from the run's origin.

    Attributes:
        job_id: Name of the job.
        user: Its user.
        group: Account or virtual cluster.
        model: Model it trained.
        gpus: Size of its gang.
        submit_s: Submission.
        start_s: First start; None if it never ran.
        end_s: End; None if it did not end.
        ideal_s: Running time at the best placement.
        run_s: Time holding GPUs, restarts included.
        queue_s: Time waiting, over its whole life.
        comm_s: Time of running that waited for the network.
        restart_s: Time spent on restarts after preemption, migration or failure, and on costly first starts.
        lost_s: Ideal seconds of work lost to failures.
        preemptions: How often its GPUs were taken, migrations included.
        failures: How often a machine under it failed.
        levels: Placements by level, e.g. `machine:2;rack:1`.
        status: COMPLETED, FAILED, REJECTED (larger than the cluster), or RUNNING or WAITING in a partial run.
        gpu_s: GPU-seconds held, of a job whose GPUs may vary; None: its gang's all the time.
        plan: Its training plan, as a trace names it; empty for none.
    """

    job_id: str
    user: str
    group: str
    model: str
    gpus: int
    submit_s: float
    start_s: float | None
    end_s: float | None
    ideal_s: float
    run_s: float
    queue_s: float
    comm_s: float
    restart_s: float
    lost_s: float
    preemptions: int
    failures: int
    levels: str
    status: str
    gpu_s: float | None = None
    plan: str = ""

    @property
    def jct_s(self) -> float:
        """Job completion time, seconds; only for a job that ended."""
        assert self.end_s is not None
        return self.end_s - self.submit_s

    @property
    def held_gpu_s(self) -> float:
        """GPU-seconds held, restarts included."""
        return self.gpus * self.run_s if self.gpu_s is None else self.gpu_s

    @property
    def mean_gpus(self) -> float:
        """GPUs held on average while it held any."""
        return self.gpus if self.gpu_s is None or not self.run_s else self.gpu_s / self.run_s


COLUMNS = tuple(field.name for field in fields(JobRecord))
OPTIONAL = ("gpu_s", "plan")
"""Columns, the last ones, that a file has only as far as some job has a value there."""
_VALUES = attrgetter(*COLUMNS)
_TEXT = {"job_id", "user", "group", "model", "levels", "status", "plan"}
_WHOLE = {"gpus", "preemptions", "failures"}
_MISSABLE = {"start_s", "end_s", "gpu_s"}


def shown(value: object) -> str:
    """A value as jobs.csv shows it: seconds to the millisecond, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return str(value)


class JobsFile:
    """Writes jobs.csv of records that come one by one in any order, and holds none of them.

    Their lines go to a nameless file beside it, of which `close` puts them in order.

    Args:
        path: The file to write.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: BinaryIO = TemporaryFile(dir=path.parent)  # noqa: SIM115
        self._places, self._starts = array("q"), array("q", [0])
        self._text = StringIO(newline="")
        self._write = csv.writer(self._text, lineterminator="\n").writerow
        self._optional = 0

    def add(self, place: int, record: JobRecord) -> None:
        """Take the record whose line comes after those of lower places."""
        self._places.append(place)
        self._starts.append(self._starts[-1] + self._lines.write(self._line(_VALUES(record))))
        used = 2 if record.plan else int(record.gpu_s is not None)
        self._optional = max(self._optional, used)

    def _line(self, values: Iterable[object]) -> bytes:
        self._text.seek(0)
        self._text.truncate()
        self._write([shown(value) if isinstance(value, float) else value for value in values])
        return self._text.getvalue().encode()

    def close(self) -> None:
        """Write the file, without the last columns in which no record has a value."""
        empty = len(OPTIONAL) - self._optional
        columns = COLUMNS[: len(COLUMNS) - empty]
        with self._path.open("wb") as file:
            file.write(self._line(columns))
            for number in sorted(range(len(self._places)), key=self._places.__getitem__):
                start, end = self._starts[number : number + 2]
                self._lines.seek(start)
                line = self._lines.read(end - start)
                file.write(line[: len(line) - empty - 1] + b"\n")  # less a comma for each of these
        self._lines.close()


def write_jobs(path: Path, records: Iterable[JobRecord]) -> None:
    """Write jobs.csv."""
    file = JobsFile(path)
    for place, record in enumerate(records):
        file.add(place, record)
    file.close()


def read_jobs(folder: Path) -> list[JobRecord]:
    """Read jobs.csv of a run folder.

    Raises:
        InputError: The file is missing, has other columns, or a line is wrong.
    """
    path = folder / JOBS
    reader = csv.DictReader(StringIO(_text(path, _MOST_BYTES_OF_JOBS), newline=""))
    try:
        columns, rows = tuple(reader.fieldnames or ()), [(row, reader.line_num) for row in reader]
    except csv.Error as error:
        raise InputError(f"{path}: broken CSV: {error}") from error
    if columns != tuple(column for column in COLUMNS if column in columns or column not in OPTIONAL):
        raise InputError(f"{path}: columns are not those of a run folder ({', '.join(COLUMNS)})")
    return [_record(row, f"{path}:{line}") for row, line in rows]


def _record(row: Mapping[str, str | None], where: str) -> JobRecord:
    values: dict[str, Any] = {}
    for column in (name for name in COLUMNS if name in row):
        text = row[column]
        if text is None:
            raise InputError(f"{where}: the line ends before column {column}")
        try:
            if column in _TEXT:
                values[column] = text
            elif column in _MISSABLE and not text:
                values[column] = None
            else:
                values[column] = int(text) if column in _WHOLE else float(text)
                if not abs(values[column]) < _LARGEST:
                    raise ValueError
        except ValueError as error:
            raise InputError(f"{where}: {column} is {text!r}, must be a number") from error
    record = JobRecord(**values)
    if record.status == "COMPLETED" and record.end_s is None:
        raise InputError(f"{where}: the job is COMPLETED and has no end_s")
    if not _LEVELS.fullmatch(record.levels):
        raise InputError(f"{where}: levels is {record.levels!r}, must be like machine:2;rack:1")
    return record


class EventLog:
    """Writes events.jsonl: one JSON object a line, with `t` (seconds), `event` and what there is to say."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, now: float, event: str, **said: object) -> None:
        """Add one line."""
        line = orjson.dumps({"t": round(now, 3), "event": event, **said}, option=orjson.OPT_APPEND_NEWLINE)
        self._file.write(line.decode())


class NoEvents(EventLog):
    """Takes events that nobody wants to read."""

    def __init__(self) -> None:
        pass

    def write(self, now: float, event: str, **said: object) -> None:
        """Drop it."""


_EVENT_NAMES_OF_0_1 = {
    "refuse": "start_failed",
    "refused": "order_refused",
    "decline": "start_declined",
    "keep": "requeue_failed",
    "leave": "released",
    "reports": "progress_reported",
    "no_report": "progress_missing",
    "reports_stuck": "progress_stuck",
    "policy_fresh": "policy_memory_lost",
    "history_fresh": "history_lost",
    "well_again": "recovered",
    "no_pages": "pages_unavailable",
    "configuration_kept": "configuration_rejected",
    "cluster_kept": "cluster_rejected",
}
"""Event names of live controllers of Dally 0.1, whose journals and run folders are still read."""


def in_current_words(event: dict[str, Any]) -> dict[str, Any]:
    """An event under the name that its kind has today."""
    return {**event, "event": _EVENT_NAMES_OF_0_1.get(event["event"], event["event"])}


def read_events(folder: Path) -> Iterator[dict[str, Any]]:
    """The events of a run folder, in order.

    Raises:
        InputError: The file is missing or a line is no event.
    """
    path = folder / EVENTS
    try:
        file = open_plain(path)
    except OSError as error:
        raise _no_run(path, error) from error
    with file:
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), 1):
            try:
                event = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{path}:{number}: not a JSON object, the file may be truncated") from error
            if not is_event(event):
                raise InputError(f"{path}:{number}: no event: it lacks `event`, or a time `t`")
            yield in_current_words(event)


def is_event(data: object) -> TypeGuard[dict[str, Any]]:
    """Whether plain data has what every event has: its kind, and when it was."""
    return (
        isinstance(data, dict)
        and isinstance(data.get("event"), str)
        and isinstance(data.get("t"), int | float)
        and abs(data["t"]) < _LATEST_S
    )


def write_run(path: Path, facts: Mapping[str, object]) -> None:
    """Write run.json: configuration, inputs and summary of a run."""
    text = json.dumps({"schema": SCHEMA, **facts}, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def read_run(folder: Path) -> dict[str, Any]:
    """Read run.json of a run folder.

    Raises:
        InputError: Not a run folder, or one of another schema.
    """
    path = folder / RUN
    try:
        facts = json.loads(_text(path, MOST_BYTES))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON, the file may be truncated") from error
    if not isinstance(facts, dict) or facts.get("schema") != SCHEMA:
        raise InputError(f"{path}: not a run of schema {SCHEMA}")
    return facts


def _text(path: Path, most_bytes: int) -> str:
    try:
        return read_plain(path, most_bytes).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise _no_run(path, error) from error


def _no_run(path: Path, error: OSError | UnicodeDecodeError) -> InputError:
    why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
    held = sorted(str(run.parent) for run in path.parent.glob(f"*/{RUN}"))
    instead = f"; name one of the runs in it: {', '.join(held)}" if held else ""
    return InputError(f"{path.parent} is not a run folder: cannot read {path.name}: {why}{instead}")
