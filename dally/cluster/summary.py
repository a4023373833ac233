"""What a cluster looks like, level by level, in plain numbers, and which nodes were left out of it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from dally.cluster.topology import LeftOut, Link, Machine, Topology
from dally.errors import InputError
from dally.hostlist import fold
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


def level_summaries(topology: Topology) -> list[LevelSummary]:
    """The levels from machine up."""
    levels = []
    for name, domains in zip(topology.levels, topology.level_domains, strict=True):
        real = [domain for domain in domains if domain.uplink is not None or domain.parent is None]
        gpus = [domain.gpus for domain in real]
        uplinks = Counter(domain.uplink for domain in real if domain.uplink is not None)
        levels.append(LevelSummary(name, len(real), (min(gpus), max(gpus)), tuple(uplinks.most_common())))
    return levels


def machine_kinds(topology: Topology) -> list[tuple[Machine, int]]:
    """The kinds of machines, nameless, each with how many are of it, most common first."""
    counts = Counter(replace(machine, name="") for machine in topology.machines)
    return sorted(counts.items(), key=lambda kind: (-kind[1], -kind[0].gpus, kind[0].gpu_type))


def cluster_data(topology: Topology) -> dict[str, object]:
    """Plain values for JSON: levels, kinds of machines, separate networks, partitions, what was left out.

    An uplink becomes bandwidth_bps, latency_s and domains.
    """
    kinds = [{"machines": count, **asdict(machine)} for machine, count in machine_kinds(topology)]
    for kind in kinds:
        del kind["name"]
    return {
        "name": topology.name,
        "machines": len(topology.machines),
        "gpus": topology.gpus,
        "levels": [
            {
                "name": level.name,
                "domains": level.domains,
                "gpus_min": level.gpus[0],
                "gpus_max": level.gpus[1],
                "uplinks": [{**asdict(link), "domains": count} for link, count in level.uplinks],
            }
            for level in level_summaries(topology)
        ],
        "kinds": kinds,
        "islands": len(topology.root.children) if topology.islands else 0,
        "left_out": [asdict(each) for each in topology.left_out],
        "partitions": {name: sorted(machines) for name, machines in topology.partitions.items()},
    }


def partitions_line(topology: Topology) -> str:
    """How many machines each partition has: `partitions: gpu (8 machines)`; empty if that is unknown."""
    parts = [f"{name} ({plural(len(of), 'machine')})" for name, of in topology.partitions.items()]
    return f"partitions: {', '.join(parts)}" if parts else ""


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
