"""Neural collaborative filtering (NeuMF, He et al. 2017) with the users and films of MovieLens-20M.

MovieLens-20M (GroupLens, https://grouplens.org/datasets/movielens/20m) has ratings by 138,493 users of 26,744
films. Widths as in MLPerf Training 0.5: 64 factors, and layers of 256, 256, 128 and 64.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from workloads.task import Numbers, Task

USERS, FILMS = 138_493, 26_744
_FACTORS = 64
_LAYERS = (256, 256, 128, 64)


def make_task(name: str, size: int | None) -> Task:
    """Tell whether a user rates a film: inputs are (user, film), targets 0 or 1."""
    return Task(build=_Neumf, inputs=Numbers((2,), (USERS, FILMS)), targets=Numbers((), (2,)), loss=_loss)


class _Neumf(nn.Module):
    """The product of a user's and a film's factors, beside layers over embeddings of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.user_factors, self.film_factors = _embedding(USERS, _FACTORS), _embedding(FILMS, _FACTORS)
        self.users, self.films = _embedding(USERS, _LAYERS[0] // 2), _embedding(FILMS, _LAYERS[0] // 2)
        self.layers = nn.Sequential()
        for inputs, outputs in pairwise(_LAYERS):
            self.layers.extend((nn.Linear(inputs, outputs), nn.ReLU(inplace=True)))
        self.last = nn.Linear(_FACTORS + _LAYERS[-1], 1)

    def forward(self, pairs: Tensor) -> Tensor:
        """The logits (samples,) of pairs (samples, 2)."""
        user, film = pairs.unbind(1)
        factors = self.user_factors(user) * self.film_factors(film)
        deep = self.layers(torch.cat((self.users(user), self.films(film)), 1))
        logits: Tensor = self.last(torch.cat((factors, deep), 1)).squeeze(1)
        return logits


def _embedding(count: int, width: int) -> nn.Embedding:
    table = nn.Embedding(count, width)
    nn.init.normal_(table.weight, std=0.01)
    return table


def _loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype))
