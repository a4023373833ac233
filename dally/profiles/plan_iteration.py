"""The iteration of a job that says how it trains: from its plan, its model and where its ranks are."""

from dataclasses import replace
from functools import lru_cache
from math import fsum

from dally.errors import InputError
from dally.jobs.parallelism import Axis
from dally.jobs.training_plan import TrainingPlan
from dally.profiles.gpu_types import slurm_type
from dally.profiles.iteration import Prediction
from dally.profiles.parallel.gpu_specs import gpu_spec
from dally.profiles.parallel.rank_placement import RankPlacement
from dally.profiles.parallel.training_step import BatchSizes, TrainingStep
from dally.profiles.parallel.transformer import read_model

_REMEMBERED = 4096
"""Steps that are remembered."""

_NOTE = "from its plan, data sheets and published steps"
_AXES = frozenset(axis.value for axis in Axis)


@lru_cache(_REMEMBERED)
def plan_gap(model: str, plan: TrainingPlan, batch: int, gpu_type: str) -> str:
    """Why a plan does not tell how long a step takes on a GPU type, in one line; empty if it does."""
    try:
        spec = gpu_spec(slurm_type(gpu_type))
        TrainingStep(
            read_model(model), plan.parallelism, _sizes(plan, batch), spec, (plan.gpus,), plan.precision
        )
    except InputError as error:
        return str(error)
    return ""


@lru_cache(_REMEMBERED)
def training_step(
    model: str, plan: TrainingPlan, batch: int, gpu_type: str, placement: RankPlacement
) -> TrainingStep:
    """The step of a plan whose ranks are there, over the cluster's own links.

    Raises:
        InputError: Model or GPU type are not known, or the plan does not fit them.
    """
    spec = replace(gpu_spec(slurm_type(gpu_type)), domain_bytes_per_s=placement.inside_bytes_per_s)
    return TrainingStep(
        read_model(model),
        plan.parallelism,
        _sizes(plan, batch),
        spec,
        placement.machines,
        plan.precision,
        links=placement.links,
    )


@lru_cache(_REMEMBERED)
def plan_compute_s(model: str, plan: TrainingPlan, batch: int, gpu_type: str) -> float:
    """Seconds that a step computes on a GPU type: on one machine, less what communication takes.

    Raises:
        InputError: As for `training_step`.
    """
    inside = gpu_spec(slurm_type(gpu_type)).domain_bytes_per_s
    alone = RankPlacement((plan.gpus,), (gpu_type,), inside, (), 0)
    step = predict_by_plan(training_step(model, plan, batch, gpu_type, alone))
    return step.iteration_s - step.exposed_s


def predict_by_plan(step: TrainingStep, lowest: int = 0, stretch: float = 1.0) -> Prediction:
    """The iteration that a step is.

    Args:
        step: The step.
        lowest: The cluster's level of the first of its links.
        stretch: How many times as long what leaves machines takes because others share the links.
    """
    constants = step.gpu.constants
    if stretch != 1.0:
        constants = replace(constants, network=constants.network / stretch)
    phases, traffic = step.phases(constants), [*step.traffic(constants).values()]
    iteration_s = fsum(phase.seconds for phase in phases)
    sent = zip(*(each.sent for each in traffic), strict=True)
    return Prediction(
        iteration_s=iteration_s,
        exposed_s=fsum(phase.seconds for phase in phases if phase.name in _AXES),
        comm_s=min(fsum(each.seconds for each in traffic), iteration_s),
        reduced_bytes=None,
        method="plan",
        extrapolated=True,
        note=_NOTE,
        sent_bytes=(*[0.0] * lowest, *map(fsum, sent)),
    )


def _sizes(plan: TrainingPlan, batch: int) -> BatchSizes:
    return BatchSizes(batch, plan.micro_batch, plan.sequence)
