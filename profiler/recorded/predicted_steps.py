"""How long a step of a recorded job would take at other places of its cluster."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dally.cluster.topology import Domain, Topology
from profiler.recorded.link_traffic import RankHosts, link_seconds
from profiler.recorded.record import RecordedRun
from profiler.recorded.step_places import rank_machines

_FARTHEST = 2
"""What lies between racks is looked at, and nothing above: `RankHosts` knows links of hosts and racks."""


@dataclass(frozen=True, slots=True)
class PredictedStep:
    """A step at one place.

    How much of what a job sends passes while its GPUs compute, one recording does not tell. So a step lasts
    longer than the recorded one by none to all of what the links are busy longer, and never less than that.

    Attributes:
        level: The lowest level at which one domain holds the place.
        machines: On how many machines the ranks lie, as many on each.
        busy_s: How long the slowest link carries what is sent in a step, seconds.
        least_s, most_s: Bounds of the step, seconds.
    """

    level: str
    machines: int
    busy_s: float
    least_s: float
    most_s: float


def predict_steps(run: RecordedRun, topology: Topology) -> list[PredictedStep]:
    """A step at each level, on the first machines that have room.

    Args:
        run: Of a job with a GPU for each rank.
        topology: The cluster on which it ran; its links count.

    Raises:
        InputError: A rank left no record, or ran on a host that is not in the cluster.
    """
    records, recorded = run.records, rank_machines(run, topology)
    here_s, step_s = link_seconds(records, _rank_hosts(recorded, topology)), records[0].step_s
    found = []
    for level, machines in _places(len(records), len(set(recorded)), topology):
        each = len(records) // len(machines)
        ranks = [machine for machine in machines for _ in range(each)]
        busy_s = link_seconds(records, _rank_hosts(ranks, topology))
        more_s = busy_s - here_s
        bounds_s = (max(busy_s, step_s + min(0.0, more_s)), max(busy_s, step_s + max(0.0, more_s)))
        found.append(PredictedStep(topology.levels[level], len(machines), busy_s, *bounds_s))
    return found


def _rank_hosts(machines: Sequence[int], topology: Topology) -> RankHosts:
    """The machines of all ranks, by rank, with the links that lead there."""
    racks, link_bps = {}, {}
    for machine in set(machines):
        host = topology.machines[machine].name
        rack = topology.domains[topology.ancestors[machine][1]]
        racks[host] = f"{topology.levels[1]} {rack.name}"
        for name, domain in ((host, topology.domains[machine]), (racks[host], rack)):
            if domain.uplink is not None:
                link_bps[name] = domain.uplink.bandwidth_bps
    return RankHosts([topology.machines[machine].name for machine in machines], racks, link_bps)


def _places(ranks: int, hosts: int, topology: Topology) -> Iterator[tuple[int, list[int]]]:
    """A place at each level that has room: one machine, then as many as recorded, two at least."""
    if whole := _with_room(topology.root, ranks, topology):
        yield 0, whole[:1]
    spread = max(2, hosts)
    if ranks % spread:
        return
    for level in range(1, min(_FARTHEST, topology.widest) + 1):
        found = (
            _spread_in(domain, spread, ranks // spread, topology) for domain in topology.level_domains[level]
        )
        if place := next(filter(None, found), None):
            yield level, place


def _spread_in(domain: Domain, spread: int, each: int, topology: Topology) -> list[int]:
    """So many machines of a rack, or of two racks of a domain by halves; empty where there is no room."""
    if domain.level == 1:
        machines = _with_room(domain, each, topology)
        return machines[:spread] if len(machines) >= spread else []
    less, more = spread // 2, spread - spread // 2
    rooms = [_with_room(topology.domains[child], each, topology) for child in domain.children]
    rooms = sorted((room for room in rooms if len(room) >= less), key=len, reverse=True)[:2]
    return [*rooms[0][:more], *rooms[1][:less]] if len(rooms) == 2 and len(rooms[0]) >= more else []


def _with_room(domain: Domain, gpus: int, topology: Topology) -> list[int]:
    """The machines of a domain with so many GPUs."""
    below = [domain.index]
    while topology.domains[below[0]].level > 0:
        below = [child for index in below for child in topology.domains[index].children]
    return [machine for machine in below if topology.machines[machine].gpus >= gpus]
