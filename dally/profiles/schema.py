"""What a model costs on a cluster, as measured: the schema of a profile, versions 1 and 2.

Every number is in SI units, finite and not negative; None stands for what was not measured. Files of this
schema are read and written by `dally.profiles.files`; `dally.profiles.iteration` predicts from them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from dally.errors import InputError
from dally.jobs.parallelism import Parallelism
from dally.profiles.events import CollectiveCurve, Event

SCHEMA = 1
"""Of profiles without events; those with events are of version 2, and both are read."""

EVENT_SCHEMA = 2

TIERS = ("machine", "rack", "network")
"""Tiers of measured points: a gang inside one machine; on machines behind one switch; on several racks."""


class ProfileMode(StrEnum):
    """How the numbers of a profile came about; GIVEN: whole steps of the users' own programs."""

    NCCL = "nccl"
    GLOO = "gloo"
    EMULATED = "emulated"
    IMPORTED = "imported"
    GIVEN = "given"

    @property
    def on_cpu(self) -> bool:
        """Whether it ran on CPUs, so that its compute times say nothing about GPUs."""
        return self in (ProfileMode.GLOO, ProfileMode.EMULATED)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a profile comes from: its mode, source, licence, tool version and time (ISO 8601, UTC)."""

    mode: ProfileMode
    source: str
    licence: str
    tool_version: str
    utc_time: str


@dataclass(frozen=True, slots=True)
class Env:
    """What it was measured on; everything may be unknown.

    Attributes:
        gpu_type: What Slurm calls the GPUs, as `h100`; where the driver was not told, and in older profiles,
            CUDA's name of the device.
        device_name: CUDA's name of the device, as `NVIDIA H100 80GB HBM3`.
    """

    gpu_type: str | None = None
    device_name: str | None = None
    gpu_count: int | None = None
    driver: str | None = None
    cuda: str | None = None
    nccl: str | None = None
    torch: str | None = None
    nccl_env: Mapping[str, str] | None = None
    nccl_algorithm: str | None = None
    nccl_protocol: str | None = None
    cpu: str | None = None
    kernel: str | None = None
    tcp_congestion_control: str | None = None
    qdisc: str | None = None
    qdisc_burst_bytes: int | None = None
    nic: str | None = None
    link_speed_bps: float | None = None
    gpu_topology: str | None = None
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients reduced together: their bytes and when they are ready, seconds from the iteration's start."""

    bytes: int
    ready_s: float

    def __post_init__(self) -> None:
        _require(self.bytes > 0, f"bytes is {self.bytes}, must be positive")


@dataclass(frozen=True, slots=True)
class Model:
    """The model trained.

    Attributes:
        name: Its id, what a job's `model` says.
        params: Number of trained parameters.
        dtype: Type of the gradients on the wire.
        grad_bytes: Gradients reduced per iteration, bytes.
        local_batch: Samples per GPU and iteration.
        optimizer: Name of the optimizer.
        buckets: In the order in which they become ready; empty if not captured.
        peak_memory_bytes: Peak GPU memory of one rank.
        precision: What the passes computed in: fp32, bf16, fp16 or fp8; None if unknown, or slept.
    """

    name: str
    params: int | None
    dtype: str | None
    grad_bytes: int | None
    local_batch: int | None
    optimizer: str | None
    buckets: tuple[Bucket, ...]
    peak_memory_bytes: int | None
    precision: str | None = None

    def __post_init__(self) -> None:
        _require(bool(self.name), "name is empty")
        _require(self.grad_bytes != 0, "grad_bytes is 0, must be positive or null")
        ready = [bucket.ready_s for bucket in self.buckets]
        _require(ready == sorted(ready), "buckets are not sorted by ready_s")


@dataclass(frozen=True, slots=True)
class BatchTime:
    """An iteration on one GPU with another local batch than the profile's, samples and seconds."""

    local_batch: int
    total_s: float

    def __post_init__(self) -> None:
        _require(self.local_batch > 0, f"local_batch is {self.local_batch}, must be positive")
        _require(self.total_s > 0, f"total_s is {self.total_s:g}, must be positive")


