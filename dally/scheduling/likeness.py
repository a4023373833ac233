"""What jobs have in common with others: groups by whose past a job is judged, the widest first."""

import re
from collections.abc import Sequence

from dally.jobs.job import Job

Likeness = tuple[str, ...]
"""What the jobs of a group have in common; nothing: all jobs."""

_LIMIT = "limit"
_NUMBER = re.compile(r"\d+(?:\.\d+)*")


def stem(name: str) -> str:
    """A job's name with each number taken for the same: `train-17` and `train-18`, `lr0.01` and `lr0.1`."""
    return _NUMBER.sub("#", name)


def by_history(job: Job) -> Sequence[Likeness]:
    """All, those of its user, of them those of as many GPUs, of them those of its name."""
    user, gpus = job.user, str(job.gpus)
    likes = (), ("user", user), ("user", user, gpus)
    return (*likes, ("name", user, gpus, stem(job.job_name))) if job.job_name else likes


def by_limit(limit_s: float) -> Sequence[Likeness]:
    """All, those with its time limit."""
    return (), (_LIMIT, f"{limit_s:g} s")


def limit_of(like: Likeness) -> float | None:
    """The time limit that the jobs of a group share, seconds; None if it is another group."""
    return float(like[1].removesuffix(" s")) if like[:1] == (_LIMIT,) else None


def is_of_user(like: Likeness) -> bool:
    """Whether it is of one user's jobs: of those the last tell more than older ones."""
    return like[:1] in (("user",), ("name",))
