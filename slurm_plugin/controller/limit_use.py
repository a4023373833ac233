"""What is taken of limits and licences, so that no job starts, or stops others, in vain."""

import re
from collections import defaultdict
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from math import inf

from dally.words import plural, span
from slurm_plugin.client.accounting_limits import AccountingLimits, Counted, ResourceLimit
from slurm_plugin.client.slurm import Partition, SlurmJob
from slurm_plugin.controller.managed_job import ManagedJob

_LICENSE = re.compile(r"([^:@=]+)(?:@[^:=]*)?(?:[:=]([0-9]{1,9}))?", re.ASCII)
_OVER_PARTITION = "OverPartQOS"
_COUNTS_BEFORE_START = "UsageFactorSafe"
_IN_MINUTES = (Counted.MINUTES, Counted.SPENT)
_WORDS = {"cpu": "CPU", "node": "node", "job": "job", "gres/gpu": "GPU"}


class LimitUse:
    """Counts what is taken under each limit, and licences.

    Args:
        accounting: The limits.
        licenses: Free licences by name; of one that is not named only Slurm knows whether it is free.
        partitions: The partitions by name.
        now: The time, seconds.
    """

    def __init__(
        self,
        accounting: AccountingLimits,
        licenses: Mapping[str, int],
        partitions: Mapping[str, Partition],
        now: float = 0.0,
    ) -> None:
        self._now, self._safe, self._booked_every_s = now, accounting.safe, accounting.booked_every_s
        self._of_user: dict[str, list[ResourceLimit]] = {}  # most are of one user each
        for limit in accounting.limits:
            self._of_user.setdefault(limit.user, []).append(limit)
        self._qos_flags, self._partitions = accounting.qos_flags, partitions
        self._usage_factors, self._limit_factors = accounting.usage_factors, accounting.limit_factors
        self._licenses = dict(licenses)
        self._taken: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._known: dict[tuple[str, ...], tuple[ResourceLimit, ...]] = {}

    def copy(self) -> "LimitUse":
        """Another count that begins with what is taken in this one."""
        other = copy(self)
        other._licenses, other._taken = dict(self._licenses), self._taken.copy()
        return other

    def run(self, job: SlurmJob, gpus: int, is_in_spent: bool) -> None:
        """A job runs on so many GPUs.

        Under limits on what is spent, Slurm counts all of its time limit, of which some is spent by now.

        Args:
            job: The job.
            gpus: That many.
            is_in_spent: It ran already when Slurm showed what is spent, and is part of what it showed.
        """
        self.hold(job, gpus)
        in_full = 0.0 if is_in_spent else job.time_limit_s or 0.0
        had_s = self._usage_factor(job) * (in_full - self._left_s(job))
        for limit in self._counting(job):
            if limit.counted is Counted.SPENT:
                self._taken[limit.name, _whose(limit, job)] += _amount(limit, job, gpus, had_s)

    def _left_s(self, job: SlurmJob) -> float:
        """How long a job may still run, seconds."""
        limit_s = job.time_limit_s or 0.0
        return limit_s if job.start_s is None else max(0.0, job.start_s + limit_s - self._now)

    def _usage_factor(self, job: SlurmJob) -> float:
        """As how many minutes a minute of a job counts once it runs: by its own QOS, not its partition's."""
        return self._usage_factors.get(job.qos, 1.0)

    def _factor_before_start(self, job: SlurmJob) -> float:
        """The same before it starts: one, unless its QOS has the flag."""
        is_flagged = _COUNTS_BEFORE_START in self._qos_flags.get(job.qos, ())
        return self._usage_factor(job) if is_flagged else 1.0

    def hold(self, job: SlurmJob, gpus: int, factor: int = 1) -> None:
        """A job holds so many GPUs, its licences are no longer free; with -1 as the factor it does not."""
        left_s = self._left_s(job)
        booked_s = min(job.time_limit_s or 0.0, left_s + self._booked_every_s)
        for limit in self._counting(job):
            counted_s = booked_s if limit.counted is Counted.MINUTES else left_s
            amount = _amount(limit, job, gpus, self._usage_factor(job) * counted_s)
            self._taken[limit.name, _whose(limit, job)] += factor * amount

    def counts(self, job: SlurmJob) -> bool:
        """Whether a job takes of any limit or licence."""
        return bool(job.licenses or self._counting(job))

    def promise(self, job: SlurmJob, gpus: int, factor: int = 1) -> None:
        """A job is to have so many GPUs, and licences that Slurm shows as free until then."""
        self.hold(job, gpus, factor)
        for name, count in licenses_asked(job.licenses):
            if name in self._licenses:
                self._licenses[name] -= factor * count

    def give_back(self, job: SlurmJob, gpus: int) -> None:
        """A job that holds so many GPUs leaves them, and its licences."""
        self.promise(job, gpus, -1)

    def refusal(self, job: SlurmJob, gpus: int) -> str:
        """What keeps a job from having so many GPUs now, in words; empty if no limit and no licence does.

        Args:
            job: The job, in one partition.
            gpus: That many.
        """
        for name, count in licenses_asked(job.licenses):
            free = self._licenses.get(name, count)
            if free < count:
                return f"it asks for {count} of licence {name}, and {max(0, free)} are free"
        for limit in self._counting(job):
            if (why := self._beyond(limit, job, gpus)) and self._holds_for(limit, job):
                return f"{_text(limit)}: {why}"
        return ""

    def _beyond(self, limit: ResourceLimit, job: SlurmJob, gpus: int) -> str:
        """What of a limit keeps a job from starting, in words; empty if nothing does."""
        asked = _amount(limit, job, gpus, self._factor_before_start(job) * (job.time_limit_s or 0.0))
        if limit.one_job:
            is_beyond = 0 < asked < limit.most if limit.counted is Counted.LEAST else asked > limit.most
            return f"it asks for {_count(limit, asked)}, so it never starts" if is_beyond else ""
        in_minutes, is_time = limit.counted in _IN_MINUTES, limit.of == "time"
        taken, spent = self._taken[limit.name, _whose(limit, job)] + limit.running, limit.spent
        if in_minutes and not is_time and self._usage_factor(job) == 0:
            taken = spent = 0.0  # as in Slurm: where minutes cost nothing, those of others do not count
        if limit.counted is Counted.SPENT:
            if spent >= limit.most:
                return "all of it is spent" if is_time or _held(limit, job, gpus) else ""
            if not self._safe:  # then Slurm, too, goes by what is spent alone
                return ""
            taken = spent if is_time else spent + taken
        if not asked or taken + asked <= limit.most:
            return ""
        if asked > limit.most:
            return f"it asks for {_count(limit, asked)}, so it never starts"
        if limit.of == "job":
            return "so many run or are about to"
        return f"{_count(limit, taken)} taken, {_count(limit, asked)} asked for"

    def longest_s(self, job: SlurmJob) -> float:
        """The longest time limit that the job's QOS, partition's QOS and association let it have, seconds."""
        limits = [each for each in self._counting(job) if each.one_job and self._holds_for(each, job)]
        if not (factor := self._factor_before_start(job)):
            return inf
        of_time = (each.most for each in limits if each.of == "time")
        of_minutes = (
            60 * each.most / held
            for each in limits
            if each.counted is Counted.MINUTES and (held := job.tres.get(each.of, 0.0))
        )
        return min((*of_time, *of_minutes), default=inf) / factor

    def most_gpus(self, job: SlurmJob) -> float:
        """The most GPUs that a job of any size could have if no other took of its limits."""
        limits = [
            each for each in self._counting(job) if each.of == "gres/gpu" and self._holds_for(each, job)
        ]
        limit_min = self._factor_before_start(job) * (job.time_limit_s or 0.0) / 60
        of_minutes = (
            each.most / limit_min for each in limits if each.counted is Counted.MINUTES and limit_min
        )
        return min(
            (*(each.most for each in limits if each.counted is Counted.HELD), *of_minutes), default=inf
        )

    def _counting(self, job: SlurmJob) -> tuple[ResourceLimit, ...]:
        """The limits that count a job; of one in several partitions those of the first."""
        partition = job.partition.partition(",")[0]
        payer = job.user, job.account, job.qos, partition
        if payer not in self._known:
            qos = {"", *self._qos_of(job)}
            found = (
                limit
                for user in dict.fromkeys(("", job.user))
                for limit in self._of_user.get(user, ())
                if limit.qos in qos
                and (not limit.accounts or job.account in limit.accounts)
                and (not limit.partitions or partition in limit.partitions)
                and partition not in limit.not_partitions
            )
            # A job that can never start is told that first.
            in_order = sorted(found, key=lambda limit: not limit.one_job)
            self._known[payer] = tuple(self._with_factor(limit, job) for limit in in_order)
        return self._known[payer]

    def _with_factor(self, limit: ResourceLimit, job: SlurmJob) -> ResourceLimit:
        """A limit as it is for a job: the LimitFactor of its QOS is on what associations may hold."""
        factors = (self._limit_factors.get(qos, 0.0) for qos in self._qos_of(job))
        factor = next(filter(None, factors), 1.0)
        if factor == 1 or limit.qos or limit.counted is not Counted.HELD or limit.of in ("job", "time"):
            return limit
        return replace(limit, most=int(limit.most * factor))

    def _holds_for(self, limit: ResourceLimit, job: SlurmJob) -> bool:
        """Whether no limit of the same kind goes before one that counts a job."""
        return next((qos for qos in self._qos_of(job) if qos in limit.qos_with_it), "") == limit.qos

    def _qos_of(self, job: SlurmJob) -> tuple[str, str]:
        """The QOS that a job is under: its partition's, and its own, which goes before if flagged so."""
        partition = self._partitions.get(job.partition.partition(",")[0])
        of_partition = partition.qos if partition else ""
        if _OVER_PARTITION in self._qos_flags.get(job.qos, ()):
            return job.qos, of_partition
        return of_partition, job.qos