@dataclass(frozen=True, slots=True)
class StageCompute:
    """What one stage of a pipeline computes, seconds: until its last call, and after that."""

    bwd_s: float
    step_s: float


@dataclass(frozen=True, slots=True)
class Compute:
    """One iteration on one GPU, without communication.

    Attributes:
        fwd_s: Forward pass, seconds; None if only known together with the backward pass.
        bwd_s: Backward pass, seconds; with the forward pass where `fwd_s` is None.
        step_s: Optimizer step, seconds; None if part of `bwd_s`.
        window_s: End of backward minus the moment the first bucket is ready, seconds.
        contention_factor: By how much communication at the same time stretches backward; 1 or more.
        fixed_s: What of the iteration stays when the local batch changes, seconds; the rest goes with it.
        other_batches: The whole iteration with other local batches, ascending; counts before `fixed_s`.
        stages: What each stage of a pipeline computes, where they were recorded; the phases above are then
            those of all, waits of stages for one another among them.
    """

    fwd_s: float | None
    bwd_s: float
    step_s: float | None
    window_s: float | None
    contention_factor: float | None
    fixed_s: float = 0.0
    other_batches: tuple[BatchTime, ...] = ()
    stages: tuple[StageCompute, ...] = ()

    def __post_init__(self) -> None:
        batches = [each.local_batch for each in self.other_batches]
        _require(batches == sorted(set(batches)), "other_batches is not sorted by local_batch, each once")
        _require(self.bwd_s > 0, f"bwd_s is {self.bwd_s:g}, must be positive")
        factor = self.contention_factor
        _require(factor is None or factor >= 1, f"contention_factor is {factor}, must be 1 or more, or null")
        _require(
            self.fixed_s < self.total_s, f"fixed_s is {self.fixed_s:g}, must be less than {self.total_s:g}"
        )

    @property
    def total_s(self) -> float:
        """The whole iteration, seconds."""
        return (self.fwd_s or 0.0) + self.bwd_s + (self.step_s or 0.0)


@dataclass(frozen=True, slots=True)
class PointShape:
    """How the GPUs of a measurement were spread: equally over machines.

    Attributes:
        nodes: Machines.
        gpus_per_node: GPUs on each.
        rank_order: `blocked` where neighbours in the ring fill one machine after another, as gangs are
            started; another word where not; None if unknown, then it counts as blocked.
        racks: Racks the machines are in; None if unknown.
    """

    nodes: int
    gpus_per_node: int
    rank_order: str | None
    racks: int | None = None

    def __post_init__(self) -> None:
        for name in ("nodes", "gpus_per_node"):
            _require(getattr(self, name) > 0, f"{name} is {getattr(self, name)}, must be positive")
        racks = self.racks
        _require(
            racks is None or 0 < racks <= self.nodes, f"racks is {racks}, must be 1 to {self.nodes}, or null"
        )

    @property
    def gpus(self) -> int:
        """GPUs of the whole gang."""
        return self.nodes * self.gpus_per_node


@dataclass(frozen=True, slots=True)
class PointLink:
    """The slowest link crossed during a measurement, each way; latency None if unknown."""

    bandwidth_bps: float
    latency_s: float | None

    def __post_init__(self) -> None:
        _require(self.bandwidth_bps > 0, f"bandwidth_bps is {self.bandwidth_bps:g}, must be positive")


@dataclass(frozen=True, slots=True)
class Timing:
    """A repeated time measurement: median and percentiles in seconds, and the number of repetitions."""

    median_s: float
    p10_s: float | None
    p90_s: float | None
    n: int | None

    def __post_init__(self) -> None:
        _check_timing(self.median_s, self.p10_s, self.p90_s)


