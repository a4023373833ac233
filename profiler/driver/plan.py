"""Which runs measure a cluster: for every tier, gangs of a few shapes, on hosts that lie so."""

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from dally.errors import DallyError, InputError
from dally.profiles.schema import TIERS, PointLink, PointShape
from dally.words import plural
from profiler.spec import MeasurementRun, MeasurementSpec, PlannedRun

_Run = TypeVar("_Run", bound=PlannedRun)
_SHAPE = re.compile(rf"(?:({'|'.join(TIERS)})-)?([1-9]\d{{0,3}})x([1-9]\d{{0,2}})")


class NoRoomError(DallyError):
    """No hosts are free that lie as a run needs them."""


@dataclass(frozen=True, slots=True)
class PlannedHost:
    """A machine with room for so many ranks, and its link to the switch of its rack, where known."""

    name: str
    ranks: int
    link: PointLink | None = None


@dataclass(frozen=True, slots=True)
class PlannedRack:
    """Hosts behind one switch, and the link of that switch to the others, where known."""

    hosts: tuple[PlannedHost, ...]
    uplink: PointLink | None = None


@dataclass(frozen=True, slots=True)
class RankSpread:
    """Equally many ranks on so many hosts of one machine, of one rack, or of several racks of the network."""

    tier: str
    hosts: int
    ranks: int

    @property
    def name(self) -> str:
        """Like `rack-2x1`."""
        return f"{self.tier}-{self.hosts}x{self.ranks}"


SOLO = RankSpread("machine", 1, 1)
"""One rank alone: what compute costs; every plan begins with it."""


def parse_shape(text: str) -> tuple[RankSpread, ...]:
    """What is meant by `4x1`, in every tier that has so many hosts, or by `rack-4x1`, in that one.

    Raises:
        InputError: It is written otherwise.
    """
    match = _SHAPE.fullmatch(text)
    if not match:
        raise InputError(f"shape {text!r} must be HOSTSxRANKS, such as 4x1, or TIER-HOSTSxRANKS")
    hosts, ranks = int(match[2]), int(match[3])
    tiers = TIERS[:1] if hosts == 1 else TIERS[1:]
    if match[1] and match[1] not in tiers:
        raise InputError(f"shape {text!r} cannot be: {hosts} hosts are in tier {' or '.join(tiers)}")
    return tuple(RankSpread(tier, hosts, ranks) for tier in tiers if match[1] in (None, tier))


def usual_spreads(racks: Sequence[PlannedRack]) -> tuple[RankSpread, ...]:
    """What is measured unless told otherwise, of that which fits.

    One rank, a whole machine, two and four machines of a rack, and two of two racks, with one rank each and
    whole ones, and four machines over two racks. Two machines alone mislead: on some networks they exchange
    gradients more slowly than three or four.
    """
    most = max(host.ranks for rack in racks for host in rack.hosts)
    wanted = (
        SOLO,
        RankSpread("machine", 1, most),
        *(RankSpread("rack", hosts, ranks) for hosts in (2, 4) for ranks in (1, most)),
        *(RankSpread("network", 2, ranks) for ranks in (1, most)),
        RankSpread("network", 4, 1),
    )
    return tuple(spread for spread in dict.fromkeys(wanted) if _find(spread, racks))


def spreads_for(
    shapes: Sequence[tuple[RankSpread, ...]], racks: Sequence[PlannedRack]
) -> tuple[RankSpread, ...]:
    """One rank, and the shapes asked for, each in every tier in which it fits; the usual ones if none are.

    Raises:
        InputError: A shape fits nowhere.
    """
    return tuple(dict.fromkeys((SOLO, *fitting(shapes, racks)))) if shapes else usual_spreads(racks)


