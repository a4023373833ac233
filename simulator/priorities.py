"""Slurm's multifactor priority in a simulation: age, fair share, job size, QOS and nice.

Sources: Slurm's pages Multifactor Priority Plugin and Fair Tree Fairshare Algorithm
(slurm.schedmd.com/priority_multifactor.html, fair_tree.html) and slurm.conf(5), of version 22.05.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from dally.config_text import naming, parse_toml, read_text
from dally.errors import InputError
from dally.jobs.job import Job
from dally.profiles.decoding import decode
from dally.state import ClusterState, JobState

ON = "on"
"""Instead of a file: the settings that Slurm's page on the plugin has as its example, and equal shares."""

LEAST = 1.0
"""The least priority of a job that nobody holds, as in Slurm."""

_DAY_S = 86_400.0

_LEAST_PERIOD_S = 1.0
"""Each period is a moment of the simulation: with much shorter ones it would not end."""

Payer = tuple[str, str]
"""Account and user: what Slurm calls an association."""


@dataclass(frozen=True, slots=True)
class AccountSettings:
    """One account.

    Attributes:
        shares: Its shares among the accounts.
        qos_factor: The priority of the QOS that its jobs run in, over the greatest of any QOS; 0 to 1.
        users: Users whose jobs it pays for where the trace names no group.
    """

    shares: float = 1.0
    qos_factor: float = 0.0
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UserSettings:
    """One user.

    Attributes:
        shares: Shares among the users of an account.
        nice: What is taken off the priority of each job.
    """

    shares: float = 1.0
    nice: float = 0.0


@dataclass(frozen=True, slots=True)
class PrioritySettings:
    """What slurm.conf and the accounting say; the weights and times are those of the plugin's example.

    Attributes:
        weight_age: Slurm's PriorityWeightAge.
        weight_fair_share: PriorityWeightFairshare.
        weight_job_size: PriorityWeightJobSize; size counts in GPUs.
        weight_qos: PriorityWeightQOS.
        max_age_s: PriorityMaxAge, seconds: at this age that factor is 1.
        half_life_s: PriorityDecayHalfLife, seconds: after so long half of a usage is forgotten.
        period_s: PriorityCalcPeriod, seconds: priorities are worked out anew so often.
        accounts: Accounts by name; others have the defaults.
        users: Users by name, likewise.
    """

    weight_age: float = 1000.0
    weight_fair_share: float = 10_000.0
    weight_job_size: float = 1000.0
    weight_qos: float = 0.0
    max_age_s: float = 14 * _DAY_S
    half_life_s: float = 14 * _DAY_S
    period_s: float = 300.0
    accounts: Mapping[str, AccountSettings] = field(default_factory=dict)
    users: Mapping[str, UserSettings] = field(default_factory=dict)


def load_priorities(source: str) -> PrioritySettings:
    """The settings in a TOML file, or the defaults if `on` is given.

    Raises:
        InputError: The file cannot be read, or something in it is wrong; the message names it.
    """
    if source == ON:
        return PrioritySettings()
    text = read_text(Path(source))
    with naming(source):
        return parse_priorities(parse_toml(text))


def parse_priorities(table: Mapping[str, Any]) -> PrioritySettings:
    """The settings in a TOML table.

    Raises:
        InputError: A key is unknown or a value is wrong.
    """
    settings = decode(PrioritySettings, table)
    for name in ("max_age_s", "half_life_s"):
        if getattr(settings, name) == 0:
            raise InputError(f"{name} is 0, must be a positive number")
    if settings.period_s < _LEAST_PERIOD_S:
        raise InputError(f"period_s is {settings.period_s:g}, must be {_LEAST_PERIOD_S:g} or more")
    for name, account in settings.accounts.items():
        if account.qos_factor > 1:
            raise InputError(f"accounts.{name}.qos_factor is {account.qos_factor:g}, must be 0 to 1")
    return settings


