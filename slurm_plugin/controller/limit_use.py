"""How much of the limits of QOS and associations is taken: no job starts, or stops others, in vain."""

from collections import Counter
from collections.abc import Iterable

from dally.words import plural
from slurm_plugin.client.slurm import ResourceLimit, SlurmJob


class LimitUse:
    """Counts GPUs and jobs under each limit; a job that is told that it may start takes its part.

    Args:
        limits: The limits.
    """

    def __init__(self, limits: Iterable[ResourceLimit]) -> None:
        self._limits = tuple(limits)
        self._gpus: Counter[tuple[str, str]] = Counter()
        self._jobs: Counter[tuple[str, str]] = Counter()
        self._known: dict[tuple[str, str, str], tuple[ResourceLimit, ...]] = {}

    def take(self, job: SlurmJob, gpus: int) -> None:
        """A job holds, or is promised, so many GPUs."""
        for limit in self._limits_on(job):
            key = limit.name, _whose(limit, job)
            self._gpus[key] += gpus
            self._jobs[key] += 1

    def refusal(self, job: SlurmJob, gpus: int) -> str:
        """Which limit keeps a job from having so many GPUs now, in words; empty if none does."""
        for limit in self._limits_on(job):
            key = limit.name, _whose(limit, job)
            if limit.job_gpus is not None and gpus > limit.job_gpus:
                return f"{limit.name} is {plural(limit.job_gpus, 'GPU')}, and it asks for {gpus}"
            if limit.gpus is not None and self._gpus[key] + gpus > limit.gpus:
                taken = self._gpus[key]
                return f"{limit.name} is {plural(limit.gpus, 'GPU')}, and {taken} are taken"
            if limit.jobs is not None and self._jobs[key] >= limit.jobs:
                return f"{limit.name} is {plural(limit.jobs, 'job')}, and so many run"
        return ""

    def _limits_on(self, job: SlurmJob) -> tuple[ResourceLimit, ...]:
        payer = job.user, job.account, job.qos
        if payer not in self._known:
            self._known[payer] = tuple(limit for limit in self._limits if limit.counts(job))
        return self._known[payer]


def _whose(limit: ResourceLimit, job: SlurmJob) -> str:
    """The user or account whose part of a limit a job takes."""
    return {"user": job.user, "account": job.account}.get(limit.each, "")
