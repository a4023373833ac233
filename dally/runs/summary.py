"""A run in numbers: makespan, completion times, queueing, communication, utilisation, preemptions."""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, fsum, inf

from dally.runs.records import JobRecord

BOUND_S = 10.0
"""Slowdown counts a shorter job as this long (bounded slowdown; Feitelson and Rudolph, 1998)."""

STARVED = 10.0
"""A job that waits longer than so many times its own length, `BOUND_S` at least, counts as starved."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and percentiles of a quantity."""

    mean: float
    median: float
    p90: float
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
        longest_wait_s: The longest time that one waited.
        starved: Share of the jobs that waited over ten times their ideal time, which counts as 10 s at least.
        slowdown: Completion time over ideal time, bounded at 10 s.
        comm_s: Exposed communication time.
        comm_mean_multi_s: Mean exposed communication of jobs with more than one GPU.
        utilization: Share of the cluster's GPU time that was held, over the makespan.
        goodput: Share of the cluster's GPU time that did work that counted, at the ideal pace.
        placements: Starts by level.
        preemptions: GPUs taken from running jobs, migrations included.
        failures: Jobs hit by a machine failure.
        restart_gpu_s: GPU-seconds spent on restarts.
        restart_share: Their share of the GPU time that was held.
        lost_gpu_s: GPU-seconds of work lost to failures.
    """

    jobs: int
    completed: int
    makespan_s: float
    jct_s: Spread
    queue_s: Spread
    longest_wait_s: float
    starved: float
    slowdown: Spread
    comm_s: Spread
    comm_mean_multi_s: float
    utilization: float
    goodput: float
    placements: dict[str, int]
    preemptions: int
    failures: int
    restart_gpu_s: float
    restart_share: float
    lost_gpu_s: float


def quantile(ordered: Sequence[float], share: float) -> float:
    """The quantile of sorted values, linear between neighbours; 0 if there are none."""
    if not ordered:
        return 0.0
    place = share * (len(ordered) - 1)
    low, high = ordered[floor(place)], ordered[ceil(place)]
    return low + (high - low) * (place - floor(place))


def spread(values: Iterable[float]) -> Spread:
    """Mean, median, 90th, 95th and 99th percentile; zeros if there are no values."""
    ordered = sorted(values)
    mean = fsum(ordered) / len(ordered) if ordered else 0.0
    return Spread(mean, *(quantile(ordered, share) for share in (0.5, 0.9, 0.95, 0.99)))


class Figures:
    """What a summary needs of the records of a run, taken one by one in any order; a few numbers of each.

    Attributes:
        jct_s: Completion times of completed jobs, seconds, in the order they came.
        queue_s: Their times waiting.
        lost: Jobs that failed with their machines, by id; no mean counts them.
    """

    def __init__(self) -> None:
        self.jct_s, self.queue_s = array("d"), array("d")
        self.lost: set[str] = set()
        self._slowdown, self._comm_s, self._comm_multi_s = array("d"), array("d"), array("d")
        self._held_gpu_s, self._done_gpu_s = array("d"), array("d")
        self._restart_gpu_s, self._lost_gpu_s = array("d"), array("d")
        self._begin_s = inf
        self._placements: Counter[str] = Counter()
        self._preemptions, self._failures, self._starved = 0, 0, 0

    def add(self, record: JobRecord) -> None:
        """Take a record."""
        self._begin_s = min(self._begin_s, record.submit_s)
        self._placements[record.levels] += 1
        self._preemptions += record.preemptions
        self._failures += record.failures
        self._held_gpu_s.append(record.held_gpu_s)
        self._restart_gpu_s.append(record.mean_gpus * record.restart_s)
        self._lost_gpu_s.append(record.gpus * record.lost_s)
        if record.status != "COMPLETED":
            if record.status == "FAILED":
                self.lost.add(record.job_id)
            return
        self.jct_s.append(record.jct_s)
        self.queue_s.append(record.queue_s)
        self._starved += record.queue_s > STARVED * max(record.ideal_s, BOUND_S)
        self._slowdown.append(max(1.0, record.jct_s / max(record.ideal_s, BOUND_S)))
        self._comm_s.append(record.comm_s)
        self._done_gpu_s.append(record.gpus * record.ideal_s)
        if record.gpus > 1:
            self._comm_multi_s.append(record.comm_s)

    def summary(self, gpus: int, end_s: float) -> Summary:
        """Summarise the run, on a cluster of `gpus` GPUs that was observed until `end_s`."""
        jobs, multi = len(self._held_gpu_s), len(self._comm_multi_s)
        makespan_s = max(end_s - self._begin_s, 0.0) if jobs else max(end_s, 0.0)
        capacity = gpus * makespan_s or 1.0
        held_gpu_s, restart_gpu_s = fsum(self._held_gpu_s), fsum(self._restart_gpu_s)
        return Summary(
            jobs=jobs,
            completed=len(self.jct_s),
            makespan_s=makespan_s,
            jct_s=spread(self.jct_s),
            queue_s=spread(self.queue_s),
            longest_wait_s=max(self.queue_s, default=0.0),
            starved=self._starved / len(self.queue_s) if self.queue_s else 0.0,
            slowdown=spread(self._slowdown),
            comm_s=spread(self._comm_s),
            comm_mean_multi_s=fsum(self._comm_multi_s) / multi if multi else 0.0,
            utilization=held_gpu_s / capacity,
            goodput=fsum(self._done_gpu_s) / capacity,
            placements=_starts(self._placements),
            preemptions=self._preemptions,
            failures=self._failures,
            restart_gpu_s=restart_gpu_s,
            restart_share=restart_gpu_s / (held_gpu_s or 1.0),
            lost_gpu_s=fsum(self._lost_gpu_s),
        )


def _starts(often: Mapping[str, int]) -> dict[str, int]:
    """Starts by level, from how many jobs have each `level:starts;...`."""
    starts: Counter[str] = Counter()
    for levels, jobs in often.items():
        for part in filter(None, levels.split(";")):
            level, _, count = part.rpartition(":")
            starts[level] += int(count) * jobs
    return dict(sorted(starts.items()))


def summarise(records: Iterable[JobRecord], gpus: int, end_s: float) -> Summary:
    """Summarise the jobs of a run on a cluster of `gpus` GPUs that was observed until `end_s`."""
    figures = Figures()
    for record in records:
        figures.add(record)
    return figures.summary(gpus, end_s)
