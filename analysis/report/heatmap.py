"""The cluster over time: how much of each row of GPUs was held, at which level, and by which job."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.report.figures import Numbers, TimeBins
from analysis.report.history import RunHistory
from dally.cluster.topology import Topology

MOST_ROWS = 256


@dataclass(frozen=True, slots=True)
class HeatmapRows:
    """HeatmapRows of GPUs, those of one machine and of one rack beside each other.

    Attributes:
        unit: What a row is: GPU, machine, rack and so on.
        names: The name of each.
        groups: For each row the domain that holds it; empty if unknown.
        racks: For each row the rack that it lies in; empty if unknown, or if a row is one or more.
        gpus: GPUs in each.
        places: For each machine the row of each of its GPUs.
    """

    unit: str
    names: list[str]
    groups: list[str]
    racks: list[str]
    gpus: list[int]
    places: Mapping[str, tuple[int, ...]]


def choose_rows(machines: Mapping[str, int], topology: Topology | None) -> HeatmapRows:
    """The rows of a cluster.

    Args:
        machines: GPUs of each machine by name.
        topology: The cluster; None if nobody knows its racks.
    """
    if topology is None:
        names = sorted(machines, key=_natural)
        racks = dict.fromkeys(names, "")
    else:
        order = sorted(range(len(topology.machines)), key=lambda place: topology.ancestors[place][::-1])
        names = [topology.machines[place].name for place in order]
        racks = dict.fromkeys(names, "")
        if topology.top > 1:
            racks = {
                name: topology.domains[topology.ancestors[place][1]].name
                for name, place in zip(names, order, strict=True)
            }
        machines = {machine.name: machine.gpus for machine in topology.machines}
    if sum(machines.values()) <= MOST_ROWS:
        return _by_gpu(names, machines, racks)
    if len(names) <= MOST_ROWS:
        return _by_machine(names, machines, racks)
    return _by_block(names, machines) if topology is None else _by_domain(topology)


def _by_gpu(names: list[str], machines: Mapping[str, int], racks: Mapping[str, str]) -> HeatmapRows:
    each = [(name, slot) for name in names for slot in range(machines[name])]
    row = {gpu: number for number, gpu in enumerate(each)}
    return HeatmapRows(
        "GPU",
        [f"{name}, GPU {slot}" for name, slot in each],
        [name for name, _ in each],
        [racks[name] for name, _ in each],
        [1] * len(each),
        {name: tuple(row[name, slot] for slot in range(machines[name])) for name in names},
    )


def _by_machine(names: list[str], machines: Mapping[str, int], racks: Mapping[str, str]) -> HeatmapRows:
    above = [racks[name] for name in names]
    places = {name: (number,) * machines[name] for number, name in enumerate(names)}
    return HeatmapRows("machine", names, above, above, [machines[name] for name in names], places)


def _by_block(names: list[str], machines: Mapping[str, int]) -> HeatmapRows:
    """Rows of equally many machines, by name, so large that the rows are few enough."""
    size = -(-len(names) // MOST_ROWS)
    blocks = [names[start : start + size] for start in range(0, len(names), size)]
    nowhere = [""] * len(blocks)
    places = {name: (row,) * machines[name] for row, block in enumerate(blocks) for name in block}
    gpus = [sum(machines[name] for name in block) for block in blocks]
    named = [f"{block[0]} to {block[-1]}" for block in blocks]
    return HeatmapRows(f"{size} machines", named, nowhere, nowhere, gpus, places)


def _by_domain(topology: Topology) -> HeatmapRows:
    """The domains of the lowest level that has few enough."""
    level = next(n for n, domains in enumerate(topology.level_domains) if len(domains) <= MOST_ROWS)
    domains = topology.level_domains[level]
    row = {domain.index: number for number, domain in enumerate(domains)}
    above = [topology.domains[domain.parent].name if domain.parent is not None else "" for domain in domains]
    places = {
        machine.name: (row[topology.ancestors[number][level]],) * machine.gpus
        for number, machine in enumerate(topology.machines)
    }
    names, nowhere = [domain.name for domain in domains], [""] * len(domains)
    return HeatmapRows(
        topology.levels[level], names, above, nowhere, [domain.gpus for domain in domains], places
    )


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts node2 before node10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.findall(r"\d+|\D+", name)]


IDLE_CELL, DOWN_CELL = 255, 254
NOBODY = -1


@dataclass(frozen=True, slots=True)
class Heatmap:
    """A picture of a cluster; arrays are rows x bins.

    Attributes:
        rows: What the rows are.
        level: Place of the level at which most of the cell's GPU time was held; IDLE_CELL, DOWN_CELL.
        job: Number of the job that held most of it in one stretch; NOBODY.
        percent: Of the cell's GPU time, what jobs held, percent.
    """

    rows: HeatmapRows
    level: Numbers
    job: Numbers
    percent: Numbers


def draw_heatmap(history: RunHistory, topology: Topology | None, bins: TimeBins) -> Heatmap:
    """Lay a run's history over rows and bins."""
    rows = choose_rows(history.machines(), topology)
    shape, cells, levels = (len(rows.names), bins.count), len(rows.names) * bins.count, len(history.levels)
    spans = []
    for each in history.held:
        # A live run may see a start before the end that made room: slots beyond the machine's have no row.
        places = rows.places.get(each.machine, ())
        by_row = Counter(places[slot] for slot in each.slots if slot < len(places))
        spans += [(row, each.begin_s, each.end_s, gpus, each.level, each.job) for row, gpus in by_row.items()]
    row, begin_s, end_s, gpus, level, job = np.array(spans, dtype=float).reshape(-1, 6).T
    span, place, length_s = bins.cut(begin_s, end_s)
    cell = row.astype(np.int64)[span] * bins.count + place
    gpu_s = length_s * gpus[span]
    # GPU-seconds of each cell: held at each level, then of machines that were down.
    held_at = np.where(level < 0, levels, level).astype(np.int64)[span]
    by_level = np.bincount(held_at * cells + cell, gpu_s, (levels + 1) * cells).reshape(-1, cells)
    whole = np.repeat(np.array(rows.gpus, dtype=float) * bins.width_s, bins.count)
    used = by_level[:levels].sum(axis=0)
    idle = np.maximum(whole - used - by_level[levels], 0.0)
    most = np.vstack([by_level, idle]).argmax(axis=0)
    most_at = np.select([most == levels, most > levels], [DOWN_CELL, IDLE_CELL], most)
    percent = np.minimum(np.rint(100 * used / whole), 100).astype(np.int64)
    # In each cell the job of the largest piece, which is written last.
    holder, order = np.full(cells, NOBODY), np.argsort(gpu_s, kind="stable")
    holder[cell[order]] = job.astype(np.int64)[span][order]
    return Heatmap(rows, most_at.reshape(shape), holder.reshape(shape), percent.reshape(shape))
