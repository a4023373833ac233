"""Measures one model: its computing, its buckets, their all-reduces, and whole iterations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import linear_regression, median, quantiles

import torch

from dally.profiles.schema import BatchTime, Compute, Model, Telemetry
from profiler.findings import Trained
from profiler.orders import MeasurementSpec
from profiler.rank.buckets import Recorder, layout
from profiler.rank.clocks import clock_of
from profiler.rank.exchange import RankExchange
from profiler.rank.gpus import usual_precision
from profiler.rank.host_load import LoadMeter, judge, loads_of
from profiler.rank.steps import GradientTraffic, Iteration, Iterations, Stepper
from profiler.rank.telemetry import GpuSampler
from profiler.rank.timings import Warmth, outlier_flag, summarise, warmth_flag
from workloads.group import Group
from workloads.registry import ModelRecipe
from workloads.settings import Precision, Settings
from workloads.training import Trainer

_MOST_FIXED = 0.99
"""Of an iteration, at most so much is taken for fixed."""

_UNTIL_REARRANGED = 2
"""Iterations after which DDP has put the gradients into buckets in the order in which they really come."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What the measurements of all models share.

    Attributes:
        order: What is measured.
        group: The ranks, joined.
        exchange: Between them.
        sweep: Times all-reduces of sizes, unless they have been; what is to be said of all so far.
        make_meter: Begins to count the load of this machine.
        make_sampler: Makes what reads the counters of GPUs; gives None on ranks that read none.
    """

    order: MeasurementSpec
    group: Group
    exchange: RankExchange
    sweep: Callable[[Sequence[int]], tuple[str, ...]]
    make_meter: Callable[[], LoadMeter]
    make_sampler: Callable[[], GpuSampler | None]


def measure_model(workload: ModelRecipe, bench: Bench) -> Trained:
    """Measure one model; every rank takes part and learns the result, but for telemetry, which rank 0 reads.

    In this order: iterations as in training until they are warm; without communication, for the compute, on
    one rank with other local batches too; with buckets that are filled but not sent, for when each is ready;
    all-reduces of the buckets' sizes; iterations as in training.
    """
    order = bench.order
    meter = bench.make_meter()
    local_batch = workload.local_batch if order.local_batch is None else order.local_batch
    precision = order.precision or usual_precision(bench.group.device)
    trainer, recorder = _make_trainer(workload, local_batch, precision, bench)
    stepper = _make_stepper(trainer, recorder, local_batch, bench)
    warmth = stepper.warm_up(GradientTraffic.FULL, order, _UNTIL_REARRANGED)
    alone = stepper.time(GradientTraffic.NONE, stepper.warm_up(GradientTraffic.NONE, order))
    batches = _time_other_batches(trainer, stepper, local_batch, bench)
    silent = stepper.time(GradientTraffic.SILENT, stepper.warm_up(GradientTraffic.SILENT, order))
    peak_memory_bytes = _peak_memory_bytes(bench)
    buckets = layout([iteration.buckets for iteration in silent.kept])
    reduced_flags = bench.sweep([bucket.bytes for bucket in buckets])
    full, telemetry = _time_watched(stepper, warmth, bench.make_sampler())
    compute = compute_of(alone.kept, silent.kept, full.kept if bench.group.size > 1 else None)
    times_s = {local_batch: compute.total_s} | {item.local_batch: item.total_s for item in batches}
    model = Model(
        name=workload.name,
        params=workload.params,
        dtype=str(recorder.dtype).removeprefix("torch."),
        grad_bytes=sum(bucket.bytes for bucket in buckets),
        local_batch=local_batch,
        optimizer=workload.optimizer,
        buckets=buckets,
        peak_memory_bytes=peak_memory_bytes,
        precision=str(precision) if order.emulated_flops is None else None,
    )
    flags = (
        *_flags("the iteration without communication", alone, order),
        *_flags("the iteration with silent buckets", silent, order),
        *_flags("the iteration", full, order),
        *reduced_flags,
    )
    return Trained(
        model=model,
        compute=replace(compute, fixed_s=fixed_s(times_s, local_batch), other_batches=batches),
        iteration=summarise([iteration.end_s for iteration in full.kept]),
        quality=judge(loads_of(bench.exchange.gather(meter.spent())), flags),
        telemetry=telemetry,
    )


def other_batches(order: MeasurementSpec, local_batch: int) -> tuple[int, ...]:
    """The local batches whose compute is timed besides: those ordered, or half of the model's."""
    asked = order.more_local_batches or (local_batch // 2,)
    return tuple(batch for batch in asked if 0 < batch != local_batch)


def fixed_s(times_s: Mapping[int, float], local_batch: int) -> float:
    """What of an iteration's compute does not go with the local batch, seconds.

    The best line through the times of all batches (least squares) meets batch 0 there: at 0 or more, and at
    less than the whole iteration of `local_batch`. 0 where only one batch was timed.

    Args:
        times_s: Local batch -> compute of an iteration; `local_batch` is among them.
        local_batch: That of the profile.
    """
    if len(times_s) < 2:
        return 0.0
    line = linear_regression(list(times_s), list(times_s.values()))
    return min(max(0.0, line.intercept), _MOST_FIXED * times_s[local_batch])


def compute_of(
    alone: Sequence[Iteration], silent: Sequence[Iteration], full: Sequence[Iteration] | None
) -> Compute:
    """What an iteration computes, from medians over repetitions.

    Args:
        alone: Without communication.
        silent: With buckets that are filled, but not sent.
        full: As in training; None with one rank.
    """
    return replace(
        compute_alone(alone),
        window_s=max(0.0, median(item.backward_s - item.buckets[0].ready_s for item in silent)),
        contention_factor=_contention_factor(silent, full) if full else None,
    )


def compute_alone(alone: Sequence[Iteration]) -> Compute:
    """The parts of iterations without communication, medians over repetitions."""
    return Compute(
        fwd_s=median(iteration.forward_s for iteration in alone),
        bwd_s=median(iteration.backward_s - iteration.forward_s for iteration in alone),
        step_s=median(iteration.end_s - iteration.backward_s for iteration in alone),
        window_s=None,
        contention_factor=None,
    )


def _contention_factor(silent: Sequence[Iteration], full: Sequence[Iteration]) -> float:
    """By how much communication stretches backward.

    It is 1 unless the median with communication is above nine in ten repetitions without: a short backward
    scatters by more than communication takes from it, and as the factor is never below 1, scatter would only
    ever raise it.
    """
    still_s = [_filling_s(iteration) for iteration in silent]
    stretched_s = median(_filling_s(iteration) for iteration in full)
    if stretched_s <= quantiles(still_s, n=10, method="inclusive")[-1]:
        return 1.0
    return stretched_s / median(still_s)


def _filling_s(iteration: Iteration) -> float:
    """From the end of forward until the last bucket is ready: backward, without the wait for all-reduces."""
    return iteration.buckets[-1].ready_s - iteration.forward_s


def _time_other_batches(
    trainer: Trainer, stepper: Stepper, local_batch: int, bench: Bench
) -> tuple[BatchTime, ...]:
    """Compute of other local batches, ascending; only on one rank, whose compute profiles take."""
    if bench.group.size > 1:
        return ()
    times = []
    for batch in sorted(other_batches(bench.order, local_batch)):
        other = stepper.with_batch(trainer.draw(range(batch)))
        alone = other.time(GradientTraffic.NONE, other.warm_up(GradientTraffic.NONE, bench.order))
        times.append(BatchTime(batch, compute_alone(alone.kept).total_s))
    return tuple(times)


def _make_trainer(
    workload: ModelRecipe, local_batch: int, precision: Precision, bench: Bench
) -> tuple[Trainer, Recorder]:
    order, group = bench.order, bench.group
    if group.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(group.device)
    settings = Settings(
        global_batch=local_batch * group.size,
        precision=precision,
        seed=order.seed,
        emulated_flops=order.emulated_flops,
    )
    recorder = Recorder(clock_of(group.device), group.size)
    return Trainer(workload, settings, group, recorder.reduce), recorder


def _make_stepper(trainer: Trainer, recorder: Recorder, local_batch: int, bench: Bench) -> Stepper:
    first = bench.group.rank * local_batch
    batch = trainer.draw(range(first, first + local_batch))
    return Stepper(trainer, recorder, batch, clock_of(bench.group.device), bench.exchange)


def _time_watched(
    stepper: Stepper, warmth: Warmth, sampler: GpuSampler | None
) -> tuple[Iterations, Telemetry | None]:
    """Iterations as in training, while GPUs are watched where there are any."""
    if sampler is None:
        return stepper.time(GradientTraffic.FULL, warmth), None
    sampler.start()
    try:
        full = stepper.time(GradientTraffic.FULL, warmth)
    finally:
        telemetry = sampler.stop()
    return full, telemetry


def _peak_memory_bytes(bench: Bench) -> int | None:
    """The most GPU memory that one rank has needed so far; the sweep's buffer comes later."""
    if bench.group.device.type != "cuda":
        return None
    return max(bench.exchange.gather(torch.cuda.max_memory_allocated(bench.group.device)))


def _flags(what: str, iterations: Iterations, order: MeasurementSpec) -> tuple[str, ...]:
    return (
        *warmth_flag(what, iterations.settled, order),
        *outlier_flag(what, len(iterations.kept), iterations.made),
    )
