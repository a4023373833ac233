"""Who had which part of the GPU time of each week, and how far that differs between two schedulers."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dally.runs.records import NoEvents

WEEK_S = 7 * 86_400.0

Owner = tuple[str, str]
"""An account and its user; without a user the account as a whole."""

Shares = Mapping[Owner, float]
"""The part of each user, and of each account, in the GPU time of a week, 0 to 1."""


class WeeklyGpuTime(NoEvents):
    """A log that keeps of a run's events the GPU-seconds of each user by week.

    Once no job is submitted any more, everybody gets what is left to get: time after that does not count.

    Args:
        owners: Account and user of each job.
        last_submit_s: When the last of them is submitted.

    Attributes:
        gpu_s: By week, 0 the first, then by account and user.
    """

    def __init__(self, owners: Mapping[str, Owner], last_submit_s: float) -> None:
        self.gpu_s: defaultdict[int, defaultdict[Owner, float]] = defaultdict(lambda: defaultdict(float))
        self._owners, self._last_submit_s = owners, last_submit_s
        self._running: dict[str, tuple[float, int]] = {}

    def write(self, now: float, event: str, **said: Any) -> None:
        """Count the time of the job that an event is about."""
        if event in ("preempt", "migrate", "resize", "fail", "end"):
            self._stop(said["job"], now)
        if event in ("start", "migrate", "resize"):
            self._running[said["job"]] = now, sum(said["gpus"].values())

    def _stop(self, job_id: str, now: float) -> None:
        if job_id not in self._running:
            return  # it moves, and a stop was told before
        since_s, gpus = self._running.pop(job_id)
        end_s = min(now, self._last_submit_s)
        while since_s < end_s:
            week = int(since_s // WEEK_S)
            until_s = min(end_s, (week + 1) * WEEK_S)
            self.gpu_s[week][self._owners[job_id]] += gpus * (until_s - since_s)
            since_s = until_s

    @property
    def total_gpu_s(self) -> float:
        """What all had until the last submission, GPU-seconds."""
        return sum(sum(week.values()) for week in self.gpu_s.values())

    def shares(self) -> list[Shares]:
        """Of each whole week until the last submission, or of the first if that is not whole."""
        weeks = max(1, int(self._last_submit_s // WEEK_S))
        return [shares(self.gpu_s[week]) for week in range(weeks)]


def shares(gpu_s: Mapping[Owner, float]) -> Shares:
    """The part of each user, and of each account, in what all had."""
    total, found = sum(gpu_s.values()), defaultdict[Owner, float](float)
    for (account, user), each in gpu_s.items():
        for owner in {(account, ""), (account, user)} - {("", "")}:
            found[owner] += each / total
    return found


@dataclass(frozen=True, slots=True)
class ShareChange:
    """How an owner's part of a week differs between two schedulers.

    Attributes:
        owner: Whose.
        week: 0 is the first.
        before: The part under the first scheduler, 0 to 1.
        after: The part under the second.
    """

    owner: Owner
    week: int
    before: float
    after: float

    @property
    def size(self) -> float:
        """How far the part moved, 0 to 1."""
        return abs(self.after - self.before)

    @property
    def name(self) -> str:
        """Whose, as tables have it."""
        account, user = self.owner
        return f"user {user}" if user else f"group {account}"


def share_changes(before: Sequence[Shares], after: Sequence[Shares]) -> Iterator[ShareChange]:
    """The change of each user and each account in each week."""
    for week, (early, late) in enumerate(zip(before, after, strict=True)):
        for owner in sorted(early.keys() | late.keys()):
            yield ShareChange(owner, week, early.get(owner, 0.0), late.get(owner, 0.0))
