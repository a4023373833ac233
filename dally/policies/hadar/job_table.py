"""The numbers of many jobs, a row each, so that a round looks at a long queue by vector arithmetic."""

from typing import NamedTuple

import numpy as np

from dally.cluster.topology import Topology
from dally.jobs.job import Gang
from dally.policies.common.arrays import Flags, Floats, Ints
from dally.state import JobState

_ANY_TYPE = -1


class _Row(NamedTuple):
    """What of a job changes with facts only, as numbers."""

    gpu_type: float
    gpus: float
    arrival_s: float
    work_s: float
    longest_s: float
    done_s: float
    paced_s: float
    speed: float
    restart_s: float


class JobTable:
    """Jobs by row, kept up to date as they change.

    Args:
        topology: The cluster, for its GPU types.
    """

    def __init__(self, topology: Topology) -> None:
        self._types = topology.gpu_types
        self._rows: dict[int, tuple[JobState, _Row]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, job: JobState, longest_s: float, restart_s: float) -> None:
        """Enter a job as it is now, in place of what the table had of it.

        Args:
            job: The job; it waits or runs.
            longest_s: Its running time on the slowest type it accepts, seconds.
            restart_s: What it would pay before it makes progress, if it started now, seconds.
        """
        request = job.job
        self._rows[job.order] = (
            job,
            _Row(
                gpu_type=_ANY_TYPE if request.gpu_type is None else self._types.index(request.gpu_type),
                gpus=request.gpus,
                arrival_s=request.submit_s,
                work_s=job.expected_s,
                longest_s=longest_s,
                done_s=job.work_before_s + job.work_paced_s,
                paced_s=job.paced_s,
                speed=job.speed,
                restart_s=restart_s,
            ),
        )

    def drop(self, job: JobState) -> None:
        """Remove a job, if the table has it."""
        self._rows.pop(job.order, None)

    def view(self, now: float) -> "JobView":
        """All jobs as they are at `now`, in the order of their arrival; there must be one."""
        return JobView([self._rows[order] for order in sorted(self._rows)], now, len(self._types))


class JobView:
    """Jobs at one moment; arrays have a number for each.

    Attributes:
        jobs: The jobs.
        gpus: GPUs of its gang.
        gang: A number; jobs that ask for the same gang share it.
        arrival_s: Its submission.
        work_s: All of its work, ideal seconds.
        longest_s: Its running time on the slowest type it accepts, seconds.
        remaining_s: Ideal seconds of work left.
        delay_s: Seconds until it makes progress, if it goes on where it is or starts now.
        types: Whether it accepts a GPU type; jobs by types.
    """

    def __init__(self, rows: list[tuple[JobState, _Row]], now: float, gpu_types: int) -> None:
        self.jobs = [job for job, _ in rows]
        columns = _Row(*np.array([row for _, row in rows]).T)
        numbers: dict[Gang, int] = {}
        self.gang: Ints = np.array([numbers.setdefault(job.job.gang, len(numbers)) for job in self.jobs])
        self.gpus: Floats = np.asarray(columns.gpus)
        self.arrival_s: Floats = np.asarray(columns.arrival_s)
        self.work_s: Floats = np.asarray(columns.work_s)
        self.longest_s: Floats = np.asarray(columns.longest_s)
        since_s = now - np.asarray(columns.paced_s)
        done_s = columns.done_s + np.maximum(0.0, since_s) * columns.speed
        self.remaining_s: Floats = np.maximum(0.0, self.work_s - done_s)
        waiting = np.isinf(columns.paced_s)
        self.delay_s: Floats = np.where(waiting, columns.restart_s, np.maximum(0.0, -since_s))
        accepted = np.asarray(columns.gpu_type)[:, None]
        self.types: Flags = (accepted == _ANY_TYPE) | (accepted == np.arange(gpu_types))

    def __len__(self) -> int:
        return len(self.jobs)
