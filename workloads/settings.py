"""How a model is trained; needs no torch, so that commands can say what is wrong at once."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from dally.errors import InputError

_SEEDS = 1 << 63
"""More than torch's and ours can be."""


class Backend(StrEnum):
    """What carries collectives: NCCL between GPUs, gloo between CPUs."""

    NCCL = "nccl"
    GLOO = "gloo"


class Precision(StrEnum):
    """What the forward and backward passes compute in; parameters and gradients are fp32 in both."""

    FP32 = "fp32"
    BF16 = "bf16"


@dataclass(frozen=True, slots=True)
class Settings:
    """How a model is trained.

    Attributes:
        global_batch: Samples per iteration, all ranks together.
        precision: What is computed in.
        seed: Of parameters, samples, their order, and dropout.
        size: Pixels on a side of an image, or tokens of a text; None for the workload's own.
        emulated_flops: Floating-point operations per second of a pretended GPU, whose compute is slept;
            None to compute for real.
    """

    global_batch: int
    precision: Precision = Precision.FP32
    seed: int = 0
    size: int | None = None
    emulated_flops: float | None = None

    def __post_init__(self) -> None:
        for name in ("global_batch", "size", "emulated_flops"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name} is {value:g}, must be positive")
        if not 0 <= self.seed < _SEEDS:
            raise InputError(f"seed is {self.seed}, must be 0 or more and below 2^63")


@dataclass(frozen=True, slots=True)
class Job:
    """One training job, as its command line says.

    Attributes:
        model: Name of a workload.
        steps: After how many iterations it is done.
        settings: How it is trained.
        backend: What carries the collectives.
        data: A file of samples, see `workloads.local_data`; None to make them up.
        checkpoint: Where checkpoints are written and read; None for none.
        checkpoint_every: Steps between checkpoints; None for only those at the end and at a signal.
        log_file: A file that gets a JSON line for each step; None for none.
        join_timeout_s: How long ranks wait for each other at the start.
    """

    model: str
    steps: int
    settings: Settings
    backend: Backend
    data: Path | None = None
    checkpoint: Path | None = None
    checkpoint_every: int | None = None
    log_file: Path | None = None
    join_timeout_s: float = 300.0

    def __post_init__(self) -> None:
        for name in ("steps", "checkpoint_every", "join_timeout_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name} is {value:g}, must be positive")
        if self.checkpoint_every and not self.checkpoint:
            raise InputError("checkpoint_every needs a checkpoint file")
        if self.data and self.settings.emulated_flops:
            raise InputError(f"emulated compute reads no samples, so there is no use for data {self.data}")
        for file in (self.checkpoint, self.log_file):
            if file and not file.parent.is_dir():
                raise InputError(f"{file} cannot be written: there is no folder {file.parent}")

    def saves_after(self, step: int) -> bool:
        """Whether a checkpoint is due after so many steps."""
        return step == self.steps or (self.checkpoint_every is not None and step % self.checkpoint_every == 0)
