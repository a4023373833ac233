"""Reads raw files: what one run found, line by line."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from dally.atomic_file import read_plain
from dally.errors import InputError
from dally.profiles.schema import Env, Reduced
from profiler.messages import Failed, Finished, Line, Started, Trained, parse_line
from profiler.spec import MeasurementRun

_MOST_BYTES = 2**28
_ORDER = "lines must be one run, one started, then what was found, and finished last if at all"


@dataclass(frozen=True, slots=True)
class RawRun:
    """What one run found.

    Attributes:
        run: What was to be measured.
        env: What it ran on; None if the ranks never met.
        reduced: Its all-reduces.
        trained: Its models.
        failed: Those that could not be measured.
        finished: Whether all that was to be measured is there.
    """

    run: MeasurementRun
    env: Env | None
    reduced: tuple[Reduced, ...]
    trained: tuple[Trained, ...]
    finished: bool
    failed: tuple[Failed, ...] = ()


def read_folder(folder: Path) -> tuple[RawRun, ...]:
    """Read all raw files of a folder, partial ones too, by name.

    Raises:
        InputError: There is none, or one is wrong.
    """
    paths = sorted(folder.glob("*.jsonl"))
    if not paths:
        raise InputError(f"folder {folder} has no raw files (*.jsonl)")
    return tuple(read_raw(path) for path in paths)


def read_raw(path: Path) -> RawRun:
    """Read one raw file; a last line that was cut off is dropped.

    Raises:
        InputError: It cannot be read or a line is wrong; the message names the file and the line.
    """
    lines = _read_lines(path)
    if not lines or not isinstance(lines[0], MeasurementRun):
        raise InputError(f"{path}:1: must be a whole line of kind run")
    for number, (before, line) in enumerate(pairwise(lines), 2):
        begins = isinstance(before, MeasurementRun) == isinstance(line, Started)
        if not begins or isinstance(before, Finished) or isinstance(line, MeasurementRun):
            raise InputError(f"{path}:{number}: {_ORDER}")
    return RawRun(
        run=lines[0],
        env=next((line.env for line in lines if isinstance(line, Started)), None),
        reduced=tuple(line for line in lines if isinstance(line, Reduced)),
        trained=tuple(line for line in lines if isinstance(line, Trained)),
        finished=isinstance(lines[-1], Finished),
        failed=tuple(line for line in lines if isinstance(line, Failed)),
    )


def _read_lines(path: Path) -> list[Line]:
    try:
        *whole, last = read_plain(path, _MOST_BYTES).split(b"\n")
    except OSError as error:
        raise InputError(f"raw file {path} cannot be read: {error.strerror or error}") from error
    lines = []
    for number, text in enumerate([*whole, last] if last else whole, 1):
        try:
            lines.append(parse_line(text.decode()))
        except (InputError, UnicodeDecodeError) as error:
            if number > len(whole):
                break
            raise InputError(f"{path}:{number}: {error}") from error
    return lines
