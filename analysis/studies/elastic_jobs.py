"""Jobs for the studies of elastic training: Pollux's, those of ONES's artifact, and random ones."""

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path
from random import Random
from statistics import fmean

from dally.cluster.free import FreeGpus
from dally.errors import InputError
from dally.jobs.job import Job, JobKind
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet, load_profiles
from dally.profiles.goodput import mean_efficiency
from dally.profiles.schema import Restart

CLUSTER = "pollux-64"
GPUS = 64
"""GPUs of Pollux's cluster and of the artifact's run: the most that an elastic job can use."""

COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")
WITHOUT_TABLES: Mapping[str, float] = {"ncf": 100.0}
"""Applications that are one GPU for so many seconds: Pollux's published runs of ncf took 78 to 137 s."""
REALLOCATION_S = 30.0
"""What each start and each change of GPUs costs in Pollux's simulator (`rescale_time`)."""

STAND_INS = ("cifar10", "imagenet", "bert")
"""Models of the set that stand for ONES's: on subsets of CIFAR-10 and ImageNet, and BERT."""
SIZES = (1, 2, 4, 8)
SHORTEST_S, LONGEST_S = 60.0, 1200.0

EPOCHS: Mapping[str, int] = {"cifar10": 36, "imagenet": 47, "bert": 5}
"""Passes over its data until a job of ONES's ends: medians by task in the job history of its artifact."""
COMPANIONS_S = 0.4
"""What a resize through companions stands still for: docs/elastic-training.md has 0.1 to 0.4 s."""
GAP_S = 30.0
"""Mean gap between arrivals in the artifact's run."""
LOAD = 1.1
"""GPU-seconds that jobs need on what they ask for, over those that the cluster has while they arrive."""


def pollux_profiles() -> ProfileSet:
    """The set `pollux`, with the costs of Pollux's simulator for a start, a restart and a resize."""
    shipped = load_profiles("pollux")
    each = Restart(REALLOCATION_S, 0.0, first_s=REALLOCATION_S, resize_s=REALLOCATION_S)
    return replace(shipped, profiles=tuple(replace(profile, restart=each) for profile in shipped.profiles))


def ones_profiles() -> ProfileSet:
    """The set `pollux`, in which a training is as many epochs as ONES's jobs on subsets of the data."""
    shipped = load_profiles("pollux")
    profiles = [
        replace(each, learning=replace(each.learning, epochs=EPOCHS[each.model.name]))
        if each.learning and each.model.name in EPOCHS
        else each
        for each in shipped.profiles
    ]
    return replace(shipped, profiles=tuple(profiles))


def artifact_profiles() -> ProfileSet:
    """The set of `ones_profiles`, in which a resize costs what it does with companions (measured)."""
    given = ones_profiles()
    profiles = [
        replace(each, restart=replace(each.restart, resize_s=COMPANIONS_S)) for each in given.profiles
    ]
    return replace(given, profiles=tuple(profiles))


def elastic_job(
    name: str, submit_s: float, model: str, gpus: int, batch: int, duration_s: float, most: int = GPUS
) -> Job:
    """A job that asks for some GPUs with a global batch, and runs on 1 to `most`."""
    return Job(
        name,
        submit_s,
        gpus,
        duration_s,
        group=model,
        model=model,
        batch=batch,
        kind=JobKind.ELASTIC,
        min_gpus=1,
        max_gpus=most,
    )


def _tuned_batch(model: str, profiles: ProfileSet) -> int:
    """The batch on each GPU that a model was tuned for."""
    profile = profiles.find(model, None)
    if profile is None or profile.learning is None:
        raise InputError(f"profiles {profiles.name} do not say how {model} trains")
    return profile.learning.batch


@dataclass(frozen=True, slots=True)
class PolluxWorkload:
    """Jobs by submission, and how many of which applications were left out as no table of theirs is known."""

    jobs: tuple[Job, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)


