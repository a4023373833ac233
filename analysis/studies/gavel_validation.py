"""Checks the predictor on Gavel's pairs of throughputs, on one server and on several."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from analysis.studies.pollux_validation import Errors, summarise
from dally.markdown import table
from dally.profiles.imports.gavel import check_far, gavel_profile, gpu_types, list_entries, read_tables
from dally.profiles.schema import Profile


@dataclass(frozen=True, slots=True)
class PairErrors:
    """The errors on one model family and GPU type, over its batch sizes.

    Attributes:
        family: As the table names it.
        gpu_type: The GPU type.
        ours: The predictor on 4 and 8 servers, of which neither was known.
        unchanged: Taking the iteration time on 2 servers for both.
        pairs: Numbers of GPUs measured both on one server and on several.
        faster_apart: Those of them that were faster on several.
    """

    family: str
    gpu_type: str
    ours: Errors
    unchanged: Errors
    pairs: int
    faster_apart: int


def validate_pairs(table: Path) -> tuple[PairErrors, ...]:
    """Validate on every entry that was measured on 2, 4 and 8 servers.

    Args:
        table: Gavel's file of throughputs, or its folder.

    Raises:
        InputError: It cannot be read.
    """
    tables = read_tables(table)
    results = []
    for family, grouped in groupby(list_entries(tables), key=lambda entry: entry.name.split(" (")[0]):
        entries = tuple(grouped)
        for gpu_type in gpu_types(tables):
            profiles = [gavel_profile(entry, gpu_type, tables) for entry in entries]
            apart = [profile for profile in profiles if len(profile.tiers.get("rack", ())) == 3]
            if apart:
                results.append(_pair_errors(family, gpu_type, apart))
    return tuple(results)


def _pair_errors(family: str, gpu_type: str, profiles: Sequence[Profile]) -> PairErrors:
    ours, unchanged = [], []
    pairs: list[tuple[float, float]] = []
    for profile in profiles:
        near, far = (
            {point.shape.gpus: point.iteration.median_s for point in points if point.iteration}
            for points in (profile.tiers.get("machine", ()), profile.tiers["rack"])
        )
        pairs += [(packed_s, far[gpus]) for gpus, packed_s in near.items() if gpus in far]
        two = profile.tiers["rack"][0]
        for check in check_far(profile):
            assert two.iteration
            assert check.point.iteration
            ours.append(check.error)
            unchanged.append(two.iteration.median_s / check.point.iteration.median_s - 1)
    faster_apart = sum(apart_s < packed_s for packed_s, apart_s in pairs)
    return PairErrors(family, gpu_type, summarise(ours), summarise(unchanged), len(pairs), faster_apart)


def pairs_table(results: Iterable[PairErrors]) -> str:
    """Mean / max errors on 4 and 8 servers, and how often apart was faster, by model family and GPU type."""
    header = ("model", "GPU", "rows", "ours", "as on 2 servers", "pairs", "of them faster apart")
    rows = [
        (
            item.family,
            item.gpu_type,
            str(item.ours.rows),
            f"{item.ours.mean:.1%} / {item.ours.worst:.0%}",
            f"{item.unchanged.mean:.1%} / {item.unchanged.worst:.0%}",
            str(item.pairs),
            str(item.faster_apart),
        )
        for item in results
    ]
    return table(header, rows)
