"""GPT-2, the small one (Radford et al. 2019).

Not that of `transformers`, which reads numbers back from the device in each forward pass (packed texts).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from workloads.models.texts import texts
from workloads.task import Task

_VOCABULARY, _LONGEST, _WIDTH, _HEADS, _BLOCKS, _DROPOUT = 50_257, 1024, 768, 12, 12, 0.1


def make_task(name: str, size: int | None) -> Task:
    """Tell the next token at each of `size` places; the targets are the inputs, one token on."""
    tokens = texts(size, _LONGEST, _VOCABULARY)
    return Task(build=_Gpt2, inputs=tokens, targets=tokens, loss=_loss)


class _Gpt2(nn.Module):
    """Logits of the next token; the table of embeddings gives them, too."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(_VOCABULARY, _WIDTH), nn.Embedding(_LONGEST, _WIDTH)
        self.drop = nn.Dropout(_DROPOUT)
        self.blocks = nn.Sequential(*(_Block() for _ in range(_BLOCKS)))
        self.norm = nn.LayerNorm(_WIDTH)
        self.apply(_initialise)
        for name, parameter in self.named_parameters():
            if name.endswith(
                ("merge.weight", "narrow.weight")
            ):  # the last of what is added up along the blocks
                nn.init.normal_(parameter, std=0.02 / (2 * _BLOCKS) ** 0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (samples, places, vocabulary) for tokens (samples, places)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.drop(self.tokens(tokens) + self.places(places))
        return functional.linear(self.norm(self.blocks(hidden)), self.tokens.weight)


class _Block(nn.Module):
    """Attention to all earlier places, then two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first_norm = nn.LayerNorm(_WIDTH)
        self.attention = _Attention()
        self.second_norm = nn.LayerNorm(_WIDTH)
        self.widen, self.narrow = nn.Linear(_WIDTH, 4 * _WIDTH), nn.Linear(4 * _WIDTH, _WIDTH)
        self.drop = nn.Dropout(_DROPOUT)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.drop(self.attention(self.first_norm(hidden)))
        wide = functional.gelu(self.widen(self.second_norm(hidden)), approximate="tanh")
        outputs = hidden + self.drop(self.narrow(wide))
        assert isinstance(outputs, Tensor)
        return outputs


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.split, self.merge = nn.Linear(_WIDTH, 3 * _WIDTH), nn.Linear(_WIDTH, _WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        heads = self.split(hidden).unflatten(2, (3, _HEADS, -1)).transpose(1, 3)
        query, key, value = heads.unbind(2)
        dropout = _DROPOUT if self.training else 0.0
        seen = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        merged = self.merge(seen.transpose(1, 2).flatten(2))
        assert isinstance(merged, Tensor)
        return merged


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


def _loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())
