"""Machine failures: read from a file or drawn at a seeded rate."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heapreplace
from io import StringIO
from math import inf
from pathlib import Path
from random import Random

from dally.cluster.topology import Topology
from dally.config_text import read_text
from dally.errors import InputError

COLUMNS = ["machine", "down_s", "up_s"]


@dataclass(frozen=True, slots=True, order=True)
class Outage:
    """A machine is down from `down_s` until `up_s` (inf: for good); seconds."""

    down_s: float
    machine: int
    up_s: float


def read_outages(path: Path, topology: Topology) -> list[Outage]:
    """Read outages from a CSV file with the columns machine, down_s, up_s (empty: never repaired).

    Raises:
        InputError: Naming file, line and reason.
    """
    reader = csv.DictReader(StringIO(read_text(path), newline=""))
    if reader.fieldnames != COLUMNS:
        raise InputError(f"{path}: the columns must be {', '.join(COLUMNS)}")
    outages = []
    for row in reader:
        where, machine = f"{path}:{reader.line_num}", topology.machine_index.get(row["machine"])
        if machine is None:
            raise InputError(f"{where}: the cluster has no machine {row['machine']!r}")
        try:
            down, up = float(row["down_s"]), inf if row["up_s"] == "" else float(row["up_s"])
        except (TypeError, ValueError) as error:
            raise InputError(f"{where}: down_s and up_s must be numbers") from error
        if not 0 <= down < up:
            raise InputError(f"{where}: down_s {down:g} must be 0 or more and before up_s {up:g}")
        outages.append(Outage(down, machine, up))
    outages.sort()
    up_s: dict[int, float] = {}
    for outage in outages:
        if outage.down_s < up_s.get(outage.machine, -inf):
            raise InputError(
                f"{path}: machine {topology.machines[outage.machine].name} fails while it is down"
            )
        up_s[outage.machine] = outage.up_s
    return outages


def random_outages(topology: Topology, mtbf_s: float, repair_s: float, seed: int) -> Iterator[Outage]:
    """Outages without end: each machine fails after exponential times and is repaired in a fixed time.

    Args:
        topology: The cluster.
        mtbf_s: Mean time between failures of one machine, seconds, more than 0.
        repair_s: Time to repair, seconds, more than 0.
        seed: Of the random source.
    """
    source = Random(f"outages/{seed}")
    coming = [(source.expovariate(1 / mtbf_s), machine) for machine in range(len(topology.machines))]
    heapify(coming)
    while True:
        down_s, machine = coming[0]
        up_s = down_s + repair_s
        yield Outage(down_s, machine, up_s)
        heapreplace(coming, (up_s + source.expovariate(1 / mtbf_s), machine))
