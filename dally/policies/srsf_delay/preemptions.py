"""The running jobs that a waiting one may preempt under `srsf-delay`: those that hold enough more."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import fsum, inf

from dally.policies.common.evictions import Evictions
from dally.policies.common.ranking import Ranking
from dally.policies.srsf_delay.fair_share import FairShare
from dally.policies.srsf_delay.knobs import SrsfDelayKnobs
from dally.policies.srsf_delay.running import RunningByRemaining
from dally.policies.srsf_delay.starvation_guard import StarvationGuard
from dally.policies.srsf_delay.waiting import Priority, WaitingByRemaining
from dally.state import ClusterState, JobState


@dataclass(frozen=True, slots=True)
class PolicyState:
    """What the policy knows beyond the state, kept up to date by its hooks."""

    waiting: WaitingByRemaining
    running: RunningByRemaining
    spread_out: Ranking
    fair_share: FairShare
    declining: dict[str, float]
    guard: StarvationGuard


class Preemptions:
    """The running jobs that a round may stop.

    Attributes:
        evictions: Those that it does stop.
        due_s: When a lease that keeps GPUs from somebody is over, or a job will hold enough.
    """

    def __init__(self, knobs: SrsfDelayKnobs, known: PolicyState, state: ClusterState, now: float) -> None:
        self._knobs, self._known, self._state, self._now = knobs, known, state, now
        self.evictions = Evictions(state.free)
        self.due_s = inf

    def candidates(self, job: JobState, priority: Priority | None) -> Iterator[JobState]:
        """Whom to stop for a job that claims so much, or goes before all if None; who holds most first."""
        gpus, dear = job.job.gpus, 0.0
        if priority is not None and not self._known.fair_share.any_over():
            dear = self._knobs.margin * priority[1]
        for holds, victim in self._known.running.largest(
            self._now, lambda size: dear * min(1.0, size / gpus)
        ):
            if victim in self.evictions or not victim.job.preemptible:
                continue
            if priority is not None:
                part = min(1.0, victim.job.gpus / gpus)
                if part * self._loss(victim, holds, priority) > 1:
                    continue  # by itself it is worth more than the job on all its GPUs
            lease_end_s = self.lease_end_s(victim)
            if lease_end_s > self._now:
                self.due_s = min(self.due_s, lease_end_s)
            else:
                yield victim

    def lease_end_s(self, job: JobState) -> float:
        """Until when a running job is sure of its GPUs."""
        return job.ready_s + self._knobs.sure_s(self._state.costs.restart_s(job.job))

    def are_worth_less(self, victims: Sequence[JobState], job: JobState, priority: Priority) -> bool:
        """Whether a job is worth more on the GPUs that these hold than they are.

        While it holds a GPU, a job brings one completion in the GPU-seconds that it needs; a victim brings
        one in what it would hold, its restart left out. So the need is held against the harmonic mean of what
        the victims hold, by GPUs; GPUs that are idle bring nothing.
        """
        gpus = max(job.job.gpus, sum(victim.job.gpus for victim in victims))
        losses = (victim.job.gpus * self._loss(victim, self.holds(victim), priority) for victim in victims)
        return fsum(losses) <= gpus

    def _loss(self, victim: JobState, holds: float, priority: Priority) -> float:
        """What a GPU brings with a running job over what it brings with one that claims so much."""
        over, claimed = priority
        if self._known.fair_share.over(victim) and not over:
            return 0.0
        holds -= self._knobs.weight(victim.job.gpus) * self._state.costs.restart_s(victim.job)
        return self._knobs.margin * claimed / holds if holds > 0 else inf

    def holds(self, job: JobState) -> float:
        """What a running job will hold, as claims count."""
        return self._knobs.weight(job.job.gpus) * (job.end_s() - self._now)
