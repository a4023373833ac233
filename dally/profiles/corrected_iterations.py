"""Iterations of gangs as profiles and plans predict them, corrected by the step times of running jobs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import Gang, Job, JobKind
from dally.jobs.training_plan import TrainingPlan
from dally.profiles.allreduce import ring_factor
from dally.profiles.files import ProfileSet
from dally.profiles.gang_iteration import GangIterations, Split, plan_pool
from dally.profiles.iteration import Prediction
from dally.profiles.learnt_costs import LONGEST_STEP_S, SHORTEST_STEP_S, Belief, LearntCosts
from dally.profiles.profile_error import ProfileError
from dally.profiles.step_factors import CALCULATED, UNKNOWN, PoolName, Prior, pool_of_itself, prior_of

CostGroup = tuple[str, int | None, TrainingPlan | None, str, str | None]
"""Model, batch, plan, the job itself if it names no model and has told steps, its user if his jobs have."""


class CorrectedIterations(GangIterations, ABC):
    """Predicts iterations of gangs, and learns from what they really take.

    `CostModel`, which stands on this, says what the arguments are.
    """

    def __init__(
        self,
        topology: Topology,
        profiles: ProfileSet | None,
        split: Split,
        error: ProfileError | None,
        assumed_slowdown: float,
        learns: bool,
    ) -> None:
        super().__init__(topology, profiles, split, error)
        self.assumed_slowdown = assumed_slowdown
        self.learnt = LearntCosts(len(topology.levels)) if learns else None

    @abstractmethod
    def best_level(self, gang: Gang) -> int:
        """The lowest level at which one domain of the idle cluster holds such a gang."""

    @abstractmethod
    def _forget_costs(self, model: str | None) -> None:
        """Forget what was worked out of a model, None: of all; what it rests on is believed no more."""

    def group(self, job: Job) -> CostGroup:
        """What jobs have in common that cost the same on the same GPUs, as long as they report nothing."""
        alone = not job.model and self.learnt is not None and self.learnt.has_told(job.job_id)
        return job.model, job.batch, job.plan, job.job_id if alone else "", self.believer(job)

    @property
    def revision(self) -> int:
        """Grows when costs are believed to be others than before; for those that remember them."""
        return 0 if self.learnt is None else self.learnt.revision

    def learn(
        self,
        job: Job,
        allocation: Allocation,
        since_s: float,
        step_s: float,
        shared: bool = False,
        samples: float = 0.0,
    ) -> bool:
        """Learn from how long the steps of a running job take, if that can be compared with anything.

        A gang over several GPU types goes at the pace of the slowest, and tells of that one alone.

        Args:
            job: The job. Nothing is learnt of forked ones, nor of gangs over several GPU types that split
                their batch by speed, or have no profile.
            allocation: Its GPUs.
            since_s: When it began to run there.
            step_s: Seconds of a step, the median of many; nothing is learnt of what cannot be.
            shared: Whether others share its links.
            samples: Of a step, all GPUs together; 0: as it was submitted, else as its profile has them. A job
                that goes by its plan has the batch that it was submitted with.

        Returns:
            Whether its costs, or those of others, are something else now.
        """
        spread = self.spread(job, allocation)
        shape = spread.shape
        goes_by_plan = job.plan is not None and self.plan_gap(job) == ""
        is_split_by_speed = bool(spread.gpus) and not goes_by_plan
        if self.learnt is None or job.kind is JobKind.FORKED or is_split_by_speed:
            return False
        if not SHORTEST_STEP_S <= step_s <= LONGEST_STEP_S:
            return False
        batch, reference = self._local_batch(job, shape.gpus), self._profile_batch(job)
        if samples and reference:
            batch = samples / shape.gpus / reference
        by_profile = job.model, spread, batch, reference
        gpu_type = ""
        if goes_by_plan:
            assert job.plan is not None
            key = self.plan_key(job, allocation)
            slowest = _slowest(self._plan_parts(key))
            raw = self._plan_parts(key, corrected=False)[slowest]
            name, certainty = plan_pool(job.model, job.plan, slowest, job.user), CALCULATED
        elif parts := self._parts(*by_profile):
            slowest = _slowest(parts)
            raw = self._parts(*by_profile, corrected=False)[slowest]
            profile = self._profile(job.model, slowest, None, shape.gpus, spread.plan, spread.precision)
            assert profile is not None, "it is a part"
            name, certainty = (
                (job.model, slowest, job.user),
                prior_of(profile.provenance.mode, raw.extrapolated),
            )
        elif len(shape.gpu_types) > 1:
            return False
        else:
            slowdown = self._far(job, shape.gpus, shape.level, len(shape.machines))
            raw = Prediction(slowdown, slowdown - 1, 0.0, None, "compute", extrapolated=True, note="")
            name, certainty = unknown_pool(job, shape.gpus), UNKNOWN
            (gpu_type,) = shape.gpu_types
        given_up = self.learnt.given_up
        run = job.job_id, since_s, step_s
        changed = self.learnt.observe(*run, raw, name, certainty, shape.level, shared, gpu_type)
        if changed:
            self._forget_costs(None if self.learnt.given_up != given_up else job.model)
        return changed

    def basis(self, job: Job) -> tuple[str, Prior]:
        """On what predictions for a job rest, in words, and how sure they are before any step time."""
        if self.plan_gap(job) == "":
            return "plan", CALCULATED
        profile = self._profile(job.model, job.gpu_type or "")
        if profile is None:
            return "no profile", UNKNOWN
        mode = profile.provenance.mode
        return f"profile ({mode})", prior_of(mode, extrapolated=False)

    def belief(self, job: Job, gpu_type: str) -> Belief | None:
        """What step times have taught of jobs like this on a GPU type; None if nothing."""
        if self.learnt is None:
            return None
        if job.plan is not None and self.plan_gap(job) == "":
            return self.learnt.belief(plan_pool(job.model, job.plan, gpu_type, job.user))
        known = self._profile(job.model, gpu_type) is not None
        return self.learnt.belief((job.model, gpu_type, job.user) if known else unknown_pool(job, job.gpus))

    def _far(self, job: Job, gpus: int, level: int, machines: int) -> float:
        """How many times longer a gang without a profile is assumed to take than close together.

        Each level costs the same, and waiting grows with the machines as 2(n-1)/n of n. What speaks for that,
        and what against it: docs/learnt-costs.md.
        """
        farther = 0 if self.assumed_slowdown == 1.0 else level - self.best_level(job.gang._replace(gpus=gpus))
        if farther <= 0:
            return 1.0
        return 1 + (self.assumed_slowdown**farther - 1) * ring_factor(machines)


def _slowest(parts: Mapping[str, Prediction]) -> str:
    """The GPU type of whose pace a gang over several goes."""
    return max(parts, key=lambda gpu_type: parts[gpu_type].iteration_s)


def unknown_pool(job: Job, gpus: int) -> PoolName:
    """What a job without a profile has in common with: those of its user, model and size."""
    return job.model or pool_of_itself(job.job_id), f"{gpus} GPUs", job.user
