"""The tables of a comparison, as text that a terminal and a Markdown file show alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from math import fsum
from statistics import fmean

from dally.runs.summary import Summary
from testbed.fidelity.attribution import ComparedInterval, ErrorParts
from testbed.fidelity.comparison import Comparison, JobComparison
from testbed.fidelity.sentences import CAUSES, cause, levels

_SEEN_S = 0.05


@dataclass(frozen=True, slots=True)
class ComparisonTable:
    """One table: its title, a sentence below it, and cells; the first `texts` columns are words."""

    title: str
    note: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of a whole run."""

    name: str
    value: Callable[[Summary], float]
    unit: str = "s"


METRICS = (
    Metric("makespan", lambda summary: summary.makespan_s),
    Metric("JCT mean", lambda summary: summary.jct_s.mean),
    Metric("JCT median", lambda summary: summary.jct_s.median),
    Metric("JCT p95", lambda summary: summary.jct_s.p95),
    Metric("waiting mean", lambda summary: summary.queue_s.mean),
    Metric("communication mean", lambda summary: summary.comm_s.mean),
    Metric("utilisation", lambda summary: 100 * summary.utilization, "%"),
)


def relative(value: float, base: float) -> float | None:
    """How far a value lies from a base, as a fraction of it; None for a base of 0 that was not met."""
    if base == 0:
        return 0.0 if value == 0 else None
    return value / base - 1


def signed(seconds: float) -> str:
    """A difference; without a sign where it is too small to be seen."""
    return f"{seconds:+.1f}" if abs(seconds) >= _SEEN_S else "0.0"


def percent(error: float | None) -> str:
    """A signed error; `-` where there is none."""
    return "-" if error is None else f"{100 * error:+.1f} %"


def aggregate(comparison: Comparison) -> ComparisonTable:
    """The whole run, real and simulated."""
    rows = []
    for metric in METRICS:
        real, simulated = metric.value(comparison.real), metric.value(comparison.simulated)
        shown = [f"{value:,.1f} {metric.unit}" for value in (real, simulated)]
        rows.append([metric.name, *shown, percent(relative(simulated, real))])
    return ComparisonTable("Whole run", "Over the compared jobs.", ("", "real", "simulated", "error"), rows)


def causes(comparison: Comparison) -> ComparisonTable:
    """Where the error comes from, over all jobs."""
    rows = []
    for name, (heading, meaning) in CAUSES.items():
        values = {job.real.job_id: float(getattr(job.parts, name)) for job in comparison.jobs}
        most = max(values, key=lambda job_id: abs(values[job_id]))
        mean_abs_s = fmean(map(abs, values.values()))
        largest = f"{signed(values[most])} ({most})" if abs(values[most]) >= _SEEN_S else ""
        rows.append([heading, meaning, signed(fmean(values.values())), f"{mean_abs_s:.1f}", largest])
    totals = [job.parts.total_s for job in comparison.jobs]
    rows.append(["sum", "", signed(fmean(totals)), f"{fmean(map(abs, totals)):.1f}", ""])
    note = "Seconds by which jobs really took longer than simulated; the parts of a job add up to its error."
    return ComparisonTable(
        "Where it comes from", note, ("cause", "what it is", "mean", "mean size", "largest"), rows, 2
    )


def startup_and_steps(comparison: Comparison) -> ComparisonTable:
    """Start-up and steps of the real intervals against their predictions, by model and placement."""
    groups: dict[tuple[str, int, str], list[tuple[JobComparison, ComparedInterval]]] = {}
    for job in comparison.jobs:
        for item, level in zip(job.intervals, job.levels, strict=True):
            groups.setdefault((job.real.model, job.real.gpus, level), []).append((job, item))
    rows = []
    for (model, gpus, level), members in sorted(groups.items(), key=lambda group: group[0]):
        startup_s = fmean(item.span.startup_s for _, item in members)
        expected_s = fmean(job.expected_startup_s(item) for job, item in members)
        row = [model or "-", str(gpus), level, str(len(members))]
        row += [f"{startup_s:.2f}", f"{expected_s:.2f}", percent(relative(expected_s, startup_s))]
        timed = [item for _, item in members if item.interval.step_s is not None and item.interval.steps]
        if timed:
            steps = sum(item.interval.steps for item in timed)
            step_s = fsum(item.real_step_s * item.interval.steps for item in timed) / steps
            alone_s = fsum(item.alone_s * item.interval.steps for item in timed) / steps
            shared_s = fsum(item.shared_s * item.interval.steps for item in timed) / steps
            row += [f"{step_s:.4f}", f"{alone_s:.4f}", percent(relative(alone_s, step_s))]
            row += [f"{shared_s:.4f}", percent(relative(shared_s, step_s))]
        else:
            row += ["-"] * 5
        rows.append(row)
    header = (
        *("model", "GPUs", "level", "stretches", "start-up", "predicted", "error"),
        *("step", "alone", "error", "beside others", "error"),
    )
    note = (
        "Real stretches: seconds from Slurm's start to the first step, and of a step (medians, weighted by "
        "steps), with what was predicted for the same GPUs: alone, and beside the jobs that really ran then."
    )
    return ComparisonTable("Starting up and steps", note, header, rows, 3)


def jobs(comparison: Comparison) -> ComparisonTable:
    """Each job in both worlds, worst error first."""
    header = (
        *("job", "model", "GPUs", "error", "JCT", "sim.", "start", "sim.", "running", "sim."),
        *("network", "sim.", "level", "sim."),
    )
    rows = []
    for job in comparison.jobs:
        real, simulated = job.real, job.simulated
        pairs = [(real.jct_s, simulated.jct_s), job.wait_s]
        pairs += [(real.run_s, simulated.run_s), (real.comm_s, simulated.comm_s)]
        numbers = [f"{value:.1f}" for pair in pairs for value in pair]
        where = [levels(job.levels), levels(job.simulated_levels)]
        rows.append([real.job_id, real.model or "-", str(real.gpus), percent(job.error), *numbers, *where])
    note = "Seconds, real and simulated: completion, wait for the first start, holding GPUs, communication."
    return ComparisonTable("Jobs", note, header, rows, 2)


def parts(comparison: Comparison) -> ComparisonTable:
    """The parts of each job's error, worst first."""
    names = [field.name for field in fields(ErrorParts)]
    rows = [
        [
            job.real.job_id,
            signed(job.parts.total_s),
            *(signed(getattr(job.parts, name)) for name in names),
            percent(job.run_error),
        ]
        for job in comparison.jobs
    ]
    header = ("job", "real - sim.", *(CAUSES[name][0] for name in names), "running, given places")
    note = "Seconds; last, the error of the running time predicted for the real placements and times."
    return ComparisonTable("Parts of each job's error", note, header, rows)


def in_words(comparison: Comparison) -> ComparisonTable:
    """The causes of each job's error, worst first."""
    rows = [(job.real.job_id, percent(job.error), cause(job)) for job in comparison.jobs]
    note = "What made a job longer or shorter than simulated."
    return ComparisonTable("Each job in words", note, ("job", "error", "cause"), rows, 3)
