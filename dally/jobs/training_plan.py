"""How a job trains a transformer: its parallel plan, its sequences and its precision."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from dally.errors import InputError
from dally.jobs.parallelism import PLAN_KEYS, Parallelism, split_plan

PRECISIONS = ("bf16", "fp8", "fp4")
"""Of matrix products with weights."""

_MOST = 1_000_000_000
_DIGITS = 10


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """How a transformer is trained on the GPUs of a job; with its model and its batch it tells a step's work.

    Attributes:
        parallelism: How the training is split over the GPUs.
        sequence: Tokens of a sequence.
        micro_batch: Sequences that go through a rank at once.
        precision: Of matrix products with weights: bf16, fp8 or fp4.

    Raises:
        InputError: A number is out of range, or the precision is not known.
    """

    parallelism: Parallelism
    sequence: int
    micro_batch: int = 1
    precision: str = PRECISIONS[0]

    def __post_init__(self) -> None:
        for name, number in (("sequence", self.sequence), ("micro", self.micro_batch)):
            if not 1 <= number <= _MOST:
                raise InputError(f"plan: {name} is {number}, must be 1 to {_MOST:,}")
        if self.precision not in PRECISIONS:
            raise InputError(f"plan: precision is {self.precision!r}, must be one of {', '.join(PRECISIONS)}")

    @property
    def gpus(self) -> int:
        """GPUs of the whole plan."""
        return self.parallelism.gpus

    @property
    def batch_step(self) -> int:
        """What a global batch is a multiple of, sequences: one microbatch for each replica."""
        return self.micro_batch * self.parallelism.dp

    @classmethod
    def parse(cls, text: str, gpus: int | None = None) -> Self:
        """Read a plan such as `tp=8,pp=4,dp=2,zero=1,micro=1,sequence=8192`, perhaps with `precision=fp8`.

        Args:
            text: The plan.
            gpus: Of its job: where the text names no dp, that is what the other axes leave over of them.

        Raises:
            InputError: A key is unknown, missing or named twice, or a value is wrong; one line says which.
        """
        parts = plan_parts(text)
        if "sequence" not in parts:
            raise InputError(f"plan: {text!r} lacks the tokens of a sequence, as sequence=4096")
        axes = {name: value for name, value in parts.items() if name not in _KEYS}
        if gpus is not None and "dp" not in axes:
            others = Parallelism.parse(
                plan_text({name: axes[name] for name in ("tp", "pp", "cp") if name in axes})
            )
            axes["dp"] = str(max(1, gpus // others.gpus))
        return cls(
            Parallelism.parse(plan_text(axes)),
            _whole("sequence", parts["sequence"]),
            _whole("micro", parts.get("micro", "1")),
            parts.get("precision", PRECISIONS[0]),
        )

    def __str__(self) -> str:
        """The plan as `parse` reads it; what is as usual is left out, but for the microbatch."""
        precision = "" if self.precision == PRECISIONS[0] else f",precision={self.precision}"
        return f"{self.parallelism},micro={self.micro_batch},sequence={self.sequence}{precision}"


_KEYS = ("micro", "sequence", "precision")


def plan_parts(text: str) -> dict[str, str]:
    """The parts of a plan's text, by key; their values are not looked at.

    Raises:
        InputError: A key is unknown or named twice.
    """
    return split_plan(text, (*PLAN_KEYS, *_KEYS))


def plan_text(parts: Mapping[str, str]) -> str:
    """The text of a plan's parts, as `plan_parts` reads it."""
    return ",".join(f"{name}={value}" for name, value in parts.items())


def _whole(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > _DIGITS:
        raise InputError(f"plan: {name} is {text!r}, must be a whole number of at most {_DIGITS} digits")
    return int(text)
