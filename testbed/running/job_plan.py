"""The jobs of a run: each job of a trace becomes so many steps of training, as long as the trace says."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from dally.bounds import check_number
from dally.cluster.free import FreeGpus
from dally.cluster.topology import Topology
from dally.errors import InputError
from dally.jobs.job import Job
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet
from workloads.registry import WORKLOADS
from workloads.settings import Precision

_LIMIT_FACTOR = 10.0
"""A job's time limit, over its duration at the best placement, where the trace gives none."""

_LEAST_LIMIT_S = 300.0
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What one job trains.

    Attributes:
        job: The job; its `duration_s` is just what its steps take at the best placement, its time limit what
            Slurm is told, full minutes.
        steps: Iterations.
        iteration_s: Predicted for one iteration at the best placement.
        compute_s: Of it, what does not wait for the network; on the fastest GPU type that it accepts.
        local_batch: Samples of each GPU in an iteration.
        precision: Of the passes, as its profile was measured.
    """

    job: Job
    steps: int
    iteration_s: float
    compute_s: float
    local_batch: int
    precision: Precision

    @property
    def global_batch(self) -> int:
        """Samples of an iteration: of all GPUs that it asks for, of one copy if it is forked."""
        return self.local_batch * self.job.gpus


def plan_jobs(
    jobs: Iterable[Job], topology: Topology, profiles: ProfileSet, duration_scale: float = 1.0
) -> tuple[JobPlan, ...]:
    """What each job trains, and for how many steps.

    Raises:
        InputError: A job names no model that can be trained and has a profile.
        CapacityError: The cluster is too small for a job.
    """
    check_number("duration scale", duration_scale)
    costs = CostModel(topology, profiles)
    return tuple(_plan(job, costs, profiles, duration_scale) for job in jobs)


def _plan(job: Job, costs: CostModel, profiles: ProfileSet, scale: float) -> JobPlan:
    if job.model not in WORKLOADS:
        named = f"names the model {job.model}" if job.model else "names no model"
        raise InputError(f"job {job.job_id} {named}; a job must train one of {', '.join(WORKLOADS)}")
    accepted = [job.gpu_type] if job.gpu_type else costs.topology.gpu_types
    known = [profile for gpu_type in accepted if (profile := profiles.find(job.model, gpu_type)) is not None]
    if not known:
        raise InputError(
            f"job {job.job_id} trains {job.model}, of which {profiles.name} has no profile; "
            f"it has {', '.join(profiles.models)}"
        )
    profile = min(known, key=lambda profile: profile.compute.total_s)
    # An iteration at the best placement: of any placement on the idle cluster, by how much slower it is.
    allocation = FreeGpus(costs.topology).find(job.gang, costs.best_level(job.gang))
    assert allocation is not None, "this level holds the gang"
    prediction = costs.prediction(job, allocation)
    assert prediction is not None, "it has a profile"
    iteration_s = prediction.iteration_s / costs.cost(job, allocation).slowdown
    steps = max(1, round(job.duration_s * scale / iteration_s))
    batch = profile.model.local_batch or WORKLOADS[job.model].local_batch
    duration_s = steps * iteration_s
    limit_s = job.time_limit_s or max(_LEAST_LIMIT_S, _LIMIT_FACTOR * duration_s)
    limit_s = math.ceil(limit_s / _MINUTE_S) * _MINUTE_S
    done = replace(job, duration_s=duration_s, time_limit_s=limit_s)
    precision = profile.model.precision or Precision.FP32
    if precision not in [*Precision]:
        valid = ", ".join(Precision)
        raise InputError(
            f"job {job.job_id} trains {job.model} in {precision}, as its profile; valid: {valid}"
        )
    return JobPlan(done, steps, iteration_s, profile.compute.total_s, batch, Precision(precision))
