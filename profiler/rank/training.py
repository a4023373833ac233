"""Measures one model: its computing, its buckets, their all-reduces, and whole iterations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

import torch

from dally.profiles.schema import Compute, Model, Telemetry
from profiler.findings import Trained
from profiler.orders import Order
from profiler.rank.buckets import Recorder, layout
from profiler.rank.clocks import clock_of
from profiler.rank.exchange import Exchange
from profiler.rank.host_load import LoadMeter, judge, loads_of
from profiler.rank.steps import Iteration, Iterations, Stepper, Traffic
from profiler.rank.telemetry import Sampler
from profiler.rank.timings import outlier_flag, summarise
from workloads.group import Group
from workloads.registry import Workload
from workloads.settings import Settings
from workloads.training import Trainer

_GRADIENTS = "float32"
"""What gradients are, in every precision (`Precision`)."""

_UNTIL_REARRANGED = 2
"""Iterations after which DDP has put the gradients into buckets in the order in which they really come."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What the measurements of all models share.

    Attributes:
        order: What is measured.
        group: The ranks, joined.
        exchange: Between them.
        sweep: Times all-reduces of sizes, unless they have been.
        make_meter: Begins to count the load of this machine.
        make_sampler: Makes what reads the counters of GPUs; gives None on ranks that read none.
    """

    order: Order
    group: Group
    exchange: Exchange
    sweep: Callable[[Sequence[int]], None]
    make_meter: Callable[[], LoadMeter]
    make_sampler: Callable[[], Sampler | None]


def measure_model(workload: Workload, bench: Bench) -> Trained:
    """Measure one model; every rank takes part and learns the result, but for telemetry, which rank 0 reads.

    In this order: iterations as in training until they are warm; without communication, for the compute;
    with buckets that are filled but not sent, for when each is ready; all-reduces of the buckets' sizes;
    iterations as in training.
    """
    meter = bench.make_meter()
    ordered = bench.order.local_batch
    local_batch = workload.local_batch if ordered is None else ordered
    stepper = _make_stepper(workload, local_batch, bench)
    repetitions = stepper.warm_up(Traffic.FULL, bench.order, _UNTIL_REARRANGED)
    alone = stepper.time(Traffic.NONE, stepper.warm_up(Traffic.NONE, bench.order))
    silent = stepper.time(Traffic.SILENT, stepper.warm_up(Traffic.SILENT, bench.order))
    peak_memory_bytes = _peak_memory_bytes(bench)
    buckets = layout([iteration.buckets for iteration in silent.kept])
    bench.sweep([bucket.bytes for bucket in buckets])
    full, telemetry = _time_watched(stepper, repetitions, bench.make_sampler())
    model = Model(
        name=workload.name,
        params=workload.params,
        dtype=_GRADIENTS,
        grad_bytes=sum(bucket.bytes for bucket in buckets),
        local_batch=local_batch,
        optimizer=workload.optimizer,
        buckets=buckets,
        peak_memory_bytes=peak_memory_bytes,
    )
    flags = (
        *_flag("the iteration without communication", alone),
        *_flag("the iteration with silent buckets", silent),
        *_flag("the iteration", full),
    )
    return Trained(
        model=model,
        compute=compute_of(alone.kept, silent.kept, full.kept if bench.group.size > 1 else None),
        iteration=summarise([iteration.end_s for iteration in full.kept]),
        quality=judge(loads_of(bench.exchange.gather(meter.spent())), flags),
        telemetry=telemetry,
    )


def compute_of(
    alone: Sequence[Iteration], silent: Sequence[Iteration], full: Sequence[Iteration] | None
) -> Compute:
    """What an iteration computes, from medians over repetitions.

    Args:
        alone: Without communication.
        silent: With buckets that are filled, but not sent.
        full: As in training; None with one rank.
    """
    return Compute(
        fwd_s=median(iteration.forward_s for iteration in alone),
        bwd_s=median(iteration.backward_s - iteration.forward_s for iteration in alone),
        step_s=median(iteration.end_s - iteration.backward_s for iteration in alone),
        window_s=max(0.0, median(item.backward_s - item.buckets[0].ready_s for item in silent)),
        contention_factor=_contention_factor(silent, full) if full else None,
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


def _make_stepper(workload: Workload, local_batch: int, bench: Bench) -> Stepper:
    order, group = bench.order, bench.group
    if group.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(group.device)
    settings = Settings(
        global_batch=local_batch * group.size,
        precision=order.precision,
        seed=order.seed,
        emulated_flops=order.emulated_flops,
    )
    clock = clock_of(group.device)
    recorder = Recorder(clock, group.size)
    trainer = Trainer(workload, settings, group, recorder.reduce)
    first = group.rank * local_batch
    batch = trainer.draw(range(first, first + local_batch))
    return Stepper(trainer, recorder, batch, clock, bench.exchange)


def _time_watched(
    stepper: Stepper, repetitions: int, sampler: Sampler | None
) -> tuple[Iterations, Telemetry | None]:
    """Iterations as in training, while GPUs are watched where there are any."""
    if sampler is None:
        return stepper.time(Traffic.FULL, repetitions), None
    sampler.start()
    try:
        full = stepper.time(Traffic.FULL, repetitions)
    finally:
        telemetry = sampler.stop()
    return full, telemetry


def _peak_memory_bytes(bench: Bench) -> int | None:
    """The most GPU memory that one rank has needed so far; the sweep's buffer comes later."""
    if bench.group.device.type != "cuda":
        return None
    return max(bench.exchange.gather(torch.cuda.max_memory_allocated(bench.group.device)))


def _flag(what: str, iterations: Iterations) -> tuple[str, ...]:
    return outlier_flag(what, len(iterations.kept), iterations.made)
