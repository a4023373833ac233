"""How a model is trained; needs no torch, so that commands can say what is wrong at once."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from dally.errors import InputError

_SEEDS = 1 << 63
"""More than torch's and ours can be."""

_LONGEST_SLOT_S = 1200.0
"""Ranks of a copy wait half an hour for each other, and a copy may wait longer than a slot for the others."""


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
class Fork:
    """How a job trains as several copies, whose parameters are averaged once in a slot.

    Attributes:
        slot_s: Seconds of a slot, with the averaging.
        ranks_per_copy: So many ranks in a row train a copy.
    """

    slot_s: float = 360.0
    ranks_per_copy: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.slot_s <= _LONGEST_SLOT_S:
            raise InputError(f"slot_s is {self.slot_s:g}, must be positive and at most {_LONGEST_SLOT_S:g}")
        if self.ranks_per_copy < 1:
            raise InputError(f"ranks_per_copy is {self.ranks_per_copy}, must be at least 1")


class BatchRule(StrEnum):
    """What becomes of the batch and the learning rate when the number of ranks changes: see `Elastic`."""

    KEEP = "keep"
    LINEAR = "linear"
    GOODPUT = "goodput"


@dataclass(frozen=True, slots=True)
class Elastic:
    """How ranks join and leave a job that runs.

    Attributes:
        folder: Where they meet, on a file system that all share.
        joins: This process joins a job that runs; else it is of those that start it.
        rule: KEEP holds the global batch; LINEAR grows it and the learning rate with the ranks; GOODPUT takes
            the batch that makes most progress on them.
        max_batch: The largest global batch, unless it is held; None for no limit, which GOODPUT must have.
        max_lr: The highest learning rate, unless the batch is held; None for no limit.
        ramp_steps: With LINEAR, over so many steps the learning rate goes to its new value.
        asked_ranks: With LINEAR, the global batch and the learning rate are those of so many ranks.
    """

    folder: Path
    joins: bool = False
    rule: BatchRule = BatchRule.KEEP
    max_batch: int | None = None
    max_lr: float | None = None
    ramp_steps: int = 1
    asked_ranks: int = 1

    def __post_init__(self) -> None:
        for name in ("max_batch", "max_lr", "ramp_steps", "asked_ranks"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise InputError(f"{name} is {value:g}, must be positive")
        if self.rule is BatchRule.KEEP and (self.max_batch or self.max_lr):
            raise InputError("max_batch and max_lr are for batches that change; keep holds the batch")
        if self.rule is BatchRule.GOODPUT and self.max_batch is None:
            raise InputError("the batch rule goodput needs max_batch: how far the batch may grow")
        if not self.folder.parent.is_dir():
            raise InputError(f"{self.folder} cannot be made: there is no folder {self.folder.parent}")


@dataclass(frozen=True, slots=True)
class TrainingJob:
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
        shares: The weight of each rank's part of a batch; None for even parts.
        emulated_flops: Speed of the pretended GPU, see `Settings`: of all ranks, or of each; None for none.
            With data, ranks compute for real, and a step takes as long as such a GPU would.
        pace_s: Seconds that a step lasts at least: on all ranks, or on each; None for none.
        fork: How copies of it train side by side; None for one, of all ranks.
        elastic: How ranks join and leave it; None if they are the same from its start to its end.
        judge_every: Steps between evaluations on the samples held out; None for one at the end.
        progress: A file that tells Dally how far it is, see `dally.progress`; None for none.
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
    shares: tuple[float, ...] | None = None
    emulated_flops: tuple[float, ...] | None = None
    pace_s: tuple[float, ...] | None = None
    fork: Fork | None = None
    elastic: Elastic | None = None
    judge_every: int | None = None
    progress: Path | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "checkpoint_every", "judge_every", "join_timeout_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name} is {value:g}, must be positive")
        for name in ("shares", "emulated_flops", "pace_s"):
            for value in getattr(self, name) or ():
                if not 0 < value < float("inf"):
                    raise InputError(f"{name} has {value:g}, must be positive numbers")
        if self.checkpoint_every and not self.checkpoint:
            raise InputError("checkpoint_every needs a checkpoint file")
        if self.fork:
            self._check_fork()
        if self.elastic:
            self._check_elastic(self.elastic)
        for file in (self.checkpoint, self.log_file):
            if file and not file.parent.is_dir():
                raise InputError(f"{file} cannot be written: there is no folder {file.parent}")

    def _check_fork(self) -> None:
        if not self.checkpoint:
            raise InputError("copies meet in files beside the checkpoint: name one")
        if self.checkpoint_every:
            raise InputError("copies write the checkpoint once in a slot: leave checkpoint_every out")
        if self.shares:
            raise InputError("copies share no batch: leave shares out")

    def _check_elastic(self, elastic: Elastic) -> None:
        if self.fork:
            raise InputError("a job is forked or elastic, not both")
        if self.shares or any(len(each or ()) > 1 for each in (self.emulated_flops, self.pace_s)):
            raise InputError("ranks of an elastic job change: give no shares, and one speed or pace for all")
        if elastic.max_batch is not None and elastic.max_batch < self.settings.global_batch:
            raise InputError(
                f"max_batch is {elastic.max_batch}, must be the global batch, "
                f"{self.settings.global_batch}, or more"
            )
        if elastic.asked_ranks > self.settings.global_batch:
            raise InputError(
                f"asked_ranks is {elastic.asked_ranks}, must be {self.settings.global_batch} or fewer: "
                f"each has a sample of the global batch"
            )

    def of_rank(self, name: str, rank: int, ranks: int) -> float | None:
        """What one of so many ranks has of `emulated_flops` or `pace_s`.

        Raises:
            InputError: There are neither one for all nor as many as ranks.
        """
        values: tuple[float, ...] | None = getattr(self, name)
        if values is None:
            return None
        if len(values) not in (1, ranks):
            raise InputError(
                f"{name} are {len(values)} and ranks {ranks}, must be one for all or one for each"
            )
        return values[rank % len(values)]

    def judges_after(self, step: int) -> bool:
        """Whether an evaluation is due after so many steps; that at the end is another."""
        return self.judge_every is not None and step % self.judge_every == 0 and step < self.steps

    def saves_after(self, step: int) -> bool:
        """Whether a checkpoint is due after so many steps."""
        return step == self.steps or (self.checkpoint_every is not None and step % self.checkpoint_every == 0)
