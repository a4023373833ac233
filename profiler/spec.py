"""What the ranks of one run measure, and on which hosts: the driver writes it, the ranks read it."""

import json
from dataclasses import asdict, dataclass

from dally.errors import InputError
from dally.profiles.decoding import decode
from dally.profiles.schema import PointLink, PointShape
from workloads.settings import Backend, Precision

RANK_HOSTS = "DALLY_RANK_HOSTS"
"""The variable that tells ranks under Slurm their hosts in rank order, between commas."""


@dataclass(frozen=True, slots=True)
class MeasurementSpec:
    """What every rank of a run measures; passed to it as one argument of JSON.

    Attributes:
        models: Names in the registry of workloads, in the order in which they are measured.
        backend: What carries the collectives.
        precision: What is computed in; None for bf16 where the GPU has it, else fp32.
        local_batch: Samples per rank and iteration; None for each model's own.
        more_local_batches: Others whose compute is timed too, on one rank, to tell what of it does not go
            with the batch; empty for half of `local_batch`.
        emulated_flops: Floating-point operations per second of a pretended GPU, whose compute is slept;
            None to compute for real.
        sweep_bytes: Sizes of the all-reduce sweep; the models' own bucket sizes are swept besides.
        warmup_s: Seconds after which a timing begins although what is timed has not settled.
        repetitions: Most timed repetitions of each timing.
        budget_s: Seconds after which a timing stops early; at least three repetitions are made.
        background_flows: Foreign TCP flows each way between neighbouring machines meanwhile.
        join_timeout_s: How long ranks wait for each other at the start.
        stall_s: Seconds without progress after which a rank ends, and all others with it.
        gpu_type: What Slurm calls the GPUs; None if nobody said.
        allow_busy: Measure, flagged, on a machine that others keep busy.
        seed: Seed of parameters and data.
    """

    models: tuple[str, ...]
    backend: Backend
    precision: Precision | None = None
    local_batch: int | None = None
    more_local_batches: tuple[int, ...] = ()
    emulated_flops: float | None = None
    sweep_bytes: tuple[int, ...] = ()
    warmup_s: float = 10.0
    repetitions: int = 30
    budget_s: float = 10.0
    background_flows: int = 0
    join_timeout_s: float = 120.0
    stall_s: float = 300.0
    gpu_type: str | None = None
    allow_busy: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """Where something is to run: ranks on hosts, at one tier and shape.

    Attributes:
        name: Names its files: letters, digits and hyphens.
        tier: machine, rack or network, as in a profile.
        shape: How the ranks are spread.
        hosts: The machines, in rank order: each holds `shape.gpus_per_node` ranks in a row.
        link: The slowest link crossed, where known.
    """

    name: str
    tier: str
    shape: PointShape
    hosts: tuple[str, ...]
    link: PointLink | None


@dataclass(frozen=True, slots=True)
class MeasurementRun(PlannedRun):
    """One run of the ranks that measure; `spec` is what."""

    spec: MeasurementSpec


def format_spec(spec: MeasurementSpec) -> str:
    """The one argument of JSON that ranks take."""
    return json.dumps(asdict(spec), separators=(",", ":"))


def parse_spec(text: str) -> MeasurementSpec:
    """Read what `format_spec` wrote.

    Raises:
        InputError: It is not a valid specification.
    """
    try:
        return decode(MeasurementSpec, json.loads(text))
    except ValueError as error:
        raise InputError(f"the specification is not JSON: {error}") from error
