"""The set `gavel`: seven model families on K80, P100 and V100, from Gavel's measured throughputs."""

import json
from ast import literal_eval
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dally.errors import InputError
from dally.profiles.checks import Check, shape_of
from dally.profiles.imports.origin import imported
from dally.profiles.iteration import predict
from dally.profiles.schema import Compute, Env, Model, Point, PointShape, Profile, Timing
from dally.profiles.trust import add_trust

_SOURCE = (
    "stanford-futuredata/gavel c4fa40097339, simulation_throughputs.json, entry {entry}; "
    "steps/s summed over the workers, so an iteration is GPUs / throughput"
)
GPU_TYPES = ("k80", "p100", "v100")
"""The types measured."""

_FAMILIES = {
    "resnet-18": ("ResNet-18 (batch size 64)", 64),
    "resnet-50": ("ResNet-50 (batch size 32)", 32),
    "transformer": ("Transformer (batch size 64)", 64),
    "lm": ("LM (batch size 20)", 20),
    "recommendation": ("Recommendation (batch size 2048)", 2048),
    "cyclegan": ("CycleGAN", None),
    "a3c": ("A3C", None),
}
"""Profile id -> the table's entry and its batch size: the middle one that runs on all three GPU types."""

_FAR = (4, 8)
"""Of measurements on several servers, those held out where the predictor is checked."""

Table = Mapping[tuple[str, int], float]
"""Steps/s by entry and number of GPUs."""


def gavel_profiles(table_path: Path) -> tuple[Profile, ...]:
    """The profiles of the set.

    Args:
        table_path: Gavel's `simulation_throughputs.json`, or the folder that holds it.

    Raises:
        InputError: The table cannot be read, is not JSON or lacks a GPU type.
    """
    tables = read_tables(table_path)
    return tuple(
        gavel_profile(model, *_FAMILIES[model], gpu_type, tables)
        for model in _FAMILIES
        for gpu_type in GPU_TYPES
    )


def read_tables(path: Path) -> dict[str, Table]:
    """Gavel's tables by GPU type, and by `GPUTYPE_unconsolidated` for several servers.

    Raises:
        InputError: They cannot be read, are not JSON or lack a GPU type.
    """
    if path.is_dir():
        path = path / "simulation_throughputs.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: {literal_eval(key): alone["null"] for key, alone in data[name].items() if alone.get("null")}
            for gpu_type in GPU_TYPES
            for name in (gpu_type, f"{gpu_type}_unconsolidated")
        }
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise InputError(f"{path} is not Gavel's table of throughputs: {error}") from error


def list_entries(tables: Mapping[str, Table]) -> tuple[str, ...]:
    """The entries that one GPU of every type can run, by name."""
    runnable = [{entry for entry, gpus in tables[gpu_type] if gpus == 1} for gpu_type in GPU_TYPES]
    return tuple(sorted(set.intersection(*runnable)))


def gavel_profile(
    model: str, entry: str, local_batch: int | None, gpu_type: str, tables: Mapping[str, Table]
) -> Profile:
    """The profile of one entry of the table on one GPU type, with its errors.

    Raises:
        InputError: The table has no throughput of it on one GPU.
    """
    packed, apart = tables[gpu_type], tables[f"{gpu_type}_unconsolidated"]
    if (entry, 1) not in packed:
        raise InputError(f"Gavel's table has no throughput of {entry} on one GPU of type {gpu_type}")
    tiers = {
        "machine": tuple(
            _point(1, gpus, packed[entry, gpus]) for gpus in (2, 4, 8) if (entry, gpus) in packed
        ),
        "rack": tuple(_point(gpus, 1, apart[entry, gpus]) for gpus in (2, 4, 8) if (entry, gpus) in apart),
    }
    profile = Profile(
        schema=1,
        provenance=imported(_SOURCE.format(entry=entry), "MIT"),
        env=Env(gpu_type=gpu_type),
        model=Model(model, None, None, None, local_batch, None, (), None),
        compute=Compute(None, 1 / packed[entry, 1], None, None, None),
        tiers={tier: points for tier, points in tiers.items() if points},
    )
    return add_trust(profile, [check.error for check in check_far(profile)])


def check_far(profile: Profile) -> tuple[Check, ...]:
    """Predict the iterations on 4 and 8 servers from a profile that knows neither of them.

    It keeps one GPU, all numbers of GPUs on one server, and 2 servers.
    """
    rack = profile.tiers.get("rack", ())
    near = tuple(point for point in rack if point.shape.nodes not in _FAR)
    if not near:
        return ()
    blinded = replace(profile, tiers={**profile.tiers, "rack": near})
    return tuple(
        Check("rack", point, predict(blinded, shape_of("rack", point, profile.env.gpu_type)), held_out=True)
        for point in rack
        if point.shape.nodes in _FAR
    )


def _point(nodes: int, gpus_per_node: int, steps_per_s: float) -> Point:
    """The table says "several servers" where we say one GPU on each."""
    timing = Timing(nodes * gpus_per_node / steps_per_s, None, None, None)
    return Point(PointShape(nodes, gpus_per_node, None), None, (), timing, None, None)
