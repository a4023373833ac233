"""A run in numbers: makespan, completion times, queueing, communication, utilisation, preemptions."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, fsum

from dally.records import JobRecord

BOUND_S = 10.0
"""Slowdown counts a shorter job as this long (bounded slowdown; Feitelson and Rudolph, 1998)."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and percentiles of a quantity."""

    mean: float
    median: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The headline numbers of a run; of times, seconds. Only completed jobs count towards the spreads.

    Attributes:
        jobs: Jobs in the run.
        completed: Jobs that completed.
        makespan_s: From the first submission to the last end.
        jct_s: Job completion time, from submission to end.
        queue_s: Time waiting.
        slowdown: Completion time over ideal time, bounded at 10 s.
        comm_s: Exposed communication time.
        comm_mean_multi_s: Mean exposed communication of jobs with more than one GPU.
        utilization: Share of the cluster's GPU time that was held, over the makespan.
        goodput: Share of the cluster's GPU time that did work that counted, at the ideal pace.
        placements: Starts by level.
        preemptions: GPUs taken from running jobs, migrations included.
        failures: Jobs hit by a machine failure.
        restart_gpu_s: GPU-seconds spent on restarts.
        lost_gpu_s: GPU-seconds of work lost to failures.
    """

    jobs: int
    completed: int
    makespan_s: float
    jct_s: Spread
    queue_s: Spread
    slowdown: Spread
    comm_s: Spread
    comm_mean_multi_s: float
    utilization: float
    goodput: float
    placements: dict[str, int]
    preemptions: int
    failures: int
    restart_gpu_s: float
    lost_gpu_s: float


def quantile(ordered: Sequence[float], share: float) -> float:
    """The quantile of sorted values, linear between neighbours; 0 if there are none."""
    if not ordered:
        return 0.0
    place = share * (len(ordered) - 1)
    low, high = ordered[floor(place)], ordered[ceil(place)]
    return low + (high - low) * (place - floor(place))


def spread(values: Iterable[float]) -> Spread:
    """Mean, median, 95th and 99th percentile; zeros if there are no values."""
    ordered = sorted(values)
    mean = fsum(ordered) / len(ordered) if ordered else 0.0
    return Spread(mean, quantile(ordered, 0.5), quantile(ordered, 0.95), quantile(ordered, 0.99))


def summarise(records: Sequence[JobRecord], gpus: int, end_s: float) -> Summary:
    """Summarise the jobs of a run on a cluster of `gpus` GPUs that was observed until `end_s`."""
    done = [record for record in records if record.status == "COMPLETED"]
    begin_s = min((record.submit_s for record in records), default=0.0)
    makespan_s = max(end_s - begin_s, 0.0)
    capacity = gpus * makespan_s or 1.0
    placements: Counter[str] = Counter()
    for record in records:
        for part in filter(None, record.levels.split(";")):
            level, _, count = part.rpartition(":")
            placements[level] += int(count)
    multi = [record.comm_s for record in done if record.gpus > 1]
    return Summary(
        jobs=len(records),
        completed=len(done),
        makespan_s=makespan_s,
        jct_s=spread(record.jct_s for record in done),
        queue_s=spread(record.queue_s for record in done),
        slowdown=spread(max(1.0, record.jct_s / max(record.ideal_s, BOUND_S)) for record in done),
        comm_s=spread(record.comm_s for record in done),
        comm_mean_multi_s=fsum(multi) / len(multi) if multi else 0.0,
        utilization=fsum(record.held_gpu_s for record in records) / capacity,
        goodput=fsum(record.gpus * record.ideal_s for record in done) / capacity,
        placements=dict(sorted(placements.items())),
        preemptions=sum(record.preemptions for record in records),
        failures=sum(record.failures for record in records),
        restart_gpu_s=fsum(record.mean_gpus * record.restart_s for record in records),
        lost_gpu_s=fsum(record.gpus * record.lost_s for record in records),
    )
