"""What a placement costs a job: its slowdown and exposed communication, from the profiles."""

from dataclasses import dataclass, replace

from dally.errors import CapacityError
from dally.free import FreeGpus
from dally.job import Gang, Job
from dally.profiles.files import ProfileSet
from dally.profiles.iteration import Prediction, predict
from dally.profiles.schema import Profile, Restart
from dally.topology import Allocation, Shape, Topology


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one placement.

    Attributes:
        slowdown: Iteration time over that of the best placement of the same gang on the idle cluster.
        exposed: Share of the iteration that waits for the network, 0 to 1.
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
        models_without_profile: Models of gangs that were taken as insensitive to the network.
        shapes: Different placements of models that were predicted.
        extrapolated_shapes: Of these, how many lie outside of what was measured.
    """

    modes: tuple[str, ...]
    models_without_profile: tuple[str, ...]
    shapes: int
    extrapolated_shapes: int


_UNKNOWN = Cost(slowdown=1.0, exposed=0.0, extrapolated=True)
_ALONE = Cost(slowdown=1.0, exposed=0.0, extrapolated=False)


class CostModel:
    """Predicts what placements cost; remembers what it predicted.

    A job without a profile is taken as insensitive to the network, and marked extrapolated.

    Args:
        topology: The cluster.
        profiles: Profiles of the models; None for none.
    """

    def __init__(self, topology: Topology, profiles: ProfileSet | None = None) -> None:
        self.topology = topology
        self.profiles = profiles
        self._idle = FreeGpus(topology)
        kinds = {replace(machine, name=""): number for number, machine in enumerate(topology.machines)}
        self._kinds = [kinds[replace(machine, name="")] for machine in topology.machines]
        self._shapes: dict[tuple[int, int], Shape] = {}
        self._best_levels: dict[Gang, int] = {}
        self._costs: dict[tuple[str, Gang, Shape], Cost] = {}
        self._best_s: dict[tuple[str, Gang], float] = {}
        self._restarts: dict[tuple[str, str | None], Restart] = {}
        self._predictions: dict[tuple[str, Shape], Prediction | None] = {}

    def best_level(self, gang: Gang) -> int:
        """The lowest level at which one domain of the idle cluster holds such a gang.

        Raises:
            CapacityError: The whole cluster has too few such GPUs, or too few machines with so many each.
        """
        if gang not in self._best_levels:
            level = self._idle.lowest_level(gang)
            if level is None:
                raise CapacityError(self._too_large(gang))
            self._best_levels[gang] = level
        return self._best_levels[gang]

    def _too_large(self, gang: Gang) -> str:
        kind = f" of type {gang.gpu_type}" if gang.gpu_type else ""
        each = f", {gang.per_machine} on each machine," if gang.per_machine else ""
        return (
            f"a gang of {gang.gpus} GPUs{kind}{each} does not fit: cluster {self.topology.name} "
            f"has {self._idle.total(gang.gpu_type)}"
        )

    def cost(self, job: Job, allocation: Allocation) -> Cost:
        """The cost of running a job on an allocation."""
        if job.gpus == 1 and len(self.topology.gpu_types) == 1:
            return _ALONE
        if not job.model or self.profiles is None:
            return _UNKNOWN
        shape = self._shape(allocation)
        key = job.model, job.gang, shape
        if key not in self._costs:
            self._costs[key] = self._compare(job, shape)
        return self._costs[key]

    def report(self) -> Predictions:
        """What the predictions so far rest on."""
        return Predictions(
            modes=tuple(self.profiles.modes) if self.profiles else (),
            models_without_profile=tuple(
                sorted({model for (model, _), known in self._predictions.items() if known is None})
            ),
            shapes=len(self._costs),
            extrapolated_shapes=sum(cost.extrapolated for cost in self._costs.values()),
        )

    def prediction(self, job: Job, allocation: Allocation, stretch: float = 1.0) -> Prediction | None:
        """The iteration of a job on an allocation; None without a profile.

        Args:
            job: The job.
            allocation: Its GPUs.
            stretch: How many times as long its communication takes because others share its links.
        """
        return self._predict(job.model, self._shape(allocation), stretch) if job.model else None

    def stretched(self, job: Job, allocation: Allocation, stretch: float) -> Cost:
        """The cost of running a job with a profile where others stretch its communication."""
        prediction = self.prediction(job, allocation, stretch)
        return _UNKNOWN if prediction is None else self._relative(job, prediction)

    def restart_s(self, job: Job) -> float:
        """Seconds that a checkpoint and restart of the job cost."""
        return self._restart(job).cost_s(job.gpus)

    def launch_s(self, job: Job) -> float:
        """Seconds that the first start of the job costs."""
        return self._restart(job).first_cost_s(job.gpus)

    def _restart(self, job: Job) -> Restart:
        key = job.model, job.gpu_type
        if key not in self._restarts:
            profile = self._profile(job.model, job.gpu_type or "")
            self._restarts[key] = Restart() if profile is None else profile.restart
        return self._restarts[key]

    def _shape(self, allocation: Allocation) -> Shape:
        """The shape of an allocation; that of a gang on one machine is the same on each machine like it."""
        if len(allocation) > 1:
            return self.topology.shape(allocation)
        machine, gpus = allocation[0]
        key = self._kinds[machine], gpus
        if key not in self._shapes:
            self._shapes[key] = self.topology.shape(allocation)
        return self._shapes[key]

    def _profile(self, model: str, gpu_type: str) -> Profile | None:
        return self.profiles.find(model, gpu_type or None) if self.profiles and model else None

    def _compare(self, job: Job, shape: Shape) -> Cost:
        prediction = self._predict(job.model, shape)
        return _UNKNOWN if prediction is None else self._relative(job, prediction)

    def _relative(self, job: Job, prediction: Prediction) -> Cost:
        """An iteration against that of the best placement."""
        key = job.model, job.gang
        if key not in self._best_s:
            best = [self._predict(job.model, shape) for shape in self._best_shapes(job)]
            self._best_s[key] = min(other.iteration_s for other in best if other is not None)
        return Cost(
            slowdown=prediction.iteration_s / self._best_s[key],
            exposed=prediction.exposed_s / prediction.iteration_s,
            extrapolated=prediction.extrapolated,
        )

    def _best_shapes(self, job: Job) -> list[Shape]:
        """The closest placement of the job's gang on each GPU type it may use, else on all types mixed."""
        types = [job.gpu_type] if job.gpu_type else [*self.topology.gpu_types]
        found: list[Shape] = []
        for gpu_type in types:
            gang = job.gang._replace(gpu_type=gpu_type)
            level = self._idle.lowest_level(gang)
            allocation = None if level is None else self._idle.find(gang, level)
            if allocation is not None:
                found.append(self.topology.shape(allocation))
        if not found:
            allocation = self._idle.find(job.gang, self.best_level(job.gang))
            found = [] if allocation is None else [self.topology.shape(allocation)]
        return found

    def _predict(self, model: str, shape: Shape, stretch: float = 1.0) -> Prediction | None:
        """The iteration time of a gang; mixed types run at the slowest one's pace."""
        if stretch != 1.0:
            return self._slowest(model, shape, stretch)
        key = model, shape
        if key not in self._predictions:
            self._predictions[key] = self._slowest(model, shape)
        return self._predictions[key]

    def _slowest(self, model: str, shape: Shape, stretch: float = 1.0) -> Prediction | None:
        profiles = [self._profile(model, gpu_type) for gpu_type in shape.gpu_types]
        predictions = [predict(profile, shape, stretch) for profile in profiles if profile is not None]
        slowest = max(predictions, key=lambda prediction: prediction.iteration_s, default=None)
        return slowest if len(predictions) == len(profiles) else None