@dataclass(frozen=True, slots=True)
class Reduced:
    """The time one all-reduce of `bytes` took over the whole gang."""

    bytes: int
    median_s: float
    p10_s: float | None
    p90_s: float | None
    n: int | None

    def __post_init__(self) -> None:
        _require(self.bytes > 0, f"bytes is {self.bytes}, must be positive")
        _check_timing(self.median_s, self.p10_s, self.p90_s)


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What NVML counted on one machine's GPUs while full iterations ran; None where a counter is missing.

    Attributes:
        gpu_utilisation: Mean share of time in which a kernel ran, 0 to 1.
        memory_used_bytes: Most memory in use on one GPU.
        pcie_bps: Mean traffic over PCIe, both ways together, bits per second.
        nvlink_bps: Mean traffic over NVLink, both ways together, bits per second.
        samples: How often utilisation and memory were read.
        reasons: Counter -> why it is missing.
    """

    gpu_utilisation: float | None
    memory_used_bytes: int | None
    pcie_bps: float | None
    nvlink_bps: float | None
    samples: int
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured on one shape.

    Attributes:
        shape: The spread of the gang.
        link: Under which link; None if unknown, then it counts as the topology's.
        allreduce_curve: By ascending bytes; empty if not swept.
        iteration: The full training iteration.
        exposed_s: Communication that compute did not hide, seconds.
        slowdown: Iteration time over that on the fastest tier.
        background_flows: Foreign TCP flows each way that shared every machine's link meanwhile.
        telemetry: What the GPUs' counters said; None if they were not read.
    """

    shape: PointShape
    link: PointLink | None
    allreduce_curve: tuple[Reduced, ...]
    iteration: Timing | None
    exposed_s: float | None
    slowdown: float | None
    background_flows: int = 0
    telemetry: Telemetry | None = None

    def __post_init__(self) -> None:
        sizes = [item.bytes for item in self.allreduce_curve]
        _require(sizes == sorted(set(sizes)), "allreduce_curve is not sorted by bytes, each once")


@dataclass(frozen=True, slots=True)
class Fit:
    """How well a formula fits: its parameters, residuals and errors on held-out points, as fractions."""

    form: str
    parameters: Mapping[str, float]
    residuals: tuple[float, ...]
    held_out_mape: float | None
    held_out_max: float | None
    valid_bytes: tuple[float, ...] | None


@dataclass(frozen=True, slots=True)
class Quality:
    """How far to trust it: CPU shares taken by others and by the hypervisor, and flags in words."""

    foreign_cpu_fraction: float | None = None
    steal: float | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Restart:
    """What it costs until a job makes progress on GPUs that it just got, seconds.

    Attributes:
        base_s: Of one checkpoint and restart.
        per_gpu_s: Of the same, for each GPU.
        first_s: Of its first start: loading its program, meeting the other ranks.
        first_per_gpu_s: Of the same, for each GPU.
        resize_s: Of a change of its GPUs without a checkpoint; on some of those that it had it goes on.
    """

    base_s: float = 6.0
    per_gpu_s: float = 1.0
    first_s: float = 0.0
    first_per_gpu_s: float = 0.0
    resize_s: float = 3.0

    def cost_s(self, gpus: int) -> float:
        """The cost of a restart for a gang of this many GPUs, seconds."""
        return self.base_s + self.per_gpu_s * gpus

    def first_cost_s(self, gpus: int) -> float:
        """The cost of a first start for a gang of this many GPUs, seconds."""
        return self.first_s + self.first_per_gpu_s * gpus


@dataclass(frozen=True, slots=True)
class Learning:
    """How a model's training gets on with other batch sizes, phase by phase until its target is reached.

    Attributes:
        batch: Global batch for which it was tuned: M0.
        most_batch: Largest global batch with which it reaches its target.
        most_local_batch: Largest batch that one GPU holds.
        epochs: Passes over the data until the target, with `batch`.
        samples: Of all these.
        done: How much of the training is done at the end of each phase, ascending; the last is 1.
        noise: The gradient noise scale in each phase, samples.
        metric: Accuracy or the like at the end of each phase; it may go down where less is better.
    """

    batch: int
    most_batch: int
    most_local_batch: int
    epochs: int
    samples: float
    done: tuple[float, ...]
    noise: tuple[float, ...]
    metric: tuple[float, ...]

    def __post_init__(self) -> None:
        _require(
            0 < self.batch <= self.most_batch, f"batch {self.batch}, most_batch {self.most_batch} decrease"
        )
        for name in ("most_local_batch", "epochs", "samples"):
            _require(getattr(self, name) > 0, f"{name} is {getattr(self, name)}, must be positive")
        ascending = [*self.done] == sorted(set(self.done)) and self.done[-1:] == (1.0,)
        _require(ascending, "done is not ascending to 1")
        for name in ("noise", "metric"):
            count = len(getattr(self, name))
            _require(count == len(self.done), f"{name} has {count} phases, done has {len(self.done)}")


