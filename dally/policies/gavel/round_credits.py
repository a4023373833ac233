"""Credits: how many rounds each job was promised on each pool of GPUs, and how many it had."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class RoundCredit:
    """What one job is promised and has had, by pool.

    Attributes:
        shares: Part of its time that it is to spend there.
        turns: Rounds that it had there since these shares hold.
        owed: Rounds promised before and not had; negative: had beyond the promise.
    """

    shares: list[float]
    turns: list[int]
    owed: list[float]


class RoundCredits:
    """The credits of the jobs that share a cluster, all with shares of one moment.

    On each pool the next round goes to the job with the greatest share / (turns + 1/2), as Webster's method
    gives out seats: so the time that a job has on each pool approaches its share. On ties the job that is
    owed more goes first, then the one that came first.

    Args:
        pools: How many pools there are.
    """

    def __init__(self, pools: int) -> None:
        self.pools = pools
        self.rounds = 0
        self._credits: dict[str, RoundCredit] = {}

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._credits

    def of(self, job_id: str) -> RoundCredit:
        """The credit of a job; an empty one if it is not promised anything yet."""
        return self._credits.get(job_id) or RoundCredit(
            [0.0] * self.pools, [0] * self.pools, [0.0] * self.pools
        )

    def renewed(self, shares: Mapping[str, Sequence[float]]) -> "RoundCredits":
        """Credits with other shares and no turns yet; what each job is owed goes on."""
        renewed = RoundCredits(self.pools)
        for job_id, parts in shares.items():
            owed = [self.owed(job_id, pool) for pool in range(self.pools)]
            renewed._credits[job_id] = RoundCredit([*parts], [0] * self.pools, owed)
        return renewed

    def owed(self, job_id: str, pool: int) -> float:
        """Rounds on a pool that a job was promised by now and has not had."""
        credit = self.of(job_id)
        return credit.owed[pool] + credit.shares[pool] * self.rounds - credit.turns[pool]

    def add_round(self, on: Mapping[str, int]) -> None:
        """Count a round in which these jobs run, each on its pool."""
        self.rounds += 1
        for job_id, pool in on.items():
            if job_id in self._credits:
                self._credits[job_id].turns[pool] += 1

    def forget(self, job_id: str) -> None:
        """Forget a job."""
        self._credits.pop(job_id, None)

    def order(self, job_ids: Sequence[str]) -> list[tuple[list[int], int]]:
        """For each pool the places in `job_ids`, next turn first, and how many of them have a share there."""
        if not job_ids:
            return [([], 0)] * self.pools
        nothing = self.of("")
        known = [self._credits.get(job_id, nothing) for job_id in job_ids]
        shares, turns, owed = (
            np.array(rows).T
            for rows in zip(*((each.shares, each.turns, each.owed) for each in known), strict=True)
        )
        priority = shares / (turns + 0.5)
        return [
            (np.lexsort((-owed[pool], -priority[pool])).tolist(), int((shares[pool] > 0).sum()))
            for pool in range(self.pools)
        ]

    def snapshot(self) -> dict[str, Any]:
        """The credits as plain data."""
        accounts = {
            job_id: [[*credit.shares], [*credit.turns], [*credit.owed]]
            for job_id, credit in sorted(self._credits.items())
        }
        return {"rounds": self.rounds, "accounts": accounts}

    def restore(self, learnt: Mapping[str, Any]) -> None:
        """Take back what `snapshot` gave."""
        self.rounds = learnt["rounds"]
        self._credits = {job_id: RoundCredit(*parts) for job_id, parts in learnt["accounts"].items()}
