"""Profiles as a figure: slowdowns, measured and predicted, and the bandwidth of all-reduces."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from math import nan
from pathlib import Path

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from dally.atomic_file import write_atomically
from dally.errors import InputError
from dally.profiles.allreduce import bus_bandwidth_bps
from dally.profiles.schema import TIERS, Profile
from profiler.report.table import format_rate, format_shape, list_rows

_GROUP_WIDTH = 0.8
"""Of the bars at one place, where places are 1 apart."""

_LOGARITHMIC_FROM = 5.0
"""Slowdowns up to this stand on a linear axis."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A slowdown at a place, and the predicted one where there is one."""

    measured: float
    predicted: float | None


def draw_profiles(profiles: Sequence[Profile], path: Path) -> None:
    """Draw the slowdown of each model by tier and shape, and the bus bandwidth of all-reduces by size.

    Args:
        profiles: At least one.
        path: Where to write; the ending gives the format, such as .png.

    Raises:
        InputError: It cannot be written, or not in such a format.
    """
    bars = {
        " ".join(filter(None, (profile.model.name, profile.env.gpu_type))): group
        for profile in profiles
        if (group := list_bars(profile))
    }
    places = tuple(dict.fromkeys(place for group in bars.values() for place in group))
    curves = list_bandwidths(profiles)
    widths = [min(16.0, 5.0 + 0.2 * len(places) * len(bars))] + ([6.0] if curves else [])
    figure = Figure(figsize=(sum(widths), 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    ((left, *right),) = figure.subplots(1, len(widths), width_ratios=widths, squeeze=False)
    _draw_slowdowns(left, bars, places)
    for axes in right:
        _draw_bandwidths(axes, curves)
    drawn = BytesIO()
    try:
        figure.savefig(drawn, format=path.suffix.removeprefix("."), dpi=130)
        write_atomically(path, drawn.getvalue())
    except (OSError, ValueError) as error:
        raise InputError(f"figure {path} cannot be written: {error}") from error


def list_bars(profile: Profile) -> dict[str, Bar]:
    """The slowdowns of several GPUs by place, nearer tiers first."""
    return {
        _place(row.tier, row.shape, row.bandwidth_bps): Bar(
            row.slowdown,
            None if row.predicted_s is None else row.slowdown * row.predicted_s / row.measured_s,
        )
        for row in list_rows(profile)
        if row.gpus > 1
    }


def list_bandwidths(profiles: Sequence[Profile]) -> dict[str, list[tuple[int, float]]]:
    """The bus bandwidth of each place's all-reduces as (bytes, bits/s).

    As nccl-tests has it: bytes / time x 2(n-1)/n for n GPUs. All models of a measurement share the curves.
    """
    return {
        _place(tier, format_shape(point), point.link.bandwidth_bps if point.link else None): [
            (item.bytes, bus_bandwidth_bps(item, point.shape.gpus)) for item in point.allreduce_curve
        ]
        for profile in profiles
        for tier in TIERS
        for point in profile.tiers.get(tier, ())
        if point.allreduce_curve and point.shape.gpus > 1
    }


def _draw_slowdowns(axes: Axes, bars: Mapping[str, Mapping[str, Bar]], places: Sequence[str]) -> None:
    """A group of bars at each place, one for each model, with a cross where it was predicted."""
    width = _GROUP_WIDTH / max(1, len(bars))
    palette = colormaps["tab20" if len(bars) > 10 else "tab10"]
    for number, (name, group) in enumerate(bars.items()):
        middles = {place: at - _GROUP_WIDTH / 2 + (number + 0.5) * width for at, place in enumerate(places)}
        xs = [middles[place] for place in group]
        heights, colour = [bar.measured - 1 for bar in group.values()], palette(number % palette.N)
        axes.bar(xs, heights, width * 0.9, bottom=1.0, label=name, color=colour)
        predicted = [bar.predicted if bar.predicted is not None else nan for bar in group.values()]
        axes.plot(xs, predicted, "kx", markersize=5)
    axes.plot([], [], "kx", markersize=5, label="predicted without it")
    largest = max((bar.measured for group in bars.values() for bar in group.values()), default=1.0)
    if largest > _LOGARITHMIC_FROM:
        _plain_logarithms(axes)
    axes.set_xticks(range(len(places)), places, rotation=30, ha="right", fontsize="small")
    axes.set_title("Slowdown of an iteration over the fastest place", fontsize="medium")
    axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    _clean(axes)


def _draw_bandwidths(axes: Axes, curves: Mapping[str, Sequence[tuple[int, float]]]) -> None:
    for place, curve in curves.items():
        gigabits = [rate / 1e9 for _, rate in curve]
        axes.plot([size for size, _ in curve], gigabits, "o-", markersize=3, label=place)
    axes.set_xscale("log")
    _plain_logarithms(axes)
    axes.set_xlabel("bytes reduced")
    axes.set_title("Bus bandwidth of all-reduces, Gb/s", fontsize="medium")
    axes.legend(frameon=False, fontsize="small", loc="lower right")
    _clean(axes)


def _plain_logarithms(axes: Axes) -> None:
    """A logarithmic axis upwards, marked 1, 2, 5, 10, ..."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def _clean(axes: Axes) -> None:
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _place(tier: str, shape: str, bandwidth_bps: float | None) -> str:
    link = f", {format_rate(bandwidth_bps)}" if bandwidth_bps else ""
    return f"{tier} {shape}{link}"
