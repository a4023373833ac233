"""Holds the model of jobs that share links against exact simulations of their bits and a measurement.

In the exact simulation each job computes, then sends its bits over its links, and so on for ever; at each
moment the links are shared max-min fairly. Jobs begin at random places of their iterations.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from dally.markdown import table
from dally.profiles.allreduce import HEADERS
from dally.profiles.contention import Flow, stretches

_MIXES, _STARTS, _ITERATIONS = 60, 8, 60
_LEAST_S = 1e-12

Rates = dict[int, float]
"""Bits per second by a job's place in its mix."""

Model = Callable[[Sequence["Cycle"], Mapping[int, float]], list[float]]
"""Gives the iteration time of each job of a mix on links of these bandwidths, seconds."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """One iteration of a job: it computes, then sends.

    Attributes:
        compute_s: Seconds of computing.
        sent_bits: What it then sends over each link.
        demand_bps: How fast, at most.
        links: Which links.
    """

    compute_s: float
    sent_bits: float
    demand_bps: float
    links: tuple[int, ...]

    @property
    def comm_s(self) -> float:
        """Seconds of sending alone."""
        return self.sent_bits / self.demand_bps

    @property
    def alone_s(self) -> float:
        """The iteration alone, seconds."""
        return self.compute_s + self.comm_s


class _JobProgress:
    """A job on its way through its iterations."""

    def __init__(self, cycle: Cycle, begun_s: float) -> None:
        self.cycle = cycle
        self.sending = begun_s >= cycle.compute_s
        left_s = cycle.alone_s - begun_s
        self.left = left_s * cycle.demand_bps if self.sending else cycle.compute_s - begun_s
        self.ends_s: list[float] = []

    def pass_time(self, lasting_s: float, rate: float, now: float) -> None:
        """Some seconds pass at this many bits (or seconds of computing) per second."""
        self.left -= lasting_s * rate
        if self.left > _LEAST_S * rate:
            return
        if self.sending:
            self.ends_s.append(now)
        self.sending = not self.sending
        self.left = self.cycle.sent_bits if self.sending else self.cycle.compute_s


def fair_rates(cycles: Mapping[int, Cycle], capacity_bps: Mapping[int, float]) -> Rates:
    """Max-min fair rates of jobs that send now, by progressive filling."""
    left_bps, rates, open_jobs = dict(capacity_bps), Rates(), dict(cycles)
    while open_jobs:
        # The next limit is met by the slowest job that can send no faster, or by the fullest link.
        counts = {link: sum(link in cycle.links for cycle in open_jobs.values()) for link in left_bps}
        share_bps, full = min((left_bps[link] / count, link) for link, count in counts.items() if count)
        slowest_bps = min(cycle.demand_bps for cycle in open_jobs.values())
        level = min(share_bps, slowest_bps)
        limited = [
            job
            for job, cycle in open_jobs.items()
            if cycle.demand_bps <= level or (share_bps < slowest_bps and full in cycle.links)
        ]
        for job in limited:
            cycle = open_jobs.pop(job)
            rates[job] = min(level, cycle.demand_bps)
            for link in cycle.links:
                left_bps[link] = max(0.0, left_bps[link] - rates[job])
    return rates


def exact(cycles: Sequence[Cycle], capacity_bps: Mapping[int, float], seed: int = 0) -> list[float]:
    """Mean iteration times of jobs that begin at random places of their iterations, seconds."""
    random, now = Random(seed), 0.0
    jobs = [_JobProgress(cycle, random.random() * cycle.alone_s) for cycle in cycles]
    while min(len(job.ends_s) for job in jobs) <= _ITERATIONS:
        sending = {place: job.cycle for place, job in enumerate(jobs) if job.sending}
        rates = dict.fromkeys(range(len(jobs)), 1.0) | fair_rates(sending, capacity_bps)
        lasting_s = min(job.left / rates[place] for place, job in enumerate(jobs))
        now += lasting_s
        for place, job in enumerate(jobs):
            job.pass_time(lasting_s, rates[place], now)
    # Mean iteration times since each job's first iteration ended.
    return [(job.ends_s[-1] - job.ends_s[0]) / (len(job.ends_s) - 1) for job in jobs]


def shared(cycles: Sequence[Cycle], capacity_bps: Mapping[int, float]) -> list[float]:
    """The iteration times that the simulator foretells, seconds."""
    flows = [
        Flow(dict.fromkeys(each.links, each.demand_bps), each.comm_s, _constant(each.compute_s))
        for each in cycles
    ]
    found = stretches(flows, capacity_bps)
    return [each.compute_s + each.comm_s * stretch for each, stretch in zip(cycles, found, strict=True)]


def split_evenly(cycles: Sequence[Cycle], capacity_bps: Mapping[int, float]) -> list[float]:
    """The simplest model: communication takes 1 + (the others' shares of time in communication) as long."""
    stretch = [1.0] * len(cycles)
    for _ in range(200):
        busy = [
            each.comm_s * factor / (each.compute_s + each.comm_s * factor)
            for each, factor in zip(cycles, stretch, strict=True)
        ]
        stretch = [
            1
            + max(
                sum(busy[k] for k, other in enumerate(cycles) if k != place and link in other.links)
                for link in each.links
            )
            for place, each in enumerate(cycles)
        ]
    return [each.compute_s + each.comm_s * factor for each, factor in zip(cycles, stretch, strict=True)]


def alone(cycles: Sequence[Cycle], capacity_bps: Mapping[int, float]) -> list[float]:
    """The iteration times of jobs that have the links for themselves, seconds."""
    return [each.alone_s for each in cycles]


MODELS: Mapping[str, Model] = {
    "jobs do not meet": alone,
    "bandwidth / (1 + others' shares of time)": split_evenly,
    "`dally.profiles.contention`": shared,
}


def mixes_table(links: int) -> str:
    """Errors of the models on random mixes of 2 to 6 jobs over so many links."""
    random = Random(links)
    mixes = [[_draw(random, links) for _ in range(random.choice([2, 2, 3, 4, 6]))] for _ in range(_MIXES)]
    capacity_bps = dict.fromkeys(range(links), 1.0)
    truths = []
    for mix in mixes:
        runs = [exact(mix, capacity_bps, seed) for seed in range(_STARTS)]
        truths.append([sum(times) / len(times) for times in zip(*runs, strict=True)])
    rows = []
    for name, model in MODELS.items():
        errors = [
            abs(told / true - 1)
            for mix, truth in zip(mixes, truths, strict=True)
            for told, true in zip(model(mix, capacity_bps), truth, strict=True)
        ]
        rows.append((name, f"{sum(errors) / len(errors):.1%}", f"{max(errors):.1%}"))
    return table(("model", "mean error", "largest error"), rows)


def measured_table() -> str:
    """Two jobs that exchange 16 MB each iteration over one link of 200 Mb/s, measured and foretold.

    Each computed 0.1 s; alone an iteration took 0.91 s, so of 200 Mb/s the exchange used 83 %.
    """
    link_bps, compute_s, alone_s, measured_s = 200e6, 0.1, 0.91, 1.35
    sent_bits = 16e6 * 8 * HEADERS
    job = Cycle(compute_s, sent_bits, sent_bits / (alone_s - compute_s), (0,))
    rows = []
    for name, model in MODELS.items():
        told_s = model([job, job], {0: link_bps})[0]
        rows.append((name, f"{told_s:.2f}", f"{told_s / measured_s - 1:+.0%}"))
    return table(("model", "seconds, 1.35 measured", "error"), rows)


def _draw(random: Random, links: int) -> Cycle:
    """A job that communicates 10 to 95 % of its time, over up to two links, at 40 to 100 % of their rate."""
    demand_bps, busy = random.choice([1.0, 1.0, 1.0, 0.8, 0.4]), random.uniform(0.1, 0.95)
    alone_s = 10 ** random.uniform(-0.7, 0.7)
    crossed = tuple(sorted(random.sample(range(links), min(links, 2))))
    return Cycle(alone_s * (1 - busy), alone_s * busy * demand_bps, demand_bps, crossed)


def _constant(value: float) -> Callable[[float], float]:
    return lambda _: value
