"""Runs of the same workload under several policies, side by side."""

from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table

from dally.summary import Summary
from simulator.scenario import Run


def duration(seconds: float) -> str:
    """A duration as people say it: 42 s, 5.3 min, 7.1 h, 12.5 d."""
    for size, unit, until in ((1.0, "s", 100.0), (60.0, "min", 6000.0), (3600.0, "h", 100 * 3600.0)):
        if seconds < until:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 86400:.3g} d"


def difference(value: float, base: float) -> str:
    """How far a value lies from another: +12%, -3%, or 15x from tenfold on."""
    if base == 0:
        return "" if value == 0 else "new"
    ratio = value / base
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio - 1:+.0%}"


def table(runs: Sequence[Run], levels: Sequence[str]) -> Table:
    """The runs as rows; completion times with their difference from the first run; starts by level."""
    result = Table(title="Policies side by side; differences are from the first", title_justify="left")
    result.add_column("policy", overflow="fold")
    for heading in (
        "makespan",
        "",
        "JCT mean",
        "",
        "JCT p50",
        "JCT p99",
        "",
        "waiting",
        "comm.",
        "GPU use",
        "preempt.",
    ):
        result.add_column(heading, justify="right", no_wrap=True)
    result.add_column(f"starts by {', '.join(levels)}", justify="right")
    base = runs[0].summary
    for run in runs:
        starts = ", ".join(f"{run.summary.placements.get(level, 0):,}" for level in levels)
        result.add_row(run.spec, *_row(run.summary, base, first=run is runs[0]), starts)
    return result


def _row(summary: Summary, base: Summary, first: bool) -> list[str]:
    def compared(value: float, other: float) -> list[str]:
        return [duration(value), "" if first else difference(value, other)]

    return [
        *compared(summary.makespan_s, base.makespan_s),
        *compared(summary.jct_s.mean, base.jct_s.mean),
        duration(summary.jct_s.median),
        *compared(summary.jct_s.p99, base.jct_s.p99),
        duration(summary.queue_s.mean),
        duration(summary.comm_s.mean),
        f"{summary.utilization:.0%}",
        f"{summary.preemptions:,}",
    ]


def as_data(runs: Sequence[Run]) -> dict[str, object]:
    """The summaries by policy, for programs."""
    return {
        run.spec: {"folder": run.folder, "complete": run.complete, "note": run.note, **asdict(run.summary)}
        for run in runs
    }
