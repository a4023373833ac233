"""Jobs that share links slow each other: how much longer each one's communication takes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, log

from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import Job, JobKind
from dally.profiles.allreduce import HEADERS, ring_factor
from dally.profiles.costs import Cost, CostModel
from dally.profiles.iteration import Prediction

_MOST_ROUNDS = 200
_TOLERANCE = 1e-7
_MOST_APART = 8
"""Up to so many sharers each is looked at with each other one taken away."""
_STEP = 2**0.125
"""Between stretches for which iterations are predicted; others are interpolated."""


@dataclass(frozen=True, slots=True)
class Flow:
    """The traffic of one job.

    Attributes:
        demands_bps: The domains whose uplinks it crosses, and what it sends over each of them each way while
            it communicates alone, headers included.
        comm_s: Seconds of an iteration in which it communicates alone.
        idle_s: Seconds of an iteration in which it does not, by how many times as long communication takes.
    """

    demands_bps: Mapping[int, float]
    comm_s: float
    idle_s: Callable[[float], float]


def fair_share_bps(capacity_bps: float, others: Iterable[tuple[float, float]]) -> float:
    """What a job that communicates all the time gets of a link, if it wants all it can get.

    Max-min fairness in the mean: the level at which this job, and the others in the part of the time in which
    they communicate, take the whole link, no one more than the level or than it wants.

    Args:
        capacity_bps: Of the link.
        others: What each other job wants (bits/s), and the part of the time in which it communicates.
    """
    wanted = sorted(others)
    left_bps, weight = capacity_bps, 1 + fsum(busy for _, busy in wanted)
    for demand_bps, busy in wanted:
        if demand_bps * weight >= left_bps:
            break
        left_bps, weight = left_bps - busy * demand_bps, max(1.0, weight - busy)
    return left_bps / weight


def stretches(flows: Sequence[Flow], capacity_bps: Mapping[int, float]) -> list[float]:
    """How many times as long the communication of each job takes beside the others, 1 or more.

    Each round takes from the last one how long every job does not communicate, so how often the others meet
    it. All numbers only grow from those of jobs alone, so it converges, to the same whatever the order.

    Args:
        flows: The jobs.
        capacity_bps: Bandwidth of the links that count; others have room for all.
    """
    sharing = _Sharing(flows, capacity_bps)
    found = [1.0] * len(flows)
    for _ in range(_MOST_ROUNDS):
        before, found = found, [sharing.stretch(number) for number in range(len(flows))]
        if all(now - was <= _TOLERANCE * was for now, was in zip(found, before, strict=True)):
            break
        sharing.update(found)
    return found


class _Sharing:
    """Jobs on links, and the part of the time in which each job communicates beside each other one."""

    def __init__(self, flows: Sequence[Flow], capacity_bps: Mapping[int, float]) -> None:
        self._flows, self._capacity_bps = flows, capacity_bps
        self._links = [[link for link in flow.demands_bps if link in capacity_bps] for flow in flows]
        self._on: dict[int, list[int]] = {}
        self._demands_bps: dict[int, dict[int, float]] = {}
        for number, links in enumerate(self._links):
            for link in links:
                self._on.setdefault(link, []).append(number)
                self._demands_bps.setdefault(link, {})[number] = flows[number].demands_bps[link]
        self._beside = [
            sorted({other for link in links for other in self._on[link]} - {number})
            for number, links in enumerate(self._links)
        ]
        self._met: dict[tuple[int, int], float] = {}
        self.update([1.0] * len(flows), alone=True)

    def update(self, found: Sequence[float], alone: bool = False) -> None:
        """Say anew how much of its communication each job spends beside each other one's."""
        met: dict[tuple[int, int], float] = {}
        for number, flow in enumerate(self._flows):
            idle_s = flow.idle_s(found[number])
            for other in self._beside[number]:
                stretch = found[number]
                if not alone and len(self._beside[number]) <= _MOST_APART:
                    stretch = self.stretch(number, without=other)
                met[other, number] = flow.comm_s * stretch / (flow.comm_s * stretch + idle_s)
        self._met = met

    def stretch(self, number: int, without: int = -1) -> float:
        """How many times as long a job's communication takes, perhaps with one of the others gone."""
        longest = 1.0
        for link in self._links[number]:
            demands_bps = self._demands_bps[link]
            demand_bps = wanted_bps = demands_bps[number]
            others = []
            for other in self._on[link]:
                if other != number and other != without:
                    theirs_bps, busy = demands_bps[other], self._met[number, other]
                    others.append((theirs_bps, busy))
                    wanted_bps += busy * (theirs_bps if theirs_bps < demand_bps else demand_bps)
            capacity_bps = self._capacity_bps[link]
            if wanted_bps > capacity_bps:  # by this and others if none has more: else it has all it wants
                longest = max(longest, demand_bps / fair_share_bps(capacity_bps, others))
        return longest


