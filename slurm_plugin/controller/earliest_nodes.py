"""On which nodes a job can start earliest, if everything that runs takes its whole time limit."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from math import inf

from dally.jobs.job import Gang
from slurm_plugin.client.slurm import HOLDS_GPUS, SlurmJob


@dataclass(frozen=True, slots=True)
class EarliestStart:
    """When a job can start at the latest, seconds since 1970 or inf if nobody knows, and on which nodes."""

    start_s: float
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class GpuHold:
    """GPUs by node that a job holds, and when its time limit ends, seconds since 1970; inf if it has none."""

    end_s: float
    gpus: Mapping[str, int]


def holds_until_limit(jobs: Iterable[SlurmJob]) -> list[GpuHold]:
    """What running jobs hold, and until when; one that is coming to its end shows no GPUs and holds none."""
    return [
        GpuHold((job.start_s or 0.0) + (inf if job.time_limit_s is None else job.time_limit_s), job.gpus)
        for job in jobs
        if job.state in HOLDS_GPUS and job.gpus
    ]


def earliest_start(
    gang: Gang,
    min_nodes: int,
    in_all: Mapping[str, int],
    holds: Iterable[GpuHold],
    now: float,
    blocks: Mapping[str, int],
    whole_blocks: bool = False,
) -> EarliestStart | None:
    """The earliest start of a job, and the nodes for it.

    A job that is beyond its limit is taken to end now. CPUs and memory do not count.

    Args:
        gang: The GPUs that it asks for; its `machines` do not count.
        min_nodes: Fewest nodes that it asks for.
        in_all: GPUs, free or not, of the nodes that it may use, by name.
        holds: What jobs hold there and elsewhere.
        now: The time, seconds since 1970.
        blocks: The block of each node in which a segment may lie.
        whole_blocks: It shares its blocks with nobody: all nodes there are for it.

    Returns:
        None if these nodes are too few for it.
    """
    free = dict(in_all)
    ending = sorted((max(now, hold.end_s), index, hold.gpus) for index, hold in enumerate(holds))
    held = Counter[str]()
    for _, _, gpus in ending:
        held.update(gpus.keys())
        for node in free.keys() & gpus.keys():
            free[node] -= gpus[node]

    def found() -> frozenset[str]:
        if not whole_blocks:
            return _enough(gang, min_nodes, free, blocks)
        used = {blocks.get(node) for node in +held}
        empty = {node: count for node, count in free.items() if blocks.get(node) not in used}
        mine = {blocks.get(node) for node in _enough(gang, min_nodes, empty, blocks, close=True)}
        return frozenset(node for node in empty if blocks.get(node) in mine)

    if nodes := found():
        return EarliestStart(now, nodes)
    for end_s, together in groupby(ending, key=lambda hold: hold[0]):
        for _, _, gpus in together:
            held.subtract(gpus.keys())
            for node in free.keys() & gpus.keys():
                free[node] += gpus[node]
        if nodes := found():
            return EarliestStart(end_s, nodes)
    return None


def _enough(
    gang: Gang, min_nodes: int, free: Mapping[str, int], blocks: Mapping[str, int], close: bool = False
) -> frozenset[str]:
    """Nodes on which so many GPUs would do: as few as can be; none if they are too few altogether.

    Those of the largest blocks come first if they are to be close, or in segments.
    """
    if gang.per_machine is not None:
        fits = [node for _, node in sorted((count, node) for node, count in free.items() if gang.held(count))]
        if gang.segment is not None or close:
            fits = _whole_segments(gang, fits, blocks)
        return frozenset(fits[: gang.units]) if len(fits) >= gang.units else frozenset()
    chosen: list[str] = []
    gpus = 0
    for count, node in sorted(((count, node) for node, count in free.items() if count > 0), reverse=True):
        if gpus >= gang.gpus and len(chosen) >= min_nodes:
            break
        chosen.append(node)
        gpus += count
    return frozenset(chosen) if gpus >= gang.gpus and len(chosen) >= min_nodes else frozenset()


def _whole_segments(gang: Gang, nodes: Iterable[str], blocks: Mapping[str, int]) -> list[str]:
    """Of each block as many nodes, the first, as make whole segments; the largest blocks first."""
    of_block: dict[int, list[str]] = {}
    for node in nodes:
        if node in blocks:
            of_block.setdefault(blocks[node], []).append(node)
    found = sorted(of_block.values(), key=lambda members: -len(members))
    return [node for members in found for node in members[: gang.in_block(len(members))]]
