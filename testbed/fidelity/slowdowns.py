"""How fast the predictor says that jobs train on given GPUs at given times, alone and beside each other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from dally.cluster.topology import Allocation
from dally.jobs.job import Job
from dally.profiles.contention import SharedLinks
from dally.profiles.costs import CostModel


@dataclass(frozen=True, slots=True)
class HeldSpan:
    """An interval of holding GPUs, real or simulated: it starts up, then trains. Times in seconds.

    Attributes:
        job: The job.
        allocation: Its GPUs.
        start_s: When it got them.
        training_s: When its first step began; `end_s` if it did none.
        end_s: When it gave them back.
        sending_s: From when on its traffic is counted on the links that it crosses.
    """

    job: Job
    allocation: Allocation
    start_s: float
    training_s: float
    end_s: float
    sending_s: float

    @property
    def startup_s(self) -> float:
        """How long it took to begin its first step."""
        return self.training_s - self.start_s


@dataclass(frozen=True, slots=True)
class PredictedSlowdown:
    """Predicted time of a step of an interval, over that at the job's best placement.

    Attributes:
        alone: With the links to itself.
        shared: With the jobs that trained beside it, on average over the interval.
    """

    alone: float
    shared: float


TimedSpan = tuple[HeldSpan, PredictedSlowdown]


def predict_slowdowns(
    spans: Sequence[HeldSpan], costs: CostModel, contention: bool
) -> list[PredictedSlowdown]:
    """The predicted pace of each interval, given where and when all of them were.

    Between two moments at which traffic begins or ends, speeds are constant. The mean time of a step is the
    training time over the steps done in it, so it is the harmonic mean of the slowdowns.
    """
    alone = [costs.cost(span.job, span.allocation).slowdown for span in spans]
    if not contention:
        return [PredictedSlowdown(own, own) for own in alone]
    links, current = SharedLinks(costs), [*alone]
    jobs = [replace(span.job, job_id=str(place)) for place, span in enumerate(spans)]
    training_s, work_s = [0.0] * len(spans), [0.0] * len(spans)
    moments = sorted({moment for span in spans for moment in (span.sending_s, span.training_s, span.end_s)})
    for begin_s, end_s in pairwise(moments):
        for place, span in enumerate(spans):
            if span.end_s == begin_s:
                links.stop(jobs[place].job_id)
        for place, span in enumerate(spans):
            if span.sending_s == begin_s < span.end_s:
                links.start(jobs[place], span.allocation)
        for name, cost in links.changes():
            current[int(name)] = cost.slowdown
        for place, span in enumerate(spans):
            lasts_s = min(end_s, span.end_s) - max(begin_s, span.training_s)
            if lasts_s > 0:
                training_s[place] += lasts_s
                work_s[place] += lasts_s / current[place]
    return [
        PredictedSlowdown(alone=own, shared=long_s / done_s if done_s else own)
        for own, long_s, done_s in zip(alone, training_s, work_s, strict=True)
    ]


def spans_by_job(spans: Sequence[HeldSpan], found: Sequence[PredictedSlowdown]) -> dict[str, list[TimedSpan]]:
    """The intervals of each job with their paces, in order."""
    result: dict[str, list[TimedSpan]] = {}
    for span, slowdown in zip(spans, found, strict=True):
        result.setdefault(span.job.job_id, []).append((span, slowdown))
    return result
