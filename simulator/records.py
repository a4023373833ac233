"""What a simulation records: counters of each job that is not done, its record, and the run's figures."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

from dally.jobs.job import Job, JobKind
from dally.profiles.costs import Cost
from dally.runs.records import JobRecord, JobsFile
from dally.runs.summary import Figures
from dally.state import JobState

BLOCKS = 8
"""Blocks of jobs, in order of submission, over which means are taken."""

_ENDED = frozenset({"COMPLETED", "FAILED"})


@dataclass(slots=True)
class JobCounters:
    """Counters of one job.

    Attributes:
        event: Number of the event that ends the job, or changes its rate; None unless it runs.
        exposed: Share of its iterations that waits for the network now.
        comm_s: Time of running that waited for the network, seconds.
        restart_s: Time spent on restarts, seconds.
        lost_s: Ideal seconds of work lost to failures.
        failures: How often a machine under it failed.
        failures_without_progress: Of these, the last in a row before which it wrote no new checkpoint.
        levels: Starts by level.
    """

    event: int | None = None
    exposed: float = 0.0
    comm_s: float = 0.0
    restart_s: float = 0.0
    lost_s: float = 0.0
    failures: int = 0
    failures_without_progress: int = 0
    levels: dict[str, int] = field(default_factory=dict)

    def started(self, cost: Cost, level: str) -> None:
        """Count a start at a level."""
        self.exposed = cost.exposed
        self.levels[level] = self.levels.get(level, 0) + 1

    def rate_changed(self, cost: Cost, since_s: float, now: float) -> None:
        """Count the time at the rate that the job had since `since_s`, and go on with a new cost."""
        self.comm_s += max(0.0, now - since_s) * self.exposed
        self.exposed = cost.exposed

    def stopped(self, job: JobState, now: float) -> None:
        """Count the time on GPUs that ends now."""
        self.restart_s += min(job.ready_s, now) - job.since_s
        self.comm_s += max(0.0, now - job.paced_s) * self.exposed


def record(job: JobState, counters: JobCounters, now: float, status: str = "") -> JobRecord:
    """The record of a job at `now`, its end if a status says how it ended; else it still runs or waits."""
    request, run_s = job.job, job.run_s(now)
    return JobRecord(
        job_id=request.job_id,
        user=request.user,
        group=request.group,
        model=request.model,
        gpus=request.gpus,
        submit_s=request.submit_s,
        start_s=job.first_start_s if isfinite(job.first_start_s) else None,
        end_s=now if status in _ENDED else None,
        ideal_s=request.duration_s,
        run_s=run_s,
        queue_s=max(0.0, now - request.submit_s - run_s),
        comm_s=counters.comm_s,
        restart_s=counters.restart_s,
        lost_s=counters.lost_s,
        preemptions=job.preemptions,
        failures=counters.failures,
        levels=";".join(f"{level}:{count}" for level, count in sorted(counters.levels.items())),
        status=status or job.phase.upper(),
        gpu_s=job.attained_s(now) if request.kind is not JobKind.RIGID else None,
        plan=str(request.plan or ""),
    )


class Blocks:
    """Mean completion times of equally many jobs in order of submission, the same jobs under every policy.

    One run gives confidence intervals by them.

    Args:
        jobs: How many jobs there are.
        together: They are all submitted at once: then they are one block, as none comes before another.
    """

    def __init__(self, jobs: int, together: bool) -> None:
        self._jobs = jobs
        self._sums = [(0, 0.0)] * (1 if together or jobs < BLOCKS else BLOCKS)

    def add(self, number: int, record: JobRecord) -> None:
        """Take the record of the job of this number, counted by submission."""
        if record.status == "COMPLETED":
            at = number * len(self._sums) // self._jobs
            count, jct_s = self._sums[at]
            self._sums[at] = count + 1, jct_s + record.jct_s

    def means_s(self) -> tuple[float, ...]:
        """Of the blocks in order, of those of their jobs that completed, seconds; 0 for one without."""
        return tuple(jct_s / (count or 1) for count, jct_s in self._sums)


class RunRecords:
    """The records on their way to jobs.csv and the summary, with those of jobs too large for the cluster.

    Args:
        path: jobs.csv; None for none.
        jobs: Those that the engine numbers, by submission.
        too_large: Jobs that the cluster cannot hold, by submission.

    Attributes:
        figures: What a summary needs of them.
        blocks: Means by submission.
    """

    def __init__(self, path: Path | None, jobs: Sequence[Job], too_large: Sequence[Job]) -> None:
        self.figures = Figures()
        self.blocks = Blocks(len(jobs), not jobs or jobs[0].submit_s == jobs[-1].submit_s)
        self._file = None if path is None else JobsFile(path)
        self._too_large_s = [job.submit_s for job in too_large]
        for number, job in enumerate(too_large):
            before = bisect_right(jobs, job.submit_s, key=lambda other: other.submit_s)
            state = JobState(job, 0, origin_s=job.submit_s)
            self._add(before + number, record(state, JobCounters(), job.submit_s, "REJECTED"))

    def add(self, number: int, record: JobRecord) -> None:
        """Take the record of the job of this number; its line is by submission, before those too large."""
        self.blocks.add(number, record)
        self._add(number + bisect_left(self._too_large_s, record.submit_s), record)

    def _add(self, place: int, record: JobRecord) -> None:
        self.figures.add(record)
        if self._file is not None:
            self._file.add(place, record)

    def close(self) -> None:
        """Write jobs.csv."""
        if self._file is not None:
            self._file.close()
