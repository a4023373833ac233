"""Profiles out of throughput tables of Gavel's form, such as that of the set `gavel`."""

import json
import re
from ast import literal_eval
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path

from dally.errors import InputError
from dally.profiles.checks import PredictionCheck, add_trust, shape_of
from dally.profiles.imports.imported import UNKNOWN, Origin, flag_inconsistent
from dally.profiles.iteration import predict
from dally.profiles.schema import Compute, Env, Model, Point, PointShape, Profile, Timing

GPU_TYPES = ("k80", "p100", "v100")
"""The types of Gavel's own table."""

_DETAIL = "entry {entry}; steps/s summed over the workers, so an iteration is GPUs / throughput"
_FILE = "simulation_throughputs.json"
_APART = "_unconsolidated"
_ENTRY = re.compile(r"(?P<family>.+?)(?: \(batch size (?P<batch>[1-9]\d*)\))?")

_FAR = (4, 8)
"""Of measurements on several servers, those held out where the predictor is checked."""

Table = Mapping[tuple[str, int], float]
"""Steps/s by entry and number of GPUs."""


@dataclass(frozen=True, slots=True)
class TableEntry:
    """An entry of the table: its name, the model it is about, and samples per GPU, None if not said."""

    name: str
    model: str
    local_batch: int | None


def gavel_profiles(path: Path, origin: Origin = UNKNOWN, every_batch: bool = False) -> tuple[Profile, ...]:
    """A profile of each model on each GPU type that one GPU of it can run.

    Args:
        path: The table, or the folder that holds it as `simulation_throughputs.json`.
        origin: Where the table is from.
        every_batch: A profile for each batch size; else for the middle one of those that run on all types.

    Raises:
        InputError: The table cannot be read or is of another form, or nothing of it runs on one GPU.
    """
    tables = read_tables(path)
    types = gpu_types(tables)
    profiles = []
    for entries in _families(tables):
        for gpu_type in types:
            runnable = [entry for entry in entries if (entry.name, 1) in tables[gpu_type]]
            everywhere = [entry for entry in runnable if _runs_everywhere(entry, tables)] or runnable
            chosen = runnable if every_batch else everywhere[(len(everywhere) - 1) // 2 :][:1]
            profiles += [gavel_profile(entry, gpu_type, tables, origin) for entry in chosen]
    if not profiles:
        raise InputError(f"{path} has no throughput on one GPU, which every profile needs")
    return flag_inconsistent(profiles)


def read_tables(path: Path) -> dict[str, Table]:
    """The tables by GPU type, and by `GPUTYPE_unconsolidated` for several servers.

    Raises:
        InputError: They cannot be read, or are of another form; the message names what.
    """
    if path.is_dir():
        path = path / _FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return {name: _read_table(rows) for name, rows in data.items()}
    except (KeyError, AttributeError, TypeError) as error:
        form = "must be a JSON object of GPU types, each with the rates of jobs"
        raise InputError(f"{path} is not a table of Gavel's form: {form}") from error
    except (OSError, ValueError, RecursionError, SyntaxError) as error:
        raise InputError(f"{path} is not a table of Gavel's form: {error}") from error


def _read_table(rows: Mapping[str, Mapping[str, float]]) -> Table:
    table = {}
    for text, alone in rows.items():
        key = literal_eval(text)
        match key:
            case (str(), int(gpus)) if gpus > 0:
                steps_per_s = float(alone.get("null") or 0.0)
            case _:
                raise ValueError(f"{text!r} is not a pair of an entry and a number of GPUs")
        if not steps_per_s >= 0 or not isfinite(steps_per_s):
            raise ValueError(f"{text} has {steps_per_s} steps/s")
        if steps_per_s:
            table[key] = steps_per_s
    return table


def gpu_types(tables: Mapping[str, Table]) -> tuple[str, ...]:
    """The GPU types of the tables, sorted."""
    return tuple(sorted({name.removesuffix(_APART) for name in tables} & {*tables}))


def list_entries(tables: Mapping[str, Table]) -> tuple[TableEntry, ...]:
    """The entries that one GPU of every type can run, by name."""
    entries = (entry for family in _families(tables) for entry in family)
    return tuple(
        sorted((entry for entry in entries if _runs_everywhere(entry, tables)), key=lambda each: each.name)
    )


def _families(tables: Mapping[str, Table]) -> tuple[tuple[TableEntry, ...], ...]:
    """The entries of each model, by batch size."""
    found = []
    for name in {name for gpu_type in gpu_types(tables) for name, _ in tables[gpu_type]}:
        match = _ENTRY.fullmatch(name)
        assert match is not None, "every name is at least a family"
        batch = int(match["batch"]) if match["batch"] else None
        found.append(TableEntry(name, match["family"].lower(), batch))
    models: dict[str, list[TableEntry]] = {}
    for entry in sorted(found, key=lambda each: (each.model, each.local_batch or 0, each.name)):
        models.setdefault(entry.model, []).append(entry)
    return tuple(tuple(entries) for entries in models.values())


def _runs_everywhere(entry: TableEntry, tables: Mapping[str, Table]) -> bool:
    return all((entry.name, 1) in tables[gpu_type] for gpu_type in gpu_types(tables))


def gavel_profile(
    entry: TableEntry, gpu_type: str, tables: Mapping[str, Table], origin: Origin = UNKNOWN
) -> Profile:
    """The profile of one entry of the table on one GPU type that can run it, with its errors."""
    packed, apart = tables[gpu_type], tables.get(gpu_type + _APART, {})
    tiers = {
        "machine": tuple(_point(1, gpus, packed[entry.name, gpus]) for gpus in _sizes(entry, packed)),
        "rack": tuple(_point(gpus, 1, apart[entry.name, gpus]) for gpus in _sizes(entry, apart)),
    }
    profile = Profile(
        schema=1,
        provenance=origin.provenance(_DETAIL.format(entry=entry.name)),
        env=Env(gpu_type=gpu_type),
        model=Model(entry.model, None, None, None, entry.local_batch, None, (), None),
        compute=Compute(None, 1 / packed[entry.name, 1], None, None, None),
        tiers={tier: points for tier, points in tiers.items() if points},
    )
    return add_trust(profile, [check.error for check in check_far(profile)])


def _sizes(entry: TableEntry, table: Table) -> Iterable[int]:
    return sorted(gpus for name, gpus in table if name == entry.name and gpus > 1)


def check_far(profile: Profile) -> tuple[PredictionCheck, ...]:
    """Predict the iterations on 4 and 8 servers from a profile that knows neither of them.

    It keeps one GPU, all numbers of GPUs on one server, and 2 servers.
    """
    rack = profile.tiers.get("rack", ())
    near = tuple(point for point in rack if point.shape.nodes not in _FAR)
    if not near:
        return ()
    blinded = replace(profile, tiers={**profile.tiers, "rack": near})
    return tuple(
        PredictionCheck(
            "rack", point, predict(blinded, shape_of("rack", point, profile.env.gpu_type)), held_out=True
        )
        for point in rack
        if point.shape.nodes in _FAR
    )


def _point(nodes: int, gpus_per_node: int, steps_per_s: float) -> Point:
    """The table says "several servers" where we say one GPU on each."""
    timing = Timing(nodes * gpus_per_node / steps_per_s, None, None, None)
    return Point(PointShape(nodes, gpus_per_node, None), None, (), timing, None, None)