def read_workload(path: Path, costs: CostModel) -> PolluxWorkload:
    """Read a workload file of Pollux's simulator.

    Elastic jobs of 1 to 64 GPUs that ask for `num_replicas` of them and a global batch of `batch_size`.

    Args:
        path: CSV with a header: name, time (s), application, num_replicas, batch_size.
        costs: Of the cluster, with profiles of the applications.

    Raises:
        InputError: It cannot be read, or a row is wrong; the message names the line.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read workload {path}: {error}") from error
    if not rows:
        raise InputError(f"workload {path} has no jobs")
    jobs: list[Job] = []
    left_out: Counter[str] = Counter()
    for number, row in rows:
        try:
            job = _pollux_job(row, costs)
        except (KeyError, TypeError, ValueError, InputError) as error:
            raise InputError(f"{path}:{number}: not a job of {', '.join(COLUMNS)}: {error}") from error
        if job is None:
            left_out[row["application"]] += 1
        else:
            jobs.append(job)
    return PolluxWorkload(tuple(sorted(jobs, key=lambda job: job.submit_s)), left_out)


def _pollux_job(row: Mapping[str, str], costs: CostModel) -> Job | None:
    """The job of a row, as long as all epochs take with its GPUs and batch at the best placement.

    Iterations = samples / mean efficiency of the batch / batch: a larger batch than that tuned for takes more
    samples. None if nothing is known of the application.
    """
    name, submit_s, application = row["name"], float(row["time"]), row["application"]
    if application in WITHOUT_TABLES:
        return Job(name, submit_s, 1, WITHOUT_TABLES[application], group=application)
    batch = int(row["batch_size"])
    job = elastic_job(name, submit_s, application, int(row["num_replicas"]), batch, 1.0)
    if (learning := costs.curve(job)) is None:
        return None
    place = FreeGpus(costs.topology).find(job.gang, costs.best_level(job.gang))
    predicted = None if place is None else costs.prediction(job, place)
    if predicted is None:
        raise InputError(f"job {job.job_id}: nothing is known of how model {job.model!r} trains")
    iterations = learning.samples / mean_efficiency(learning, batch) / batch
    return replace(job, duration_s=iterations * predicted.iteration_s)


def draw_jobs(count: int, gap_s: float, seed: int, profiles: ProfileSet) -> tuple[Job, ...]:
    """Random elastic jobs that arrive by a Poisson process.

    A job trains one of `STAND_INS` on 1, 2, 4 or 8 GPUs with the batch it was tuned for on each, on as much
    data as takes 1 to 20 minutes there (log-uniform): what ONES's papers do not say of theirs.

    Args:
        count: Jobs.
        gap_s: Mean seconds between arrivals.
        seed: Of the draws.
        profiles: Of the models.

    Raises:
        InputError: The profiles lack one of the models.
    """
    rng, submit_s = Random(f"{seed}:ones"), 0.0
    jobs: list[Job] = []
    for number in range(count):
        submit_s += rng.expovariate(1 / gap_s)
        model, gpus = rng.choice(STAND_INS), rng.choice(SIZES)
        duration_s = SHORTEST_S * (LONGEST_S / SHORTEST_S) ** rng.random()
        batch = _tuned_batch(model, profiles) * gpus
        jobs.append(elastic_job(f"{model}-{number}", submit_s, model, gpus, batch, duration_s))
    return tuple(jobs)


# Jobs as in the artifact of ONES, kurisusnowdeng/ones_sc21: `traces/trace_1.csv` (400 jobs: kinds in equal
# shares in random order, gaps uniform from 0 to 60 s) and `traces/job_history.csv` (20 jobs that ended:
# passes, samples a second).


@dataclass(frozen=True, slots=True)
class ArtifactKind:
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
    *repeat(ArtifactKind("imagenet", 10_000, *_IMAGENET), 4),
    *repeat(ArtifactKind("imagenet", 20_000, *_IMAGENET), 4),
    *repeat(ArtifactKind("cifar10", 20_000, *_CIFAR), 3),
    *repeat(ArtifactKind("cifar10", 40_000, *_CIFAR), 3),
    *repeat(ArtifactKind("bert", 3_600, *_BERT_2), 2),
    ArtifactKind("bert", 5_000, *_BERT_2),
    ArtifactKind("bert", 8_000, *_BERT_2),
    ArtifactKind("bert", 10_000, *_BERT_8),
    ArtifactKind("bert", 20_000, *_BERT_8),
)
"""Equally frequent."""


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
    mean_gpu_s = fmean(
        kind.gpus * kind.epochs * kind.epoch_samples * fmean(1 / rate for rate in kind.rates)
        for kind in KINDS
    )
    faster = mean_gpu_s / (load * GAP_S * GPUS)
    kinds = [*KINDS] * -(-count // len(KINDS))
    rng.shuffle(kinds)
    for number, kind in enumerate(kinds[:count]):
        submit_s += rng.uniform(0, 2 * GAP_S * GPUS / gpus)
        shape = kind.spread**-2
        epochs = max(1, round(rng.gammavariate(shape, kind.epochs / shape)))
        duration_s = epochs * kind.epoch_samples / rng.choice(kind.rates) / faster
        batch = _tuned_batch(kind.model, profiles) * kind.gpus
        if kind.gpus > gpus:
            raise InputError(f"{gpus} GPUs are too few: jobs of {kind.model} ask for {kind.gpus}")
        name = f"{kind.model}-{number}"
        job = elastic_job(name, submit_s, kind.model, kind.gpus, batch, duration_s, gpus)
        jobs.append(replace(job, epochs=epochs, epoch_samples=kind.epoch_samples))
    return tuple(jobs)


def linear(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """The same jobs of unknown models, so that they run in proportion to their GPUs, wherever these are."""
    return tuple(replace(job, model="", batch=None) for job in jobs)
