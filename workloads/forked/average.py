"""The weighted average of what `Trainer.state` gave on several copies."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def average(states: Sequence[Any], weights: Sequence[float], before: Any = None) -> Any:
    """Average states of one shape: mappings and lists of tensors, and of plain values, which are all alike.

    Parameters, the statistics of batch norms and an optimizer's moments are averaged. Whole numbers count
    what was seen, as batch norms do: the counts of all copies since they parted are added.

    Args:
        states: Of the copies.
        weights: Theirs, summing up to one.
        before: What all copies started from; needed only where there are tensors of whole numbers.
    """
    first = states[0]
    if isinstance(first, dict):
        had = before if isinstance(before, dict) else {}
        return {key: average([state[key] for state in states], weights, had.get(key)) for key in first}
    if isinstance(first, list):
        return [average(items, weights) for items in zip(*states, strict=True)]
    if not isinstance(first, Tensor):
        return first
    if not first.is_floating_point():
        return before + sum(state - before for state in states)
    return _mean(states, weights)


def _mean(tensors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    total = torch.zeros_like(tensors[0], dtype=torch.float64)
    for tensor, weight in zip(tensors, weights, strict=True):
        total.add_(tensor, alpha=weight)
    return total.to(tensors[0].dtype)