class QueuedJobs:
    """The jobs in the policy's queue, as far as limits and licences go: more may be there than can start.

    Only jobs that differ compete there. Of hundreds that are alike, those that cannot start together would
    only come and go.

    Args:
        use: What is taken.

    Attributes:
        use: What would be taken if all of them started.
    """

    def __init__(self, use: LimitUse) -> None:
        self.use, self._kinds = use.copy(), set[tuple[object, ...]]()

    def add(self, managed: ManagedJob, job: SlurmJob, gpus: int) -> None:
        """A job is in the queue, and would have so many GPUs."""
        if self.use.counts(job):
            self.use.promise(job, gpus)
            self._kinds.add(_kind(managed, job))

    def has_one_like(self, managed: ManagedJob, job: SlurmJob) -> bool:
        """Whether one is there that starts on the same nodes and takes the same of limits and licences."""
        return bool(self._kinds) and _kind(managed, job) in self._kinds


def _kind(managed: ManagedJob, job: SlurmJob) -> tuple[object, ...]:
    payer = job.user, job.account, job.qos, job.partition
    return managed.job.gang, managed.job.model, payer, job.licenses, frozenset(job.tres.items())


def _whose(limit: ResourceLimit, job: SlurmJob) -> str:
    """The user or account whose part of a limit a job takes."""
    return {"user": job.user, "account": job.account}.get(limit.each, "")


