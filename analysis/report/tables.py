"""The tables of a report: headline numbers with differences, timers, preemptions, placements of models."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, repeat
from statistics import median

from analysis.report.history import DOWN, PlacementTimer, RunHistory
from analysis.report.runs import WholeRun
from dally.runs.records import JobRecord
from dally.runs.summary import Summary, summarise
from dally.words import change, duration, share

_LEARNT = re.compile(r"tuned from (\d+) waits")
_SLIGHT = 0.005
_NONE = "none"


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of a run, its difference from the first run, and whether that is `better` or `worse`."""

    text: str
    difference: str = ""
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class ReportTable:
    """Headings, each with what it means; rows of cells, each with the name of its run.

    Groups stand above the headings: what so many of them, from the left, are about.
    """

    headings: Sequence[tuple[str, str]]
    rows: Sequence[tuple[str, Sequence[Cell]]]
    groups: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """A headline number: heading, meaning, value, how it is shown; and whether more is better or worse."""

    heading: str
    meaning: str
    value: Callable[[Summary], float]
    show: Callable[[float], str] = duration
    more_is: str = "worse"
    group: str = ""
    left_out_if_same: bool = False


def _count(value: float) -> str:
    return f"{value:,.0f}"


COMPLETION, WAITING = "completion time", "waiting"

HEADLINE = (
    ReportColumn("jobs", "jobs that completed", lambda run: run.completed, _count, "", left_out_if_same=True),
    ReportColumn("mean", "from submission to end", lambda run: run.jct_s.mean, group=COMPLETION),
    ReportColumn(
        "median", "half of the jobs completed within", lambda run: run.jct_s.median, group=COMPLETION
    ),
    ReportColumn(
        "99th pct", "99 % of the jobs completed within", lambda run: run.jct_s.p99, group=COMPLETION
    ),
    ReportColumn(
        "mean", "without GPUs, over a job's whole life", lambda run: run.queue_s.mean, group=WAITING
    ),
    ReportColumn("99th pct", "99 % of the jobs waited less", lambda run: run.queue_s.p99, group=WAITING),
    ReportColumn("longest", "of the job that waited longest", lambda run: run.longest_wait_s, group=WAITING),
    ReportColumn(
        "over 10 x",
        "share of the jobs that waited over ten times their ideal running time (10 s at least)",
        lambda run: run.starved,
        partial(share, digits=1),
        group=WAITING,
    ),
    ReportColumn(
        "slowdown",
        "mean completion time over the running time at the best placement, which counts as 10 s at least",
        lambda run: run.slowdown.mean,
        lambda value: f"{value:,.3g}",
    ),
    ReportColumn("network", "of running, what waited for the network; mean", lambda run: run.comm_s.mean),
    ReportColumn("makespan", "from the first submission to the last end", lambda run: run.makespan_s),
    ReportColumn("GPU use", "share of GPU time that jobs held", lambda run: run.utilization, share, ""),
    ReportColumn(
        "goodput", "share of GPU time that did work that counted", lambda run: run.goodput, share, "better"
    ),
    ReportColumn(
        "preempted", "how often GPUs were taken from running jobs", lambda run: run.preemptions, _count, ""
    ),
)


def headline_table(runs: Sequence[WholeRun]) -> ReportTable:
    """The runs in numbers, with differences from the first where the same jobs completed."""
    columns = [
        column
        for column in HEADLINE
        if not column.left_out_if_same or len({column.value(run.summary) for run in runs}) > 1
    ]
    first, *others = runs
    alike = [completed_ids(run.records) == completed_ids(first.records) for run in others]
    rows = [(first.name, [_compared(column, first.summary, None) for column in columns])]
    for run, same in zip(others, alike, strict=True):
        bases = [first.summary if same or column.left_out_if_same else None for column in columns]
        rows.append((run.name, [*map(_compared, columns, repeat(run.summary), bases)]))
    headings = [(column.heading, column.meaning) for column in columns]
    named = groupby(columns, lambda column: column.group)
    groups = [(name, len(list(each))) for name, each in named]
    if len({run.knew for run in runs}) > 1:
        headings.insert(0, ("knew", "what schedulers knew of running times"))
        rows = [(name, [Cell(run.knew), *cells]) for run, (name, cells) in zip(runs, rows, strict=True)]
        groups.insert(0, ("", 1))
    return ReportTable(headings, rows, groups)


