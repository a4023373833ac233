"""What a shadow controller would have done otherwise than Slurm did, from its events, by user and account."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from statistics import fmean
from typing import Any

Event = Mapping[str, Any]

SAME_S = 60.0
"""Starts that differ by less count as the same: both look at the queue every few seconds only."""


@dataclass(slots=True)
class ShadowJob:
    """One job: when it was seen, when Dally would first have started it, when Slurm did; since 1970.

    `left` says that it has left the queue, started or not.
    """

    user: str
    account: str
    submitted_s: float
    would_start_s: float | None = None
    started_s: float | None = None
    left: bool = False


@dataclass(slots=True)
class ShadowRow:
    """What would have been different for the jobs of one user in one account.

    Attributes:
        jobs: Jobs seen.
        earlier: Jobs that Dally would have started earlier than Slurm did, or that still wait. One that was
            cancelled before Slurm started it is neither earlier nor later.
        same: Jobs started within a minute of that.
        later: Jobs that Slurm started before Dally would have.
        preemptions: Times that Dally would have stopped a running job to start others.
        migrations: Times that it would have moved one.
        waits_s: How long each started job waited under Slurm.
        gained_s: By how much each earlier job would have started earlier, as far as it has started.
    """

    jobs: int = 0
    earlier: int = 0
    same: int = 0
    later: int = 0
    preemptions: int = 0
    migrations: int = 0
    waits_s: list[float] = field(default_factory=list)
    gained_s: list[float] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        """The row for JSON: counts, and means in seconds, None of nothing."""
        data = asdict(self)
        waits_s, gained_s = data.pop("waits_s"), data.pop("gained_s")
        return data | {"mean_wait_s": _mean(waits_s), "mean_gained_s": _mean(gained_s)}


Rows = dict[tuple[str, str], ShadowRow]
"""By user and account."""


def shadow_rows(events: Iterable[Event], now_s: float) -> Rows:
    """The rows of a shadow's events, oldest first.

    Each decision was taken on the cluster as Slurm had it: what would have followed from a decision, freed or
    taken GPUs for instance, is in no later one.

    Args:
        events: What the shadow told.
        now_s: The time up to which they reach.
    """
    jobs: dict[str, ShadowJob] = {}
    rows: Rows = {}
    done: list[ShadowJob] = []
    for event in events:
        job_id, kind, t = event.get("job"), event["event"], event["t"]
        if not isinstance(job_id, str):
            continue
        if kind == "submit":
            if job_id in jobs:
                done.append(jobs[job_id])
            jobs[job_id] = ShadowJob(str(event.get("user", "")), str(event.get("account", "")), t)
        elif (job := jobs.get(job_id)) is not None:
            if kind == "would_start" and job.would_start_s is None and job.started_s is None:
                job.would_start_s = t
            elif kind == "start" and job.started_s is None:
                job.started_s = t
            elif kind == "end":
                job.left = True
            elif kind in ("would_preempt", "would_migrate"):
                row = rows.setdefault((job.user, job.account), ShadowRow())
                row.preemptions += kind == "would_preempt"
                row.migrations += kind == "would_migrate"
    for job in (*done, *jobs.values()):
        _count(job, rows.setdefault((job.user, job.account), ShadowRow()), now_s)
    return dict(sorted(rows.items()))


def _count(job: ShadowJob, row: ShadowRow, now_s: float) -> None:
    row.jobs += 1
    would_s, started_s = job.would_start_s, job.started_s
    if started_s is not None:
        row.waits_s.append(started_s - job.submitted_s)
    if would_s is None:
        row.later += started_s is not None
    elif started_s is None:
        row.earlier += not job.left and now_s - would_s > SAME_S
    elif started_s - would_s > SAME_S:
        row.earlier += 1
        row.gained_s.append(started_s - would_s)
    else:
        row.same += 1


def total(rows: Rows) -> ShadowRow:
    """All rows in one."""
    whole = ShadowRow()
    for row in rows.values():
        for each in fields(ShadowRow):
            setattr(whole, each.name, getattr(whole, each.name) + getattr(row, each.name))
    return whole


def _mean(values: list[float]) -> float | None:
    return round(fmean(values), 1) if values else None
