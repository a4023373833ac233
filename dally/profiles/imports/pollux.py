"""Profiles out of folders of tables of Pollux's form, such as those of the set `pollux`.

`placements.csv` tells how long steps take, `validation-BATCH.csv` how training gets on with each batch size.
"""

import csv
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path

from scipy.optimize import minimize_scalar

from dally.cluster.topology import Link, Ring, Shape
from dally.errors import InputError
from dally.profiles.checks import add_trust
from dally.profiles.imports.imported import UNKNOWN, Origin, flag_inconsistent, with_flags
from dally.profiles.iteration import predict
from dally.profiles.schema import (
    BatchTime,
    Compute,
    Env,
    Learning,
    Model,
    Point,
    PointLink,
    PointShape,
    Profile,
    Timing,
)

MODELS = ("bert", "cifar10", "deepspeech2", "imagenet")
"""The models of Pollux's own tables."""

_TABLE = "placements.csv"

_PHASES = 20
"""Epochs are put together to so many phases at most."""

_LEAST_NOISE, _MOST_NOISE = 1.0, 1e7
_COLUMNS = ("progress", "iteration", "metric")


@dataclass(frozen=True, slots=True)
class MeasuredHardware:
    """What was measured on: the GPU type and the rate of each node's link, None if nobody says."""

    gpu_type: str | None = None
    link_bps: float | None = None


UNKNOWN_SITE = MeasuredHardware()

POLLUX_SITE = MeasuredHardware("t4", 50e9)
"""Nodes of four T4 GPUs on AWS, where Pollux's own tables are from."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row of a table: GPUs on each node, samples per GPU and seconds per training step."""

    nodes: tuple[int, ...]
    local_batch: int
    step_s: float

    @property
    def placement(self) -> str:
        """The GPUs of each node as digits, the way Pollux names placements."""
        return "".join(str(gpus) for gpus in self.nodes)


def read_placements(path: Path) -> tuple[Measurement, ...]:
    """Read a `placements.csv` of Pollux.

    Raises:
        InputError: It cannot be read, lacks a column or holds something else than numbers.
    """

    def parse(row: Mapping[str, str]) -> Measurement:
        nodes = tuple(int(gpus) for gpus in row["placement"])
        return Measurement(nodes, int(row["local_bsz"]), float(row["step_time"]))

    return _read_rows(path, ("placement", "local_bsz", "step_time"), parse)


