"""How a training is split over its GPUs: the sizes of its parallel axes, as text such as `tp=8,pp=4,dp=2`."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from math import prod
from typing import Self

from dally.errors import InputError

MOST_RANKS = 100_000


class Axis(StrEnum):
    """What a group of ranks shares: the ranks of one group differ in this axis alone."""

    TENSOR = "tp"
    CONTEXT = "cp"
    DATA = "dp"
    PIPELINE = "pp"
    EXPERT = "ep"


USUAL_ORDER = (Axis.TENSOR, Axis.CONTEXT, Axis.DATA, Axis.PIPELINE)
"""From neighbouring ranks outwards, as Megatron-LM numbers them (`tp-cp-ep-dp-pp`)."""


@dataclass(frozen=True, slots=True)
class Parallelism:
    """A parallel plan; its GPUs are dp x tp x pp x cp.

    Attributes:
        tp: Ranks that split each matrix.
        pp: Stages that split the layers.
        cp: Ranks that split the sequence.
        dp: Replicas, each with its own samples.
        ep: Ranks that split the experts of a layer. They are ranks of dp, cp and tp: they need no more GPUs
            (Megatron-LM's folding).
        zero: ZeRO stage: 0 replicates all, 1 shards the optimizer's state, 2 gradients too, 3 weights too
            (FSDP's full shard).
        vp: Model chunks of each pipeline rank (interleaved 1F1B); 1 is plain 1F1B.
        recompute: Whether backward computes each layer's forward again (full activation checkpointing).
        stages: Layers of each stage; even if empty.
        order: The axes from neighbouring ranks outwards.
    """

    tp: int = 1
    pp: int = 1
    cp: int = 1
    dp: int = 1
    ep: int = 1
    zero: int = 0
    vp: int = 1
    recompute: bool = False
    stages: tuple[int, ...] = ()
    order: tuple[Axis, ...] = USUAL_ORDER

    def __post_init__(self) -> None:
        for name in ("dp", "tp", "pp", "cp", "ep", "vp"):
            if not 1 <= getattr(self, name) <= MOST_RANKS:
                raise InputError(f"plan: {name} is {getattr(self, name)}, must be 1 to {MOST_RANKS:,}")
        if self.gpus > MOST_RANKS:
            raise InputError(f"plan: has {self.gpus:,} GPUs, must have at most {MOST_RANKS:,}")
        if not 0 <= self.zero <= 3:
            raise InputError(f"plan: zero is {self.zero}, must be 0 to 3")
        if (self.dp * self.cp * self.tp) % self.ep:
            raise InputError(
                f"plan: ep is {self.ep}, must divide dp x cp x tp = {self.dp * self.cp * self.tp}"
            )
        if self.vp > 1 and self.pp == 1:
            raise InputError(f"plan: vp is {self.vp}, but there is one stage: it needs pp > 1")
        if self.stages and (len(self.stages) != self.pp or min(self.stages) < 0):
            raise InputError(
                f"plan: stages is {_joined(self.stages)}, must name the layers of {self.pp} stages"
            )
        if sorted(self.order) != sorted(USUAL_ORDER):
            raise InputError(f"plan: order is {_joined(self.order)}, must hold tp, cp, dp and pp once each")

    @property
    def gpus(self) -> int:
        """GPUs of the whole plan."""
        return prod(self.size(axis) for axis in USUAL_ORDER)

    def size(self, axis: Axis) -> int:
        """Ranks in a group of an axis."""
        size = getattr(self, axis.value)
        assert isinstance(size, int)
        return size

    @property
    def layer_passes(self) -> int:
        """Times that a layer's forward work is done in a step: backward is two, recomputing one more."""
        return 4 if self.recompute else 3

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a plan such as `tp=8,pp=4,dp=2,zero=1,recompute=yes,stages=11-13,order=tp-cp-pp-dp`.

        Raises:
            InputError: A key is unknown or named twice, or a value is not valid; one line says which.
        """
        values = {name: _value(name, value) for name, value in split_plan(text, PLAN_KEYS).items()}
        return cls(**values)  # type: ignore[arg-type]

    def __str__(self) -> str:
        """The plan as `parse` reads it; what is as usual is left out."""
        shown = [
            f"{each.name}={_shown(getattr(self, each.name))}"
            for each in fields(self)
            if getattr(self, each.name) != each.default
        ]
        return ",".join(shown) or "dp=1"


PLAN_KEYS = tuple(each.name for each in fields(Parallelism))
"""The keys of a plan's text."""

_YES_NO = {"yes": True, "no": False}


def split_plan(text: str, keys: Sequence[str]) -> dict[str, str]:
    """The parts of a plan's text, by key; their values are not looked at.

    Raises:
        InputError: A key is none of these, or is named twice.
    """
    parts: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or name not in keys:
            raise InputError(f"plan: {part!r} is not a part of a plan; valid: {', '.join(keys)}, as tp=8")
        if name in parts:
            raise InputError(f"plan: {name} is named twice")
        parts[name] = value
    return parts


def _value(name: str, text: str) -> object:
    """The value of one key.

    Raises:
        InputError: It is not valid.
    """
    try:
        if name == "recompute":
            return _YES_NO[text]
        if name == "order":
            return tuple(Axis(part) for part in text.split("-"))
        if name == "stages":
            return tuple(int(part) for part in text.split("-"))
        return int(text)
    except (KeyError, ValueError) as error:
        valid = {
            "recompute": "yes or no",
            "order": "axes such as tp-cp-dp-pp",
            "stages": "layers such as 11-13",
        }
        raise InputError(f"plan: {name} is {text!r}, must be {valid.get(name, 'a whole number')}") from error


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _joined(value) if isinstance(value, tuple) else str(value)


def _joined(parts: tuple[object, ...]) -> str:
    return "-".join(str(part) for part in parts)
