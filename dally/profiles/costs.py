"""What a placement costs a job: its slowdown and exposed communication, from the profiles."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import fsum
from typing import Any

from dally.cluster.idle_cluster import IdleCluster
from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import Gang, Job, JobKind
from dally.jobs.knowledge import Known
from dally.jobs.progress import ReportedProgress
from dally.jobs.training_plan import TrainingPlan
from dally.profiles.averaging import Averaging
from dally.profiles.corrected_iterations import CorrectedIterations, CostGroup, unknown_pool
from dally.profiles.files import ProfileSet
from dally.profiles.gang_iteration import GangSpread, PlanKey, Split, gpus_of, plan_pool
from dally.profiles.goodput import Batching, batches, efficiency, mean_efficiency, phase
from dally.profiles.iteration import Prediction
from dally.profiles.local_batch import batch_factor, compute_pass
from dally.profiles.plan_iteration import plan_compute_s
from dally.profiles.predictions import Predictions
from dally.profiles.profile_error import ProfileError
from dally.profiles.reported_speeds import ReportedSpeeds, reported_speeds
from dally.profiles.schema import Learning, Restart


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


_UNKNOWN = Cost(slowdown=1.0, exposed=0.0, extrapolated=True)
_ALONE = Cost(slowdown=1.0, exposed=0.0, extrapolated=False)
_MOST_FILTERS = 256
"""Sets of machines that gangs accept, of which costs are remembered."""


class CostModel(CorrectedIterations):
    """Predicts what placements cost; remembers what it predicted.

    A job goes by its plan where that tells (`plan_gap`), else by its model's profile. One without either is
    taken as insensitive to GPU types, and to the network but for what is assumed; its costs are marked
    extrapolated. If it reports how fast it is, its costs go by that.

    Args:
        topology: The cluster.
        profiles: Profiles of the models; None for none.
        split: How gangs over several GPU types split their batch.
        batching: What becomes of an elastic job's batch when its GPUs change.
        restart_s: What every checkpoint and restart costs, seconds; None: what the profiles say, and where
            there is none, the usual cost.
        assumed_slowdown: How many times slower a gang without a profile gets with each level at which its
            placement is farther apart than it need be, more over many machines; 1: distance costs it nothing.
        error: How wrong what it predicts by profiles is; None: as the profiles have it.
        averaging: What averaging the copies of a forked job costs; None: nothing.
        learns: Whether step times of running jobs correct its predictions.

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
        learns: bool = False,
    ) -> None:
        super().__init__(topology, profiles, split, error, assumed_slowdown, learns)
        self.batching = batching
        self.every_restart_s = restart_s
        self.reported: dict[str, ReportedSpeeds] = {}
        self.averaging = averaging
        self._idle = IdleCluster(topology)
        self._costs: dict[tuple[str, Gang, GangSpread, float], Cost] = {}
        self._plan_costs: dict[tuple[*PlanKey, Gang], Cost] = {}
        self._learning_costs: dict[tuple[str, Gang, float, GangSpread, int], Cost] = {}
        self._best_s: dict[
            tuple[str, Gang, float, tuple[TrainingPlan, int | None] | None, str | None], float
        ] = {}
        self._restarts: dict[tuple[str, str | None], Restart] = {}
        self._type_speeds: dict[tuple[*CostGroup, Gang], Mapping[str, float]] = {}
        self._worker_speeds: dict[tuple[str, str | None, str | None], Mapping[str, float]] = {}
        self._filters: set[frozenset[str]] = set()
        self._restarts_as = self

    def _forget_costs(self, model: str | None) -> None:
        remembered: tuple[dict[Any, Any], ...] = (
            self._predictions,
            self._by_plan,
            self._costs,
            self._plan_costs,
            self._learning_costs,
            self._best_s,
            self._type_speeds,
            self._worker_speeds,
        )
        for each in remembered:
            for key in [key for key in each if model in (None, key[0])]:  # the model begins each key
                del each[key]

    def _count_filter(self, machines: frozenset[str]) -> None:
        """Forget what is remembered of gangs once they have accepted very many sets of machines.

        On a cluster that others use, too, which machines have CPUs left changes by the minute.
        """
        if len(self._filters) >= _MOST_FILTERS:
            for remembered in (
                self._costs,
                self._plan_costs,
                self._learning_costs,
                self._best_s,
                self._type_speeds,
            ):
                remembered.clear()
            self._idle = IdleCluster(self.topology)
            self._filters.clear()
        self._filters.add(machines)

    def believed(self, known: Known) -> "CostModel":
        """The costs that schedulers with this knowledge believe: these, or wrong ones if their profiles are.

        Restarts cost what they cost: each one shows its price.
        """
        if not (known.profile_error or known.learns_costs or known.hides_profiles):
            return self
        believed = CostModel(
            self.topology,
            None if known.hides_profiles else self.profiles,
            self.split,
            self.batching,
            self.every_restart_s,
            self.assumed_slowdown,
            ProfileError(known.profile_error, known.seed) if known.profile_error else None,
            self.averaging,
            known.learns_costs,
        )
        believed.hides_plans = known.hides_profiles
        believed._restarts_as = self
        return believed

    def report_progress(self, job: Job, progress: ReportedProgress | None) -> None:
        """Take what a job has reported so far; None: nothing, or the job has left."""
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
        if gang.machines is not None and gang.machines not in self._filters:
            self._count_filter(gang.machines)
        return self._idle.best_level(gang)

    def cost(self, job: Job, allocation: Allocation, done: float = 0.0) -> Cost:
        """The cost of running a job on an allocation; each machine of a forked job's is a copy.

        Args:
            job: The job.
            allocation: Its GPUs.
            done: How much of its work is done, 0 to 1; matters only where its batch varies.
        """
        if job.kind is JobKind.FORKED and len(allocation) > 1:
            return self._copies_cost(job, allocation)
        learning = self.learning(job)
        if learning is not None:
            return self._learning_cost(job, allocation, learning, phase(learning, done))
        return self._gang_cost(job, allocation)

    def _copies_cost(self, job: Job, allocation: Allocation) -> Cost:
        """Copies train side by side, each at its own pace: their speeds add up, less what averaging takes."""
        copies = [self._gang_cost(job, (copy,)) for copy in allocation]
        speeds = [1 / copy.slowdown for copy in copies]
        waiting = fsum(speed * copy.exposed for speed, copy in zip(speeds, copies, strict=True))
        training = 1.0  # the part of a slot that averaging leaves
        if self.averaging is not None:
            profile = self._profile(job.model, job.gpu_type or "")
            model_bytes = profile.model.grad_bytes if profile else None
            uplinks = [self.topology.level_domains[0][machine].uplink for machine, _ in allocation]
            bandwidths = [link.bandwidth_bps for link in uplinks if link is not None]
            slowest_bps = min(bandwidths, default=float("inf"))
            training = self.averaging.left(len(copies), model_bytes, slowest_bps)
        return Cost(
            slowdown=1 / fsum(speeds) / training,
            exposed=waiting / fsum(speeds),
            extrapolated=any(copy.extrapolated for copy in copies),
        )

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
        gpus = gpus_of(job, allocation)
        if gpus == job.gpus == len(self.topology.gpu_types) == 1:
            return _ALONE
        if job.plan is not None and self.plan_gap(job) == "":
            return self._plan_cost(job, allocation)
        if (measured := self._reported_speeds(job)) is not None:
            return self._reported_cost(job, measured, allocation)
        if not job.model or self.profiles is None:
            return self._assumed(job, gpus, self._place(allocation), job.gpus / gpus)
        batch = self._local_batch(job, gpus)
        spread = self.spread(job, allocation)
        key = job.model, job.gang, spread, batch
        known = self._costs.get(key)  # one look-up: hashing the spread takes most of it
        if known is None:
            known = self._costs[key] = self._compare(job, spread, batch)
        return known

    def _plan_cost(self, job: Job, allocation: Allocation) -> Cost:
        plan = self.plan_key(job, allocation)
        key = *plan, job.gang
        if key not in self._plan_costs:
            self._plan_costs[key] = self._relative(job, self._predict_plan(plan))
        return self._plan_costs[key]

    def _learning_cost(self, job: Job, allocation: Allocation, learning: Learning, number: int) -> Cost:
        """The cost with the best of the batches that the job may have there, in a phase of its training."""
        if (measured := self._reported_speeds(job)) is not None:
            return self._reported_cost(job, measured, allocation, learning)
        # Samples of an iteration on the GPUs asked for; as many as GPUs where nobody knows.
        own = job.batch or job.gpus * (self._profile_batch(job) or 1)
        spread = self.spread(job, allocation)
        key = job.model, job.gang, own, spread, number
        # A curve that the job itself reports is its own, and changes: nothing is remembered of it.
        reported = (said := self.reported.get(job.job_id)) is not None and said.learning is learning
        if not reported and (known := self._learning_costs.get(key)) is not None:
            return known
        gpus = spread.shape.gpus
        worth = own * mean_efficiency(learning, own)
        best = min(
            (
                self._compare(
                    job,
                    spread,
                    batch / own * self._local_batch(job, gpus),
                    worth / batch / efficiency(learning, batch, number),
                )
                for batch in batches(learning, self.batching, own, job.gpus, gpus)
            ),
            key=lambda cost: cost.slowdown,
        )
        if not reported:
            self._learning_costs[key] = best
        return best

    def _reported_speeds(self, job: Job) -> ReportedSpeeds | None:
        """What a job without a profile says of its speed; None if it has a profile, or says nothing."""
        said = self.reported.get(job.job_id)
        return None if said is None or not said.curves or self.knows(job) else said

    def _reported_cost(
        self, job: Job, said: ReportedSpeeds, allocation: Allocation, learning: Learning | None = None
    ) -> Cost:
        """The cost as a job's own reports have it; what distance costs it is still assumed."""
        gpus, types = gpus_of(job, allocation), self.topology.shape(allocation).gpu_types
        on = job, self._idle.accepted(job), types, gpus
        slowdown = (
            said.slowdown(*on) if learning is None else said.learning_slowdown(*on, learning, self.batching)
        )
        return self._assumed(job, gpus, self._place(allocation), slowdown)

    def type_speeds(self, job: Job) -> Mapping[str, float]:
        """The speed of a job's gang on each GPU type that alone can hold it and that it accepts.

        Relative to its best placement, at the closest one of that type on the idle cluster, so the fastest
        type has 1; 1 for all without a profile. Empty if no type alone holds the gang.
        """
        key = *self.group(job), job.gang
        reported = self._reported_speeds(job) is not None
        if not reported and key in self._type_speeds:
            return self._type_speeds[key]
        closest = {gpu_type: self._idle.closest(job.gang, gpu_type) for gpu_type in self._idle.accepted(job)}
        speeds = {
            gpu_type: 1 / self._gang_cost(job, allocation).slowdown
            for gpu_type, allocation in closest.items()
            if allocation is not None
        }
        if not reported:
            self._type_speeds[key] = speeds
        return speeds

    def worker_speeds(self, job: Job) -> Mapping[str, float]:
        """The speed of one GPU of each type that a job accepts, relative to the fastest; compute alone.

        1 for types without a profile of the model.
        """
        if self.plan_gap(job) == "":
            return self._relative_speeds(job, self._plan_compute_s(job))
        key = job.model, job.gpu_type, self.believer(job)
        if key not in self._worker_speeds:
            reference = self._profile_batch(job)
            profiles = {
                gpu_type: self._profile(job.model, gpu_type, reference)
                for gpu_type in self._idle.accepted(job)
            }
            compute_s = {
                gpu_type: compute_pass(profile, batch_factor(profile, 1.0, reference)).total_s
                * (1.0 if self.error is None else self.error.pace(job.model, gpu_type))
                * (1.0 if self.learnt is None else self.learnt.pace((job.model, gpu_type, job.user)))
                for gpu_type, profile in profiles.items()
                if profile is not None
            }
            self._worker_speeds[key] = self._relative_speeds(job, compute_s)
        return self._worker_speeds[key]

    def _plan_compute_s(self, job: Job) -> Mapping[str, float]:
        """Seconds that a step of a job's plan computes on each GPU type that it accepts."""
        assert job.plan is not None, "it goes by its plan"
        return {
            gpu_type: plan_compute_s(job.model, job.plan, job.batch or 0, gpu_type)
            * (1.0 if self.error is None else self.error.pace(job.model, gpu_type))
            * (
                1.0
                if self.learnt is None
                else self.learnt.pace(plan_pool(job.model, job.plan, gpu_type, job.user))
            )
            for gpu_type in self._idle.accepted(job)
        }

    def _relative_speeds(self, job: Job, compute_s: Mapping[str, float]) -> Mapping[str, float]:
        """1 for the fastest of the types that a job accepts, and for those of which nothing is known."""
        least_s = min(compute_s.values(), default=1.0)
        return {gpu_type: least_s / compute_s.get(gpu_type, least_s) for gpu_type in self._idle.accepted(job)}

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
        without = {model for (model, *_), known in self._predictions.items() if known is None}
        used = {(model, name) for model, spread, *_ in self._predictions for name in spread.shape.gpu_types}
        return Predictions(
            modes=tuple(self.profiles.modes) if self.profiles else (),
            models_without_profile=tuple(sorted(without)),
            shapes=len(self._costs) + len(self._plan_costs),
            extrapolated_shapes=sum(cost.extrapolated for cost in self._costs.values())
            + len(self._plan_costs),
            stand_ins=self.profiles.stand_ins(used) if self.profiles is not None else (),
            models_by_plan=tuple(sorted({model for model, *_ in self._plan_costs})),
            plan_gaps=tuple(sorted(f"{model}: {why}" for model, why in self._plan_gaps)),
        )

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
            profile = self._restarts_as._profile(job.model, job.gpu_type or "")
            restart = Restart() if profile is None else profile.restart
            if self.every_restart_s is not None:
                restart = replace(restart, base_s=self.every_restart_s, per_gpu_s=0.0)
            self._restarts[key] = restart
        return self._restarts[key]

    def _compare(self, job: Job, spread: GangSpread, batch: float, worth: float = 1.0) -> Cost:
        """The cost of GPUs with `batch` times their profile's batch; `worth` iterations count as one."""
        prediction = self._predict(job, spread, batch)
        if prediction is None:
            shape = spread.shape
            return self._assumed(job, shape.gpus, (shape.level, len(shape.machines)), batch * worth)
        return self._relative(job, prediction, worth)

    def _place(self, allocation: Allocation) -> tuple[int, int]:
        """Level and machines of an allocation."""
        return self.topology.level_of(allocation), len(allocation)

    def _assumed(self, job: Job, gpus: int, place: tuple[int, int], batch: float) -> Cost:
        """The cost where no profile says what distance costs: see `_far`.

        Args:
            job: The job.
            gpus: That it has.
            place: Level and machines of its placement.
            batch: How many times as long as asked for it takes where it is close together; as far as nothing
                is known of that, either, as many times as its local batch is larger.
        """
        level, machines = place
        slowdown = self._far(job, gpus, level, machines)
        if self.learnt is not None:
            slowdown = 1 + (slowdown - 1) * self.learnt.waiting(unknown_pool(job, gpus), level)
        if slowdown == 1.0:
            return _UNKNOWN if batch == 1.0 else replace(_UNKNOWN, slowdown=batch)
        return Cost(batch * slowdown, exposed=1 - 1 / slowdown, extrapolated=True)

    def _relative(self, job: Job, prediction: Prediction, worth: float = 1.0) -> Cost:
        """An iteration against that of the best placement."""
        plan = None if job.plan is None else (job.plan, job.batch)
        key = job.model, job.gang, self._local_batch(job, job.gpus), plan, self.believer(job)
        if key not in self._best_s:
            best = [self.prediction(job, place) for place in self._idle.best_placements(job.gang)]
            self._best_s[key] = min(other.iteration_s for other in best if other is not None)
        return Cost(
            slowdown=worth * prediction.iteration_s / self._best_s[key],
            exposed=prediction.exposed_s / prediction.iteration_s,
            extrapolated=prediction.extrapolated,
        )