def read_scalability(path: Path) -> tuple[Measurement, ...]:
    """Read a `scalability.csv` of Pollux: many nodes, GPUs shared out as evenly as possible.

    Raises:
        InputError: It cannot be read, lacks a column or holds something else than numbers.
    """

    def parse(row: Mapping[str, str]) -> Measurement:
        count, gpus = int(row["num_nodes"]), int(row["num_replicas"])
        nodes = tuple(gpus // count + (node < gpus % count) for node in range(count))
        return Measurement(nodes, int(row["local_bsz"]), float(row["step_time"]))

    return _read_rows(path, ("num_nodes", "num_replicas", "local_bsz", "step_time"), parse)


def pollux_profiles(
    folder: Path, origin: Origin = UNKNOWN, site: MeasuredHardware = UNKNOWN_SITE, every_batch: bool = False
) -> tuple[Profile, ...]:
    """A profile of each model of which the folder has `MODEL/placements.csv`.

    It holds every even placement at the middle one of the local batches that one GPU ran, and the times of
    one GPU with all of them. The uneven placements, which a profile cannot hold, are held out. Where the
    folder also has `MODEL/validation-BATCH.csv`, the profile tells how training gets on with other batches.

    Args:
        folder: The tables, or the folder that holds them as `traces`.
        origin: Where the tables are from.
        site: What they were measured on.
        every_batch: A profile for each local batch.

    Raises:
        InputError: The folder has no such table, or one cannot be read.
    """
    if (folder / "traces").is_dir():
        folder = folder / "traces"
    profiles: list[Profile] = []
    for path in sorted(folder.glob(f"*/{_TABLE}")):
        rows = read_placements(path)
        batches = sorted({row.local_batch for row in rows if row.nodes == (1,)})
        if not batches:
            raise InputError(f"table {path} has no row of one GPU (placement 1), which every profile needs")
        for batch in batches if every_batch else batches[len(batches) // 2 :][:1]:
            profiles.append(_checked_profile(path.parent, rows, batch, origin, site))
    if not profiles:
        raise InputError(f"folder {folder} has no MODEL/{_TABLE}, so it is not of Pollux's form")
    return flag_inconsistent(profiles)


def _checked_profile(
    folder: Path, rows: Sequence[Measurement], batch: int, origin: Origin, site: MeasuredHardware
) -> Profile:
    """The profile of one model and local batch, with its errors on uneven placements and its learning."""
    even = {row.placement for row in rows if len(set(row.nodes)) == 1}
    profile = pollux_profile(folder.name, rows, batch, even, origin, site)
    if any(folder.glob("validation-*.csv")):
        most = max(row.local_batch for row in rows if row.nodes == (1,))
        profile = replace(profile, learning=learn(read_courses(folder), most))
    uneven = [row for row in rows if row.local_batch == batch and row.placement not in even]
    errors = [predict(profile, flat_shape(row.nodes, site)).iteration_s / row.step_s - 1 for row in uneven]
    counts = Counter(row.placement for row in rows if row.local_batch == batch)
    repeated = sorted(placement for placement in even if counts[placement] > 1)
    flags = [f"placement {', '.join(repeated)} has several rows: the fastest counts"] if repeated else []
    return with_flags(add_trust(profile, errors), flags)


def pollux_profile(
    model: str,
    rows: Sequence[Measurement],
    local_batch: int,
    placements: Collection[str],
    origin: Origin = UNKNOWN,
    site: MeasuredHardware = POLLUX_SITE,
) -> Profile:
    """A profile of one model and local batch that holds the given placements, of those measured.

    Raises:
        InputError: A single GPU was not measured with this batch size.
    """
    steps: dict[tuple[str, int], Measurement] = {}
    for row in sorted(rows, key=lambda row: row.step_s):
        steps.setdefault((row.placement, row.local_batch), row)
    alone = {batch: row.step_s for (placement, batch), row in steps.items() if placement == "1"}
    if local_batch not in alone:
        raise InputError(f"model {model}: one GPU with local batch {local_batch} was not measured")
    keys = [(name, local_batch) for name in sorted(placements, key=lambda name: (len(name), name))]
    points = [_point(steps[key], site) for key in keys if key in steps and key[0] != "1"]
    return Profile(
        schema=1,
        provenance=origin.provenance(f"{model}/{_TABLE}, local batch {local_batch}"),
        env=Env(gpu_type=site.gpu_type, link_speed_bps=site.link_bps),
        model=Model(model, None, None, None, local_batch, None, (), None),
        compute=Compute(
            None,
            alone[local_batch],
            None,
            None,
            None,
            other_batches=tuple(
                BatchTime(batch, alone[batch]) for batch in sorted(alone) if batch != local_batch
            ),
        ),
        tiers={
            "machine": tuple(point for point in points if point.shape.nodes == 1),
            "rack": tuple(point for point in points if point.shape.nodes > 1),
        },
    )


def flat_shape(nodes: tuple[int, ...], site: MeasuredHardware = POLLUX_SITE) -> Shape:
    """The shape of a placement on nodes behind one switch."""
    machines = tuple(sorted(nodes, reverse=True))
    inside, network = Link(100e9), Link(site.link_bps or 100e9)
    rings = (Ring(machines[0], inside, 1), Ring(len(machines), network, 2))
    apart = len(machines) > 1
    return Shape(
        level=1 if apart else 0,
        machines=machines,
        racks=(len(machines),) if apart else (),
        rings=tuple(ring for ring in rings if ring.members > 1),
        gpu_types=(site.gpu_type,) if site.gpu_type else (),
    )


def _point(row: Measurement, site: MeasuredHardware) -> Point:
    link = PointLink(site.link_bps, None) if len(row.nodes) > 1 and site.link_bps else None
    shape = PointShape(len(row.nodes), row.nodes[0], "blocked")
    return Point(shape, link, (), Timing(row.step_s, None, None, None), None, None)


def _read_rows(
    path: Path, columns: Sequence[str], parse: Callable[[Mapping[str, str]], Measurement]
) -> tuple[Measurement, ...]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, ValueError) as error:
        raise InputError(f"table {path} cannot be read: {error}") from error
    missing = set(columns) - set(rows[0] if rows else ())
    if missing:
        raise InputError(f"table {path} has no column {', '.join(sorted(missing))}")
    try:
        measured = tuple(map(parse, rows))
        for row in measured:
            numbers = (*row.nodes, row.local_batch, row.step_s)
            if not row.nodes or not all(0 < number < float("inf") for number in numbers):
                raise ValueError(
                    f"placement {row.placement}, {row.local_batch}, {row.step_s} are not all positive"
                )
        return measured
    except (TypeError, ValueError) as error:
        raise InputError(f"table {path} must hold numbers in {', '.join(columns)}: {error}") from error


@dataclass(frozen=True, slots=True)
class TrainingCourse:
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


def read_courses(folder: Path) -> Mapping[int, TrainingCourse]:
    """Read `validation-BATCH.csv` for each batch size, ascending.

    Raises:
        InputError: There is none, or one cannot be read.
    """
    paths = {int(path.stem.rpartition("-")[2]): path for path in folder.glob("validation-*.csv")}
    if not paths:
        raise InputError(f"folder {folder} has no validation-BATCH.csv")
    courses = {}
    for batch, path in sorted(paths.items()):
        try:
            with path.open(encoding="utf-8", newline="") as file:
                rows = [[float(row[name]) for name in _COLUMNS] for row in csv.DictReader(file)]
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"table {path} must have numbers in {', '.join(_COLUMNS)}: {error!r}") from error
        courses[batch] = TrainingCourse(*zip(*rows, strict=True))
    return courses


def learn(courses: Mapping[int, TrainingCourse], most_local_batch: int) -> Learning:
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
