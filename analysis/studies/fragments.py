"""MonkeyTree beside others on racks with few uplinks: `python -m analysis.studies.fragments`."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import click

from analysis.studies.common import (
    StudyCommand,
    StudyRun,
    knowledge_line,
    known_option,
    mean_cell,
    policies_option,
    policy_table,
    publish,
    run_all,
    seeds_option,
    simulate,
    write_option,
)
from analysis.studies.simulator_speed import MIX
from dally.cluster.topology import Link, Machine, Topology
from dally.cluster.topology_build import Attached, Switch, build_topology
from dally.jobs.knowledge import Known
from dally.policies.monkeytree.rack_fragments import RackFragments, split_racks
from dally.profiles.files import load_profiles
from dally.runs.records import NoEvents
from dally.traces import assign_models, load_trace

POLICIES = (
    "monkeytree",
    "monkeytree:migrate=no",
    "fifo",
    "monkeytree:backfill=easy",
    "fifo:backfill=easy",
    "slurm",
    "tiresias",
    "dally",
    "srsf-delay",
)
KNEW = "`slurm`, `srsf-delay` and backfill go by them; the others, MonkeyTree as published too, by none."
BOUND = 2
MACHINES, GPUS, UPLINK_BPS = 8, 8, 10e9
"""Machines of a rack, GPUs of a machine and its uplink."""


PROFILES = "realistic"
WORKLOADS: Mapping[str, str] = {
    "wide": "poisson:jobs=800,load=0.9,cluster_gpus=1024,"
    "gpus=4:10/8:25/16:25/24:5/32:15/48:5/64:8/96:3/128:4",
    "dally": "dally-batch",
}
"""What is run, by name: generated traces."""


@dataclass(frozen=True, slots=True)
class FragmentRun:
    """One simulation, and seconds of all racks by how many fragments they had, until the last start."""

    run: StudyRun
    rack_s: Mapping[int, float]

    def mean_over_racks(self, figure: Callable[[int], float]) -> float:
        """The mean of what a number of fragments comes to, over the racks and their time."""
        total = sum(figure(fragments) * seconds for fragments, seconds in self.rack_s.items())
        return total / (sum(self.rack_s.values()) or 1.0)


class FragmentLog(NoEvents):
    """A log that keeps for how long racks had fragments.

    Attributes:
        rack_s: Seconds of all racks by how many fragments they had, until the last start.
    """

    def __init__(self, topology: Topology) -> None:
        self.rack_s: dict[int, float] = {}
        self._machines = topology.machine_index
        self._racks = RackFragments(topology)
        self._racks_of: dict[str, list[int]] = {}
        self._fragments = dict.fromkeys(self._racks.racks, 0)
        self._now = 0.0
        self._so_far: dict[int, float] = defaultdict(float)

    def write(self, now: float, event: str, **said: Any) -> None:
        """Count the fragments of each rack from now on."""
        for fragments in self._fragments.values():
            self._so_far[fragments] += now - self._now
        self._now = now
        starts = event in ("start", "migrate", "resize")
        if starts or event in ("preempt", "fail", "end"):
            for rack in self._racks_of.pop(said["job"], ()):
                self._fragments[rack] -= 1
        if starts:
            place = tuple((self._machines[name], gpus) for name, gpus in said["gpus"].items())
            self._racks_of[said["job"]] = split_racks(self._racks.shares(place))
            for rack in self._racks_of[said["job"]]:
                self._fragments[rack] += 1
            self.rack_s = dict(self._so_far)


def oversubscribed(racks: int, factor: float) -> Topology:
    """Racks whose uplinks have the bandwidth of their machines' together over a factor.

    With the machines of a rack here and a factor of 4, two machines can send at full rate, which is what two
    fragments need.
    """
    uplink = Link(MACHINES * UPLINK_BPS / factor, 2e-6)
    names = [f"r{number}" for number in range(racks)]
    attached = [
        Attached(Machine(f"{rack}m{place}", GPUS, "v100", Link(2.4e12, 1e-6)), rack, Link(UPLINK_BPS, 1e-6))
        for rack in names
        for place in range(MACHINES)
    ]
    return build_topology(
        f"oversubscribed-{racks * MACHINES * GPUS}",
        attached,
        [Switch("core", None), *(Switch(rack, "core", uplink) for rack in names)],
    )


def run(policy: str, seed: int, trace: str, topology: Topology, alone: bool, known: Known) -> FragmentRun:
    """Simulate one policy in memory, jobs slowing each other where they share links, or each on its own.

    Raises:
        DallyError: The policy is wrong, or leaves jobs waiting for ever.
    """
    log, jobs = FragmentLog(topology), assign_models(load_trace(trace, seed=seed).jobs, MIX, seed)
    profiles = load_profiles(PROFILES)
    return FragmentRun(
        simulate(policy, jobs, topology, profiles, known, contention=not alone, log=log), log.rack_s
    )


def outcome_table(found: Mapping[str, Mapping[str, FragmentRun]]) -> str:
    """Markdown: a row for each policy, means over the seeds, mean JCT against the first."""

    def jct_s(runs: Mapping[str, FragmentRun]) -> float:
        return fmean(each.run.jct_s for each in runs.values())

    def most(policy: str, runs: Mapping[str, FragmentRun]) -> str:
        return str(
            max(n for each in runs.values() for n, seconds in [(0, 1.0), *each.rack_s.items()] if seconds)
        )

    first_s = jct_s(next(iter(found.values())))
    return policy_table(
        found,
        [
            ("mean JCT, ks", mean_cell("{:.3g}", lambda each: each.run.jct_s / 1000)),
            ("MonkeyTree against it", lambda policy, runs: f"{first_s / jct_s(runs) - 1:+.0%}"),
            ("p99 JCT, ks", mean_cell("{:.3g}", lambda each: each.run.summary.jct_s.p99 / 1000)),
            ("makespan, ks", mean_cell("{:.4g}", lambda each: each.run.summary.makespan_s / 1000)),
            ("waiting, ks", mean_cell("{:.3g}", lambda each: each.run.summary.queue_s.mean / 1000)),
            ("network, ks", mean_cell("{:.3g}", lambda each: each.run.summary.comm_mean_multi_s / 1000)),
            ("migrations", mean_cell("{:.0f}", lambda each: each.run.events["migrate"])),
            ("preemptions", mean_cell("{:.0f}", lambda each: each.run.events["preempt"])),
            ("fragments a rack", mean_cell("{:.2f}", lambda each: each.mean_over_racks(float))),
            ("rack time over 2", mean_cell("{:.1%}", lambda each: each.mean_over_racks(lambda n: n > BOUND))),
            ("most", most),
        ],
    )


@click.command(cls=StudyCommand)
@click.argument("names", nargs=-1, type=click.Choice([*WORKLOADS]))
@policies_option(POLICIES)
@seeds_option
@click.option("--racks", type=click.IntRange(2), default=16, show_default=True, help="Of 64 GPUs.")
@click.option("--oversubscription", type=click.FloatRange(0, min_open=True), default=4.0, show_default=True)
@click.option("--alone", is_flag=True, help="Every job has its links for itself: what sharing costs.")
@known_option
@write_option
def main(
    names: Sequence[str],
    policies: Sequence[str],
    seeds: Sequence[int],
    racks: int,
    oversubscription: float,
    alone: bool,
    known: Known,
    page: Path | None,
) -> None:
    """MonkeyTree and others where jobs share the uplinks of racks, on workloads NAMES, or all."""
    topology = oversubscribed(racks, oversubscription)

    def tables() -> Iterator[tuple[str, str]]:
        for name in names or WORKLOADS:
            one = partial(run, trace=WORKLOADS[name], topology=topology, alone=alone, known=known)
            found = run_all(policies, {f"seed {seed}": seed for seed in seeds}, one)
            heading = "" if page else f"{name}\n\n"
            yield f"monkeytree-{name}", f"{heading}{knowledge_line(known, KNEW)}\n\n{outcome_table(found)}"

    publish(tables(), page)


if __name__ == "__main__":
    main()
