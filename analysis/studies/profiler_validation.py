"""Writes the tables and the figure of docs/profiler-validation.md: predicted against measured times.

`python -m analysis.studies.profiler_validation [FOLDER]` measures local networks of several rates, on an idle
machine; it takes most of an hour. What FOLDER holds is not measured again.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import click

from analysis.studies.common import StudyCommand, publish
from dally.markdown import table
from dally.profiles.allreduce import ring_factor
from dally.profiles.files import load_profiles
from dally.profiles.schema import Point, Profile
from profiler.report.table import format_rate, list_rows

ROOT = Path(__file__).parents[2]
RATES = ("2Gb", "1Gb", "500Mb", "200Mb")
MODELS = ("alexnet", "mobilenetv3", "resnet18", "resnet50")
OPTIONS = "--emulate 9 --racks 2,2 --shapes 2x1,4x1 --sweep 64K:64M --budget 4 --resume"


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

    def __str__(self) -> str:
        return f"{self.measured_s:.3f} / {self.predicted_s:.3f} ({self.error:+.1%})"


def list_cells(profiles: Iterable[Profile]) -> tuple[ValidationCell, ...]:
    """The predicted iterations over a network, by model and place."""
    cells = [
        ValidationCell(
            profile.model.name,
            row.gpus,
            f"{row.tier} {row.shape}",
            row.bandwidth_bps,
            row.measured_s,
            row.predicted_s,
        )
        for profile in profiles
        for row in list_rows(profile)
        if row.predicted_s is not None and row.bandwidth_bps is not None
    ]
    return tuple(sorted(cells, key=lambda cell: (cell.model, cell.ranks, cell.place, cell.bandwidth_bps)))


def iterations_table(cells: Sequence[ValidationCell]) -> str:
    """Measured and predicted seconds by rate, one line for each model and place."""
    rates = sorted({cell.bandwidth_bps for cell in cells})
    found = {(cell.model, cell.place, cell.bandwidth_bps): cell for cell in cells}
    lines = [
        (model, place, *(str(found.get((model, place, rate), "")) for rate in rates))
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
    points = {
        point.link.bandwidth_bps: point
        for profile in profiles
        for point in profile.tiers.get("rack", ())
        if point.shape.gpus == 2 and point.link and not point.background_flows
    }
    sizes = sorted({item.bytes for point in points.values() for item in point.allreduce_curve})
    lines = [
        (_size(size), *(_over_formula(points[rate], rate, size) for rate in sorted(points))) for size in sizes
    ]
    return table(("bytes", *map(format_rate, sorted(points))), lines)


def _over_formula(point: Point, rate_bps: float, size: int) -> str:
    times = [item.median_s for item in point.allreduce_curve if item.bytes == size]
    return f"{times[0] / (ring_factor(2) * size * 8 / rate_bps):.3f}" if times else ""


def _size(size: int) -> str:
    """A power of two, as sweeps have them, in KiB or MiB; a bucket's bytes in MB."""
    if size & (size - 1):
        return f"{size / 1e6:.2f} MB"
    return f"{size / 2**20:g} MiB" if size >= 2**20 else f"{size / 2**10:g} KiB"


@click.command(cls=StudyCommand)
@click.argument("folder", type=click.Path(path_type=Path), default=ROOT / "runs" / "profiler-validation")
def main(folder: Path) -> None:
    """Measure into FOLDER, a folder for each rate, and rewrite the generated sections."""
    program = Path(sys.executable).with_name("profile-models")
    for rate in RATES:
        places = ("--rate", rate, "--uplink", rate, "--out", folder / rate)
        if status := subprocess.run([program, "local", *MODELS, *OPTIONS.split(), *places]).returncode:
            sys.exit(status)
    document = ROOT / "docs" / "profiler-validation.md"
    profiles = [profile for rate in RATES for profile in load_profiles(folder / rate).profiles]
    cells = list_cells(profiles)
    tables = {
        "errors": errors_table(cells),
        "iterations": iterations_table(cells),
        "rings": rings_table(profiles),
    }
    publish(tables.items(), document)
    shutil.copy(folder / "1Gb" / "profiles.png", document.with_suffix(".png"))


if __name__ == "__main__":
    main()
