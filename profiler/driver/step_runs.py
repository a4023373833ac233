"""Runs the user's own program in one shape after another, each until it has printed enough step times."""

import json
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from time import monotonic
from typing import TextIO

from dally.atomic_file import write_atomically
from dally.config_text import naming, read_text
from dally.errors import DallyError, InputError
from dally.hosts.processes import HeardLine, ProcessError, run_and_hear
from dally.profiles.decoding import decode
from dally.profiles.given import StepTime
from dally.profiles.schema import Timing
from profiler.driver.measure import InterruptedRunError, MeasureError
from profiler.driver.step_log import StepLog, StepPattern, best_log
from profiler.driver.store import named
from profiler.launch.rank_commands import Launcher
from profiler.spec import PlannedRun

_LEAST = 3
"""Step times, after the first ones, without which a run tells nothing."""

_LAST_LINES = 200
_OF_TORCHRUN = "ChildFailedError"
"""In the line by which torchrun ends whatever failed: it tells nothing."""

_CAUSE = re.compile(r"^(?:\[?rank\d+\]?:? *)?[\w.]*(?:Error|Exception)\b|(?i:\berror\b|not found|cannot)")


@dataclass(frozen=True, slots=True)
class StepRun:
    """A run that was measured.

    Attributes:
        run: Where.
        argv: The program, as the user wrote it.
        pattern: By which pattern its log was read.
        seconds: Of each step, without the first ones.
        utc_time: When, ISO 8601.
    """

    run: PlannedRun
    argv: tuple[str, ...]
    pattern: str
    seconds: tuple[float, ...]
    utc_time: str

    def __post_init__(self) -> None:
        if len(self.seconds) < _LEAST or not all(self.seconds):
            raise InputError(f"seconds are {len(self.seconds)}, must be {_LEAST} or more, each above 0")

    @property
    def step_time(self) -> StepTime:
        """What a profile takes of it."""
        low, *_, high = quantiles(self.seconds, n=10, method="inclusive")
        middle = median(self.seconds)
        timing = Timing(middle, min(low, middle), max(high, middle), len(self.seconds))
        return StepTime(self.run.tier, self.run.shape, timing, self.run.link)


