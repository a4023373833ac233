"""How long waiting jobs would hold GPUs, by what is believed of them (`dally.scheduling.beliefs`)."""

from dally.cluster.topology import Allocation
from dally.profiles.costs import CostModel
from dally.state import JobState


def remaining_s(job: JobState) -> float:
    """Expected running time that a waiting job still needs at its best placement, seconds."""
    return max(0.0, job.expected_s - job.work_before_s)


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
