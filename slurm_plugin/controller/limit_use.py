"""What is taken of limits and licences, so that no job starts, or stops others, in vain."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from dally.words import plural
from slurm_plugin.client.slurm import ResourceLimit, SlurmJob

_LICENSE = re.compile(r"([^:@=]+)[^:=]*(?:[:=]([0-9]{1,9}))?", re.ASCII)


class LimitUse:
    """Counts GPUs and jobs under each limit, and licences.

    Args:
        limits: The limits.
        licenses: Free licences by name; of one that is not named only Slurm knows whether it is free.
    """

    def __init__(self, limits: Iterable[ResourceLimit], licenses: Mapping[str, int]) -> None:
        self._limits = tuple(limits)
        self._licenses = dict(licenses)
        self._gpus: Counter[tuple[str, str]] = Counter()
        self._jobs: Counter[tuple[str, str]] = Counter()
        self._known: dict[tuple[str, str, str], tuple[ResourceLimit, ...]] = {}

    def hold(self, job: SlurmJob, gpus: int) -> None:
        """A job holds so many GPUs; its licences are no longer free."""
        for limit in self._limits_on(job):
            key = limit.name, _whose(limit, job)
            self._gpus[key] += gpus
            self._jobs[key] += 1

    def promise(self, job: SlurmJob, gpus: int) -> None:
        """A job is to have so many GPUs, and licences that Slurm shows as free until then."""
        self.hold(job, gpus)
        for name, count in licenses_asked(job.licenses):
            if name in self._licenses:
                self._licenses[name] -= count

    def refusal(self, job: SlurmJob, gpus: int) -> str:
        """What keeps a job from having so many GPUs now, in words; empty if no limit and no licence does."""
        for name, count in licenses_asked(job.licenses):
            free = self._licenses.get(name, count)
            if free < count:
                return f"it asks for {count} of licence {name}, and {max(0, free)} are free"
        for limit in self._limits_on(job):
            key = limit.name, _whose(limit, job)
            if limit.job_gpus is not None and gpus > limit.job_gpus:
                return f"{limit.name} is {plural(limit.job_gpus, 'GPU')}: it asks for {gpus}"
            if limit.gpus is not None and self._gpus[key] + gpus > limit.gpus:
                return (
                    f"{limit.name} is {plural(limit.gpus, 'GPU')}: {self._gpus[key]} taken, {gpus} asked for"
                )
            if limit.jobs is not None and self._jobs[key] >= limit.jobs:
                return f"{limit.name} is {plural(limit.jobs, 'job')}: so many run or are about to"
        return ""

    def _limits_on(self, job: SlurmJob) -> tuple[ResourceLimit, ...]:
        payer = job.user, job.account, job.qos
        if payer not in self._known:
            self._known[payer] = tuple(limit for limit in self._limits if limit.counts(job))
        return self._known[payer]


def _whose(limit: ResourceLimit, job: SlurmJob) -> str:
    """The user or account whose part of a limit a job takes."""
    return {"user": job.user, "account": job.account}.get(limit.each, "")


def licenses_asked(text: str) -> list[tuple[str, int]]:
    """The licences that a job needs, all of them, with their counts; none where one of several will do."""
    if "|" in text:
        return []
    found = [_LICENSE.fullmatch(each.strip()) for each in text.split(",") if each]
    return [(match[1], int(match[2] or 1)) for match in found if match]
