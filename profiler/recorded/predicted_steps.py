"""How long a step of a recorded job would take at other places of its cluster."""

from collections.abc import Iterator
from dataclasses import dataclass

from dally.cluster.topology import Allocation, Domain, Topology
from dally.profiles.iteration import predict
from dally.profiles.parallel.rank_placement import RankPlacer
from profiler.recorded.record import RecordedRun
from profiler.recorded.recorded_profile import RecordedJob, recorded_profile


@dataclass(frozen=True, slots=True)
class PredictedStep:
    """A step at one place.

    Attributes:
        level: The lowest level at which one domain holds the place.
        machines: On how many machines the ranks lie, as many on each.
        step_s: The step, seconds.
        waiting_s: Part of it in which compute waits for what is sent.
        network_s: What leaves machines would take alone, one after another.
        recorded: Whether it ran there, and the step is the recorded one.
    """

    level: str
    machines: int
    step_s: float
    waiting_s: float
    network_s: float
    recorded: bool


def predict_steps(run: RecordedRun, topology: Topology) -> list[PredictedStep]:
    """A step at each level, on the first machines that have room.

    Args:
        run: Of a job with a GPU for each rank.
        topology: The cluster on which it ran; its links count.

    Raises:
        InputError: As for `recorded_profile`.
    """
    profile = recorded_profile(RecordedJob("recorded"), [run], topology)
    hosts = len({record.host for record in run.records})
    placer = RankPlacer(topology)
    found = []
    for place in _places(len(run.records), hosts, topology):
        shape = topology.shape(place)
        step = predict(profile, shape, ranks=placer.place(place))
        found.append(
            PredictedStep(
                topology.levels[shape.level],
                len(place),
                step.iteration_s,
                step.exposed_s,
                step.comm_s,
                step.method == "measured",
            )
        )
    return found


def _places(ranks: int, hosts: int, topology: Topology) -> Iterator[Allocation]:
    """A place at each level that has room: one machine, then as many as recorded, two at least."""
    if whole := _with_room(topology.root, ranks, topology):
        yield ((whole[0], ranks),)
    spread = max(2, hosts)
    if ranks % spread:
        return
    for level in range(1, topology.widest + 1):
        found = (
            _spread_in(domain, spread, ranks // spread, topology) for domain in topology.level_domains[level]
        )
        if place := next(filter(None, found), None):
            yield tuple((machine, ranks // spread) for machine in sorted(place))


def _spread_in(domain: Domain, spread: int, each: int, topology: Topology) -> list[int]:
    """So many machines of a rack, or of two parts of a domain by halves; empty where there is no room."""
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
