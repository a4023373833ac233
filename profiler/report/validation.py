"""Tables that hold predicted against measured times on local networks of several rates, as Markdown."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean

from dally.markdown import table
from dally.profiles.allreduce import ring_factor
from dally.profiles.schema import Point, Profile
from profiler.report.table import MeasuredRow, format_rate, list_rows


@dataclass(frozen=True, slots=True)
class ValidationCell:
    """One iteration, measured and predicted; the place is its tier and shape."""

    model: str
    ranks: int
    place: str
    bandwidth_bps: float
    measured_s: float
    predicted_s: float

    @property
    def error(self) -> float:
        """Predicted over measured, minus 1."""
        return self.predicted_s / self.measured_s - 1


def list_cells(profiles: Iterable[Profile]) -> tuple[ValidationCell, ...]:
    """The predicted iterations over a network, by model and place."""
    cells = [cell for profile in profiles for row in list_rows(profile) for cell in _cell(profile, row)]
    return tuple(sorted(cells, key=lambda cell: (cell.model, cell.ranks, cell.place, cell.bandwidth_bps)))


def iterations_table(cells: Sequence[ValidationCell]) -> str:
    """Measured and predicted seconds by rate, one line for each model and place."""
    rates = sorted({cell.bandwidth_bps for cell in cells})
    found = {(cell.model, cell.place, cell.bandwidth_bps): cell for cell in cells}
    lines = [
        (model, place, *(_times(found.get((model, place, rate))) for rate in rates))
        for model, place in dict.fromkeys((cell.model, cell.place) for cell in cells)
    ]
    return table(("model", "place", *map(format_rate, rates)), lines)


def errors_table(cells: Sequence[ValidationCell]) -> str:
    """Mean and greatest absolute error for each number of ranks, and of all."""
    counts = sorted({cell.ranks for cell in cells})
    groups = {str(ranks): [cell for cell in cells if cell.ranks == ranks] for ranks in counts}
    lines = [
        (name, str(len(group)), f"{mean(errors):.1%}", f"{max(errors):.1%}")
        for name, group in {**groups, "all": cells}.items()
        if (errors := [abs(cell.error) for cell in group])
    ]
    return table(("ranks", "iterations", "mean error", "greatest error"), lines)


def rings_table(profiles: Iterable[Profile]) -> str:
    """Time of all-reduces between two hosts of a rack over what the ring formula says, by rate and size.

    The formula is 2(n-1)/n bytes at the link's rate, without headers or latency (`rings_time_s`).
    """
    points = {rate: point for profile in profiles for rate, point in _pairs(profile)}
    sizes = sorted({item.bytes for point in points.values() for item in point.allreduce_curve})
    lines = [
        (_size(size), *(_over_formula(points[rate], rate, size) for rate in sorted(points))) for size in sizes
    ]
    return table(("bytes", *map(format_rate, sorted(points))), lines)


def _cell(profile: Profile, row: MeasuredRow) -> Iterator[ValidationCell]:
    if row.predicted_s is not None and row.bandwidth_bps is not None:
        place = f"{row.tier} {row.shape}"
        yield ValidationCell(
            profile.model.name, row.gpus, place, row.bandwidth_bps, row.measured_s, row.predicted_s
        )


def _times(cell: ValidationCell | None) -> str:
    return f"{cell.measured_s:.3f} / {cell.predicted_s:.3f} ({cell.error:+.1%})" if cell else ""


def _pairs(profile: Profile) -> Iterator[tuple[float, Point]]:
    for point in profile.tiers.get("rack", ()):
        if point.shape.gpus == 2 and point.link and not point.background_flows:
            yield point.link.bandwidth_bps, point


def _over_formula(point: Point, rate_bps: float, size: int) -> str:
    times = [item.median_s for item in point.allreduce_curve if item.bytes == size]
    return f"{times[0] / (ring_factor(2) * size * 8 / rate_bps):.3f}" if times else ""


def _size(size: int) -> str:
    """A power of two, as sweeps have them, in KiB or MiB; a bucket's bytes in MB."""
    if size & (size - 1):
        return f"{size / 1e6:.2f} MB"
    return f"{size / 2**20:g} MiB" if size >= 2**20 else f"{size / 2**10:g} KiB"
