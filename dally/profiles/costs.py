"""What a placement costs a job: its slowdown and exposed communication, from the profiles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import fsum

from dally.cluster.idle_cluster import IdleCluster
from dally.cluster.topology import Allocation, Shape, Topology
from dally.jobs.job import Gang, Job, JobKind
from dally.jobs.knowledge import Known
from dally.jobs.progress import ReportedProgress
from dally.profiles.averaging import Averaging
from dally.profiles.batch_split import Split, split_by_speed, split_evenly
from dally.profiles.files import ProfileSet
from dally.profiles.goodput import Batching, batches, efficiency, mean_efficiency, phase
from dally.profiles.iteration import Prediction, predict
from dally.profiles.local_batch import batch_factor, compute_pass
from dally.profiles.reported_speeds import ReportedSpeeds, reported_speeds
from dally.profiles.schema import Learning, Profile, Restart
from dally.profiles.wrong import ProfileError

REMEMBERED = 64
"""Allocations whose spread is remembered: policies ask about few of them, again and again."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one placement.

    Attributes:
        slowdown: Iteration time over that of the best placement, on the idle cluster, of the gang asked for;
            of a forked job's copies together, 1 over the sum of their speeds, so that it may be below 1, as
            it may where an elastic job has more GPUs than it asked for. Where the batch goes with the GPUs,
            a sample counts as much as it is worth then.
        exposed: Share of the iteration that waits for the network, 0 to 1; of copies, their mean by speed.
        extrapolated: Whether the profile was not measured for such a placement, or there is no profile.
    """

    slowdown: float
    exposed: float
    extrapolated: bool


@dataclass(frozen=True, slots=True)
class Predictions:
    """What predicted costs rest on.

    Attributes:
        modes: How the profiles came about: nccl, gloo, emulated or imported; empty without profiles.
        models_without_profile: Models of gangs of which nothing was known.
        shapes: Different placements of models that were predicted.
        extrapolated_shapes: Of these, how many lie outside of what was measured.
        stand_ins: Which GPU type's profiles stood in for which, and how they were scaled, in words.
    """

    modes: tuple[str, ...]
    models_without_profile: tuple[str, ...]
    shapes: int
    extrapolated_shapes: int
    stand_ins: tuple[str, ...] = ()


Spread = tuple[Shape, tuple[int, ...]]
"""All that a gang's speed depends on: its shape; for a batch split by speed over types, the GPUs of each."""

_UNKNOWN = Cost(slowdown=1.0, exposed=0.0, extrapolated=True)
_ALONE = Cost(slowdown=1.0, exposed=0.0, extrapolated=False)