@dataclass(frozen=True, slots=True)
class Profile:
    """One model on one GPU type with one local batch, precision and plan; hashable, by these.

    Attributes:
        plan: How its training was split, as `Parallelism` reads it; version 1 knows none.
        events: What an iteration communicates, in the order of `ready_s`, in place of `model.buckets`.
        curves: How long its collectives took, where that was measured.
    """

    schema: int
    provenance: Provenance
    env: Env
    model: Model
    compute: Compute
    tiers: Mapping[str, tuple[Point, ...]]
    fit: Fit | None = None
    quality: Quality | None = None
    restart: Restart = field(default_factory=Restart)
    learning: Learning | None = None
    plan: str | None = None
    events: tuple[Event, ...] = ()
    curves: tuple[CollectiveCurve, ...] = ()

    def __post_init__(self) -> None:
        own = self.model.local_batch
        others = [each.local_batch for each in self.compute.other_batches]
        _require(self.learning is None or bool(own), "learning needs a model.local_batch")
        _require(not others or bool(own), "compute.other_batches needs a model.local_batch")
        _require(own not in others, f"compute.other_batches holds the profile's own local batch {own}")
        self._check_events()
        for tier, points in self.tiers.items():
            _require(tier in TIERS, f"tiers has unknown tier {tier}; valid: {', '.join(TIERS)}")
            for number, point in enumerate(points):
                single = point.shape.nodes == 1
                place = f"tiers.{tier}[{number}].shape.nodes"
                _require(
                    single == (tier == "machine"),
                    f"{place} is {point.shape.nodes}, must be {'1' if tier == 'machine' else '2 or more'}",
                )

    def _check_events(self) -> None:
        schema = EVENT_SCHEMA if self.events else SCHEMA
        _require(
            self.schema == schema,
            f"schema is {self.schema}, must be {schema} as it has {'' if self.events else 'no '}events",
        )
        _require(not self.compute.stages or bool(self.events), "compute.stages belong to events")
        stages = [stage for each in self.events for stage in (each.stage, each.to) if stage is not None]
        _require(
            max(stages, default=-1) < max(1, len(self.compute.stages)),
            f"events have {max(stages, default=-1) + 1} stages, compute.stages {len(self.compute.stages)}",
        )
        _require((self.plan is None) == (not self.events), "plan and events belong together")
        _require(not self.curves or bool(self.events), "curves belong to events")
        ready = [each.ready_s for each in self.events]
        _require(ready == sorted(ready), "events are not sorted by ready_s")
        if self.plan is not None:
            ranks = Parallelism.parse(self.plan).gpus
            for number, each in enumerate(self.events):
                _require(
                    ranks % (each.size * each.stride) == 0,
                    f"events[{number}] has size {each.size} and stride {each.stride}, "
                    f"which do not divide {ranks} ranks",
                )
        for number, curve in enumerate(self.curves):
            _require(curve.tier in TIERS, f"curves[{number}].tier is {curve.tier}, must be one of {TIERS}")

    def __hash__(self) -> int:
        return hash(
            (
                self.model.name,
                self.env.gpu_type,
                self.model.local_batch,
                self.plan,
                self.model.precision,
            )
        )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InputError(message)


def _check_timing(median_s: float, p10_s: float | None, p90_s: float | None) -> None:
    low, high = median_s if p10_s is None else p10_s, median_s if p90_s is None else p90_s
    _require(median_s > 0, f"median_s is {median_s:g}, must be positive")
    _require(
        low <= median_s <= high, f"p10_s {low:g}, median_s {median_s:g}, p90_s {high:g} must not decrease"
    )