class StepRunFolder:
    """The folder of a model's runs: a file for each that is measured, and the log of each that was tried."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        """What was measured in a run."""
        return self.folder / f"{name}.json"

    def log(self, name: str) -> Path:
        """What the program printed in a run, all of it."""
        return self.folder / f"{name}.log"

    def read(self) -> dict[str, StepRun]:
        """What is measured, by the names of runs.

        Raises:
            InputError: A file is wrong.
        """
        found = {}
        for path in sorted(self.folder.glob("*.json")):
            with naming(path):
                try:
                    found[path.stem] = decode(StepRun, json.loads(read_text(path)))
                except ValueError as error:
                    raise InputError(f"not JSON: {error}") from error
        return found

    def add(self, measured: StepRun) -> None:
        """Keep what was measured in a run, whole or not at all.

        Raises:
            StoreError: It cannot be written.
        """
        path = self.path(measured.run.name)
        with named(path):
            write_atomically(path, json.dumps(asdict(measured), indent=1) + "\n")


@dataclass(frozen=True, slots=True)
class StepMeasurement:
    """What is to be measured in each run.

    Attributes:
        argv: The program, as the user wrote it.
        patterns: How its log may tell step times.
        warm_up: First step times that do not count.
        steps: Step times after which a run is ended.
        timeout_s: Longest that a run may take.
    """

    argv: tuple[str, ...]
    patterns: tuple[StepPattern, ...]
    warm_up: int
    steps: int
    timeout_s: float


def measure_steps(
    runs: Sequence[PlannedRun],
    place: Launcher[PlannedRun],
    asked: StepMeasurement,
    folder: StepRunFolder,
    say: Callable[[str], None],
) -> tuple[str, ...]:
    """Measure runs one after another; whatever happens, what was measured stays and nothing runs on.

    A run that fails ends alone, unless none has been measured before: then it is the same for the others.

    Returns:
        What was not measured and why, a line each.

    Raises:
        MeasureError: The first run failed, or the user interrupted one.
        StoreError: Something cannot be written.
    """
    problems: list[str] = []
    for run in runs:

        def say_of_run(text: str, name: str = run.name) -> None:
            say(f"{name}: {text}")

        try:
            measured = _measure(run, place, asked, folder, say_of_run)
        except KeyboardInterrupt as error:
            raise InterruptedRunError(f"{run.name}: interrupted") from error
        except DallyError as error:
            if not folder.read():
                raise MeasureError(f"{run.name}: {error}") from error
            say_of_run(str(error))
            problems.append(f"{run.name}: {error}")
            continue
        folder.add(measured)
        step = measured.step_time.step
        say_of_run(f"{step.median_s:.4g} s a step (median of {step.n}, by {measured.pattern})")
    return tuple(problems)


class _EnoughSteps(Exception):  # noqa: N818 (nothing is wrong)
    """The program has printed all step times that are asked for."""


def _measure(
    run: PlannedRun,
    place: Launcher[PlannedRun],
    asked: StepMeasurement,
    folder: StepRunFolder,
    say: Callable[[str], None],
) -> StepRun:
    """Measure one run.

    Raises:
        DallyError: The program failed or told too few step times; the message says so and names its log.
    """
    path = folder.log(run.name)
    with named(path):
        file = path.open("w", encoding="utf-8", errors="replace")
    with file, place.hold(run, say) as (placed, there):
        say(f"{run.shape.nodes}x{run.shape.gpus_per_node} on {', '.join(placed.hosts)}")
        output = _Output(asked, placed.hosts, file)
        started_s = monotonic()
        try:
            run_and_hear(there.commands(placed), there.start, output.hear, asked.timeout_s)
        except _EnoughSteps:
            pass
        except ProcessError as error:
            late = monotonic() - started_s >= asked.timeout_s
            if not (late and output.best(_LEAST)):
                cause = error if late else output.cause() or error
                raise DallyError(f"{cause}; all that it printed: {path}") from error
    log = output.best(_LEAST)
    if log is None:
        needed = f"only {output.told} step times, {asked.warm_up + _LEAST} are needed"
        what = needed if output.told else "no step times"
        raise DallyError(f"the program ended and printed {what}; see {path}, and --steps-from")
    seconds = tuple(log.seconds[asked.warm_up :][: asked.steps])
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return StepRun(placed, asked.argv, log.pattern.name, seconds, now)


class _Output:
    """What the program of one run prints, on all machines.

    Any of them may tell the steps: rank 0 does in most trainings, the last rank in Megatron's.
    """

    def __init__(self, asked: StepMeasurement, hosts: Sequence[str], file: TextIO) -> None:
        self._logs = {host: tuple(map(StepLog, asked.patterns)) for host in hosts}
        self._asked, self._file = asked, file
        self._last: deque[str] = deque(maxlen=_LAST_LINES)

    def hear(self, line: HeardLine) -> None:
        """Take in a line.

        Raises:
            _EnoughSteps: It tells the last step that is asked for.
        """
        self._last.append(line.text.strip())
        with named(Path(self._file.name)):
            self._file.write(f"{line.text}\n")
            self._file.flush()
        for log in self._logs[line.command.host]:
            log.read(line.text, monotonic())
        if self.best(self._asked.steps):
            raise _EnoughSteps

    @property
    def told(self) -> int:
        """How many step times one pattern has found on one machine."""
        return max(len(log.seconds) for logs in self._logs.values() for log in logs)

    def best(self, steps: int) -> StepLog | None:
        """The log that tells so many steps, after the first ones."""
        by_pattern = [log for logs in zip(*self._logs.values(), strict=True) for log in logs]
        return best_log(by_pattern, self._asked.warm_up + steps)

    def cause(self) -> str:
        """The last line that tells of an error; empty if there is none."""
        return next(
            (line for line in reversed(self._last) if _CAUSE.search(line) and _OF_TORCHRUN not in line), ""
        )
