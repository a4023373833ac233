"""What every policy is: an object told what happened that decides, purely, what to do."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from dally.plan import Plan
from dally.profiles.averaging import Averaging
from dally.profiles.goodput import Batching
from dally.state import ClusterState, JobState

K = TypeVar("K")
V = TypeVar("V")


class Cache(dict[K, V]):
    """Results of a pure function by its arguments: all of a policy that `decide` may add to."""


class Policy(ABC):
    """A scheduling policy.

    `decide` changes nothing, neither the state nor the policy: asked twice at the same moment it answers the
    same. What it knows beyond the state it learns from the hooks, which are called after the state has
    changed, for facts only: a decision that could not be carried out is never reported. What it works out in
    `decide` and wants to keep goes into the plan as a memo, and comes back with `plan_applied`.

    Attributes:
        name: Its name in the registry.
        summary: What it does, in a sentence.
        source: Where it was published.
        knobs_type: A frozen dataclass of its settings (`dally.policies.common.knobs`).
        batching: What becomes of an elastic job's batch when this policy changes its GPUs.
        learns_limits: Where limits are known it goes by what jobs with such a limit took, not by the limits.
        islands: Whether it keeps gangs within one island where a cluster has several (see `Topology`).
        plans_by: What it plans by that jobs without a profile must report (`dally.progress`), in words; empty
            if it needs nothing of that.
        orders_by_priority: It serves jobs by their priority in Slurm's sense, so nobody needs to see to that.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    knobs_type: ClassVar[type]
    batching: ClassVar[Batching] = Batching.FIXED
    islands: ClassVar[bool] = True
    learns_limits: ClassVar[bool] = False
    plans_by: ClassVar[str] = ""
    orders_by_priority: ClassVar[bool] = False

    @abstractmethod
    def __init__(self, knobs: Any, state: ClusterState) -> None: ...

    @classmethod
    def averaging(cls, knobs: Any) -> Averaging | None:
        """What averaging the copies of forked jobs costs under these settings; None if it makes none."""
        return None

    @abstractmethod
    def decide(self, state: ClusterState, now: float) -> Plan:
        """Decide what to do at `now` (seconds): which jobs start, wait, stop or move, and why.

        `time_passed` was called for this moment. Waits are decided for the jobs of `state.to_explain`: the
        scheduler remembers whose wait is on record. Another wait is decided where its end changes.
        """

    def time_passed(self, state: ClusterState, now: float) -> None:
        """Update what changes by the passing of time alone; a second call at `now` changes nothing."""

    def submitted(self, job: JobState, now: float) -> None:
        """A job waits: it has just arrived, or it ran and waited before this policy was built."""

    def started(self, job: JobState, now: float) -> None:
        """A job runs now; `job.origin_s` still says when its wait began."""

    def stopped(self, job: JobState, now: float) -> None:
        """A job lost its GPUs, by preemption or failure, and waits again."""

    def repaced(self, job: JobState, now: float) -> None:
        """A running job goes on at another speed, so its `end_s()` is another."""

    def revised(self, job: JobState, now: float) -> None:
        """What is believed of a job's length has changed, and with it `remaining_s` and `end_s()`."""
        if job.allocation:
            self.repaced(job, now)

    def reported(self, job: JobState, now: float) -> None:
        """A running job reported how far it is: its length, its speeds and its `end_s()` may be others."""
        self.revised(job, now)

    def costs_revised(self, state: ClusterState, now: float) -> None:
        """Step times have taught that placements cost something else; for policies that remember costs."""

    def reprioritized(self, job: JobState, now: float) -> None:
        """A job's `priority` has changed, or whether its GPUs may be taken for others (`preemptible`)."""

    def finished(self, job: JobState, now: float) -> None:
        """A running job has ended."""

    def withdrawn(self, job: JobState, now: float) -> None:
        """A waiting job is gone: cancelled, or taken out of this policy's hands.

        It may be submitted again, as where jobs of much higher priority go before it.
        """

    def resumed(self, job: JobState, now: float) -> None:
        """A job submitted just now ran before this policy was built: its wait teaches nothing."""
        self.started(job, now)

    def plan_applied(self, plan: Plan, state: ClusterState, now: float) -> None:
        """The plan of `now` was carried out; `plan.decisions` are those of which that could be."""

    def snapshot(self) -> dict[str, Any]:
        """What the policy has learnt that the state does not hold, as plain data for JSON."""
        return {}

    def restore(self, learnt: Mapping[str, Any]) -> None:
        """Take back what `snapshot` gave, before the jobs are submitted again."""
