"""Workloads for elastic training: Pollux's eight, and random ones of the size that ONES was shown on."""

import csv
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from dally.cluster.free import FreeGpus
from dally.errors import InputError
from dally.jobs.job import Job, JobKind
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet, load_profiles
from dally.profiles.goodput import mean_efficiency
from dally.profiles.schema import Restart

COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")
MOST_GPUS = 64
"""That any elastic job can use: all of the cluster."""
WITHOUT_TABLES: Mapping[str, float] = {"ncf": 100.0}
"""Applications that are one GPU for so many seconds: Pollux's published runs of ncf took 78 to 137 s."""
REALLOCATION_S = 30.0
"""What each start and each change of GPUs costs in Pollux's simulator (`rescale_time`)."""

STAND_INS = ("cifar10", "imagenet", "bert")
"""Models of the set that stand for ONES's: on subsets of CIFAR-10 and ImageNet, and BERT."""
SIZES = (1, 2, 4, 8)
SHORTEST_S, LONGEST_S = 60.0, 1200.0


@dataclass(frozen=True, slots=True)
class PolluxWorkload:
    """Jobs by submission, and how many of which applications were left out as no table of theirs is known."""

    jobs: tuple[Job, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)


def pollux_profiles(reallocation_s: float = REALLOCATION_S) -> ProfileSet:
    """The set `pollux`, in which a start, a restart and a resize each cost so many seconds."""
    shipped = load_profiles("pollux")
    each = Restart(reallocation_s, 0.0, first_s=reallocation_s, resize_s=reallocation_s)
    return replace(shipped, profiles=tuple(replace(profile, restart=each) for profile in shipped.profiles))


def read_workload(path: Path, costs: CostModel) -> PolluxWorkload:
    """Read a workload file of Pollux's simulator.

    Elastic jobs of 1 to 64 GPUs that ask for `num_replicas` of them and a global batch of `batch_size`.

    Args:
        path: CSV with a header: name, time (s), application, num_replicas, batch_size.
        costs: Of the cluster, with profiles of the applications.

    Raises:
        InputError: It cannot be read, or a row is wrong; the message names the line.
    """
    jobs: list[Job] = []
    left_out: Counter[str] = Counter()
    for number, row in _read_rows(path):
        try:
            job = _job(row, costs)
        except (KeyError, TypeError, ValueError, InputError) as error:
            raise InputError(f"{path}:{number}: not a job of {', '.join(COLUMNS)}: {error}") from error
        if job is None:
            left_out[row["application"]] += 1
        else:
            jobs.append(job)
    return PolluxWorkload(tuple(sorted(jobs, key=lambda job: job.submit_s)), left_out)


def _read_rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """The rows with their line numbers."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read workload {path}: {error}") from error
    if not rows:
        raise InputError(f"workload {path} has no jobs")
    return rows


def _job(row: Mapping[str, str], costs: CostModel) -> Job | None:
    """The job of a row; None if nothing is known of its application."""
    name, submit_s, application = row["name"], float(row["time"]), row["application"]
    if application in WITHOUT_TABLES:
        return Job(name, submit_s, 1, WITHOUT_TABLES[application], group=application)
    gpus, batch = int(row["num_replicas"]), int(row["batch_size"])
    job = _elastic(name, submit_s, application, gpus, batch, 1.0)
    if costs.curve(job) is None:
        return None
    return replace(job, duration_s=whole_training_s(job, costs))


def _elastic(name: str, submit_s: float, model: str, gpus: int, batch: int, duration_s: float) -> Job:
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
        max_gpus=MOST_GPUS,
    )


def whole_training_s(job: Job, costs: CostModel) -> float:
    """How long all epochs take with a job's own GPUs and batch at the best placement, seconds.

    Iterations = samples / mean efficiency of the batch / batch; a larger batch than that tuned for takes more
    samples.

    Raises:
        InputError: Its model has no profile that says how its training gets on, or no batch is given.
    """
    learning = costs.curve(job)
    free = FreeGpus(costs.topology)
    place = free.find(job.gang, costs.best_level(job.gang))
    predicted = None if place is None else costs.prediction(job, place)
    if learning is None or job.batch is None or predicted is None:
        raise InputError(f"job {job.job_id}: nothing is known of how model {job.model!r} trains")
    iterations = learning.samples / mean_efficiency(learning, job.batch) / job.batch
    return iterations * predicted.iteration_s


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
        jobs.append(_elastic(f"{model}-{number}", submit_s, model, gpus, batch, duration_s))
    return tuple(jobs)


def _tuned_batch(model: str, profiles: ProfileSet) -> int:
    profile = profiles.find(model, None)
    if profile is None or profile.learning is None:
        raise InputError(f"profiles {profiles.name} do not say how {model} trains")
    return profile.learning.batch
