"""Profiles out of folders of tables of Pollux's form, such as those of the set `pollux`."""

import csv
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dally.cluster.topology import Link, Ring, Shape
from dally.errors import InputError
from dally.profiles.checks import add_trust
from dally.profiles.imports.consistency import flag_inconsistent, with_flags
from dally.profiles.imports.origin import UNKNOWN, Origin
from dally.profiles.imports.pollux_learning import learn, read_courses
from dally.profiles.iteration import predict
from dally.profiles.schema import (
    BatchTime,
    Compute,
    Env,
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
        return tuple(_positive(parse(row)) for row in rows)
    except (TypeError, ValueError) as error:
        raise InputError(f"table {path} must hold numbers in {', '.join(columns)}: {error}") from error


def _positive(row: Measurement) -> Measurement:
    numbers = (*row.nodes, row.local_batch, row.step_s)
    if not row.nodes or not all(0 < number < float("inf") for number in numbers):
        raise ValueError(f"placement {row.placement}, {row.local_batch}, {row.step_s} are not all positive")
    return row
