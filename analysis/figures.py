"""Figures of runs, drawn with matplotlib."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

_LINE_STYLES = ("-", "--", "-.", ":")


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
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    _curves(left, jct_s, "job completion time (hours)", least_s=60.0)
    _curves(right, queue_s, "time waiting (hours)", least_s=60.0)
    left.set_ylabel("share of jobs done within")
    left.legend(frameon=False, fontsize="small", loc="upper left")
    figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)


def _curves(axes: Axes, times_s: Mapping[str, Sequence[float]], label: str, least_s: float) -> None:
    """Empirical distribution functions on a logarithmic axis; times under `least_s` stand at its left end."""
    for number, (policy, values) in enumerate(times_s.items()):
        ordered = sorted(max(value, least_s) / 3600 for value in values)
        shares = [(place + 1) / len(ordered) for place in range(len(ordered))]
        style = _LINE_STYLES[number // 10 % len(_LINE_STYLES)]
        axes.step(
            [least_s / 3600, *ordered], [0.0, *shares], style, where="post", label=policy, linewidth=1.6
        )
    axes.set_xscale("log")
    axes.set_xlabel(label)
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
