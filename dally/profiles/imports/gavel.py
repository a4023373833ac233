"""The set `gavel`: seven model families on K80, P100 and V100, from Gavel's measured throughputs."""

import json
from ast import literal_eval
from collections.abc import Mapping
from pathlib import Path

from dally.errors import InputError
from dally.profiles.imports.origin import imported
from dally.profiles.schema import Compute, Env, Model, Point, PointShape, Profile, Timing

_SOURCE = (
    "stanford-futuredata/gavel c4fa40097339, simulation_throughputs.json, entry {entry}; "
    "steps/s summed over the workers, so an iteration is GPUs / throughput"
)
_GPU_TYPES = ("k80", "p100", "v100")
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

Table = Mapping[tuple[str, int], float]
"""Steps/s by entry and number of GPUs."""


def gavel_profiles(table_path: Path) -> tuple[Profile, ...]:
    """The profiles of the set.

    Args:
        table_path: Gavel's `simulation_throughputs.json`.

    Raises:
        InputError: The table cannot be read, is not JSON or lacks a GPU type.
    """
    tables = _read_tables(table_path)
    return tuple(_profile(model, gpu_type, tables) for model in _FAMILIES for gpu_type in _GPU_TYPES)


def _read_tables(path: Path) -> dict[str, Table]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: {literal_eval(key): alone["null"] for key, alone in data[name].items() if alone.get("null")}
            for gpu_type in _GPU_TYPES
            for name in (gpu_type, f"{gpu_type}_unconsolidated")
        }
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise InputError(f"{path} is not Gavel's table of throughputs: {error}") from error


def _profile(model: str, gpu_type: str, tables: Mapping[str, Table]) -> Profile:
    entry, local_batch = _FAMILIES[model]
    packed, apart = tables[gpu_type], tables[f"{gpu_type}_unconsolidated"]
    tiers = {
        "machine": tuple(
            _point(1, gpus, packed[entry, gpus]) for gpus in (2, 4, 8) if (entry, gpus) in packed
        ),
        "rack": tuple(_point(gpus, 1, apart[entry, gpus]) for gpus in (2, 4, 8) if (entry, gpus) in apart),
    }
    return Profile(
        schema=1,
        provenance=imported(_SOURCE.format(entry=entry), "MIT"),
        env=Env(gpu_type=gpu_type),
        model=Model(model, None, None, None, local_batch, None, (), None),
        compute=Compute(None, 1 / packed[entry, 1], None, None, None),
        tiers={tier: points for tier, points in tiers.items() if points},
    )


def _point(nodes: int, gpus_per_node: int, steps_per_s: float) -> Point:
    """The table says "several servers" where we say one GPU on each."""
    timing = Timing(nodes * gpus_per_node / steps_per_s, None, None, None)
    return Point(PointShape(nodes, gpus_per_node, None), None, (), timing, None, None)
