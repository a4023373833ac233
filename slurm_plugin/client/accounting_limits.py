"""What administrators limit in accounting: by QOS and by association."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Counted(StrEnum):
    """What a limit counts of the resources of jobs.

    HELD is what they hold at once; EACH_NODE what one job holds of each of its nodes; LEAST the least that
    one must ask for. MINUTES is what they hold times the minutes that they may still run; SPENT the minutes
    of it that they have had, which Slurm itself counts.
    """

    HELD = "held"
    EACH_NODE = "each node"
    LEAST = "least"
    MINUTES = "minutes"
    SPENT = "spent"


@dataclass(frozen=True, slots=True)
class ResourceLimit:
    """One limit that an administrator set on what jobs may hold, of a QOS or an association.

    Attributes:
        name: What it is called, like `MaxTRESPerUser of QOS short`.
        most: The most that is allowed.
        of: What is counted, as Slurm names it: `gres/gpu`, `gres/gpu:a100`, `cpu`, `mem` (MB), `node`; or
            `job`, or `time` (the time limit of a job, seconds; of what was spent, minutes).
        counted: What of it is counted.
        spent: What is spent of it so far, as far as Slurm has booked it.
        running: What the jobs that ran then were still to take, by their time limits, beyond what was booked.
        one_job: It is on each job by itself.
        qos: It counts jobs of this QOS, and of partitions that have it; empty for all.
        accounts: It counts jobs of these accounts; empty for all.
        user: It counts jobs of this user; empty for all.
        each: `user` or `account` where it holds for each of them by itself; empty for all together.
        partitions: It counts jobs in these partitions; empty for all.
        not_partitions: It does not count jobs in these, where their user has another association.
        qos_with_it: The QOS that have a limit of this kind; a job of theirs is under that one alone.
    """

    name: str
    most: float
    of: str = "gres/gpu"
    counted: Counted = Counted.HELD
    spent: float = 0.0
    running: float = 0.0
    one_job: bool = False
    qos: str = ""
    accounts: frozenset[str] = frozenset()
    user: str = ""
    each: str = ""
    partitions: frozenset[str] = frozenset()
    not_partitions: frozenset[str] = frozenset()
    qos_with_it: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AccountingLimits:
    """What accounting limits.

    Attributes:
        limits: The limits of all QOS and associations.
        qos_flags: The flags of each QOS, like `OverPartQOS`.
        parents: The account above each account; empty above the topmost.
        safe: A job starts only if limits on minutes leave it enough to run to its end.
        booked_every_s: So often Slurm takes what running jobs have had off the minutes that they may still
            run; inf: never, as with priority/basic.
        usage_factors: UsageFactor of QOS: a minute of their jobs counts as so many. 1 of those not named.
        limit_factors: LimitFactor of QOS: their jobs may have so many times what associations limit, of
            those limits that say what is held at once. 1 of those not named.
    """

    limits: tuple[ResourceLimit, ...] = ()
    qos_flags: Mapping[str, frozenset[str]] = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=dict)
    safe: bool = False
    booked_every_s: float = 0.0
    usage_factors: Mapping[str, float] = field(default_factory=dict)
    limit_factors: Mapping[str, float] = field(default_factory=dict)

    def accounts_above(self, account: str) -> list[str]:
        """An account, and those that it is below, upwards."""
        found: dict[str, None] = {}
        while account in self.parents and account not in found:
            found[account] = None
            account = self.parents[account]
        return [*found]
