"""The iteration of a gang, from where its GPUs are, the batch of each, and profiles or its plan."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from math import fsum
from typing import NamedTuple

from dally.cluster.topology import Allocation, Shape, Topology
from dally.jobs.job import Job, JobKind
from dally.jobs.training_plan import TrainingPlan
from dally.profiles.files import ProfileSet
from dally.profiles.iteration import Prediction, predict
from dally.profiles.learnt_costs import LearntCosts
from dally.profiles.local_batch import batch_factor
from dally.profiles.parallel.rank_placement import RankPlacement, RankPlacer
from dally.profiles.plan_iteration import plan_gap, predict_by_plan, training_step
from dally.profiles.profile_error import ProfileError
from dally.profiles.schema import Profile
from dally.profiles.step_factors import PoolName

_REMEMBERED = 64
"""Allocations whose spread is remembered: policies ask about few of them, again and again."""

_REMEMBERED_RANKS = 4096
"""Allocations for which it is remembered where their ranks are."""

PlanKey = tuple[str, TrainingPlan, int, RankPlacement, str | None]
"""Model, plan, batch and where the ranks are: all that an iteration depends on which goes by a plan."""


class GangSpread(NamedTuple):
    """All that a gang's speed depends on.

    Attributes:
        shape: Its shape.
        gpus: The GPUs of each type, for a batch that is split by speed over types.
        ranks: Where its ranks are, for a model whose profile has events.
        plan: How the job trains, for such a model; None if it does not say.
        precision: In which it computes, for such a model; None if it does not say.
        user: Whose step times correct it; None: what users agree on does.
    """

    shape: Shape
    gpus: tuple[int, ...] = ()
    ranks: RankPlacement | None = None
    plan: str | None = None
    precision: str | None = None
    user: str | None = None


class Split(StrEnum):
    """How a gang over several GPU types splits its batch: evenly, or in proportion to each GPU's speed."""

    EVEN = "even"
    PROPORTIONAL = "proportional"


def split_evenly(parts: Sequence[Prediction]) -> Prediction:
    """The iteration of a gang whose GPUs all have the same batch: the slowest one's pace."""
    return max(parts, key=lambda part: part.iteration_s)


def split_by_speed(parts: Sequence[Prediction], gpus: Sequence[int]) -> Prediction:
    """The iteration of a gang whose GPUs have batches in proportion to their speed.

    With c the compute time of one GPU's even batch, its type's share of the whole batch goes by GPUs / c, and
    all W GPUs are done after W / sum(1/c). Their backward passes last equally long then, between the fastest
    type's and the slowest's, so as much communication stays exposed as lies between theirs: linear by the
    same shares. Assumed is that compute time grows with the batch in proportion, the optimizer's step too,
    and that a batch can be cut anywhere.

    Args:
        parts: What each type's profile says of the whole gang's shape.
        gpus: GPUs of each type.

    Returns:
        The means by share of the batch, as sum(share * c) is W / sum(1/c).
    """
    speeds = [count / (part.iteration_s - part.exposed_s) for part, count in zip(parts, gpus, strict=True)]
    shares = [speed / fsum(speeds) for speed in speeds]
    weighted = [*zip(parts, shares, strict=True)]
    return replace(
        split_evenly(parts),
        iteration_s=fsum(share * part.iteration_s for part, share in weighted),
        exposed_s=fsum(share * part.exposed_s for part, share in weighted),
        comm_s=fsum(share * part.comm_s for part, share in weighted),
        extrapolated=any(part.extrapolated for part in parts),
        note="; ".join(dict.fromkeys(part.note for part in parts if part.note)),
    )


