"""What a policy decides: a plan of decisions, each with its reason, and when to ask again."""

from dataclasses import dataclass, field
from math import inf
from typing import Any

from dally.cluster.topology import Allocation


@dataclass(frozen=True, slots=True)
class Start:
    """Start a waiting job on these GPUs, all within one domain of `level`."""

    job_id: str
    allocation: Allocation
    level: int
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Leave a job waiting; it takes a placement of `level` or closer until `until_s` (inf: for ever)."""

    job_id: str
    level: int
    until_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Preempt:
    """Checkpoint a running job, take its GPUs and let it wait again; `by` are the jobs that get them."""

    job_id: str
    by: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Migrate:
    """Checkpoint a running job and start it at once on other GPUs."""

    job_id: str
    allocation: Allocation
    level: int
    reason: str


@dataclass(frozen=True, slots=True)
class Resize(Migrate):
    """Let a running elastic job go on on more or fewer GPUs, without a checkpoint if its world can do that.

    It keeps at least one of the GPUs that it has.
    """


Decision = Start | Wait | Preempt | Migrate


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions of one moment.

    Attributes:
        decisions: What to do, each with its reason.
        wakeup_s: The time (seconds) at which the policy wants to be asked again.
        memo: What the policy worked out and wants to keep if the plan is carried out; it comes back with
            `Policy.plan_applied`, and nobody else looks into it.
    """

    decisions: tuple[Decision, ...] = ()
    wakeup_s: float = inf
    memo: Any = field(default=None, compare=False, repr=False)
