"""Brings one rank's training state to all ranks of its group: parameters, batch norms, the optimizer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from workloads.group import Group
from workloads.training import Trainer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Blank:
    """A tensor's place in a state."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    on_host: bool


def broadcast_state(group: Group, trainer: Trainer) -> None:
    """Have all ranks go on from what rank 0 has, to the bit."""
    state = trainer.state() if group.rank == 0 else None
    outline = broadcast(group, 0, _outline(state))
    if group.rank > 0:
        state = _fill(outline, group.device)
    for tensor in _tensors(state):
        carried = tensor.to(group.device).contiguous()  # an optimizer's counts are on the host with NCCL, too
        distributed.broadcast(carried, 0)
        if carried is not tensor:
            tensor.copy_(carried)
    if group.rank > 0 and state is not None:
        trainer.restore(state)


def broadcast(group: Group, source: int, what: T) -> T:
    """What rank `source` says, on all ranks: anything that can be pickled."""
    said = [what]
    distributed.broadcast_object_list(said, source, device=group.device)
    return said[0]


def _outline(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _outline(value) for key, value in state.items()}
    if isinstance(state, list):
        return [_outline(value) for value in state]
    if isinstance(state, Tensor):
        return _Blank(tuple(state.shape), state.dtype, state.device.type == "cpu")
    return state


def _fill(outline: Any, device: torch.device) -> Any:
    if isinstance(outline, dict):
        return {key: _fill(value, device) for key, value in outline.items()}
    if isinstance(outline, list):
        return [_fill(value, device) for value in outline]
    if isinstance(outline, _Blank):
        return torch.empty(outline.shape, dtype=outline.dtype, device="cpu" if outline.on_host else device)
    return outline


def _tensors(state: Any) -> Iterator[Tensor]:
    """All of them, in the order in which they are met."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict | list):
        for value in state.values() if isinstance(state, dict) else state:
            yield from _tensors(value)
