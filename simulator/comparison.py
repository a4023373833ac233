"""Runs of the same workload under several policies, side by side, and how far they are."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from dally.commands.terminal import TextConsole
from dally.runs.summary import Summary
from dally.words import change, duration, share
from simulator.scenario import Run

_FILE_WIDTH = 180


def table_console() -> Console:
    """The console for tables on standard output, which is wide where that is no terminal."""
    return TextConsole() if TextConsole().is_terminal else TextConsole(width=_FILE_WIDTH)


def progress_bars() -> Progress:
    """Bars on standard error, shown on terminals alone."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = TextConsole(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@dataclass(frozen=True, slots=True)
class Column:
    """A figure of a run: how it is shown, whether as a difference too, and from which width on."""

    heading: str
    value: Callable[[Summary], float]
    show: Callable[[float], str] = duration
    compared: bool = False
    from_width: int = 0


_MIDDLE, _WIDE, _WIDEST = 110, 150, 190

_COLUMNS = (
    Column("makespan", lambda summary: summary.makespan_s, compared=True),
    Column("JCT mean", lambda summary: summary.jct_s.mean, compared=True),
    Column("JCT p50", lambda summary: summary.jct_s.median, from_width=_WIDE),
    Column("JCT p99", lambda summary: summary.jct_s.p99, compared=True, from_width=_MIDDLE),
    Column("waiting", lambda summary: summary.queue_s.mean, from_width=_MIDDLE),
    Column("longest wait", lambda summary: summary.longest_wait_s, from_width=_WIDEST),
    Column(
        "over 10 x own length", lambda summary: summary.starved, partial(share, digits=1), from_width=_WIDEST
    ),
    Column("network", lambda summary: summary.comm_s.mean),
    Column("GPU use", lambda summary: summary.utilization, share, from_width=_WIDE),
    Column("preempted", lambda summary: summary.preemptions, "{:,}".format, from_width=_WIDE),
)


def table(runs: Sequence[Run], levels: Sequence[str], width: int, jobs: int) -> Table:
    """The runs as rows; some figures with their difference from the first run; starts by level.

    A run that is not complete is marked as such, and nothing is compared with it, nor with one in which jobs
    failed: its means are of other jobs.

    Args:
        runs: At least one.
        levels: Names of the tree's levels, from the machine up.
        width: Characters there are; a narrow table leaves columns out.
        jobs: Jobs that the cluster can hold.
    """
    columns = [column for column in _COLUMNS if width >= column.from_width]
    result = Table(box=SIMPLE_HEAD, pad_edge=False)
    result.add_column("policy", overflow="fold")
    for column in columns:
        result.add_column(column.heading, justify="right", no_wrap=True)
        if column.compared:
            result.add_column("", no_wrap=True)
    if width >= _WIDE:
        result.add_column(f"starts by {', '.join(levels)}", justify="right")
    first = runs[0]
    for run in runs:
        comparable = run is not first and all(each.summary.completed == jobs for each in (run, first))
        cells = []
        for column in columns:
            value = column.value(run.summary)
            cells.append(column.show(value))
            if column.compared:
                cells.append(change(value, column.value(first.summary)) if comparable else "")
        if width >= _WIDE:
            cells.append(", ".join(f"{run.summary.placements.get(level, 0):,}" for level in levels))
        result.add_row(run.spec if run.complete else f"{run.spec} (incomplete)", *cells)
    return result


def as_data(runs: Sequence[Run]) -> dict[str, object]:
    """The summaries by policy, for programs."""
    return {
        run.spec: {
            "folder": run.folder,
            "knowledge": run.knows,
            "complete": run.complete,
            "note": run.note,
            **asdict(run.summary),
        }
        for run in runs
    }