def _amount(limit: ResourceLimit, job: SlurmJob, gpus: int, counted_s: float) -> float:
    """How much a job takes of what a limit counts; of a GPU type only what it asks for, or holds, of it.

    Args:
        limit: The limit.
        job: The job.
        gpus: GPUs that it has or is to have.
        counted_s: How much of its time counts, seconds.
    """
    if limit.of == "job":
        return 1
    if limit.of == "time":
        return counted_s / 60 if limit.counted is Counted.SPENT else counted_s
    held = _held(limit, job, gpus)
    if limit.counted is Counted.EACH_NODE:
        return held // max(1, job.min_nodes)  # as Slurm divides
    return held * counted_s / 60 if limit.counted in _IN_MINUTES else held


def _held(limit: ResourceLimit, job: SlurmJob, gpus: int) -> float:
    """How much a job holds at once of what a limit is on, which is a resource."""
    return gpus if limit.of == "gres/gpu" else job.tres.get(limit.of, 0.0)


def _text(limit: ResourceLimit) -> str:
    in_minutes = limit.counted in _IN_MINUTES
    if limit.of == "time":
        return f"{limit.name} is {span(limit.most * 60 if in_minutes else limit.most)}"
    if limit.of == "mem":
        return f"{limit.name} is {limit.most:,.0f} MB{' minutes' if in_minutes else ''} of memory"
    kind = limit.of.removeprefix("gres/gpu:")
    word = f"{kind} GPU" if kind != limit.of else _WORDS[limit.of]
    return f"{limit.name} is {plural(int(limit.most), f'{word} minute' if in_minutes else word)}"


def _count(limit: ResourceLimit, amount: float) -> str:
    if limit.of == "time":
        return span(amount * 60 if limit.counted in _IN_MINUTES else amount)
    return f"{amount:,.0f}"


def in_one_partition(job: SlurmJob) -> list[SlurmJob]:
    """A job once for each partition that it names."""
    names = job.partition.split(",")
    return [job] if len(names) == 1 else [replace(job, partition=name) for name in names]


def licenses_asked(text: str) -> list[tuple[str, int]]:
    """The licences that a job needs, all of them, with their counts; none where one of several will do."""
    if not text or "|" in text:
        return []
    found = [_LICENSE.fullmatch(each.strip()) for each in text.split(",") if each]
    return [(match[1], int(match[2] or 1)) for match in found if match]