def completed_ids(records: Iterable[JobRecord]) -> set[str]:
    """The jobs that completed."""
    return {record.job_id for record in records if record.status == "COMPLETED"}


def _compared(column: ReportColumn, summary: Summary, first: Summary | None) -> Cell:
    value = column.value(summary)
    if first is None:
        return Cell(column.show(value))
    other = column.value(first)
    same = abs(value - other) <= _SLIGHT * abs(other)
    worse = (value > other) == (column.more_is == "worse")
    verdict = "" if same or not column.more_is else "worse" if worse else "better"
    return Cell(column.show(value), change(value, other), verdict)


def timer_table(histories: Mapping[str, RunHistory]) -> ReportTable:
    """What the timers of each run came to, level by level; without runs that set none."""
    headings = [
        ("insisted on", "the level at which, or closer, jobs held out for GPUs"),
        ("timers", "decisions to wait so"),
        ("length", "median; least to most; counted from the begin of the job's wait"),
        ("tuned", "share whose length rests on waits that the auto-tuner had seen"),
        ("got it", "share that started there or closer"),
        ("after", "median time that those waited"),
        ("went farther", "share that started farther away"),
    ]
    rows = [
        (name, _timer_row(level, timers))
        for name, history in histories.items()
        for place, level in enumerate(history.levels)
        if (timers := [timer for timer in history.timers if timer.level == place])
    ]
    return ReportTable(headings, rows)


def _timer_row(level: str, timers: Sequence[PlacementTimer]) -> list[Cell]:
    delays_s = [timer.delay_s for timer in timers]
    least, most = duration(min(delays_s)), duration(max(delays_s))
    spread = least if least == most else f"{duration(median(delays_s))}; {least} to {most}"
    got = [timer for timer in timers if timer.placed is not None and timer.placed <= timer.level]
    farther = [timer for timer in timers if timer.placed is not None and timer.placed > timer.level]
    learnt = [int(found[1]) for timer in timers if (found := _LEARNT.search(timer.reason))]
    texts = [
        f"one {level}",
        f"{len(timers):,}",
        spread,
        share(sum(waits > 0 for waits in learnt) / len(learnt)) if learnt else _NONE,
        share(len(got) / len(timers)),
        duration(median(timer.waited_s for timer in got)) if got else _NONE,
        share(len(farther) / len(timers)),
    ]
    return [Cell(text) for text in texts]


def preemption_table(runs: Sequence[WholeRun], histories: Mapping[str, RunHistory]) -> ReportTable:
    """What preemption did to the jobs of each run, and what it cost."""
    headings = [
        ("jobs preempted", "at least once, moves included"),
        ("preemptions", "GPUs taken, moves included"),
        ("of these, moves", "to other GPUs, without waiting again"),
        ("most for one job", "preemptions of the job that had most"),
        ("failures", "jobs hit by a machine that failed"),
        ("GPU time for restarts", "and its share of all GPU time held"),
        ("GPU time lost", "work done again after failures"),
    ]
    return ReportTable(headings, [(run.name, _preemption_row(run, histories[run.name])) for run in runs])


def _preemption_row(run: WholeRun, history: RunHistory) -> list[Cell]:
    often = [record.preemptions for record in run.records if record.preemptions]
    held_s = sum(record.held_gpu_s for record in run.records)
    restart_s = run.summary.restart_gpu_s
    texts = [
        f"{len(often):,} ({share(len(often) / len(run.records))})" if often else "0",
        f"{run.summary.preemptions:,}",
        f"{history.moves:,}",
        f"{max(often, default=0):,}",
        f"{run.summary.failures:,}",
        f"{duration(restart_s)} ({share(restart_s / held_s, 1)})" if restart_s else _NONE,
        duration(run.summary.lost_gpu_s) if run.summary.lost_gpu_s else _NONE,
    ]
    return [Cell(text) for text in texts]


