"""What a user asks for: one training job, of fixed size, elastic or forked."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil
from typing import NamedTuple, Self

from dally.bounds import MOST
from dally.errors import InputError
from dally.jobs.training_plan import TrainingPlan
from dally.words import plural

CHECKPOINTED = 85
"""Exit code by which a job says that it has written its checkpoint and wants to be requeued."""


MOST_GPUS = 1_000_000_000
"""The most GPUs that one job may ask for."""


class JobKind(StrEnum):
    """How the GPUs of a job may vary while it runs."""

    RIGID = "rigid"
    ELASTIC = "elastic"
    FORKED = "forked"


class Gang(NamedTuple):
    """The GPUs that start together, and how they may lie.

    Attributes:
        gpus: How many.
        gpu_type: The only type accepted; None for any.
        per_machine: Exactly so many on each machine, a divisor of `gpus`; None: however they fit.
        machines: Names of the only machines accepted; None for any.
        segment: Its machines come in groups of so many, a divisor of `units`, each group in one domain of the
            level above the machines, several perhaps in the same; None: wherever they are. It is 1 only with
            `spread`, as it says nothing else.
        spread: No two of these groups are in one such domain.
        consolidated: All is in one domain of the lowest level that has enough machines, whoever holds them
            now (see `FreeGpus.highest`).
        whole_blocks: Nobody else has a GPU in the domains right above its machines.
    """

    gpus: int
    gpu_type: str | None = None
    per_machine: int | None = None
    machines: frozenset[str] | None = None
    segment: int | None = None
    spread: bool = False
    consolidated: bool = False
    whole_blocks: bool = False

    @property
    def units(self) -> int:
        """What it takes, in units of `held`: GPUs, or machines with `per_machine` GPUs each."""
        return self.gpus if self.per_machine is None else self.gpus // self.per_machine

    def held(self, gpus: int) -> int:
        """What a machine with so many free GPUs can give it, in units."""
        return gpus if self.per_machine is None else int(gpus >= self.per_machine)

    def in_block(self, machines: int) -> int:
        """What a domain right above the machines can give it if so many of its machines are able to."""
        if self.segment is None:
            return machines
        whole = machines - machines % self.segment
        return min(whole, self.segment) if self.spread else whole

    @property
    def layout(self) -> str:
        """How it lies, to itself and to others, in words that follow on others; empty if that is open."""
        apart = ", each segment in another block" if self.spread else ""
        close = ", close together" if self.consolidated else ""
        return apart + close + (", in blocks that nobody else uses" if self.whole_blocks else "")

    @property
    def unsegmented(self) -> Self:
        """The same, wherever its machines are."""
        return self._replace(segment=None, spread=False, consolidated=False)

    @property
    def step(self) -> int:
        """A domain above the machines gives it a multiple of so many GPUs."""
        return (self.per_machine or 1) * (self.segment or 1)


@dataclass(frozen=True, slots=True)
class Job:
    """One request for a gang of GPUs.

    Attributes:
        job_id: Unique name within a workload.
        submit_s: Submission time, seconds from the workload's origin.
        gpus: GPUs asked for; all of them start together or none does. Of one copy if it is forked.
        duration_s: Running time on `gpus` GPUs at the best placement the cluster offers, seconds.
        user: Its user; empty if unknown.
        group: Account or virtual cluster; empty if unknown.
        model: Name of the model it trains, a key of the profiles; empty if unknown.
        status: How the job ended in the trace it came from; empty if unknown. Not used for scheduling.
        gpu_type: The only GPU type it accepts; None for any.
        batch: Samples of an iteration on all its GPUs; None: as many on each as its model's profile has.
        gpus_per_machine: Exactly so many GPUs on each machine, whatever its size; None: however they fit.
        preemptible: Its GPUs may be taken while it runs; it resumes from a checkpoint.
        gang: What it asks for, as placements see it.
        kind: Fixed size, elastic or forked.
        min_gpus: Fewest GPUs an elastic job runs on; None means `gpus`.
        max_gpus: Most GPUs an elastic job can use; None means `gpus`.
        max_copies: Most copies a forked job may train side by side, each on a machine of its own.
        time_limit_s: The user's own bound on the running time, seconds; None if not given.
        job_name: What its user calls it, like `train-17`; empty if unknown. Unlike `job_id` it may repeat.
        epochs: Passes over its data until it ends, with `batch`; None: as many as its model's profile says.
        epoch_samples: Samples of one pass; None: as many as the profile says.
        machines: Names of the only machines it may use; None for any.
        segment: Its machines come in groups of so many, each group in one domain of the level above, as with
            Slurm's `--segment`; None: wherever they are. Needs `gpus_per_machine`.
        spread_segments: No two of these groups are in one domain of that level, as with `--spread-segments`.
        consolidate_segments: All are in one domain of the lowest level that has enough machines, as with
            `--consolidate-segments`.
        whole_blocks: No other job has a machine in the domains right above its own, as with
            `--exclusive=topo`.
        partition: The partition of the cluster whose machines alone it may use; empty for any.
        plan: How it trains the transformer that `model` names or spells out, with `batch` in sequences; None
            if unknown. Where nothing is known of the model's shape, costs go by profiles.

    Raises:
        InputError: A number is out of range; the message names the job and the field.
    """

    job_id: str
    submit_s: float
    gpus: int
    duration_s: float
    user: str = ""
    group: str = ""
    model: str = ""
    status: str = ""
    gpu_type: str | None = None
    kind: JobKind = JobKind.RIGID
    min_gpus: int | None = None
    max_gpus: int | None = None
    max_copies: int = 1
    time_limit_s: float | None = None
    gpus_per_machine: int | None = None
    preemptible: bool = True
    batch: int | None = None
    job_name: str = ""
    epochs: float | None = None
    epoch_samples: int | None = None
    machines: frozenset[str] | None = None
    segment: int | None = None
    plan: TrainingPlan | None = None
    spread_segments: bool = False
    consolidate_segments: bool = False
    whole_blocks: bool = False
    partition: str = ""
    gang: Gang = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise InputError(f"job {self.job_id}: gpus is {self.gpus}, must be at least 1")
        if not 0 < self.duration_s <= MOST:
            raise InputError(
                f"job {self.job_id}: duration_s is {self.duration_s:g}, "
                f"must be a positive number up to {MOST:g}"
            )
        if not 0 <= self.submit_s <= MOST:
            raise InputError(
                f"job {self.job_id}: submit_s is {self.submit_s:g}, must be 0 or more, up to {MOST:g}"
            )
        if self.time_limit_s is not None and not 0 < self.time_limit_s <= MOST:
            raise InputError(
                f"job {self.job_id}: time_limit_s is {self.time_limit_s:g}, "
                f"must be a positive number up to {MOST:g}"
            )
        low, high = self.min_gpus or self.gpus, self.max_gpus or self.gpus
        if high > MOST_GPUS:
            raise InputError(f"job {self.job_id}: {high} GPUs are more than {MOST_GPUS}, the most")
        if not 1 <= low <= self.gpus <= high:
            raise InputError(
                f"job {self.job_id}: min_gpus {low}, gpus {self.gpus}, max_gpus {high} must not decrease"
            )
        if self.batch is not None and self.batch < 1:
            raise InputError(f"job {self.job_id}: batch is {self.batch}, must be at least 1")
        for name, number in (("epochs", self.epochs), ("epoch_samples", self.epoch_samples)):
            if number is not None and not 0 < number <= MOST:
                raise InputError(
                    f"job {self.job_id}: {name} is {number:g}, must be a positive number up to {MOST:g}"
                )
        self._check_copies()
        self._check_plan()
        if self.machines is not None and not self.machines:
            raise InputError(f"job {self.job_id}: machines is empty, must name at least one")
        each = self.gpus if self.kind is JobKind.FORKED else self.gpus_per_machine
        if each is not None and (each < 1 or self.gpus % each):
            raise InputError(
                f"job {self.job_id}: gpus_per_machine is {each}, must divide its {plural(self.gpus, 'GPU')}"
            )
        self._check_segment()
        if self.whole_blocks and self.kind is not JobKind.RIGID:
            raise InputError(f"job {self.job_id}: has whole_blocks and is {self.kind}, not rigid")
        each = None if self.most_gpus == 1 else each
        count = self.gpus // (each or self.gpus)
        spread = self.spread_segments and (self.segment or count) < count
        consolidated = self.consolidate_segments and count > 1
        segment = None if self.segment == 1 and not spread else self.segment
        layout = segment, spread, consolidated, self.whole_blocks
        gang = Gang(self.gpus, self.gpu_type, each, self.machines, *layout)
        object.__setattr__(self, "gang", gang)

    def _check_copies(self) -> None:
        if self.max_copies < 1:
            raise InputError(f"job {self.job_id}: max_copies is {self.max_copies}, must be at least 1")
        if self.kind is not JobKind.FORKED:
            if self.max_copies > 1:
                raise InputError(
                    f"job {self.job_id}: max_copies is {self.max_copies}, but only forked jobs have copies"
                )
        elif self.gpus_per_machine not in (None, self.gpus):
            raise InputError(
                f"job {self.job_id}: gpus_per_machine is {self.gpus_per_machine}, "
                f"but a copy has its {plural(self.gpus, 'GPU')} on one machine"
            )

    def _check_segment(self) -> None:
        if self.segment is None:
            for name in ("spread_segments", "consolidate_segments"):
                if getattr(self, name):
                    raise InputError(f"job {self.job_id}: has {name}, but no segment")
            return
        if self.kind is not JobKind.RIGID:
            raise InputError(
                f"job {self.job_id}: segment is {self.segment}, but it is {self.kind}, not rigid"
            )
        if self.gpus_per_machine is None:
            raise InputError(
                f"job {self.job_id}: segment is {self.segment}, but gpus_per_machine is not given"
            )
        machines = self.gpus // self.gpus_per_machine
        if self.segment < 1 or machines % self.segment:
            raise InputError(
                f"job {self.job_id}: segment is {self.segment}, must divide its {plural(machines, 'machine')}"
            )

    def _check_plan(self) -> None:
        plan = self.plan
        if plan is None:
            return
        if self.kind is not JobKind.RIGID:
            raise InputError(
                f"job {self.job_id}: has a plan and is {self.kind}, but only rigid jobs have one"
            )
        if plan.gpus != self.gpus:
            raise InputError(
                f"job {self.job_id}: plan {plan} has {plural(plan.gpus, 'GPU')}, must have "
                f"the job's {self.gpus}"
            )
        if self.batch is None:
            raise InputError(
                f"job {self.job_id}: has a plan and no batch, the sequences of a step on all its GPUs"
            )
        if self.batch % plan.batch_step:
            raise InputError(
                f"job {self.job_id}: batch is {self.batch}, must be a multiple of the plan's "
                f"micro x dp = {plan.batch_step}"
            )

    def runs_on(self, shares: Sequence[int]) -> bool:
        """Whether so many GPUs, one number a machine, are a gang of the job, or copies if it is forked."""
        if self.kind is JobKind.FORKED:
            return 1 <= len(shares) <= self.max_copies and all(gpus == self.gpus for gpus in shares)
        return self.least_gpus <= sum(shares) <= self.most_gpus

    @property
    def least_gpus(self) -> int:
        """Fewest GPUs that its gang runs on: fewer than asked for only if it is elastic."""
        if self.kind is not JobKind.ELASTIC:
            return self.gpus
        each = self.gpus_per_machine or 1
        return ceil((self.min_gpus or self.gpus) / each) * each

    @property
    def most_gpus(self) -> int:
        """Most GPUs that its gang can use: more than asked for only if it is elastic."""
        if self.kind is not JobKind.ELASTIC:
            return self.gpus
        each = self.gpus_per_machine or 1
        return (self.max_gpus or self.gpus) // each * each
