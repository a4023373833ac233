"""Jobs as in the artifact of ONES: its mix, its throughputs, its passes over the data, drawn for each job.

Facts from kurisusnowdeng/ones_sc21: `traces/trace_1.csv` (400 jobs: kinds in equal shares in random order,
gaps uniform from 0 to 60 s), `traces/job_history.csv` (20 jobs that ended: passes, samples a second).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from random import Random
from statistics import fmean

from dally.errors import InputError
from dally.jobs.job import Job, JobKind
from dally.profiles.files import ProfileSet

GAP_S = 30.0
GPUS = 64
"""Mean gap between arrivals and GPUs of the artifact's run."""
LOAD = 1.1
"""GPU-seconds that jobs need on what they ask for, over those that the cluster has while they arrive."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Jobs that differ only in passes and throughput.

    Attributes:
        model: Of the profiles, that stands for those of the artifact.
        epoch_samples: Samples of one pass.
        gpus: That they ask for.
        epochs: Passes in the mean.
        spread: Standard deviation of the passes over their mean.
        rates: Samples a second on the GPUs asked for, of the artifact's ended jobs, medians over passes.
    """

    model: str
    epoch_samples: int
    gpus: int
    epochs: float
    spread: float
    rates: Sequence[float]


_IMAGENET = (16, 47.0, 0.49, (3411.0, 2766.0, 1980.0, 1610.0, 1133.0, 1750.0, 973.0, 1476.0))
_CIFAR = (4, 36.0, 0.44, (10925.0, 16189.0, 11438.0, 13516.0, 9952.0, 2818.0, 2744.0))
_BERT_2, _BERT_8 = (2, 5.0, 0.1, (102.0,)), (8, 5.0, 0.1, (432.0,))
KINDS = (
    *repeat(Kind("imagenet", 10_000, *_IMAGENET), 4),
    *repeat(Kind("imagenet", 20_000, *_IMAGENET), 4),
    *repeat(Kind("cifar10", 20_000, *_CIFAR), 3),
    *repeat(Kind("cifar10", 40_000, *_CIFAR), 3),
    *repeat(Kind("bert", 3_600, *_BERT_2), 2),
    Kind("bert", 5_000, *_BERT_2),
    Kind("bert", 8_000, *_BERT_2),
    Kind("bert", 10_000, *_BERT_8),
    Kind("bert", 20_000, *_BERT_8),
)
"""Equally frequent."""


def mean_gpu_s() -> float:
    """GPU-seconds of a job in the mean, at the throughputs of the artifact's job history."""
    return fmean(
        kind.gpus * kind.epochs * kind.epoch_samples * fmean(1 / rate for rate in kind.rates)
        for kind in KINDS
    )


def draw_artifact_jobs(
    count: int, gpus: int, load: float, seed: int, profiles: ProfileSet
) -> tuple[Job, ...]:
    """Elastic jobs of 1 GPU up to the cluster, with the batch on each GPU that their model was tuned for.

    Passes are gamma distributed, whole, at least one. Running times are those of the artifact's job history
    over a factor that makes the load; arrivals are as much rarer as the cluster is smaller than 64 GPUs.

    Args:
        count: Jobs.
        gpus: Of the cluster.
        load: What they ask for, over what there is.
        seed: Of the draws.
        profiles: Of the models.

    Raises:
        InputError: The profiles lack one of the models, or a job asks for more GPUs than there are.
    """
    rng, submit_s, jobs = Random(f"{seed}:ones-artifact"), 0.0, list[Job]()
    faster = mean_gpu_s() / (load * GAP_S * GPUS)
    kinds = list(chain.from_iterable(repeat(KINDS, -(-count // len(KINDS)))))
    rng.shuffle(kinds)
    for number, kind in enumerate(kinds[:count]):
        submit_s += rng.uniform(0, 2 * GAP_S * GPUS / gpus)
        shape = kind.spread**-2
        epochs = max(1, round(rng.gammavariate(shape, kind.epochs / shape)))
        duration_s = epochs * kind.epoch_samples / rng.choice(kind.rates) / faster
        jobs.append(_job(f"{kind.model}-{number}", submit_s, kind, epochs, duration_s, gpus, profiles))
    return tuple(jobs)


def linear(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """The same jobs of unknown models, so that they run in proportion to their GPUs, wherever these are."""
    return tuple(replace(job, model="", batch=None) for job in jobs)


def _job(
    name: str, submit_s: float, kind: Kind, epochs: int, duration_s: float, most: int, profiles: ProfileSet
) -> Job:
    profile = profiles.find(kind.model, None)
    if profile is None or profile.learning is None:
        raise InputError(f"profiles {profiles.name} do not say how {kind.model} trains")
    if kind.gpus > most:
        raise InputError(f"{most} GPUs are too few: jobs of {kind.model} ask for {kind.gpus}")
    return Job(
        name,
        submit_s,
        kind.gpus,
        duration_s,
        group=kind.model,
        model=kind.model,
        batch=profile.learning.batch * kind.gpus,
        kind=JobKind.ELASTIC,
        min_gpus=1,
        max_gpus=most,
        epochs=epochs,
        epoch_samples=kind.epoch_samples,
    )
