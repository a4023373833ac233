"""A machine whose times are known in closed form, and what runs on it would find."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dally.profiles.schema import (
    Bucket,
    Compute,
    Env,
    Model,
    PointLink,
    PointShape,
    Quality,
    Reduced,
    Timing,
)
from profiler.messages import Finished, Line, Started, Trained, format_line
from profiler.report.raw import RawRun
from profiler.spec import MeasurementRun, MeasurementSpec
from workloads.settings import Backend

SWEEP = (4096, 65536, 2**20, 2**24, 2**26, 2**28)
LATENCY_S = 100e-6
COMPUTE = Compute(fwd_s=0.030, bwd_s=0.060, step_s=0.005, window_s=0.055, contention_factor=None)
ENV = Env(torch="2.13.0+cpu", kernel="6.1", hosts=("h1", "h2"))

SIZES = {"resnet": (8_000_000, 25_000_000, 30_000_000), "vgg": (16_000_000, 100_000_000)}
"""The bytes of each model's buckets, in the order in which they become ready."""


@dataclass(frozen=True)
class RankPlace:
    """Where ranks stand: a link of so many bits per second between so many machines."""

    tier: str
    nodes: int
    per_node: int = 1
    bandwidth_bps: float | None = None
    flows: int = 0
    spec: str = "blocked"

    @property
    def name(self) -> str:
        rate = f"-{self.bandwidth_bps / 1e6:.0f}m" if self.bandwidth_bps else ""
        return f"{self.tier}-{self.nodes}x{self.per_node}{rate}-{self.spec}-bg{self.flows}"


SOLO = RankPlace("machine", 1)
RACK = RankPlace("rack", 2, bandwidth_bps=2e9)
SLOW = RankPlace("rack", 2, bandwidth_bps=500e6)
FAR = RankPlace("network", 4, bandwidth_bps=1e9)
PLACES = (SOLO, RACK, SLOW, FAR)


def buckets(model: str) -> tuple[Bucket, ...]:
    """Evenly ready over backward, from 10 ms after its start on."""
    assert COMPUTE.fwd_s is not None
    sizes = SIZES[model]
    gap_s = 0.05 / len(sizes)
    ready = [COMPUTE.fwd_s + 0.005 + gap_s * number for number in range(len(sizes))]
    return tuple(Bucket(size, at) for size, at in zip(sizes, ready, strict=True))


def allreduce_s(place: RankPlace, size: int) -> float:
    """Latency and transfer over a ring; foreign flows take equal shares of the link."""
    assert place.bandwidth_bps is not None
    gpus = place.nodes * place.per_node
    sent = size * 8 * 2 * (gpus - 1) / gpus
    return (LATENCY_S + sent / place.bandwidth_bps) * (1 + place.flows)


def iteration_s(place: RankPlace, model: str, stretch: float = 1.0) -> float:
    """Simulate one iteration event by event: buckets wait in a queue for the one wire."""
    fwd_s, bwd_s, step_s = COMPUTE.fwd_s or 0.0, COMPUTE.bwd_s * stretch, COMPUTE.step_s or 0.0
    now_s, waiting, wire_busy = 0.0, list[int](), False
    events = [(fwd_s + (item.ready_s - fwd_s) * stretch, "ready", item.bytes) for item in buckets(model)]
    heapq.heapify(events)
    while events and place.nodes > 1:
        now_s, kind, size = heapq.heappop(events)
        if kind == "ready":
            waiting.append(size)
        else:
            wire_busy = False
        if waiting and not wire_busy:
            size = waiting.pop(0)
            heapq.heappush(events, (now_s + allreduce_s(place, size), "sent", size))
            wire_busy = True
    return max(now_s, fwd_s + bwd_s) + step_s


def measure(
    place: RankPlace,
    models: Sequence[str] = ("resnet", "vgg"),
    stretch: float = 1.0,
    error: float = 0.0,
    env: Env = ENV,
    emulated_flops: float | None = 1e12,
) -> RawRun:
    """What a run at a place finds.

    Args:
        place: Where.
        models: What it trains.
        stretch: By how much communication slows backward down.
        error: Fraction by which iterations last longer than they should.
        env: What it runs on.
        emulated_flops: As in the order.
    """
    apart = place.nodes > 1
    slowed = (stretch, error) if apart else (1.0, 0.0)
    spec = MeasurementSpec(
        tuple(models), Backend.GLOO, background_flows=place.flows, emulated_flops=emulated_flops
    )
    shape = PointShape(place.nodes, place.per_node, place.spec, 2 if place.tier == "network" else 1)
    link = PointLink(place.bandwidth_bps, None) if place.bandwidth_bps else None
    hosts = tuple(f"h{number}" for number in range(1, place.nodes + 1))
    sizes = sorted({*SWEEP, *(size for model in models for size in SIZES[model])}) if apart else []
    return RawRun(
        run=MeasurementRun(place.name, place.tier, shape, hosts, link, spec),
        env=env,
        reduced=tuple(Reduced(size, allreduce_s(place, size), None, None, 5) for size in sizes),
        trained=tuple(_train(place, model, *slowed) for model in models),
        finished=True,
    )


def write_raw(raw: RawRun, path: Path) -> None:
    """The raw file of a run."""
    assert raw.env is not None
    lines: list[Line] = [raw.run, Started(raw.env), *raw.reduced, *raw.trained]
    lines += [Finished(1.0)] if raw.finished else []
    path.write_text("".join(f"{format_line(line)}\n" for line in lines))


def _train(place: RankPlace, name: str, stretch: float, error: float) -> Trained:
    sizes = SIZES[name]
    median_s = iteration_s(place, name, stretch) * (1 + error)
    return Trained(
        model=Model(name, sum(sizes) // 4, "float32", sum(sizes), 32, "sgd", buckets(name), None),
        compute=replace(COMPUTE, contention_factor=stretch if place.nodes > 1 else None),
        iteration=Timing(median_s, median_s, median_s, 10),
        quality=Quality(0.01 * place.nodes, 0.0),
    )
