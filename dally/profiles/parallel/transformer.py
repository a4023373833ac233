"""The shape of a transformer: its parameters, and the work and bytes of one token in one layer."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields

from dally.errors import InputError

_MOST = 1_000_000_000
_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Transformer:
    """A decoder-only transformer; all its layers count as alike.

    Attributes:
        layers: How many.
        hidden: Width of the residual stream.
        heads: Attention heads.
        ffn: Inner width of the feed-forward network; for experts, that of one.
        vocabulary: Tokens; the output layer has a weight for each.
        kv_heads: Heads of keys and values; as many as `heads` if 0.
        head_size: Width of one head; hidden / heads if 0.
        gated: Whether the feed-forward network has a third matrix (SwiGLU).
        experts: Experts of a layer; 0 for a dense model.
        top_k: Experts that a token goes to.
        shared_ffn: Inner width of what all tokens go through beside the experts.
        attention_parameters: Weights of the attention (or what stands for it) in a layer; from the heads if
            0.
        tied: Whether input and output embedding are one.
    """

    layers: int
    hidden: int
    heads: int
    ffn: int
    vocabulary: int
    kv_heads: int = 0
    head_size: int = 0
    gated: bool = False
    experts: int = 0
    top_k: int = 1
    shared_ffn: int = 0
    attention_parameters: int = 0
    tied: bool = True

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "ffn", "vocabulary", "top_k"):
            if not 1 <= getattr(self, name) <= _MOST:
                raise InputError(f"model: {name} is {getattr(self, name)}, must be 1 to {_MOST:,}")
        if not self.head_size and self.hidden < self.heads:
            raise InputError(f"model: heads is {self.heads}, must be at most hidden = {self.hidden}")

    @property
    def attention_width(self) -> int:
        """Width of all queries."""
        return self.heads * (self.head_size or self.hidden // self.heads)

    @property
    def kv_width(self) -> int:
        """Width of all keys; values are as wide."""
        return (self.kv_heads or self.heads) * (self.head_size or self.hidden // self.heads)

    @property
    def dense_parameters(self) -> int:
        """Weights of a layer that all tokens use."""
        attention = self.attention_parameters or self.hidden * 2 * (self.attention_width + self.kv_width)
        return attention + self._matrices * self.hidden * (self.shared_ffn if self.experts else self.ffn)

    @property
    def expert_parameters(self) -> int:
        """Weights of all experts of a layer."""
        return self._matrices * self.hidden * self.ffn * self.experts

    @property
    def routed_parameters(self) -> int:
        """Weights of the experts of a layer that one token uses."""
        return self._matrices * self.hidden * self.ffn * self.top_k if self.experts else 0

    @property
    def embedding_parameters(self) -> int:
        """Weights of one embedding."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """Weights of the model."""
        layer = self.dense_parameters + self.expert_parameters
        return self.layers * layer + self.embedding_parameters * (1 if self.tied else 2)

    @property
    def split_ffn(self) -> int:
        """Inner width that one token goes through in a layer, counted by matrices of two."""
        inner = self.ffn * self.top_k + self.shared_ffn if self.experts else self.ffn
        return inner * self._matrices // 2

    @property
    def _matrices(self) -> int:
        return 3 if self.gated else 2


def gpt(layers: int, hidden: int, heads: int, vocabulary: int = 51_200) -> Transformer:
    """A GPT of the usual form: a feed-forward network of four times the hidden width."""
    return Transformer(layers, hidden, heads, 4 * hidden, vocabulary)


MODELS: Mapping[str, Transformer] = {
    "gpt-175b": gpt(96, 12_288, 96),
    "llama3-8b": Transformer(32, 4096, 32, 14_336, 128_256, kv_heads=8, gated=True, tied=False),
    "llama3-70b": Transformer(80, 8192, 64, 28_672, 128_256, kv_heads=8, gated=True, tied=False),
    "llama3-405b": Transformer(126, 16_384, 128, 53_248, 128_256, kv_heads=8, gated=True, tied=False),
    "qwen3-30b-a3b": Transformer(
        48, 2048, 32, 768, 151_936, kv_heads=4, head_size=128, gated=True, experts=128, top_k=8, tied=False
    ),
    "qwen3-235b-a22b": Transformer(
        94, 4096, 64, 1536, 151_936, kv_heads=4, head_size=128, gated=True, experts=128, top_k=8, tied=False
    ),
    "gpt-oss-120b": Transformer(
        36, 2880, 64, 2880, 201_088, kv_heads=8, head_size=64, gated=True, experts=128, top_k=4, tied=False
    ),
    "nemotron-3-nano": Transformer(
        23,
        2688,
        8,
        1856,
        131_072,
        kv_heads=1,
        head_size=128,
        experts=128,
        top_k=6,
        shared_ffn=3712,
        attention_parameters=45_000_000,
        tied=False,
    ),
    "nemotron-3-super": Transformer(
        40,
        4096,
        6,
        672,
        131_072,
        kv_heads=1,
        head_size=128,
        experts=512,
        top_k=22,
        shared_ffn=5376,
        attention_parameters=110_000_000,
        tied=False,
    ),
    "deepseek-v3": Transformer(
        61,
        7168,
        128,
        2048,
        129_280,
        head_size=160,
        gated=True,
        experts=256,
        top_k=8,
        shared_ffn=2048,
        attention_parameters=187_105_280,
        tied=False,
    ),
    "kimi-k2": Transformer(
        61,
        7168,
        64,
        2048,
        163_840,
        head_size=160,
        gated=True,
        experts=384,
        top_k=8,
        shared_ffn=2048,
        attention_parameters=101_122_048,
        tied=False,
    ),
}
"""Shapes from the models' own configurations on Hugging Face (`config.json`). Multi-head latent attention has
its weights counted, and the mean of a key's and a value's width as the size of a head. DeepSeek's first dense
layers count as layers with experts. Nemotron 3 is approximate: a layer is one with experts and the Mamba
layer before it, the few layers of attention are spread over all, and experts behind a narrow latent are
narrower instead."""


def read_model(text: str) -> Transformer:
    """A shape by its name, or as `layers=32,hidden=4096,heads=32,ffn=16384,vocabulary=50257,gated=0`.

    Raises:
        InputError: There is no model of that name, or a key is missing, unknown or no whole number.
    """
    if "=" not in text:
        if text not in MODELS:
            raise InputError(
                f"model {text!r} is not known; valid: {', '.join(MODELS)}, or layers=...,hidden=..."
            )
        return MODELS[text]
    types = {each.name: each.type for each in fields(Transformer)}
    values: dict[str, int | bool] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in types:
            raise InputError(f"model: {name!r} is not a key; valid: {', '.join(types)}")
        if not value.isdecimal() or len(value) > _DIGITS:
            raise InputError(
                f"model: {name} is {value!r}, must be a whole number of at most {_DIGITS} digits"
            )
        values[name] = bool(int(value)) if types[name] is bool else int(value)
    missing = {each.name for each in fields(Transformer) if each.default is MISSING} - values.keys()
    if missing:
        raise InputError(f"model: lacks {', '.join(sorted(missing))}")
    return Transformer(**values)  # type: ignore[arg-type]


def is_transformer(text: str) -> bool:
    """Whether `read_model` knows it."""
    try:
        read_model(text)
    except InputError:
        return False
    return True
