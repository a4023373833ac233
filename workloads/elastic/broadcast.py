"""Brings one rank's training state to all ranks of its group: parameters, batch norms, the optimizer."""

from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, distributed
from torch.utils._pytree import tree_leaves, tree_map_only

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

    def blank(tensor: Tensor) -> _Blank:
        return _Blank(tuple(tensor.shape), tensor.dtype, tensor.device.type == "cpu")

    def fill(blank: _Blank) -> Tensor:
        return torch.empty(blank.shape, dtype=blank.dtype, device="cpu" if blank.on_host else group.device)

    state = trainer.state() if group.rank == 0 else None
    outline = broadcast(group, 0, tree_map_only(Tensor, blank, state))
    if group.rank > 0:
        state = tree_map_only(_Blank, fill, outline)
    for tensor in tree_leaves(state):
        if isinstance(tensor, Tensor):
            carried = tensor.to(
                group.device
            ).contiguous()  # an optimizer's counts are on the host with NCCL, too
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
