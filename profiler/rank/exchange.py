"""Small values between the ranks, over the group that carries everything else."""

from collections.abc import Callable
from typing import TypeVar

import torch.distributed as dist

_Value = TypeVar("_Value")


class RankExchange:
    """Every call is made by all ranks at the same place; values are any that can be pickled.

    The group of the training is used and no second one: what reaches the peers there reaches them here.

    Attributes:
        rank: This rank.
        size: How many there are.
        go_on: Told before everything for which a rank may have to wait.
    """

    def __init__(self, rank: int, size: int, go_on: Callable[[], None] = lambda: None) -> None:
        self.rank = rank
        self.size = size
        self.go_on = go_on

    def gather(self, value: _Value) -> list[_Value]:
        """The values of all ranks, by rank."""
        self.go_on()
        if self.size == 1:
            return [value]
        values: list[_Value] = [value] * self.size
        dist.all_gather_object(values, value)
        return values

    def broadcast(self, value: _Value) -> _Value:
        """Rank 0's value, on all ranks."""
        self.go_on()
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        self.gather(None)
