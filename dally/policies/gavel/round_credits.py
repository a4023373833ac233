"""Turns: rounds on pools of GPUs, given so that the time a job has on each approaches its share."""

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


class Turns:
    """The accounts of the jobs that share a cluster, all with shares of one moment.

    On each pool the next round goes to who has the greatest share / (turns + 1/2): rounds are given out as
    Webster's method gives out seats. On ties whoever is owed more goes first, then whoever came first.

    Args:
        pools: How many pools there are.
    """

    def __init__(self, pools: int) -> None:
        self.pools = pools
        self.rounds = 0
        self._accounts: dict[str, RoundCredit] = {}

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._accounts

    def of(self, job_id: str) -> RoundCredit:
        """The account of a job; an empty one if it is not promised anything yet."""
        return self._accounts.get(job_id) or RoundCredit(
            [0.0] * self.pools, [0] * self.pools, [0.0] * self.pools
        )

    def renewed(self, shares: Mapping[str, Sequence[float]]) -> "Turns":
        """New accounts with other shares and no turns yet; what each job is owed goes on."""
        turns = Turns(self.pools)
        for job_id, parts in shares.items():
            owed = [self.owed(job_id, pool) for pool in range(self.pools)]
            turns._accounts[job_id] = RoundCredit([*parts], [0] * self.pools, owed)
        return turns

    def owed(self, job_id: str, pool: int) -> float:
        """Rounds on a pool that a job was promised by now and has not had."""
        account = self.of(job_id)
        return account.owed[pool] + account.shares[pool] * self.rounds - account.turns[pool]

    def held(self, on: Mapping[str, int]) -> None:
        """A round begins in which these jobs run, each on its pool."""
        self.rounds += 1
        for job_id, pool in on.items():
            if job_id in self._accounts:
                self._accounts[job_id].turns[pool] += 1

    def forget(self, job_id: str) -> None:
        """A job is gone."""
        self._accounts.pop(job_id, None)

    def order(self, job_ids: Sequence[str]) -> list[tuple[list[int], int]]:
        """For each pool the places in `job_ids`, next turn first, and how many of them have a share there."""
        if not job_ids:
            return [([], 0)] * self.pools
        nothing, accounts = self.of(""), self._accounts
        known = [accounts.get(job_id, nothing) for job_id in job_ids]
        shares, turns, owed = (
            np.array(rows).T
            for rows in zip(*((each.shares, each.turns, each.owed) for each in known), strict=True)
        )
        claims = shares / (turns + 0.5)
        return [
            (np.lexsort((-owed[pool], -claims[pool])).tolist(), int((shares[pool] > 0).sum()))
            for pool in range(self.pools)
        ]

    def snapshot(self) -> dict[str, Any]:
        """The accounts as plain data."""
        accounts = {
            job_id: [[*account.shares], [*account.turns], [*account.owed]]
            for job_id, account in sorted(self._accounts.items())
        }
        return {"rounds": self.rounds, "accounts": accounts}

    def restore(self, learnt: Mapping[str, Any]) -> None:
        """Take back what `snapshot` gave."""
        self.rounds = learnt["rounds"]
        self._accounts = {job_id: RoundCredit(*parts) for job_id, parts in learnt["accounts"].items()}