class CostModel:
    """Predicts what placements cost; remembers what it predicted.

    A job without a profile is taken as insensitive to GPU types, and to the network but for what is assumed;
    its costs are marked extrapolated. If it reports how fast it is, its costs go by that.

    Args:
        topology: The cluster.
        profiles: Profiles of the models; None for none.
        split: How gangs over several GPU types split their batch.
        batching: What becomes of an elastic job's batch when its GPUs change.
        restart_s: What every checkpoint and restart costs, seconds; None: what the profiles say, and where
            there is none, the usual cost.
        assumed_slowdown: How many times slower a gang without a profile gets with each level at which its
            placement is farther apart than it need be; 1: distance costs it nothing.
        error: How wrong what it predicts by profiles is; None: as the profiles have it.
        averaging: What averaging the copies of a forked job costs; None: nothing.

    Attributes:
        reported: What jobs report of their speeds and batches, by name, of those that do.
    """

    def __init__(
        self,
        topology: Topology,
        profiles: ProfileSet | None = None,
        split: Split = Split.EVEN,
        batching: Batching = Batching.FIXED,
        restart_s: float | None = None,
        assumed_slowdown: float = 1.0,
        error: ProfileError | None = None,
        averaging: Averaging | None = None,
    ) -> None:
        self.topology = topology
        self.assumed_slowdown = assumed_slowdown
        self.profiles = profiles
        self.split = split
        self.batching = batching
        self.every_restart_s = restart_s
        self.error = error
        self.reported: dict[str, ReportedSpeeds] = {}
        self.averaging = averaging
        self._idle = IdleCluster(topology)
        kinds = {replace(machine, name=""): number for number, machine in enumerate(topology.machines)}
        self._kinds = [kinds[replace(machine, name="")] for machine in topology.machines]
        self._on_machines = lru_cache(REMEMBERED)(self._spread)
        self._on_one_machine: dict[tuple[int, int], Spread] = {}
        self._costs: dict[tuple[str, Gang, Spread, float], Cost] = {}
        self._learning_costs: dict[tuple[str, Gang, float, Spread, int], Cost] = {}
        self._best_s: dict[tuple[str, Gang, float], float] = {}
        self._restarts: dict[tuple[str, str | None], Restart] = {}
        self._predictions: dict[tuple[str, Spread, float, int | None], Prediction | None] = {}
        self._type_speeds: dict[tuple[str, Gang, int | None], Mapping[str, float]] = {}
        self._worker_speeds: dict[tuple[str, str | None], Mapping[str, float]] = {}

    def believed(self, known: Known) -> "CostModel":
        """What schedulers take costs to be who know so much: these, or wrong ones if their profiles are.

        Restarts cost what they cost: each one shows its price.
        """
        if not known.profile_error:
            return self
        return CostModel(
            self.topology,
            self.profiles,
            self.split,
            self.batching,
            self.every_restart_s,
            self.assumed_slowdown,
            ProfileError(known.profile_error, known.seed),
            self.averaging,
        )

    def report_progress(self, job: Job, progress: ReportedProgress | None) -> None:
        """What a job has reported so far; None: nothing, or it is gone."""
        said = None if progress is None else reported_speeds(progress)
        if said is None:
            self.reported.pop(job.job_id, None)
        else:
            self.reported[job.job_id] = said

    def best_level(self, gang: Gang) -> int:
        """The lowest level at which one domain of the idle cluster holds such a gang.

        Raises:
            CapacityError: The whole cluster has too few such GPUs, or too few machines with so many each.
        """
        return self._idle.best_level(gang)

    def cost(self, job: Job, allocation: Allocation, done: float = 0.0) -> Cost:
        """The cost of running a job on an allocation; each machine of a forked job's is a copy.

        Args:
            job: The job.
            allocation: Its GPUs.
            done: How much of its work is done, 0 to 1; matters only where its batch varies.
        """
        if job.kind is JobKind.FORKED and len(allocation) > 1:
            together = _side_by_side([self._gang_cost(job, (copy,)) for copy in allocation])
            return replace(together, slowdown=together.slowdown / self._training(job, allocation))
        learning = self.learning(job)
        if learning is not None:
            return self._learning_cost(job, allocation, learning, phase(learning, done))
        return self._gang_cost(job, allocation)

    def _training(self, job: Job, copies: Allocation) -> float:
        """The part of a slot that copies train, which averaging leaves."""
        if self.averaging is None:
            return 1.0
        profile = self._profile(job.model, job.gpu_type or "")
        model_bytes = profile.model.grad_bytes if profile else None
        uplinks = [self.topology.level_domains[0][machine].uplink for machine, _ in copies]
        slowest_bps = min((link.bandwidth_bps for link in uplinks if link is not None), default=float("inf"))
        return self.averaging.left(len(copies), model_bytes, slowest_bps)

    def learning(self, job: Job) -> Learning | None:
        """How a job's training gets on, if its batch varies with its GPUs; None if it stays or is unknown."""
        if self.batching is Batching.FIXED or job.kind is not JobKind.ELASTIC:
            return None
        return self.curve(job)

    def curve(self, job: Job) -> Learning | None:
        """How a job's training gets on; None if neither its model's profile nor the job itself says."""
        profile = self._profile(job.model, job.gpu_type or "")
        if profile is not None and profile.learning is not None:
            return profile.learning
        return self.reported[job.job_id].learning if job.job_id in self.reported else None

    def changes_at(self, job: Job, done: float) -> float:
        """How much of a job's work is done when its cost on the same GPUs changes; 1 if it never does."""
        learning = self.learning(job)
        return 1.0 if learning is None else learning.done[phase(learning, done)]

    def _gang_cost(self, job: Job, allocation: Allocation) -> Cost:
        gpus = _gpus_of(job, allocation)
        if gpus == job.gpus == len(self.topology.gpu_types) == 1:
            return _ALONE
        if (measured := self._reported_speeds(job)) is not None:
            return self._reported_cost(job, measured, allocation)
        if not job.model or self.profiles is None:
            return self._assumed(job, gpus, self.topology.level_of(allocation), job.gpus / gpus)
        batch = self._local_batch(job, gpus)
        spread = self.spread(allocation)
        key = job.model, job.gang, spread, batch
        known = self._costs.get(key)  # one look-up: hashing the spread takes most of it
        if known is None:
            known = self._costs[key] = self._compare(job, spread, batch)
        return known

    def _learning_cost(self, job: Job, allocation: Allocation, learning: Learning, number: int) -> Cost:
        """The cost with the best of the batches that the job may have there, in a phase of its training."""
        if (measured := self._reported_speeds(job)) is not None:
            return self._reported_cost(job, measured, allocation, learning)
        own, spread = self._own_batch(job), self.spread(allocation)
        if (said := self.reported.get(job.job_id)) is not None and said.learning is learning:
            return self._best_batch(job, spread, learning, number, own)
        key = job.model, job.gang, own, spread, number
        if key not in self._learning_costs:
            self._learning_costs[key] = self._best_batch(job, spread, learning, number, own)
        return self._learning_costs[key]

    def _best_batch(self, job: Job, spread: Spread, learning: Learning, number: int, own: float) -> Cost:
        gpus = spread[0].gpus
        worth = own * mean_efficiency(learning, own)
        options = [
            self._compare(
                job,
                spread,
                batch / own * self._local_batch(job, gpus),
                worth / batch / efficiency(learning, batch, number),
            )
            for batch in batches(learning, self.batching, own, job.gpus, gpus)
        ]
        return min(options, key=lambda cost: cost.slowdown)

    def _reported_speeds(self, job: Job) -> ReportedSpeeds | None:
        """What a job without a profile says of its speed; None if it has a profile, or says nothing."""
        said = self.reported.get(job.job_id)
        return None if said is None or not said.curves or self.knows(job) else said

    def _reported_cost(
        self, job: Job, said: ReportedSpeeds, allocation: Allocation, learning: Learning | None = None
    ) -> Cost:
        """The cost as a job's own reports have it; what distance costs it is still assumed."""
        gpus, types = _gpus_of(job, allocation), self.topology.shape(allocation).gpu_types
        on = job, self._idle.accepted(job), types, gpus
        slowdown = (
            said.slowdown(*on) if learning is None else said.learning_slowdown(*on, learning, self.batching)
        )
        return self._assumed(job, gpus, self.topology.level_of(allocation), slowdown)

    def type_speeds(self, job: Job) -> Mapping[str, float]:
        """The speed of a job's gang on each GPU type that alone can hold it and that it accepts.

        Relative to its best placement, at the closest one of that type on the idle cluster, so the fastest
        type has 1; 1 for all without a profile. Empty if no type alone holds the gang.
        """
        if self._reported_speeds(job) is not None:
            return self._speeds_by_type(job)
        key = job.model, job.gang, job.batch
        if key not in self._type_speeds:
            self._type_speeds[key] = self._speeds_by_type(job)
        return self._type_speeds[key]

    def _speeds_by_type(self, job: Job) -> Mapping[str, float]:
        closest = {gpu_type: self._idle.closest(job.gang, gpu_type) for gpu_type in self._idle.accepted(job)}
        return {
            gpu_type: 1 / self._gang_cost(job, allocation).slowdown
            for gpu_type, allocation in closest.items()
            if allocation is not None
        }

    def worker_speeds(self, job: Job) -> Mapping[str, float]:
        """The speed of one GPU of each type that a job accepts, relative to the fastest; compute alone.

        1 for types without a profile of the model.
        """
        key = job.model, job.gpu_type
        if key not in self._worker_speeds:
            reference = self._profile_batch(job)
            profiles = {
                gpu_type: self._profile(job.model, gpu_type, reference)
                for gpu_type in self._idle.accepted(job)
            }
            compute_s = {
                gpu_type: compute_pass(profile, batch_factor(profile, 1.0, reference)).total_s
                * (1.0 if self.error is None else self.error.pace(job.model, gpu_type))
                for gpu_type, profile in profiles.items()
                if profile is not None
            }
            least_s = min(compute_s.values(), default=1.0)
            self._worker_speeds[key] = {
                gpu_type: least_s / compute_s.get(gpu_type, least_s) for gpu_type in profiles
            }
        return self._worker_speeds[key]

    def most_gpus(self, job: Job) -> int:
        """The most GPUs that a job can use and the idle cluster can give it, shared out as it asks."""
        return min(job.most_gpus, self._idle.most_gpus(job.gang))

    def ideal(self, job: Job, gpus: int, done: float = 0.0) -> Cost:
        """The cost of a job's gang on so many GPUs at their best placement on the idle cluster.

        Args:
            job: The job.
            gpus: As many as it asked for, or can have if it is elastic.
            done: How much of its work is done, 0 to 1.

        Raises:
            CapacityError: The cluster has too few such GPUs.
        """
        placements = self._idle.best_placements(job.gang._replace(gpus=gpus))
        return min((self.cost(job, place, done) for place in placements), key=lambda cost: cost.slowdown)

    def report(self) -> Predictions:
        """What the predictions so far rest on."""
        return Predictions(
            modes=tuple(self.profiles.modes) if self.profiles else (),
            models_without_profile=tuple(
                sorted({model for (model, *_), known in self._predictions.items() if known is None})
            ),
            shapes=len(self._costs),
            extrapolated_shapes=sum(cost.extrapolated for cost in self._costs.values()),
            stand_ins=self._stand_ins(),
        )

    def _stand_ins(self) -> tuple[str, ...]:
        if self.profiles is None:
            return ()
        used = {(model, name) for model, (shape, _), *_ in self._predictions for name in shape.gpu_types}
        return self.profiles.stand_ins(used)

    def prediction(self, job: Job, allocation: Allocation, stretch: float = 1.0) -> Prediction | None:
        """The iteration of a job's gang on an allocation; None without a profile.

        Args:
            job: The job.
            allocation: The GPUs of its gang; of one copy if it is forked.
            stretch: How many times as long its communication takes because others share its links.
        """
        if not job.model:
            return None
        batch = self._local_batch(job, _gpus_of(job, allocation))
        return self._predict(job, self.spread(allocation), batch, stretch)

    def stretched(self, job: Job, allocation: Allocation, stretch: float) -> Cost:
        """The cost of running a job with a profile where others stretch its communication."""
        prediction = self.prediction(job, allocation, stretch)
        return _UNKNOWN if prediction is None else self._relative(job, prediction)

    def restart_s(self, job: Job) -> float:
        """Seconds that a checkpoint and restart of the job cost."""
        return self._restart(job).cost_s(job.gpus)

    def resize_s(self, job: Job) -> float:
        """Seconds that a change of the job's GPUs costs which needs no checkpoint."""
        return self._restart(job).resize_s

    def launch_s(self, job: Job) -> float:
        """Seconds that the first start of the job costs."""
        return self._restart(job).first_cost_s(job.gpus)

    def _restart(self, job: Job) -> Restart:
        key = job.model, job.gpu_type
        if key not in self._restarts:
            profile = self._profile(job.model, job.gpu_type or "")
            restart = Restart() if profile is None else profile.restart
            if self.every_restart_s is not None:
                restart = replace(restart, base_s=self.every_restart_s, per_gpu_s=0.0)
            self._restarts[key] = restart
        return self._restarts[key]

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

    def _own_batch(self, job: Job) -> float:
        """Samples of an iteration on the GPUs asked for; as many as GPUs where nobody knows."""
        return job.batch or job.gpus * (self._profile_batch(job) or 1)

    def _local_batch(self, job: Job, gpus: int) -> float:
        """The batch of each of so many GPUs over that of the profile, if the global batch stays."""
        known = self._profile_batch(job) if job.batch else None
        return job.batch / gpus / known if job.batch and known else job.gpus / gpus

    def _profile_batch(self, job: Job) -> int | None:
        """Samples of one GPU in an iteration as in the job's profile, what batches are told by.

        None if unknown.
        """
        profile = self._profile(job.model, job.gpu_type or "")
        return None if profile is None else profile.model.local_batch

    def _compare(self, job: Job, spread: Spread, batch: float, worth: float = 1.0) -> Cost:
        """The cost of GPUs with `batch` times their profile's batch; `worth` iterations count as one."""
        prediction = self._predict(job, spread, batch)
        if prediction is None:
            shape, _ = spread
            return self._assumed(job, shape.gpus, shape.level, batch * worth)
        return self._relative(job, prediction, worth)

    def _assumed(self, job: Job, gpus: int, level: int, batch: float) -> Cost:
        """The cost where nothing is known of distance: each level farther apart than need be costs the same.

        Args:
            job: The job.
            gpus: That it has.
            level: Of its placement.
            batch: How many times as long as asked for it takes where it is close together; as far as nothing
                is known of that, either, as many times as its local batch is larger.
        """
        farther = 0 if self.assumed_slowdown == 1.0 else level - self.best_level(job.gang._replace(gpus=gpus))
        if farther <= 0:
            return _UNKNOWN if batch == 1.0 else replace(_UNKNOWN, slowdown=batch)
        slowdown = self.assumed_slowdown**farther
        return Cost(batch * slowdown, exposed=1 - 1 / slowdown, extrapolated=True)

    def knows(self, job: Job) -> bool:
        """Whether a job's model has a profile."""
        return self._profile(job.model, job.gpu_type or "") is not None

    def _relative(self, job: Job, prediction: Prediction, worth: float = 1.0) -> Cost:
        """An iteration against that of the best placement."""
        batch = self._local_batch(job, job.gpus)
        key = job.model, job.gang, batch
        if key not in self._best_s:
            best = [
                self._predict(job, self.spread(place), batch)
                for place in self._idle.best_placements(job.gang)
            ]
            self._best_s[key] = min(other.iteration_s for other in best if other is not None)
        return Cost(
            slowdown=worth * prediction.iteration_s / self._best_s[key],
            exposed=prediction.exposed_s / prediction.iteration_s,
            extrapolated=prediction.extrapolated,
        )

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
        self, model: str, spread: Spread, batch: float, reference: int | None, stretch: float = 1.0
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
        return split_by_speed(parts, gpus) if gpus else split_evenly(parts)


def _gpus_of(job: Job, allocation: Allocation) -> int:
    """GPUs among which a job's batch is split: those of one copy if it is forked."""
    return sum(gpus for _, gpus in allocation) if job.kind is JobKind.ELASTIC else job.gpus


def _side_by_side(copies: Sequence[Cost]) -> Cost:
    """Copies of a forked job, each at its own pace: their speeds add up."""
    speeds = [1 / copy.slowdown for copy in copies]
    waiting = fsum(speed * copy.exposed for speed, copy in zip(speeds, copies, strict=True))
    return Cost(
        slowdown=1 / fsum(speeds),
        exposed=waiting / fsum(speeds),
        extrapolated=any(copy.extrapolated for copy in copies),
    )