class FairTree:
    """Fair-share factors of payers by Slurm's Fair Tree algorithm.

    Siblings are ranked by level fair share, their shares over their usage: accounts first, then the users of
    each. The factor is the rank over the number of payers, 1 for the best. Siblings that are equal rank the
    same; of equal accounts the users are ranked together.

    Args:
        settings: Shares.
    """

    def __init__(self, settings: PrioritySettings) -> None:
        self._settings = settings
        self._usage: dict[Payer, float] = {}

    def know(self, payer: Payer) -> None:
        """A payer has a job, the first maybe."""
        self._usage.setdefault(payer, 0.0)

    def charge(self, payer: Payer, gpu_s: float) -> None:
        """A payer has had so many GPU-seconds more."""
        self._usage[payer] += gpu_s

    def decay(self, part: float) -> None:
        """Only such a part of all usage is remembered."""
        self._usage = {payer: usage * part for payer, usage in self._usage.items()}

    def factors(self) -> dict[Payer, float]:
        """The factor of each payer, more than 0, at most 1."""
        accounts: defaultdict[str, float] = defaultdict(float)
        shares: defaultdict[str, float] = defaultdict(float)
        for (account, user), usage in self._usage.items():
            accounts[account] += usage
            shares[account] += self._shares_of_user(user)
        levels = {
            name: _level(self._settings.accounts.get(name, AccountSettings()).shares, usage)
            for name, usage in accounts.items()
        }
        by_level: defaultdict[float, list[Payer]] = defaultdict(list)
        for payer in self._usage:
            by_level[levels[payer[0]]].append(payer)
        count, rank, factors = len(self._usage), len(self._usage), dict[Payer, float]()
        for _, payers in sorted(by_level.items(), reverse=True):
            equals: defaultdict[float, list[Payer]] = defaultdict(list)
            for payer in payers:
                account, user = payer
                part = self._usage[payer] / (accounts[account] or 1.0)
                equals[_level(self._shares_of_user(user) / (shares[account] or 1.0), part)].append(payer)
            for _, alike in sorted(equals.items(), reverse=True):
                factors |= dict.fromkeys(alike, rank / count)
                rank -= len(alike)
        return factors

    def _shares_of_user(self, user: str) -> float:
        return self._settings.users.get(user, UserSettings()).shares


def _level(shares: float, usage: float) -> float:
    if not usage:
        return inf if shares else 0.0
    return shares / usage


class SimulatedPriorities:
    """The priorities of waiting jobs, as slurmctld would work them out; running jobs keep those they had.

    The age of a job counts from its submission, also if it ran and was stopped. Usage is in GPU-seconds.

    Args:
        settings: Weights and shares.
        gpus: GPUs of the cluster.
    """

    def __init__(self, settings: PrioritySettings, gpus: int) -> None:
        self._settings, self._gpus = settings, gpus
        self._paid_by = {user: name for name, each in settings.accounts.items() for user in each.users}
        self._tree = FairTree(settings)
        self._factors: dict[Payer, float] = {}
        self._charged_s: dict[str, float] = {}
        self._worked_out_s = 0.0

    def due_s(self, state: ClusterState) -> float:
        """When priorities are worked out next; inf while no job waits."""
        waits = state.waiting or state.behind
        return self._worked_out_s + self._settings.period_s if waits else inf

    def changes(self, state: ClusterState, now: float) -> dict[str, float]:
        """The priorities to be set now: those of new jobs, and once they are due those of all that wait."""
        period_s = self._settings.period_s
        if now < self._worked_out_s + period_s:
            new = [name for name in state.unexplained if name not in self._charged_s]
        else:
            new = [*state.waiting, *state.behind]
            self._work_out(state, period_s * (now // period_s), now)
        return {name: self._priority(state.jobs[name], now) for name in new}

    def ended(self, job: JobState, now: float) -> None:
        """A running job is about to end."""
        self._charge(job, now)
        self._charged_s.pop(job.job_id, None)

    def payer(self, job: Job) -> Payer:
        """Who pays for a job."""
        return job.group or self._paid_by.get(job.user, ""), job.user

    def _work_out(self, state: ClusterState, at_s: float, now: float) -> None:
        self._tree.decay(0.5 ** ((at_s - self._worked_out_s) / self._settings.half_life_s))
        self._worked_out_s = at_s
        for name in self._charged_s:
            self._charge(state.jobs[name], now)
        self._factors = self._tree.factors()

    def _charge(self, job: JobState, now: float) -> None:
        had_s = job.attained_s(now)
        self._tree.charge(self.payer(job.job), had_s - self._charged_s.get(job.job_id, 0.0))
        self._charged_s[job.job_id] = had_s

    def _priority(self, job: JobState, now: float) -> float:
        """The sum of weighted factors, less nice."""
        settings, payer = self._settings, self.payer(job.job)
        if job.job_id not in self._charged_s:
            self._charged_s[job.job_id] = job.attained_s(now)
            if payer not in self._factors:
                self._tree.know(payer)
                self._factors[payer] = 1.0  # it has used nothing yet
        account = settings.accounts.get(payer[0], AccountSettings())
        total = (
            settings.weight_age * min(1.0, (now - job.job.submit_s) / settings.max_age_s)
            + settings.weight_fair_share * self._factors[payer]
            + settings.weight_job_size * min(1.0, job.job.gpus / self._gpus)
            + settings.weight_qos * account.qos_factor
            - settings.users.get(payer[1], UserSettings()).nice
        )
        return max(LEAST, total)