class _Idle:
    """Seconds of a job's iteration in which it does not communicate, by its stretch; remembers them."""

    def __init__(self, costs: CostModel, job: Job, allocation: Allocation) -> None:
        self._costs, self._job, self._allocation = costs, job, allocation
        self._known: list[float] = []

    def __call__(self, stretch: float) -> float:
        """Linear between known stretches, as iterations are but where communication comes out of hiding."""
        place = int(log(stretch, _STEP))
        low, high = _STEP**place, _STEP ** (place + 1)
        share = min(1.0, max(0.0, (stretch - low) / (high - low)))
        return (1 - share) * self._at(place) + share * self._at(place + 1)

    def _at(self, place: int) -> float:
        while len(self._known) <= place:
            stretch = _STEP ** len(self._known)
            beside = self._costs.prediction(self._job, self._allocation, stretch)
            assert beside is not None, "what communicates has a profile"
            self._known.append(beside.iteration_s - beside.comm_s)
        return self._known[place]


@dataclass(frozen=True, slots=True)
class _Running:
    """A job that crosses links, and how many times as long its communication takes now."""

    job: Job
    allocation: Allocation
    flow: Flow
    stretch: float = 1.0


class SharedLinks:
    """Which jobs cross which links of a cluster, and what that costs each of them.

    Args:
        costs: Predicts what jobs cost alone.
    """

    def __init__(self, costs: CostModel) -> None:
        self._costs = costs
        self._idle: dict[tuple[object, ...], _Idle] = {}
        self._running: dict[str, _Running] = {}
        self._on: dict[int, dict[str, None]] = {}
        self._touched: set[int] = set()

    def start(self, job: Job, allocation: Allocation) -> None:
        """Add a job that starts to run."""
        flow = self._flow(job, allocation)
        if flow is None:
            return
        self._running[job.job_id] = _Running(job, allocation, flow)
        for link in flow.demands_bps:
            self._on.setdefault(link, {})[job.job_id] = None
        self._touched.update(flow.demands_bps)

    def stop(self, job_id: str) -> None:
        """Remove a job that runs no more."""
        gone = self._running.pop(job_id, None)
        if gone is None:
            return
        for link in gone.flow.demands_bps:
            del self._on[link][job_id]
        self._touched.update(gone.flow.demands_bps)

    def changes(self) -> list[tuple[str, Cost]]:
        """The running jobs whose rate has changed since the last call, each with its cost now."""
        if not self._touched:
            return []
        touched = dict.fromkeys(name for link in sorted(self._touched) for name in self._on[link])
        self._touched.clear()
        changed: dict[str, float] = {}
        seen: set[str] = set()
        for first in touched:
            if first in seen:
                continue
            names, crowded_bps = self._component(first)
            seen.update(names)
            flows = [self._running[name].flow for name in names]
            found = stretches(flows, crowded_bps) if crowded_bps else [1.0] * len(names)
            for name, stretch in zip(names, found, strict=True):
                if stretch != self._running[name].stretch:
                    changed[name] = stretch
        costs = []
        for name, stretch in changed.items():
            running = self._running[name] = replace(self._running[name], stretch=stretch)
            if stretch == 1.0:
                cost = self._costs.cost(running.job, running.allocation)
            else:
                cost = self._costs.stretched(running.job, running.allocation, stretch)
            costs.append((name, cost))
        return costs

    def _flow(self, job: Job, allocation: Allocation) -> Flow | None:
        """The traffic of a job; None if it crosses no link or nobody knows that it would."""
        if len(allocation) == 1 or job.kind is JobKind.FORKED:
            return None  # copies train apart
        alone = self._costs.prediction(job, allocation)
        links = crossed_links(self._costs.topology, allocation)
        if alone is None or alone.comm_s <= 0 or not links:
            return None
        demands_bps = _demands_bps(self._costs.topology, allocation, links, alone)
        if not demands_bps:
            return None
        spread = self._costs.spread(job, allocation)
        key: tuple[object, ...] = job.model, job.gpus, job.gpu_type, job.batch, spread
        if self._costs.plan_gap(job) == "":
            key = self._costs.plan_key(job, allocation)
        if key not in self._idle:
            self._idle[key] = _Idle(self._costs, job, allocation)
        return Flow(demands_bps, alone.comm_s, self._idle[key])

    def _component(self, name: str) -> tuple[list[str], dict[int, float]]:
        """The jobs that crowded links join to a job, itself first, and the bandwidth of these links."""
        names, crowded_bps, seen = {name: None}, {}, set()
        queue = [name]
        while queue:
            for link in self._running[queue.pop()].flow.demands_bps:
                if link in seen:
                    continue
                seen.add(link)
                capacity_bps = _uplink_bps(self._costs.topology, link)
                wanted_bps = fsum(self._running[other].flow.demands_bps[link] for other in self._on[link])
                if wanted_bps > capacity_bps:
                    crowded_bps[link] = capacity_bps
                    queue += [other for other in self._on[link] if other not in names]
                    names |= self._on[link]
        return [*names], crowded_bps


