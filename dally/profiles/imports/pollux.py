"""The set `pollux`: four models on nodes of four T4 GPUs, from the step times Pollux measured."""

import csv
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import linear_regression

from dally.errors import InputError
from dally.profiles.imports.origin import imported
from dally.profiles.imports.pollux_learning import learn, read_courses
from dally.profiles.iteration import predict
from dally.profiles.schema import Compute, Env, Model, Point, PointLink, PointShape, Profile, Timing
from dally.profiles.trust import add_trust
from dally.topology import Link, Ring, Shape

MODELS = ("bert", "cifar10", "deepspeech2", "imagenet")
"""The models with measured placements."""

EVEN_PLACEMENTS = tuple(str(gpus) * nodes for nodes in (1, 2, 3, 4) for gpus in (1, 2, 3, 4))
"""Placements with the same number of GPUs on each node, which are what a profile can hold."""

_LINE_RATE_BPS = 50e9
_SOURCE = (
    "petuum/adaptdl c793c7089bd3, branch osdi21-artifact, traces/{model}/placements.csv, local batch {batch}"
    "; AWS, nodes of 4 T4 GPUs with 50 Gb/s each"
)


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
    """Read a `scalability.csv` of Pollux: 6 to 16 nodes, each with as many GPUs.

    Raises:
        InputError: It cannot be read, lacks a column or holds something else than numbers.
    """

    def parse(row: Mapping[str, str]) -> Measurement:
        count = int(row["num_nodes"])
        nodes = (int(row["num_replicas"]) // count,) * count
        return Measurement(nodes, int(row["local_bsz"]), float(row["step_time"]))

    return _read_rows(path, ("num_nodes", "num_replicas", "local_bsz", "step_time"), parse)


def pollux_profiles(traces: Path) -> tuple[Profile, ...]:
    """The profiles of the set: every even placement, at the middle one of the measured batch sizes.

    The uneven placements, which a profile cannot hold, are held out.

    Args:
        traces: Pollux's folder of traces, one folder for each model, or the folder that holds `traces`.

    Raises:
        InputError: A table cannot be read.
    """
    if (traces / "traces").is_dir():
        traces = traces / "traces"
    profiles = []
    for model in MODELS:
        rows = read_placements(traces / model / "placements.csv")
        batches = sorted({row.local_batch for row in rows if row.nodes == (1,)})
        batch = batches[len(batches) // 2]
        profile = _with_learning(pollux_profile(model, rows, batch, EVEN_PLACEMENTS), rows, traces / model)
        uneven = [row for row in rows if row.local_batch == batch and row.placement not in EVEN_PLACEMENTS]
        errors = [predict(profile, t4_shape(row.nodes)).iteration_s / row.step_s - 1 for row in uneven]
        profiles.append(add_trust(profile, errors))
    return tuple(profiles)


def pollux_profile(
    model: str, rows: Iterable[Measurement], local_batch: int, placements: Collection[str]
) -> Profile:
    """A profile of one model and batch size that holds the given placements, of those measured.

    Raises:
        InputError: A single GPU was not measured with this batch size.
    """
    steps = {row.placement: row for row in rows if row.local_batch == local_batch}
    if "1" not in steps:
        raise InputError(f"model {model}: one GPU with local batch {local_batch} was not measured")
    known = [steps[placement] for placement in placements if placement in steps and placement != "1"]
    return Profile(
        schema=1,
        provenance=imported(_SOURCE.format(model=model, batch=local_batch), "Apache-2.0"),
        env=Env(gpu_type="t4", link_speed_bps=_LINE_RATE_BPS),
        model=Model(model, None, None, None, local_batch, None, (), None),
        compute=Compute(None, steps["1"].step_s, None, None, None),
        tiers={
            "machine": tuple(_point(row) for row in known if len(row.nodes) == 1),
            "rack": tuple(_point(row) for row in known if len(row.nodes) > 1),
        },
    )


def _with_learning(profile: Profile, rows: Sequence[Measurement], folder: Path) -> Profile:
    """The profile with what other batch sizes mean: to one GPU's compute, and to how training gets on."""
    alone = {row.local_batch: row.step_s for row in rows if row.nodes == (1,)}
    learning = learn(read_courses(folder), max(alone))
    fixed_s = linear_regression([*alone], [*alone.values()]).intercept if len(alone) > 1 else 0.0
    compute = replace(profile.compute, fixed_s=round(max(0.0, fixed_s), 6))
    return replace(profile, compute=compute, learning=learning)


def t4_shape(nodes: tuple[int, ...]) -> Shape:
    """The shape of a placement on nodes of T4 GPUs behind one switch."""
    machines = tuple(sorted(nodes, reverse=True))
    pcie, network = Link(100e9), Link(_LINE_RATE_BPS)
    rings = (Ring(machines[0], pcie, 1), Ring(len(machines), network, 2))
    apart = len(machines) > 1
    return Shape(
        level=1 if apart else 0,
        machines=machines,
        racks=(len(machines),) if apart else (),
        rings=tuple(ring for ring in rings if ring.members > 1),
        gpu_types=("t4",),
    )


def _point(row: Measurement) -> Point:
    link = PointLink(_LINE_RATE_BPS, None) if len(row.nodes) > 1 else None
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
        return tuple(parse(row) for row in rows)
    except (TypeError, ValueError) as error:
        raise InputError(f"table {path} must hold numbers in {', '.join(columns)}: {error}") from error
