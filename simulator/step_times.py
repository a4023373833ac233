"""The step times that running jobs write, as a live scheduler would come to know them."""

from heapq import heappop, heappush
from math import exp
from random import Random

from dally.jobs.job import JobKind
from dally.profiles.costs import CostModel
from dally.scheduling.scheduler import Scheduler
from dally.state import JobState

OBSERVED_S = 60.0
"""So long after its start or restart a job has done steps enough."""

NOISE = 0.03
"""Standard deviation of the logarithm of a run's step time: no two runs are alike."""


class StepTimes:
    """Tells a scheduler that learns from them the step times of running jobs, once in each run.

    They are told at the first moment of the simulation at which they are known: no moment is added.

    Args:
        scheduler: Told of them, if it learns.
        costs: What placements really cost.
    """

    def __init__(self, scheduler: Scheduler, costs: CostModel) -> None:
        self._scheduler, self._costs = scheduler, costs
        self._learns = scheduler.state.costs.learnt is not None
        self._due: list[tuple[float, int, float, JobState]] = []

    def started(self, job: JobState) -> None:
        """A job begins a run; those whose batch varies, and copies, have steps of no one length."""
        rigid = job.job.kind is not JobKind.FORKED and self._costs.learning(job.job) is None
        if self._learns and rigid:
            heappush(self._due, (job.ready_s + OBSERVED_S, job.order, job.since_s, job))

    def tell(self, now: float) -> None:
        """Tell all that is known by now of jobs that still run where they did."""
        while self._due and self._due[0][0] <= now:
            _, _, since_s, job = heappop(self._due)
            if job.allocation and job.since_s == since_s:
                self._scheduler.observe_steps(job.job_id, self._step_s(job), now)

    def _step_s(self, job: JobState) -> float:
        """Seconds of a step at the job's present speed; without a profile, of one that takes 1 s at best."""
        noise = exp(NOISE * Random(f"{job.job_id} {job.since_s} step").gauss(0.0, 1.0))
        alone = self._costs.prediction(job.job, job.allocation)
        if alone is None:
            return noise / job.speed
        slowdown = self._costs.cost(job.job, job.allocation).slowdown
        return noise * alone.iteration_s / slowdown / job.speed