def _demands_bps(
    topology: Topology, allocation: Allocation, links: Sequence[int], alone: Prediction
) -> dict[int, float]:
    """What a job that runs alone sends over each link that it crosses while it communicates, bits per second.

    By its plan what its axes send, which differs by level; else what each rank of a ring sends, so each
    machine's last one. Where nobody knows that, all that its narrowest link gives.
    """
    if alone.sent_bytes is not None:
        rates = [8 * sent / alone.comm_s for sent in alone.sent_bytes]
        by_link = {link: rates[topology.domains[link].level] for link in links}
        return {link: min(rate, _uplink_bps(topology, link)) for link, rate in by_link.items() if rate > 0}
    demand_bps = min(_uplink_bps(topology, link) for link in links)
    if alone.reduced_bytes is not None:
        ranks = sum(gpus for _, gpus in allocation)
        sent_bps = HEADERS * 8 * ring_factor(ranks) * alone.reduced_bytes / alone.comm_s
        demand_bps = min(demand_bps, sent_bps)
    return dict.fromkeys(links, demand_bps)


def crossed_links(topology: Topology, allocation: Allocation) -> tuple[int, ...]:
    """The domains whose uplinks a gang's ring crosses, by index; those that have none are left out."""
    level = topology.level_of(allocation)
    below = {domain for machine, _ in allocation for domain in topology.ancestors[machine][:level]}
    return tuple(sorted(domain for domain in below if topology.domains[domain].uplink is not None))


def _uplink_bps(topology: Topology, domain: int) -> float:
    uplink = topology.domains[domain].uplink
    assert uplink is not None, "only uplinks that exist are crossed"
    return uplink.bandwidth_bps
