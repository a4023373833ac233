"""The numbers of many jobs, a row each, so that a round looks at a long queue by vector arithmetic."""

import numpy as np
import numpy.typing as npt

from dally.cluster.topology import Topology
from dally.jobs.job import Gang
from dally.policies.hadar.market import Flags, Floats
from dally.state import JobState

_ROW = np.dtype(
    [
        ("order", np.int64),
        ("gang", np.int64),
        ("gpu_type", np.int64),
        ("gpus", np.float64),
        ("arrival_s", np.float64),
        ("work_s", np.float64),
        ("longest_s", np.float64),
        ("done_s", np.float64),
        ("paced_s", np.float64),
        ("speed", np.float64),
        ("restart_s", np.float64),
    ]
)
_ANY_TYPE = -1


class JobTable:
    """Jobs by row, kept up to date as they change.

    Args:
        topology: The cluster, for its GPU types.
    """

    def __init__(self, topology: Topology) -> None:
        self._types = topology.gpu_types
        self._rows = np.zeros(64, dtype=_ROW)
        self._jobs: list[JobState | None] = [None] * len(self._rows)
        self._free = [*reversed(range(len(self._rows)))]
        self._row_of: dict[int, int] = {}
        self._gangs: dict[Gang, int] = {}

    def __len__(self) -> int:
        return len(self._row_of)

    def put(self, job: JobState, longest_s: float, restart_s: float) -> None:
        """Enter a job as it is now, in place of what the table had of it.

        Args:
            job: The job; it waits or runs.
            longest_s: Its running time on the slowest type it accepts, seconds.
            restart_s: What it would pay before it makes progress, if it started now, seconds.
        """
        request = job.job
        row = self._row_of.get(job.order)
        if row is None:
            if not self._free:
                size = len(self._rows)
                self._rows = np.concatenate([self._rows, np.zeros(size, dtype=_ROW)])
                self._jobs += [None] * size
                self._free = [*reversed(range(size, 2 * size))]
            row = self._row_of[job.order] = self._free.pop()
        self._jobs[row] = job
        self._rows[row] = (
            job.order,
            self._gangs.setdefault(request.gang, len(self._gangs)),
            _ANY_TYPE if request.gpu_type is None else self._types.index(request.gpu_type),
            request.gpus,
            request.submit_s,
            job.expected_s,
            longest_s,
            job.work_before_s + job.work_paced_s,
            job.paced_s,
            job.speed,
            restart_s,
        )

    def drop(self, job: JobState) -> None:
        """Remove a job, if the table has it."""
        row = self._row_of.pop(job.order, None)
        if row is not None:
            self._jobs[row] = None
            self._free.append(row)

    def view(self, now: float) -> "JobView":
        """All jobs as they are at `now`, in the order of their arrival."""
        at = np.fromiter(self._row_of.values(), dtype=np.int64, count=len(self._row_of))
        rows = self._rows[at]
        order = np.argsort(rows["order"], kind="stable")
        return JobView(rows[order], [self._jobs[row] for row in at[order].tolist()], now, len(self._types))


class JobView:
    """Jobs at one moment; arrays have a number for each.

    Attributes:
        gpus: GPUs of its gang.
        gang: A number; jobs that ask for the same gang share it.
        arrival_s: Its submission.
        work_s: All of its work, ideal seconds.
        longest_s: Its running time on the slowest type it accepts, seconds.
        remaining_s: Ideal seconds of work left.
        delay_s: Seconds until it makes progress, if it goes on where it is or starts now.
        types: Whether it accepts a GPU type; jobs by types.
    """

    def __init__(
        self, rows: npt.NDArray[np.void], jobs: list[JobState | None], now: float, gpu_types: int
    ) -> None:
        self._jobs = jobs
        self.gpus: Floats = rows["gpus"]
        self.gang: npt.NDArray[np.int64] = rows["gang"]
        self.arrival_s: Floats = rows["arrival_s"]
        self.work_s: Floats = rows["work_s"]
        self.longest_s: Floats = rows["longest_s"]
        since_s = now - rows["paced_s"]
        done_s = rows["done_s"] + np.maximum(0.0, since_s) * rows["speed"]
        self.remaining_s: Floats = np.maximum(0.0, self.work_s - done_s)
        waiting = np.isinf(rows["paced_s"])
        self.delay_s: Floats = np.where(waiting, rows["restart_s"], np.maximum(0.0, -since_s))
        accepted = rows["gpu_type"][:, None]
        self.types: Flags = (accepted == _ANY_TYPE) | (accepted == np.arange(gpu_types))

    def __len__(self) -> int:
        return len(self._jobs)

    def job(self, place: int) -> JobState:
        """The job of a place."""
        job = self._jobs[place]
        assert job is not None, "each row in use has a job"
        return job
