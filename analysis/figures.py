"""Figures of runs, drawn with matplotlib."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

LEAST_S = 60.0
"""Shorter times stand at the left end of the axis, seconds."""

_TICKS = {60: "1 min", 600: "10 min", 3600: "1 h", 36_000: "10 h", 345_600: "4 d", 3_456_000: "40 d"}
_LINE_STYLES = ("-", "--", ":")
_COLOURS = 10


def draw_jct(
    jct_s: Mapping[str, Sequence[float]], queue_s: Mapping[str, Sequence[float]], path: Path
) -> None:
    """Draw the distributions of completion and waiting time of each policy, side by side, as PNG or SVG.

    Args:
        jct_s: Job completion times by policy, seconds.
        queue_s: Waiting times by policy, seconds.
        path: Where to write; the ending gives the format.
    """
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    _curves(left, jct_s, "Completion time: from submission to end")
    _curves(right, queue_s, "Waiting time (a minute or less at the left)")
    left.set_ylabel("share of jobs within")
    left.legend(frameon=False, fontsize="small", loc="upper left")
    figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)


def _curves(axes: Axes, times_s: Mapping[str, Sequence[float]], title: str) -> None:
    """Empirical distribution functions on a logarithmic axis."""
    for number, (policy, values) in enumerate(times_s.items()):
        ordered = sorted(max(value, LEAST_S) for value in values)
        shares = [(place + 1) / len(ordered) for place in range(len(ordered))]
        style = _LINE_STYLES[number // _COLOURS % len(_LINE_STYLES)]
        axes.step([LEAST_S, *ordered], [0.0, *shares], style, where="post", label=policy, linewidth=1.6)
    longest_s = max(max(values, default=0.0) for values in times_s.values())
    axes.set_xscale("log")
    axes.set_xlim(LEAST_S * 0.9, max(longest_s, 2 * LEAST_S) * 1.2)
    axes.set_xticks([tick for tick in _TICKS if tick <= longest_s * 1.2], minor=False)
    axes.set_xticklabels([label for tick, label in _TICKS.items() if tick <= longest_s * 1.2])
    axes.minorticks_off()
    axes.set_title(title, fontsize="medium")
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
