"""The results of a sweep as tables: a row a run, means over the seeds, and an overview to look at."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from dally.runs.records import shown
from dally.words import change, duration, share
from simulator.sweep.groups import Case, Mean, RunGroup, figures
from simulator.sweep.plan import SweepTask
from simulator.sweep.work import Result

Row = dict[str, Any]


def result_rows(found: Iterable[tuple[SweepTask, Result]]) -> Iterator[Row]:
    """A row a run: what it was, its seed, whether it is complete, the CPU seconds it took, its figures."""
    for task, result in found:
        said = {**task.columns, "seed": task.inputs.seed}
        yield {**said, "complete": result["complete"], "cpu_s": result["cpu_s"], **figures(result)}


def summary_rows(cases: Mapping[Case, Sequence[RunGroup]]) -> Iterator[Row]:
    """A row a group and figure: mean over seeds, half a confidence interval, ratio to the first policy."""
    for groups in cases.values():
        for group in groups:
            for name in group.names():
                values, ratio = group.mean(name), group.ratio(groups[0], name)
                yield {
                    **group.task.columns,
                    "figure": name,
                    "runs": len(group.by_seed),
                    "mean": values.value,
                    "ci95": values.half,
                    "ratio": ratio and ratio.value,
                    "ratio_ci95": ratio and ratio.half,
                }


def to_csv(rows: Iterable[Row], first_figure: str) -> str:
    """Rows as CSV, with every column that any row has; those that only some have keep to their side.

    Args:
        rows: The rows.
        first_figure: The column, one of every row's, before which stands what tells the rows apart.
    """
    rows = list(rows)
    names: tuple[dict[str, None], dict[str, None]] = {}, {}
    for row in rows:
        for place, name in enumerate(row):
            names[place >= list(row).index(first_figure)][name] = None
    columns = [*names[0], *names[1]]
    text = StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row.get(column)) for column in columns] for row in rows)
    return text.getvalue()


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.9g}" if isinstance(value, float) else shown(value)


_COLUMNS = {
    "JCT mean": "jct_mean_s",
    "JCT p99": "jct_p99_s",
    "makespan": "makespan_s",
    "waiting": "queue_mean_s",
    "network": "comm_mean_s",
}
_COMPARED = ("JCT mean", "JCT p99", "makespan")
_KNOWN = ("knowledge", "estimate_error", "profile_error")
"""Options that `Known` says together."""


def overview(cases: Mapping[Case, Sequence[RunGroup]]) -> Iterator[Table]:
    """A table a case: means and differences from the first policy, each ± half a 95 % interval."""
    firsts = [groups[0] for groups in cases.values()]
    for groups in cases.values():
        title = _title(groups[0], firsts)
        result = Table(box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
        result.add_column("policy", overflow="fold")
        for heading in _COLUMNS:
            result.add_column(heading, justify="right", no_wrap=True)
            if heading in _COMPARED:
                result.add_column("", no_wrap=True)
        result.add_column("seeds", justify="right")
        for group in groups:
            cells = []
            for heading, name in _COLUMNS.items():
                found = group.mean(name)
                interval = (
                    f" ±{share(found.half / found.value, 1)}"
                    if found.half is not None and found.value
                    else ""
                )
                cells.append(f"{duration(found.value)}{interval}")
                if heading in _COMPARED:
                    ratio = group.ratio(groups[0], name)
                    cells.append("" if group is groups[0] or ratio is None else _difference(ratio))
            result.add_row(group.task.policy, *cells, str(len(group.by_seed)))
        yield result


def lost_lines(cases: Mapping[Case, Sequence[RunGroup]]) -> Iterator[str]:
    """Runs that are not compared as not the same jobs failed: which policy lost how many."""
    firsts = [groups[0] for groups in cases.values()]
    for first, *others in cases.values():
        for group in others:
            for line in group.losses(first):
                yield f"not compared: {_title(first, firsts)}, {line}"


def _difference(ratio: Mean) -> str:
    """How much more or less than the first policy, with half the interval of the paired differences."""
    if ratio.half is None:
        return change(ratio.value, 1.0)
    return f"{100 * (ratio.value - 1):+.1f} ±{100 * ratio.half:.1f} %"


def _title(case: RunGroup, others: Iterable[RunGroup]) -> str:
    """The setting of a case, and the options whose values differ between the cases of this setting.

    What policies know is said where it differs between any two cases.
    """
    others = list(others)
    classes = {str(other.task.inputs.knows) for other in others}
    knows = f"(knew: {case.task.inputs.knows})" if len(classes) > 1 else ""
    alike = [other.task.values for other in others if other.task.setting == case.task.setting]
    varied = [
        f"{key}={value}"
        for key, value in case.task.values.items()
        if key not in _KNOWN and any(values.get(key) != value for values in alike)
    ]
    return " ".join(filter(None, [case.task.setting, *varied, knows])) or "all runs"
