"""The iteration of a gang, from where its GPUs are, the batch of each, and the profiles of their types."""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from math import fsum

from dally.cluster.topology import Allocation, Shape, Topology
from dally.jobs.job import Job, JobKind
from dally.profiles.files import ProfileSet
from dally.profiles.iteration import Prediction, predict
from dally.profiles.learnt_costs import LearntCosts
from dally.profiles.local_batch import batch_factor
from dally.profiles.profile_error import ProfileError
from dally.profiles.schema import Profile

_REMEMBERED = 64
"""Allocations whose spread is remembered: policies ask about few of them, again and again."""

Spread = tuple[Shape, tuple[int, ...]]
"""All that a gang's speed depends on: its shape; for a batch split by speed over types, the GPUs of each."""


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
    """Predicts iterations of gangs from profiles; remembers them.

    Args:
        topology: The cluster.
        profiles: Profiles of the models; None for none.
        split: How gangs over several GPU types split their batch.
        error: How wrong what it predicts is; None: as the profiles have it.

    Attributes:
        learnt: What corrects it; None: nothing.
    """

    def __init__(
        self, topology: Topology, profiles: ProfileSet | None, split: Split, error: ProfileError | None
    ) -> None:
        self.topology = topology
        self.profiles = profiles
        self.split = split
        self.error = error
        self.learnt: LearntCosts | None = None
        kinds = {replace(machine, name=""): number for number, machine in enumerate(topology.machines)}
        self._kinds = [kinds[replace(machine, name="")] for machine in topology.machines]
        self._on_machines = lru_cache(_REMEMBERED)(self._spread)
        self._on_one_machine: dict[tuple[int, int], Spread] = {}
        self._predictions: dict[tuple[str, Spread, float, int | None], Prediction | None] = {}

    def knows(self, job: Job) -> bool:
        """Whether a job's model has a profile."""
        return self._profile(job.model, job.gpu_type or "") is not None

    def prediction(self, job: Job, allocation: Allocation, stretch: float = 1.0) -> Prediction | None:
        """The iteration of a job's gang on an allocation; None without a profile.

        Args:
            job: The job.
            allocation: The GPUs of its gang; of one copy if it is forked.
            stretch: How many times as long its communication takes because others share its links.
        """
        if not job.model:
            return None
        batch = self._local_batch(job, gpus_of(job, allocation))
        return self._predict(job, self.spread(allocation), batch, stretch)

    def spread(self, allocation: Allocation) -> Spread:
        """All that a gang's speed depends on; on one machine the same as on each machine like it."""
        if len(allocation) > 1:
            return self._on_machines(allocation)
        machine, gpus = allocation[0]
        key = self._kinds[machine], gpus
        if key not in self._on_one_machine:
            self._on_one_machine[key] = self._spread(allocation)
        return self._on_one_machine[key]

    def _spread(self, allocation: Allocation) -> Spread:
        shape = self.topology.shape(allocation)
        if self.split is Split.EVEN or len(shape.gpu_types) == 1:
            return shape, ()
        return shape, tuple(self.topology.by_type(allocation).values())

    def _profile(self, model: str, gpu_type: str, samples: float | None = None) -> Profile | None:
        """The profile of a model on a GPU type, of several the one for this local batch."""
        return self.profiles.find(model, gpu_type or None, samples) if self.profiles and model else None

    def _local_batch(self, job: Job, gpus: int) -> float:
        """The batch of each of so many GPUs over that of the profile, if the global batch stays."""
        known = self._profile_batch(job) if job.batch else None
        return job.batch / gpus / known if job.batch and known else job.gpus / gpus

    def _profile_batch(self, job: Job) -> int | None:
        """The local batch of the job's profile, to which others are compared; None if unknown."""
        profile = self._profile(job.model, job.gpu_type or "")
        return None if profile is None else profile.model.local_batch

    def _predict(
        self, job: Job, spread: Spread, batch: float = 1.0, stretch: float = 1.0
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
        self,
        model: str,
        spread: Spread,
        batch: float,
        reference: int | None,
        stretch: float = 1.0,
        corrected: bool = True,
    ) -> Prediction | None:
        """The iteration of a gang from those of its GPU types; None if one has no profile."""
        shape, gpus = spread
        samples = batch * reference if reference else None
        profiles = [self._profile(model, gpu_type, samples) for gpu_type in shape.gpu_types]
        known = [profile for profile in profiles if profile is not None]
        if len(known) < len(profiles):
            return None
        parts = [
            predict(profile, shape, stretch, batch_factor(profile, batch, reference)) for profile in known
        ]
        if self.error is not None:
            believed = zip(parts, shape.gpu_types, strict=True)
            parts = [self.error.believed(part, model, gpu_type) for part, gpu_type in believed]
        if self.learnt is not None and corrected:
            by_type = zip(parts, shape.gpu_types, strict=True)
            parts = [self.learnt.corrected(part, (model, kind), shape.level) for part, kind in by_type]
        return split_by_speed(parts, gpus) if gpus else split_evenly(parts)


def gpus_of(job: Job, allocation: Allocation) -> int:
    """GPUs among which a job's batch is split: those of one copy if it is forked."""
    return sum(gpus for _, gpus in allocation) if job.kind is JobKind.ELASTIC else job.gpus
