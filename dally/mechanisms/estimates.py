"""How long jobs are expected to run: the one place where schedulers that order by time get it from."""

from dally.costs import CostModel
from dally.job import Job
from dally.state import JobState
from dally.topology import Allocation


def estimate_s(job: Job) -> float:
    """Expected running time of a whole job at its best placement, seconds.

    It is `duration_s`: in a simulation the true duration, so that shortest-first policies and backfill are
    shown at their best; the user's time limit is a bound, not an estimate, and does not count.
    """
    return job.duration_s


def remaining_s(job: JobState) -> float:
    """Expected running time that a waiting job still needs at its best placement, seconds."""
    return max(0.0, estimate_s(job.job) - job.work_before_s)


def stretch_s(job: JobState, costs: CostModel, allocation: Allocation) -> float:
    """How long a waiting job would hold GPUs if it started on them now and ran to its end, seconds.

    Counts its start or restart and the slowdown of the placement.
    """
    return restart_s(job, costs) + remaining_s(job) * costs.cost(job.job, allocation).slowdown


def restart_s(job: JobState, costs: CostModel) -> float:
    """What a waiting job pays before it makes progress: its restart, resize or first start, seconds."""
    if job.resizing:
        return costs.resize_s(job.job)
    return costs.restart_s(job.job) if job.run_before_s else costs.launch_s(job.job)
