"""Measures one model: its computing, its buckets, their all-reduces, and whole iterations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import linear_regression, median, quantiles

import torch

from dally.profiles.schema import BatchTime, Compute, Model
from profiler.messages import Trained
from profiler.rank.clocks import Clock
from profiler.rank.exchange import RankExchange
from profiler.rank.facts import usual_precision
from profiler.rank.host_load import LoadMeter, judge, loads_of
from profiler.rank.steps import BucketRecorder, GradientTraffic, Iteration, Stepper, median_buckets
from profiler.rank.telemetry import GpuSampler
from profiler.rank.timings import outlier_flag, summarise, warmth_flag
from profiler.spec import MeasurementSpec
from workloads.group import Group
from workloads.registry import ModelRecipe
from workloads.settings import Settings
from workloads.training import Trainer

_MOST_FIXED = 0.99
"""Of an iteration, at most so much is taken for fixed."""

_UNTIL_REARRANGED = 2
"""Iterations after which DDP has put the gradients into buckets in the order in which they really come."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What the measurements of all models share.

    Attributes:
        spec: What is measured.
        group: The ranks, joined.
        exchange: Between them.
        sweep: Times all-reduces of sizes, unless they have been; what is to be said of all so far.
        make_meter: Begins to count the load of this machine.
        make_sampler: Makes what reads the counters of GPUs; gives None on ranks that read none.
    """

    spec: MeasurementSpec
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
    spec, group, clock = bench.spec, bench.group, Clock(bench.group.device)
    meter = bench.make_meter()
    local_batch = workload.local_batch if spec.local_batch is None else spec.local_batch
    precision = spec.precision or usual_precision(group.device)
    on_gpu = group.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(group.device)
    recorder = BucketRecorder(clock, group.size)
    settings = Settings(
        global_batch=local_batch * group.size,
        precision=precision,
        seed=spec.seed,
        emulated_flops=spec.emulated_flops,
    )
    trainer = Trainer(workload, settings, group, recorder.reduce)
    samples = range(group.rank * local_batch, (group.rank + 1) * local_batch)
    stepper = Stepper(trainer, recorder, trainer.draw(samples), clock, bench.exchange)

    warmth = stepper.warm_up(GradientTraffic.FULL, spec, _UNTIL_REARRANGED)
    alone = stepper.time(GradientTraffic.NONE, stepper.warm_up(GradientTraffic.NONE, spec))
    batches = []
    # Profiles take their compute from one rank; others would only spend time on further batches.
    for batch in sorted(other_batches(spec, local_batch)) if group.size == 1 else ():
        other = replace(stepper, batch=trainer.draw(range(batch)))
        timed = other.time(GradientTraffic.NONE, other.warm_up(GradientTraffic.NONE, spec))
        batches.append(BatchTime(batch, compute_alone(timed.kept).total_s))
    silent = stepper.time(GradientTraffic.SILENT, stepper.warm_up(GradientTraffic.SILENT, spec))
    peak_memory_bytes = None
    if on_gpu:  # the most that one rank has needed; the sweep's buffer comes only now
        peak_memory_bytes = max(bench.exchange.gather(torch.cuda.max_memory_allocated(group.device)))
    buckets = median_buckets(silent.kept)
    sweep_flags = bench.sweep([bucket.bytes for bucket in buckets])
    telemetry, sampler = None, bench.make_sampler()
    if sampler:
        sampler.start()
    try:
        full = stepper.time(GradientTraffic.FULL, warmth)
    finally:
        if sampler:
            telemetry = sampler.stop()

    compute = compute_of(alone.kept, silent.kept, full.kept if group.size > 1 else None)
    times_s = {local_batch: compute.total_s} | {item.local_batch: item.total_s for item in batches}
    timings = {
        "the iteration without communication": alone,
        "the iteration with silent buckets": silent,
        "the iteration": full,
    }
    flags: list[str] = []
    for what, iterations in timings.items():
        flags += warmth_flag(what, iterations.settled, spec)
        flags += outlier_flag(what, len(iterations.kept), iterations.made)
    return Trained(
        model=Model(
            name=workload.name,
            params=workload.params,
            dtype=str(recorder.dtype).removeprefix("torch."),
            grad_bytes=sum(bucket.bytes for bucket in buckets),
            local_batch=local_batch,
            optimizer=workload.optimizer,
            buckets=buckets,
            peak_memory_bytes=peak_memory_bytes,
            precision=str(precision) if spec.emulated_flops is None else None,
        ),
        compute=replace(compute, fixed_s=fixed_s(times_s, local_batch), other_batches=tuple(batches)),
        iteration=summarise([iteration.end_s for iteration in full.kept]),
        quality=judge(loads_of(bench.exchange.gather(meter.spent())), (*flags, *sweep_flags)),
        telemetry=telemetry,
    )


def other_batches(spec: MeasurementSpec, local_batch: int) -> tuple[int, ...]:
    """The local batches whose compute is timed besides: those asked for, or half of the model's."""
    asked = spec.more_local_batches or (local_batch // 2,)
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

    Communication stretches backward by the contention factor. It is 1 unless the median with communication is
    above nine in ten repetitions without: a short backward scatters by more than communication takes from it,
    and as the factor is never below 1, scatter would only ever raise it.

    Args:
        alone: Without communication.
        silent: With buckets that are filled, but not sent.
        full: As in training; None with one rank.
    """
    factor = None
    if full:
        # From the end of forward until the last bucket is ready: backward, without the wait for all-reduces.
        still_s, stretched_s = (
            [iteration.buckets[-1].ready_s - iteration.forward_s for iteration in iterations]
            for iterations in (silent, full)
        )
        stretched = median(stretched_s) > quantiles(still_s, n=10, method="inclusive")[-1]
        factor = median(stretched_s) / median(still_s) if stretched else 1.0
    return replace(
        compute_alone(alone),
        window_s=max(0.0, median(item.backward_s - item.buckets[0].ready_s for item in silent)),
        contention_factor=factor,
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
