"""What a simulation counts about each job while it lives, and the record it leaves behind."""

from dataclasses import dataclass, field
from math import isfinite

from dally.jobs.job import Job, JobKind
from dally.profiles.costs import Cost
from dally.runs.records import JobRecord
from dally.state import JobState

MOST_FRUITLESS_FAILURES = 100
ENDED = {"COMPLETED", "FAILED"}


@dataclass(slots=True)
class Tally:
    """Counts of one job; `foretold` is the number of the event that ends it, or its pace, if it runs."""

    foretold: int | None = None
    exposed: float = 0.0
    comm_s: float = 0.0
    restart_s: float = 0.0
    lost_s: float = 0.0
    failures: int = 0
    fruitless: int = 0
    levels: dict[str, int] = field(default_factory=dict)

    def begin(self, cost: Cost, level: str) -> None:
        """A stretch of running begins."""
        self.exposed = cost.exposed
        self.levels[level] = self.levels.get(level, 0) + 1

    def repace(self, cost: Cost, paced_s: float, now: float) -> None:
        """The stretch goes on at another pace; the one it had began at `paced_s`."""
        self.comm_s += max(0.0, now - paced_s) * self.exposed
        self.exposed = cost.exposed

    def close(self, job: JobState, now: float) -> None:
        """The stretch that a job is in ends."""
        self.restart_s += min(job.ready_s, now) - job.since_s
        self.comm_s += max(0.0, now - job.paced_s) * self.exposed


def record(job: JobState, tally: Tally, now: float, status: str = "") -> JobRecord:
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
        end_s=now if status in ENDED else None,
        ideal_s=request.duration_s,
        run_s=run_s,
        queue_s=max(0.0, now - request.submit_s - run_s),
        comm_s=tally.comm_s,
        restart_s=tally.restart_s,
        lost_s=tally.lost_s,
        preemptions=job.preemptions,
        failures=tally.failures,
        levels=";".join(f"{level}:{count}" for level, count in sorted(tally.levels.items())),
        status=status or job.phase.upper(),
        gpu_s=job.attained_s(now) if request.kind is not JobKind.RIGID else None,
    )


def rejected(job: Job) -> JobRecord:
    """The record of a job that the cluster could never hold."""
    return record(JobState(job, 0, origin_s=job.submit_s), Tally(), job.submit_s, "REJECTED")
