"""Draws a model for each job that names none, by a stated, seeded mix."""

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate

from dally.bounds import LEAST, MOST
from dally.errors import InputError
from dally.jobs.job import Job
from dally.traces.workload import changed, remade


@dataclass(frozen=True, slots=True)
class ModelMix:
    """Models and their shares.

    Attributes:
        names: The models, in alphabetical order, so that the order of the text decides nothing.
        bounds: Upper bound of each model's part of 0..1; the last is 1.
    """

    names: tuple[str, ...]
    bounds: tuple[float, ...]


def parse_mix(text: str) -> ModelMix:
    """Read a mix like `resnet50=0.3,bert-large=0.2`; weights are divided by their sum.

    Raises:
        InputError: An entry is no `model=weight`, a weight is not positive, or a model is given twice.
    """
    weights: dict[str, float] = {}
    for item in text.split(","):
        name, equals, weight_text = (part.strip() for part in item.rpartition("=")[:3])
        if not (name and equals):
            raise InputError(f"model mix: {item!r} must be like resnet50=0.3")
        if name in weights:
            raise InputError(f"model mix: {name} is given twice")
        try:
            weights[name] = float(weight_text)
        except ValueError:
            weights[name] = 0.0
        if not LEAST <= weights[name] <= MOST:
            raise InputError(f"model mix: weight of {name} is {weight_text!r}, must be a positive number")
    names = sorted(weights)
    sums = list(accumulate(weights[name] for name in names))
    return ModelMix(tuple(names), tuple(total / sums[-1] for total in sums))


def assign_models(jobs: Sequence[Job], mix: ModelMix | str, seed: int = 0) -> Sequence[Job]:
    """Give each job without a model one from the mix.

    The draw is a hash of seed and job id alone, so a job keeps its model whatever other jobs there are.

    Args:
        jobs: The jobs; those that name a model are kept as they are.
        mix: The mix, or its text for `parse_mix`.
        seed: Seed of the draws.

    Raises:
        InputError: The mix's text is wrong.
    """
    parsed = parse_mix(mix) if isinstance(mix, str) else mix

    def with_model(job: Job) -> Job:
        if job.model:
            return job
        digest = blake2b(f"{seed}:{job.job_id}".encode(), digest_size=8).digest()
        share = (int.from_bytes(digest) >> 11) / 2**53  # 53 bits: a number in 0..1, the same in every Python
        return remade(job, "model", parsed.names[bisect(parsed.bounds, share)])

    return changed(jobs, with_model)