MOST_PLANS = 12
PLAN_COLUMNS = (
    ReportColumn("completed", "jobs that completed", lambda run: run.completed, _count, ""),
    ReportColumn("completion time", "from submission to end; mean", lambda run: run.jct_s.mean),
    ReportColumn("waiting", "without GPUs, over a job's whole life; mean", lambda run: run.queue_s.mean),
    ReportColumn("network", "of running, what waited for the network; mean", lambda run: run.comm_s.mean),
)


def plan_table(runs: Sequence[WholeRun]) -> ReportTable:
    """Jobs by model and training plan under each run, the plan with most GPU time in the first run first."""
    plans: dict[str, dict[str, list[JobRecord]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for record in run.records:
            if record.plan:
                plans[f"{record.model} {record.plan.replace(',', ', ')}".strip()][run.name].append(record)
    rows = []
    for plan in sorted(plans, key=lambda plan: -_held_s(plans[plan][runs[0].name]))[:MOST_PLANS]:
        summaries = [summarise(plans[plan][run.name], run.cluster["gpus"], run.end_s) for run in runs]
        gpus = sorted({record.gpus for records in plans[plan].values() for record in records})
        for place, (run, summary) in enumerate(zip(runs, summaries, strict=True)):
            done, base = (completed_ids(plans[plan][name]) for name in (run.name, runs[0].name))
            first = summaries[0] if place and done and done == base else None
            cells = [_compared(column, summary, first) for column in PLAN_COLUMNS]
            if not summary.completed:
                cells = [Cell("0"), *[Cell(_NONE)] * (len(PLAN_COLUMNS) - 1)]
            shown = [Cell(run.name), Cell(", ".join(map(str, gpus))), *cells]
            rows.append(("" if place else plan, shown))
    headings = [("run", ""), ("GPUs", "of a job"), *((each.heading, each.meaning) for each in PLAN_COLUMNS)]
    return ReportTable(headings, rows)


def _held_s(records: Sequence[JobRecord]) -> float:
    """GPU-seconds held, all together."""
    return sum(record.held_gpu_s for record in records)


MOST_MODELS = 12
OTHER_MODELS = "other models"
NO_MODEL = "no model"

GpuTime = Mapping[str, Sequence[float]]
"""GPU-seconds at each level, by model."""


@dataclass(frozen=True, slots=True)
class ModelPlacements:
    """A model's shares of GPU time at each level, percent, by run; without runs in which it had none."""

    model: str
    runs: Mapping[str, Sequence[float]]


def gpu_time_by_model(history: RunHistory, records: Sequence[JobRecord | None]) -> GpuTime:
    """The GPU time of the jobs with more than one GPU."""
    found: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * len(history.levels))
    for each in history.held:
        record = records[each.job] if each.job != DOWN else None
        if record is not None and record.gpus > 1:
            found[record.model or NO_MODEL][each.level] += (each.end_s - each.begin_s) * len(each.slots)
    return found


def levels_by_model(runs: Mapping[str, GpuTime], levels: int) -> list[ModelPlacements]:
    """For each model its shares, the model with most GPU time first, the smallest models together."""
    total: Counter[str] = Counter()
    for run in runs.values():
        total.update({model: sum(gpu_s) for model, gpu_s in run.items()})
    models = [model for model, _ in total.most_common()]
    most = len(models) if len(models) <= MOST_MODELS else MOST_MODELS - 1
    groups = {model: [model] for model in models[:most]}
    if models[most:]:
        groups[OTHER_MODELS] = models[most:]
    found = []
    for name, members in groups.items():
        shares: dict[str, list[float]] = {}
        for run_name, times in runs.items():
            own = [times[model] for model in members if model in times]
            sums = [sum(gpu_s[level] for gpu_s in own) for level in range(levels)]
            if whole := sum(sums):
                shares[run_name] = [100 * part / whole for part in sums]
        found.append(ModelPlacements(name, shares))
    return found
