"""The jobs of a run: each job of a trace becomes so many steps of training, as long as the trace says."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dally.costs import CostModel
from dally.errors import InputError
from dally.free import FreeGpus
from dally.job import Job, JobKind
from dally.profiles.files import ProfileSet
from dally.profiles.iteration import predict
from dally.profiles.schema import Profile
from dally.topology import Shape, Topology
from workloads.registry import WORKLOADS


@dataclass(frozen=True, slots=True)
class Work:
    """What one job trains.

    Attributes:
        job: The job; its `duration_s` is just what its steps take at the best placement.
        steps: Iterations.
        iteration_s: Predicted for one iteration at the best placement.
        compute_s: Of it, what does not wait for the network.
        local_batch: Samples of each GPU in an iteration.
    """

    job: Job
    steps: int
    iteration_s: float
    compute_s: float
    local_batch: int

    @property
    def global_batch(self) -> int:
        """Samples of an iteration, all GPUs together."""
        return self.local_batch * self.job.gpus


def plan_work(
    jobs: Iterable[Job], topology: Topology, profiles: ProfileSet, duration_scale: float = 1.0
) -> tuple[Work, ...]:
    """What each job trains, and for how many steps.

    Args:
        jobs: The jobs of a trace.
        topology: The cluster.
        profiles: One of each job's model.
        duration_scale: Factor on the jobs' durations.

    Raises:
        InputError: A job names no model that can be trained and has a profile, or is of no fixed size.
        CapacityError: The cluster is too small for a job.
    """
    if not 0 < duration_scale < float("inf"):
        raise InputError(f"duration scale is {duration_scale:g}, must be a positive number")
    costs = CostModel(topology)
    return tuple(_work(job, topology, costs, _profile(job, profiles), duration_scale) for job in jobs)


def _work(job: Job, topology: Topology, costs: CostModel, profile: Profile, scale: float) -> Work:
    if job.kind is not JobKind.RIGID:
        raise InputError(f"job {job.job_id} is {job.kind}; only rigid jobs can be run")
    costs.best_level(job.gang)
    iteration_s = min(predict(profile, shape).iteration_s for shape in _best_shapes(job, topology))
    steps = max(1, round(job.duration_s * scale / iteration_s))
    batch = profile.model.local_batch or WORKLOADS[job.model].local_batch
    done = replace(job, duration_s=steps * iteration_s)
    return Work(done, steps, iteration_s, profile.compute.total_s, batch)


def _profile(job: Job, profiles: ProfileSet) -> Profile:
    if job.model not in WORKLOADS:
        named = f"names the model {job.model}" if job.model else "names no model"
        raise InputError(f"job {job.job_id} {named}; a job must train one of {', '.join(WORKLOADS)}")
    profile = profiles.find(job.model, job.gpu_type)
    if profile is None:
        raise InputError(
            f"job {job.job_id} trains {job.model}, of which {profiles.name} has no profile; "
            f"it has {', '.join(profiles.models)}"
        )
    return profile


def _best_shapes(job: Job, topology: Topology) -> Sequence[Shape]:
    """The closest placement of the job's gang on the idle cluster, for each GPU type that it may use."""
    idle = FreeGpus(topology)
    shapes = []
    for gpu_type in [job.gpu_type] if job.gpu_type else [*topology.gpu_types, None]:
        gang = job.gang._replace(gpu_type=gpu_type)
        level = idle.lowest_level(gang)
        allocation = None if level is None else idle.find(gang, level)
        if allocation is not None:
            shapes.append(topology.shape(allocation))
    return shapes
