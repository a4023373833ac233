"""Shortest remaining time first, with preemption."""

from itertools import takewhile

from dally.policies.common.estimates import remaining_s, restart_s, stretch_s
from dally.policies.common.in_order import InOrder, OrderKnobs, OrderRound
from dally.policies.common.placements import Placement, closest, find_victims
from dally.state import JobState
from dally.words import span


class ShortestRemainingTimeFirst(InOrder):
    """Serves the job with the shortest time left first and stops longer ones for it.

    A running job is stopped only if that lets the first waiting job start, and only if it would run strictly
    longer than the waiting one takes in all, both restarts counted: so two jobs never take turns in stopping
    each other. The job that would run longest stops first. Times are those of `common.estimates`.
    """

    name = "srtf"
    summary = (
        "The job with the least predicted running time left goes first; longer ones are preempted for it."
    )
    source = "Schrage, A Proof of the Optimality of the SRPT Discipline, Oper. Res. 16, 1968"
    knobs_type = OrderKnobs

    def key(self, job: JobState) -> tuple[float, ...]:
        """By the running time left at the best placement."""
        return (remaining_s(job),)

    def make_room(self, job: JobState, plan: OrderRound) -> Placement | None:
        """Stop the running jobs with the most time left, if the job then starts and is really shorter."""
        state, free = plan.state, plan.state.free
        least_s = restart_s(job, state.costs) + remaining_s(job)
        level = self.accepts(state, job, plan.now)
        # Running jobs that are longer, the longest first.
        candidates = (
            other
            for other in takewhile(lambda other: other.end_s() - plan.now > least_s, reversed(self.ends))
            if other not in plan.evictions and self._outlasts(other, least_s, plan)
            if not any(machine in plan.kept for machine, _ in other.allocation)
        )
        victims = find_victims(free, candidates, job.job, level)
        if not victims:
            return None
        plan.evictions.release(victims)
        placement = closest(free, job.job, self.best_level(job), level)
        assert placement is not None, "the victims' GPUs are enough"
        takes_s = stretch_s(job, state.costs, placement.allocation)
        if not all(self._outlasts(victim, takes_s, plan) for victim in victims):
            plan.evictions.take_back(victims)
            return None
        for victim in victims:
            left_s = victim.end_s() - plan.now
            plan.evictions.stop(
                victim, job, f"{span(left_s)} left; job {job.job_id} takes only {span(takes_s)}"
            )
        return placement

    def _outlasts(self, victim: JobState, takes_s: float, plan: OrderRound) -> bool:
        """Whether a job runs strictly longer than another takes, and that pays for its own restart."""
        left_s = victim.end_s() - plan.now
        ready = victim.preemptible and victim.since_s < plan.now
        return ready and left_s > takes_s + plan.state.costs.restart_s(victim.job)
