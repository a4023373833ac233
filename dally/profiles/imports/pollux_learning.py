"""How the models of the set `pollux` learn, out of Pollux's validation tables: one for each batch size."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path

from scipy.optimize import minimize_scalar

from dally.errors import InputError
from dally.profiles.schema import Learning

_PHASES = 20
"""Epochs are put together to so many phases at most."""

_LEAST_NOISE, _MOST_NOISE = 1.0, 1e7
_COLUMNS = ("progress", "iteration", "metric")


@dataclass(frozen=True, slots=True)
class Course:
    """A training as it was measured, epoch by epoch.

    Attributes:
        progress: Iterations with the first batch size that would have come as far.
        iterations: Iterations done.
        metric: Accuracy or the like.
    """

    progress: Sequence[float]
    iterations: Sequence[float]
    metric: Sequence[float]

    def pace(self, begin: int, end: int) -> float:
        """Progress of an iteration in the epochs from one to before another."""
        before = (self.progress[begin - 1], self.iterations[begin - 1]) if begin else (0.0, 0.0)
        return (self.progress[end - 1] - before[0]) / (self.iterations[end - 1] - before[1])


def read_courses(folder: Path) -> Mapping[int, Course]:
    """Read `validation-BATCH.csv` for each batch size, ascending.

    Raises:
        InputError: There is none, or one cannot be read.
    """
    paths = {int(path.stem.rpartition("-")[2]): path for path in folder.glob("validation-*.csv")}
    if not paths:
        raise InputError(f"folder {folder} has no validation-BATCH.csv")
    return {batch: _read_course(paths[batch]) for batch in sorted(paths)}


def _read_course(path: Path) -> Course:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            columns = [[float(row[name]) for name in _COLUMNS] for row in csv.DictReader(file)]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"table {path} must have numbers in {', '.join(_COLUMNS)}: {error!r}") from error
    progress, iterations, metric = zip(*columns, strict=True)
    return Course(progress, iterations, metric)


def learn(courses: Mapping[int, Course], most_local_batch: int) -> Learning:
    """The noise scale of each phase that fits the paces with all batch sizes best.

    With the batch M an iteration was worth M / M0 * (phi + M0) / (phi + M) of those with M0; phi is fitted to
    that by least squares of log errors, in each phase.

    Args:
        courses: By batch size, ascending; the first is the one it was tuned for.
        most_local_batch: Largest batch that one GPU holds.
    """
    tuned, *others = courses
    epochs = min(len(course.progress) for course in courses.values())
    phases = min(_PHASES, epochs)
    ends = [epochs * (number + 1) // phases for number in range(phases)]
    first = courses[tuned]
    return Learning(
        batch=tuned,
        most_batch=max(courses),
        most_local_batch=most_local_batch,
        epochs=epochs,
        samples=first.progress[epochs - 1] * tuned,
        done=tuple(first.progress[end - 1] / first.progress[epochs - 1] for end in ends),
        noise=tuple(
            fit_noise(tuned, {batch: courses[batch].pace(begin, end) for batch in others})
            for begin, end in zip([0, *ends], ends, strict=False)
        ),
        metric=tuple(first.metric[end - 1] for end in ends),
    )


def fit_noise(tuned: int, paces: Mapping[int, float]) -> float:
    """The noise scale, samples, that fits the paces with some batch sizes best."""

    def error(log_noise: float) -> float:
        noise = float(2.0**log_noise)
        return sum(
            log(batch / tuned * (noise + tuned) / (noise + batch) / pace) ** 2
            for batch, pace in paces.items()
        )

    found = minimize_scalar(error, bounds=(log(_LEAST_NOISE, 2), log(_MOST_NOISE, 2)), method="bounded")
    return round(float(2.0**found.x), 1)