class GangIterations:
    """Predicts iterations of gangs, by their plans where these tell, else from profiles; remembers them.

    `CostModel`, which stands on this, says what the arguments are.

    Attributes:
        learnt: What corrects it; None: nothing.
        hides_plans: Whether it takes jobs as if they had no plans.
    """

    def __init__(
        self, topology: Topology, profiles: ProfileSet | None, split: Split, error: ProfileError | None
    ) -> None:
        self.topology = topology
        self.profiles = profiles
        self.split = split
        self.error = error
        self.learnt: LearntCosts | None = None
        self.hides_plans = False
        self._placed = lru_cache(_REMEMBERED_RANKS)(RankPlacer(topology).place)
        self._by_plan: dict[PlanKey, Prediction] = {}
        self._plan_gaps: set[tuple[str, str]] = set()
        kinds = {replace(machine, name=""): number for number, machine in enumerate(topology.machines)}
        self._kinds = [kinds[replace(machine, name="")] for machine in topology.machines]
        self._on_machines = lru_cache(_REMEMBERED)(self._spread)
        self._on_one_machine: dict[tuple[int, int], GangSpread] = {}
        self._predictions: dict[tuple[str, GangSpread, float, int | None], Prediction | None] = {}

    def knows(self, job: Job) -> bool:
        """Whether a job's model has a profile, or its plan tells what placements cost it."""
        return self.plan_gap(job) == "" or self._profile(job.model, job.gpu_type or "") is not None

    def plan_gap(self, job: Job) -> str | None:
        """Why a job's costs do not go by its plan, in one line; empty if they do, None if it has none.

        What was recorded of just this plan and precision counts before it. A plan goes only where it tells on
        all GPU types that the job may have: what it says on one cannot be held against what a profile says on
        another.
        """
        if job.plan is None or self.hides_plans or self._is_recorded(job):
            return None
        plan, batch = job.plan, job.batch or 0
        types = (job.gpu_type,) if job.gpu_type else self.topology.gpu_types
        found = next(filter(None, (plan_gap(job.model, plan, batch, name) for name in types)), "")
        if found:
            self._plan_gaps.add((job.model, found))
        return found

    def _is_recorded(self, job: Job) -> bool:
        """Whether the training of a job with a plan was recorded, on all GPU types that it may have."""
        if self.profiles is None or job.model not in self.profiles.with_events:
            return False
        plan, types = _recorded_as(job), (job.gpu_type,) if job.gpu_type else self.topology.gpu_types
        precision = _precision(job)
        found = [
            self._profile(job.model, name, gpus=job.gpus, plan=plan, precision=precision) for name in types
        ]
        return all(
            each is not None and each.plan == plan and each.model.precision in (None, precision)
            for each in found
        )

    def prediction(self, job: Job, allocation: Allocation, stretch: float = 1.0) -> Prediction | None:
        """The iteration of a job's gang on an allocation; None if neither its plan nor a profile tells.

        Args:
            job: The job.
            allocation: The GPUs of its gang; of one copy if it is forked.
            stretch: How many times as long its communication takes because others share its links.
        """
        if not job.model:
            return None
        if self.plan_gap(job) == "":
            return self._predict_plan(self.plan_key(job, allocation), stretch)
        batch = self._local_batch(job, gpus_of(job, allocation))
        return self._predict(job, self.spread(job, allocation), batch, stretch)

    def plan_key(self, job: Job, allocation: Allocation) -> PlanKey:
        """All that an iteration depends on which goes by a plan."""
        assert job.plan is not None, "it goes by its plan"
        return job.model, job.plan, job.batch or 0, self._placed(allocation), self.believer(job)

    def believer(self, job: Job) -> str | None:
        """The user whose step times correct predictions of a job; None: what users agree on does."""
        return job.user if self.learnt is not None and job.user in self.learnt.users else None

    def _predict_plan(self, key: PlanKey, stretch: float = 1.0) -> Prediction:
        """The iteration of a gang by its plan: its slowest GPU type's, as all have the same batch."""
        if stretch == 1.0 and key in self._by_plan:
            return self._by_plan[key]
        found = split_evenly([*self._plan_parts(key, stretch).values()])
        if stretch == 1.0:
            self._by_plan[key] = found
        return found

    def _plan_parts(
        self, key: PlanKey, stretch: float = 1.0, corrected: bool = True
    ) -> Mapping[str, Prediction]:
        """The iteration of a gang that goes by its plan, as each of its GPU types would have it."""
        model, plan, batch, ranks, user = key
        parts = {
            name: predict_by_plan(training_step(model, plan, batch, name, ranks), ranks.lowest, stretch)
            for name in ranks.gpu_types
        }
        if self.error is not None:
            parts = {name: self.error.believed(part, model, name) for name, part in parts.items()}
        if self.learnt is not None and corrected:
            parts = {
                name: self.learnt.corrected(part, plan_pool(model, plan, name, user), ranks.level)
                for name, part in parts.items()
            }
        return parts

    def spread(self, job: Job, allocation: Allocation) -> GangSpread:
        """All that a job's speed depends on there; on one machine the same as on each machine like it."""
        if len(allocation) > 1:
            spread = self._on_machines(allocation)
        else:
            machine, gpus = allocation[0]
            key = self._kinds[machine], gpus
            if key not in self._on_one_machine:
                self._on_one_machine[key] = self._spread(allocation)
            spread = self._on_one_machine[key]
        if (user := self.believer(job)) is not None:
            spread = spread._replace(user=user)
        if self.profiles is None or job.model not in self.profiles.with_events:
            return spread
        return spread._replace(
            ranks=self._placed(allocation), plan=_recorded_as(job), precision=_precision(job)
        )

    def _spread(self, allocation: Allocation) -> GangSpread:
        shape = self.topology.shape(allocation)
        if self.split is Split.EVEN or len(shape.gpu_types) == 1:
            return GangSpread(shape)
        return GangSpread(shape, tuple(self.topology.by_type(allocation).values()))

    def _profile(
        self,
        model: str,
        gpu_type: str,
        samples: float | None = None,
        gpus: int | None = None,
        plan: str | None = None,
        precision: str | None = None,
    ) -> Profile | None:
        """The profile of a model on a GPU type, of several by what the job says of itself."""
        if not self.profiles or not model:
            return None
        return self.profiles.find(model, gpu_type or None, samples, gpus, plan, precision)

    def _local_batch(self, job: Job, gpus: int) -> float:
        """The batch of each of so many GPUs over that of the profile, if the global batch stays."""
        known = self._profile_batch(job) if job.batch else None
        return job.batch / gpus / known if job.batch and known else job.gpus / gpus

    def _profile_batch(self, job: Job) -> int | None:
        """The local batch of the job's profile, to which others are compared; None if unknown."""
        profile = self._profile(
            job.model, job.gpu_type or "", gpus=job.gpus, plan=_recorded_as(job), precision=_precision(job)
        )
        return None if profile is None else profile.model.local_batch

    def _predict(
        self, job: Job, spread: GangSpread, batch: float = 1.0, stretch: float = 1.0
    ) -> Prediction | None:
        """The iteration of a gang whose GPUs have `batch` times their profile's batch on average."""
        reference = self._profile_batch(job)
        if stretch != 1.0:
            return self._joint(job.model, spread, batch, reference, stretch)
        key = job.model, spread, batch, reference
        if key not in self._predictions:
            self._predictions[key] = self._joint(job.model, spread, batch, reference)
        return self._predictions[key]

    def _joint(
        self, model: str, spread: GangSpread, batch: float, reference: int | None, stretch: float = 1.0
    ) -> Prediction | None:
        """The iteration of a gang from those of its GPU types; None if one has no profile."""
        parts = self._parts(model, spread, batch, reference, stretch)
        if not parts:
            return None
        predictions = [*parts.values()]
        return split_by_speed(predictions, spread.gpus) if spread.gpus else split_evenly(predictions)

    def _parts(
        self,
        model: str,
        spread: GangSpread,
        batch: float,
        reference: int | None,
        stretch: float = 1.0,
        corrected: bool = True,
    ) -> Mapping[str, Prediction]:
        """The iteration of a gang as the profile of each of its GPU types has it; none where one has none."""
        shape, _, ranks, plan, precision, user = spread
        samples = batch * reference if reference else None
        parts = dict[str, Prediction]()
        for gpu_type in shape.gpu_types:
            profile = self._profile(model, gpu_type, samples, shape.gpus, plan, precision)
            if profile is None:
                return {}
            part = predict(profile, shape, stretch, batch_factor(profile, batch, reference), ranks)
            if self.error is not None:
                part = self.error.believed(part, model, gpu_type)
            if self.learnt is not None and corrected:
                part = self.learnt.corrected(part, (model, gpu_type, user), shape.level)
            parts[gpu_type] = part
        return parts


def _recorded_as(job: Job) -> str | None:
    """How a job trains, as profiles of recorded jobs have it; None if it does not say."""
    return None if job.plan is None else str(job.plan.parallelism)


def _precision(job: Job) -> str | None:
    """In which a job computes; None if it does not say."""
    return None if job.plan is None else job.plan.precision


def plan_pool(model: str, plan: TrainingPlan, gpu_type: str, user: str | None) -> PoolName:
    """What a user's jobs of one plan learn from each other's step times."""
    return f"{model} {plan}", gpu_type, user


def gpus_of(job: Job, allocation: Allocation) -> int:
    """GPUs among which a job's batch is split: those of one copy if it is forked."""
    return sum(gpus for _, gpus in allocation) if job.kind is JobKind.ELASTIC else job.gpus
