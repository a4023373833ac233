"""Shortest job first, without preemption."""

from dally.policies.common.estimates import remaining_s
from dally.policies.common.in_order import InOrder, OrderKnobs
from dally.state import JobState


class ShortestJobFirst(InOrder):
    """Serves the job with the shortest running time left first; what runs is never stopped.

    The running time is an estimate (`common.estimates`): in a simulation it is the true one, so
    this is the best that knowing running times can do without preemption.
    """

    name = "sjf"
    summary = "The waiting job with the shortest predicted running time starts first; nothing is preempted."
    source = "Conway, Maxwell and Miller, Theory of Scheduling, 1967"
    knobs_type = OrderKnobs

    def key(self, job: JobState) -> tuple[float, ...]:
        """By the running time left at the best placement."""
        return (remaining_s(job),)
