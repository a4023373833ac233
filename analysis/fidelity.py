"""The figure of a live run beside its simulation, drawn with matplotlib."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from dally.words import share

BAND = 0.1
"""The band beside the diagonal: errors of the completion time up to this."""

_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000", "#F0E442")
"""Told apart by the colour-blind too (Okabe and Ito, 2008); markers differ as well."""

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_USAGE_STYLES = {"real": ("#333333", "-", 1.8), "simulated": ("#D55E00", "--", 1.6)}
_MINUTES_FROM_S = 600.0


def draw_fidelity(
    jct_s: Mapping[str, Sequence[tuple[float, float]]],
    usage: Mapping[str, Sequence[tuple[float, int]]],
    gpus: int,
    path: Path,
) -> None:
    """Draw simulated over real completion times, and the GPUs in use over time in both worlds.

    Args:
        jct_s: Real and simulated completion time of each job, by model, seconds.
        usage: For `real` and `simulated`: moments, seconds, and the GPUs held from then on.
        gpus: GPUs of the cluster.
        path: Where to write; the ending gives the format.
    """
    figure = Figure(figsize=(12, 5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.35))
    _completion(left, jct_s)
    _usage(right, usage, gpus)
    for axes in (left, right):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)


def _completion(axes: Axes, jct_s: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """Simulated over real, with the diagonal and a band beside it, on logarithmic axes."""
    values = [value for pairs in jct_s.values() for pair in pairs for value in pair]
    low, high = min(values) / 1.3, max(values) * 1.3
    axes.fill_between(
        [low, high],
        [low * (1 - BAND), high * (1 - BAND)],
        [low * (1 + BAND), high * (1 + BAND)],
        color="#999999",
        alpha=0.25,
        linewidth=0,
        label=f"within {share(BAND)}",
    )
    axes.plot([low, high], [low, high], color="#777777", linewidth=1)
    for number, (model, pairs) in enumerate(jct_s.items()):
        axes.scatter(
            [real for real, _ in pairs],
            [simulated for _, simulated in pairs],
            s=42,
            alpha=0.85,
            color=_COLOURS[number % len(_COLOURS)],
            marker=_MARKERS[number % len(_MARKERS)],
            edgecolors="white",
            linewidths=0.6,
            label=model,
            zorder=3,
        )
    _square(axes, low, high)
    axes.set_title("Completion time of each job: above the line, simulated too long", fontsize="medium")
    axes.set_xlabel("real, seconds")
    axes.set_ylabel("simulated, seconds")
    axes.legend(frameon=False, fontsize="small", loc="upper left")


def _square(axes: Axes, low: float, high: float) -> None:
    """The same logarithmic range on both axes, marked 1, 2, 5 in each decade."""
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    axes.minorticks_off()
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:,.10g}"))


def _usage(axes: Axes, usage: Mapping[str, Sequence[tuple[float, int]]], gpus: int) -> None:
    """GPUs in use over time, a step line for each world."""
    last_s = max(moment for steps in usage.values() for moment, _ in steps)
    unit, size = ("minutes", 60.0) if last_s >= _MINUTES_FROM_S else ("seconds", 1.0)
    axes.axhline(gpus, color="#999999", linewidth=1, linestyle=":")
    axes.annotate(
        f"all {gpus} GPUs",
        (1, gpus),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize="small",
        color="#666666",
    )
    for name, steps in usage.items():
        colour, style, width = _USAGE_STYLES[name]
        axes.step(
            [moment / size for moment, _ in steps],
            [held for _, held in steps],
            style,
            where="post",
            color=colour,
            linewidth=width,
            label=name,
        )
    axes.set_xlim(0, last_s / size * 1.02)
    axes.set_ylim(0, max(gpus, *(held for steps in usage.values() for _, held in steps)) * 1.18)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title("GPUs in use", fontsize="medium")
    axes.set_xlabel(f"{unit} since the first submission")
    axes.set_ylabel("GPUs")
    axes.legend(frameon=False, fontsize="small", loc="upper left", ncols=2)
