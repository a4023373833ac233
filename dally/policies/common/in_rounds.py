"""What Gavel, Hadar and HadarE share: decide each round what each job is to have until the next one."""

from abc import abstractmethod
from collections.abc import Mapping
from math import inf
from typing import Any, ClassVar

from dally.plan import Decision, Plan, Start, Wait
from dally.policies.base import Policy
from dally.policies.common.rounds import Rounds, RoundTargets, plan_round
from dally.state import ClusterState, JobState
from dally.words import span


class InRounds(Policy):
    """A policy that hands out the GPUs anew each round; a job that gets those it has keeps them at no cost.

    A subclass says what each job is to have (`allocate`) and why others wait (`wait_reason`). It extends the
    hooks and `snapshot` / `restore` for what it learns, calling these here.

    Args:
        round_s: Length of a round, seconds.

    Attributes:
        preempt_reason: Why a running job has no target, in words.
    """

    preempt_reason: ClassVar[str]

    def __init__(self, round_s: float) -> None:
        self.rounds = Rounds(round_s)

    @abstractmethod
    def allocate(self, state: ClusterState, now: float) -> RoundTargets:
        """What jobs are to have from `now` on; it must change nothing.

        Together they must fit the GPUs that `rounds.handed_out` shows as free. Jobs that
        run and must not be preempted keep theirs and get no target. A running job left out keeps its GPUs
        if no target needs them, and loses them else.
        """

    @abstractmethod
    def wait_reason(self, state: ClusterState, job: JobState, now: float, memo: Any) -> str:
        """Why a job waits though a round was held, in words and numbers; with the memo of that round."""

    def needs_next_round(self, state: ClusterState, now: float) -> bool:
        """Whether the next round could change something though nothing happens and nobody waits."""
        return False

    def decide(self, state: ClusterState, now: float) -> Plan:
        """At a round: give each job its target; else nothing. New waits are told with their reason."""
        if not state.jobs:
            return Plan()
        decisions: tuple[Decision, ...] = ()
        due, memo = self.rounds.due(state, now), None
        if due:
            found = self.allocate(state, now)
            memo = found.memo
            decisions = plan_round(state, found.by_job, self.preempt_reason)
        starts = any(isinstance(decision, Start) for decision in decisions)
        waits = []
        for job in state.to_explain(decisions):
            reason = f"waits for the next round; there is one every {span(self.rounds.round_s)}"
            if due:
                reason = self.wait_reason(state, job, now, memo)
            waits.append(Wait(job.job_id, state.topology.top, inf, reason))
        return Plan((*decisions, *waits), self.rounds.wakeup_s(state, now, starts), memo)

    def plan_applied(self, plan: Plan, state: ClusterState, now: float) -> None:
        """The round is over, if it was one."""
        self.rounds.applied(state, now, lambda: self.needs_next_round(state, now))

    def snapshot(self) -> dict[str, Any]:
        return {"rounds": self.rounds.snapshot()}

    def restore(self, learnt: Mapping[str, Any]) -> None:
        self.rounds.restore(learnt["rounds"])
