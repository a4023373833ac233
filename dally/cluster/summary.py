"""What a cluster looks like, level by level, in plain numbers, and which nodes were left out of it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from dally.cluster.hostlist import fold
from dally.cluster.topology import LeftOut, Link, Topology
from dally.errors import InputError
from dally.words import plural

_LONGEST_NAMES = 60


@dataclass(frozen=True, slots=True)
class LevelSummary:
    """The domains of one level, those that only pass through from a lower to a higher level left out.

    Attributes:
        name: Of the level.
        domains: How many.
        gpus: In the smallest and the largest of them.
        uplinks: Each kind of link to the level above, most common first, with how many have it.
    """

    name: str
    domains: int
    gpus: tuple[int, int]
    uplinks: tuple[tuple[Link, int], ...]


@dataclass(frozen=True, slots=True)
class MachineSummary:
    """Machines that are alike; the attributes but `machines` are those of `Machine`."""

    machines: int
    gpus: int
    gpu_type: str
    slots: int
    fabric: Link
    slot_fabric: Link | None


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """A cluster's levels from machine up, and its kinds of machines, most common first.

    Attributes:
        name: What it is called.
        machines: How many.
        gpus: How many.
        levels: The levels.
        kinds: The kinds of machines.
        islands: Separate networks that no job spans; 0 if it is one network.
        left_out: What its files name beyond that.
    """

    name: str
    machines: int
    gpus: int
    levels: tuple[LevelSummary, ...]
    kinds: tuple[MachineSummary, ...]
    islands: int = 0
    left_out: tuple[LeftOut, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON; an uplink becomes bandwidth_bps, latency_s and domains."""
        return {
            "name": self.name,
            "machines": self.machines,
            "gpus": self.gpus,
            "levels": [
                {
                    "name": level.name,
                    "domains": level.domains,
                    "gpus_min": level.gpus[0],
                    "gpus_max": level.gpus[1],
                    "uplinks": [{**asdict(link), "domains": count} for link, count in level.uplinks],
                }
                for level in self.levels
            ],
            "kinds": [asdict(kind) for kind in self.kinds],
            "islands": self.islands,
            "left_out": [asdict(each) for each in self.left_out],
        }


def summarize_cluster(topology: Topology) -> ClusterSummary:
    """Count domains, machines, GPUs and links."""
    levels = []
    for name, domains in zip(topology.levels, topology.level_domains, strict=True):
        real = [domain for domain in domains if domain.uplink is not None or domain.parent is None]
        gpus = [domain.gpus for domain in real]
        uplinks = Counter(domain.uplink for domain in real if domain.uplink is not None)
        levels.append(LevelSummary(name, len(real), (min(gpus), max(gpus)), tuple(uplinks.most_common())))
    counts = Counter(
        (machine.gpus, machine.gpu_type, machine.slots, machine.fabric, machine.slot_fabric)
        for machine in topology.machines
    )
    kinds = [MachineSummary(count, *kind) for kind, count in counts.items()]
    return ClusterSummary(
        name=topology.name,
        machines=len(topology.machines),
        gpus=topology.gpus,
        levels=tuple(levels),
        kinds=tuple(sorted(kinds, key=lambda kind: (-kind.machines, -kind.gpus, kind.gpu_type))),
        islands=len(topology.root.children) if topology.islands else 0,
        left_out=topology.left_out,
    )


def left_out_line(topology: Topology) -> str:
    """How many nodes were left out, which and why: `left out 1 node: n7 (on no switch)`; empty if none."""
    count = sum(len(each.names) for each in topology.left_out)
    return f"left out {plural(count, 'node')}: {left_out_text(topology.left_out)}" if count else ""


def left_out_text(left_out: Iterable[LeftOut]) -> str:
    """The nodes as host lists, cut where they grow long, each with the reason."""
    parts = []
    for each in left_out:
        try:
            names = fold(each.names)
        except InputError:
            names = ",".join(each.names)
        if len(names) > _LONGEST_NAMES:
            names = f"{names[:_LONGEST_NAMES]}..., {len(each.names)} in all"
        parts.append(f"{names} ({each.why})")
    return ", ".join(parts)
