"""GPT-2, the small one (Radford et al. 2019), and a far smaller one of the same build for characters.

Not that of `transformers`, which reads numbers back from the device in each forward pass (packed texts).
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from workloads.task import Task, texts


@dataclass(frozen=True, slots=True)
class _Shape:
    """Numbers of tokens that there are, of places, channels, heads and blocks, and the part dropped out."""

    vocabulary: int
    longest: int
    width: int
    heads: int
    blocks: int
    dropout: float


_SHAPES = {
    "gpt2": _Shape(50_257, 1024, 768, 12, 12, 0.1),
    "chargpt": _Shape(128, 256, 64, 4, 2, 0.0),  # ASCII
}


def make_task(name: str, size: int | None) -> Task:
    """Tell the next token at each of `size` places; the targets are the inputs, one token on."""
    shape = _SHAPES[name]
    tokens = texts(size, shape.longest, shape.vocabulary)
    return Task(build=partial(_Gpt2, shape), inputs=tokens, targets=tokens, loss=_loss)


class _Gpt2(nn.Module):
    """Logits of the next token; the table of embeddings gives them, too."""

    def __init__(self, shape: _Shape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.places = nn.Embedding(shape.longest, shape.width)
        self.drop = nn.Dropout(shape.dropout)
        self.blocks = nn.Sequential(*(_Block(shape) for _ in range(shape.blocks)))
        self.norm = nn.LayerNorm(shape.width)
        self.apply(_initialise)
        for name, parameter in self.named_parameters():
            if name.endswith(("merge.weight", "narrow.weight")):  # the last of what blocks add up
                nn.init.normal_(parameter, std=0.02 / (2 * shape.blocks) ** 0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (samples, places, vocabulary) for tokens (samples, places)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.drop(self.tokens(tokens) + self.places(places))
        return functional.linear(self.norm(self.blocks(hidden)), self.tokens.weight)


class _Block(nn.Module):
    """Attention to all earlier places, then two dense layers."""

    def __init__(self, shape: _Shape) -> None:
        super().__init__()
        width = shape.width
        self.first_norm = nn.LayerNorm(width)
        self.attention = _Attention(shape)
        self.second_norm = nn.LayerNorm(width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(shape.dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.drop(self.attention(self.first_norm(hidden)))
        wide = functional.gelu(self.widen(self.second_norm(hidden)), approximate="tanh")
        outputs: Tensor = hidden + self.drop(self.narrow(wide))
        return outputs


class _Attention(nn.Module):
    def __init__(self, shape: _Shape) -> None:
        super().__init__()
        self.heads, self.dropout = shape.heads, shape.dropout
        self.split, self.merge = nn.Linear(shape.width, 3 * shape.width), nn.Linear(shape.width, shape.width)

    def forward(self, hidden: Tensor) -> Tensor:
        heads = self.split(hidden).unflatten(2, (3, self.heads, -1)).transpose(1, 3)
        query, key, value = heads.unbind(2)
        dropout = self.dropout if self.training else 0.0
        seen = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        merged: Tensor = self.merge(seen.transpose(1, 2).flatten(2))
        return merged


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


def _loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())
