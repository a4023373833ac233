"""What a cluster's files name but the cluster does not have, in a line."""

from collections.abc import Iterable

from dally.cluster.hostlist import fold
from dally.cluster.topology import LeftOut, Topology
from dally.errors import InputError
from dally.words import plural

_LONGEST = 60


def left_out_line(topology: Topology) -> str:
    """How many nodes were left out, which and why: `left out 1 node: n7 (on no switch)`; empty if none."""
    count = sum(len(each.names) for each in topology.left_out)
    return f"left out {plural(count, 'node')}: {told(topology.left_out)}" if count else ""


def told(left_out: Iterable[LeftOut]) -> str:
    """The nodes, each with the reason."""
    return ", ".join(f"{_names(each.names)} ({each.why})" for each in left_out)


def _names(names: tuple[str, ...]) -> str:
    """The nodes as a host list, cut where it grows long."""
    try:
        folded = fold(names)
    except InputError:
        folded = ",".join(names)
    return folded if len(folded) <= _LONGEST else f"{folded[:_LONGEST]}..., {len(names)} in all"
