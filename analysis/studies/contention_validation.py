"""Holds the model of jobs that share links against exact simulations of their bits and a measurement.

In the exact simulation each job computes, then sends its bits over its links, and so on for ever; at each
moment the links are shared max-min fairly. Jobs begin at random places of their iterations.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from dally.markdown import table
from dally.profiles.contention import HEADERS, Flow, stretches

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


class _Life:
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

    @property
    def mean_s(self) -> float:
        """Mean iteration time since the first one ended, seconds."""
        return (self.ends_s[-1] - self.ends_s[0]) / (len(self.ends_s) - 1)


def fair_rates(cycles: Mapping[int, Cycle], capacity_bps: Mapping[int, float]) -> Rates:
    """Max-min fair rates of jobs that send now, by progressive filling."""
    left_bps, rates, open_jobs = dict(capacity_bps), Rates(), dict(cycles)
    while open_jobs:
        level, full = _next_level(open_jobs, left_bps)
        limited = [
            job for job, cycle in open_jobs.items() if cycle.demand_bps <= level or full in cycle.links
        ]
        for job in limited:
            cycle = open_jobs.pop(job)
            rates[job] = min(level, cycle.demand_bps)
            for link in cycle.links:
                left_bps[link] = max(0.0, left_bps[link] - rates[job])
    return rates


def _next_level(cycles: Mapping[int, Cycle], left_bps: Mapping[int, float]) -> tuple[float, int | None]:
    """The rate at which the next limit is met, and the link that is then full, if it is one."""
    slowest_bps = min(cycle.demand_bps for cycle in cycles.values())
    counts = {link: sum(link in cycle.links for cycle in cycles.values()) for link in left_bps}
    shares = [(left_bps[link] / count, link) for link, count in counts.items() if count]
    share_bps, link = min(shares)
    return (slowest_bps, None) if slowest_bps <= share_bps else (share_bps, link)


def exact(cycles: Sequence[Cycle], capacity_bps: Mapping[int, float], seed: int = 0) -> list[float]:
    """Mean iteration times of jobs that begin at random places of their iterations, seconds."""
    random, now = Random(seed), 0.0
    lives = [_Life(cycle, random.random() * cycle.alone_s) for cycle in cycles]
    while min(len(life.ends_s) for life in lives) <= _ITERATIONS:
        sending = {place: life.cycle for place, life in enumerate(lives) if life.sending}
        rates = dict.fromkeys(range(len(lives)), 1.0) | fair_rates(sending, capacity_bps)
        lasting_s = min(life.left / rates[place] for place, life in enumerate(lives))
        now += lasting_s
        for place, life in enumerate(lives):
            life.pass_time(lasting_s, rates[place], now)
    return [life.mean_s for life in lives]


def shared(cycles: Sequence[Cycle], capacity_bps: Mapping[int, float]) -> list[float]:
    """The iteration times that the simulator foretells, seconds."""
    flows = [Flow(each.links, each.demand_bps, each.comm_s, _constant(each.compute_s)) for each in cycles]
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
            1 + max(sum(busy[k] for k in _others(cycles, place, link)) for link in each.links)
            for place, each in enumerate(cycles)
        ]
    return [each.compute_s + each.comm_s * factor for each, factor in zip(cycles, stretch, strict=True)]


def alone(cycles: Sequence[Cycle], capacity_bps: Mapping[int, float]) -> list[float]:
    """What it takes if nobody else is there, seconds."""
    return [each.alone_s for each in cycles]


MODELS: Mapping[str, Model] = {
    "jobs do not meet": alone,
    "bandwidth / (1 + others' shares of time)": split_evenly,
    "`dally.profiles.contention`": shared,
}


def mixes_table(links: int) -> str:
    """Errors of the models on random mixes of 2 to 6 jobs over so many links."""
    random = Random(links)
    mixes = [_mix(random, links) for _ in range(_MIXES)]
    capacity_bps = dict.fromkeys(range(links), 1.0)
    truths = [_mean_exact(mix, capacity_bps) for mix in mixes]
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


def _mix(random: Random, links: int) -> list[Cycle]:
    return [_cycle(random, links) for _ in range(random.choice([2, 2, 3, 4, 6]))]


def _cycle(random: Random, links: int) -> Cycle:
    """A job that communicates 10 to 95 % of its time, over up to two links, at 40 to 100 % of their rate."""
    demand_bps, busy = random.choice([1.0, 1.0, 1.0, 0.8, 0.4]), random.uniform(0.1, 0.95)
    alone_s = 10 ** random.uniform(-0.7, 0.7)
    crossed = tuple(sorted(random.sample(range(links), min(links, 2))))
    return Cycle(alone_s * (1 - busy), alone_s * busy * demand_bps, demand_bps, crossed)


def _mean_exact(cycles: Sequence[Cycle], capacity_bps: Mapping[int, float]) -> list[float]:
    runs = [exact(cycles, capacity_bps, seed) for seed in range(_STARTS)]
    return [sum(times) / len(times) for times in zip(*runs, strict=True)]


def _others(cycles: Sequence[Cycle], place: int, link: int) -> Iterable[int]:
    return (other for other, each in enumerate(cycles) if other != place and link in each.links)


def _constant(value: float) -> Callable[[float], float]:
    return lambda _: value
