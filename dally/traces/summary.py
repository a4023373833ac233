"""What a workload looks like in numbers."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, pstdev

from dally.traces.workload import Workload

PERCENTILES = (5, 25, 50, 75, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """The figures of a workload's jobs.

    Attributes:
        jobs: Number of jobs.
        span_s: Last submission, seconds after the first.
        gpu_hours: Sum over the jobs of GPUs x hours.
        gpus: Jobs by GPU count.
        gpu_hours_by_gpus: GPU-hours by GPU count.
        mean_duration_s: Mean duration, seconds.
        duration_percentiles_s: Percentile -> duration by nearest rank, seconds; 0 and 100 are the extremes.
        mean_gap_s: Mean time between submissions, seconds; None for one job.
        gap_cv: Coefficient of variation of that time; None for one job or all at once.
        users: Distinct users that are known.
        models: Jobs by model; those without one under the empty name.
        statuses: Jobs by status; those without one under the empty name.
    """

    jobs: int
    span_s: float
    gpu_hours: float
    gpus: Mapping[int, int]
    gpu_hours_by_gpus: Mapping[int, float]
    mean_duration_s: float
    duration_percentiles_s: Mapping[int, float]
    mean_gap_s: float | None
    gap_cv: float | None
    users: int
    models: Mapping[str, int]
    statuses: Mapping[str, int]


def summarize(workload: Workload) -> TraceSummary:
    """Work out the figures of a workload."""
    jobs = workload.jobs
    durations_s = sorted(job.duration_s for job in jobs)
    gaps_s = [later.submit_s - job.submit_s for job, later in pairwise(jobs)]
    mean_gap_s = fmean(gaps_s) if gaps_s else None
    seconds: dict[int, float] = {}
    for job in jobs:
        seconds[job.gpus] = seconds.get(job.gpus, 0.0) + job.duration_s
    hours = {gpus: gpus * total_s / 3600.0 for gpus, total_s in sorted(seconds.items())}
    return TraceSummary(
        jobs=len(jobs),
        span_s=jobs[-1].submit_s,
        gpu_hours=math.fsum(hours.values()),
        gpus=dict(sorted(Counter(job.gpus for job in jobs).items())),
        gpu_hours_by_gpus=hours,
        mean_duration_s=fmean(durations_s),
        duration_percentiles_s={at: percentile(durations_s, at) for at in (0, *PERCENTILES, 100)},
        mean_gap_s=mean_gap_s,
        gap_cv=pstdev(gaps_s, mean_gap_s) / mean_gap_s if mean_gap_s else None,
        users=len({job.user for job in jobs} - {""}),
        models=_by_count(job.model for job in jobs),
        statuses=_by_count(job.status for job in jobs),
    )


def percentile(ordered: Sequence[float], at: float) -> float:
    """The `at`-th percentile of sorted numbers by nearest rank: the least that `at` % do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * at / 100.0) - 1)]


def _by_count(names: Iterable[str]) -> dict[str, int]:
    """How often each name occurs, most often first, then by name."""
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))