def same_job_spreads(
    shapes: Sequence[tuple[RankSpread, ...]], racks: Sequence[PlannedRack]
) -> tuple[RankSpread, ...]:
    """The shapes asked for; if none are, a job of as many ranks as a machine holds on 1, 2 and 4 machines.

    Raises:
        InputError: A shape fits nowhere.
    """
    if shapes:
        return tuple(dict.fromkeys(fitting(shapes, racks)))
    ranks = max(2, *(host.ranks for rack in racks for host in rack.hosts))
    wanted = [RankSpread("machine", 1, ranks)]
    for hosts in (count for count in (2, 4) if ranks % count == 0):
        wanted += [RankSpread(tier, hosts, ranks // hosts) for tier in TIERS[1:]]
    return tuple(spread for spread in wanted if _find(spread, racks))


def fitting(shapes: Sequence[tuple[RankSpread, ...]], racks: Sequence[PlannedRack]) -> tuple[RankSpread, ...]:
    """The shapes asked for, each in every tier in which it fits.

    Raises:
        InputError: A shape fits nowhere.
    """
    found: list[RankSpread] = []
    for shape in shapes:
        fits = [spread for spread in shape if _find(spread, racks)]
        if not fits:
            raise InputError(
                f"{' or '.join(spread.name for spread in shape)} fits nowhere; {describe(racks)}"
            )
        found += fits
    return tuple(found)


def plan_places(spreads: Sequence[RankSpread], racks: Sequence[PlannedRack]) -> tuple[PlannedRun, ...]:
    """Choose hosts for every spread, in their order.

    Raises:
        NoRoomError: No free hosts lie as one of the spreads needs them.
    """
    runs = []
    for spread in spreads:
        used = _find(spread, racks)
        if not used:
            raise NoRoomError(f"no free hosts for {spread.name}; {describe(racks)}")
        shape = PointShape(spread.hosts, spread.ranks, "blocked", len(used))
        runs.append(PlannedRun(spread.name, spread.tier, shape, _names(used), _crossed(used)))
    return tuple(runs)


def plan_runs(
    spreads: Sequence[RankSpread], racks: Sequence[PlannedRack], spec: MeasurementSpec, background: int = 0
) -> tuple[MeasurementRun, ...]:
    """Choose hosts for every spread.

    Args:
        spreads: In the order in which they are measured.
        racks: The hosts that are free.
        spec: What is measured in each.
        background: Foreign flows under which all runs over several hosts are repeated.

    Raises:
        NoRoomError: No free hosts lie as one of the spreads needs them.
        InputError: There are to be foreign flows, and no spread has two hosts.
    """
    quiet = [
        MeasurementRun(run.name, run.tier, run.shape, run.hosts, run.link, spec)
        for run in plan_places(spreads, racks)
    ]
    if not background:
        return tuple(quiet)
    busy = replace(spec, background_flows=background)
    loud = [replace(run, name=f"{run.name}-bg{background}", spec=busy) for run in quiet if len(run.hosts) > 1]
    if not loud:
        raise InputError(f"{background} background flows have no two hosts to run between; see --shapes")
    return (*quiet, *loud)


def describe(racks: Sequence[PlannedRack]) -> str:
    """How many hosts there are, in words."""
    if not racks:
        return "there are none"
    sizes = [len(rack.hosts) for rack in racks]
    most = max(host.ranks for rack in racks for host in rack.hosts)
    return (
        f"the run has {plural(sum(sizes), 'host')} in {plural(len(sizes), 'rack')}, at most "
        f"{max(sizes)} in one, "
        f"with up to {plural(most, 'rank')} each"
    )


def place(run: _Run, racks: Sequence[PlannedRack]) -> _Run | None:
    """A planned run on the first of these hosts that lie as it needs them; None if there are none."""
    spread = RankSpread(run.tier, run.shape.nodes, run.shape.gpus_per_node)
    used = _take(spread, racks, run.shape.racks or 1)
    return replace(run, hosts=_names(used), link=_crossed(used)) if used else None


def _names(used: Sequence[PlannedRack]) -> tuple[str, ...]:
    return tuple(host.name for rack in used for host in rack.hosts)


def _find(spread: RankSpread, racks: Sequence[PlannedRack]) -> tuple[PlannedRack, ...]:
    """Racks cut down to the hosts that a spread takes; none if it does not fit.

    As few racks as possible, and of these equally many hosts, the first ones more if that does not come out.
    """
    counts = range(2, spread.hosts + 1) if spread.tier == "network" else (1,)
    return next(filter(None, (_take(spread, racks, count) for count in counts)), ())


def _take(spread: RankSpread, racks: Sequence[PlannedRack], count: int) -> tuple[PlannedRack, ...]:
    """The first so many racks that share the hosts, each with no fewer than the next; none if they do not."""
    left = [
        replace(rack, hosts=tuple(host for host in rack.hosts if host.ranks >= spread.ranks))
        for rack in racks
    ]
    taken = []
    for number in range(count):
        hosts = spread.hosts // count + (number < spread.hosts % count)
        rack = next((rack for rack in left if len(rack.hosts) >= hosts), None)
        if rack is None:
            return ()
        left.remove(rack)
        taken.append(replace(rack, hosts=rack.hosts[:hosts]))
    return tuple(taken)


def _crossed(used: Sequence[PlannedRack]) -> PointLink | None:
    """The slowest link between the hosts; None inside one host, and where a link is not known."""
    links = [host.link for rack in used for host in rack.hosts]
    if len(links) == 1:
        return None
    if len(used) > 1:
        links += [rack.uplink for rack in used]
    known = [link for link in links if link]
    if len(known) < len(links):
        return None
    latencies = [link.latency_s for link in known if link.latency_s is not None]
    return PointLink(
        min(link.bandwidth_bps for link in known), max(latencies) if len(latencies) == len(known) else None
    )


def only_hosts(racks: Sequence[PlannedRack], names: Container[str]) -> tuple[PlannedRack, ...]:
    """The racks with those of their hosts that have one of the names; racks without any are left out."""
    left = (replace(rack, hosts=tuple(host for host in rack.hosts if host.name in names)) for rack in racks)
    return tuple(rack for rack in left if rack.hosts)
