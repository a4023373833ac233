"""MonkeyTree beside others on racks with few uplinks: `python -m analysis.studies.fragments`."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import click

from analysis.studies.common import (
    CountedEvents,
    StudyCommand,
    knowledge_line,
    known_option,
    policies_option,
    publish,
    seeds_option,
    simulate,
    write_option,
)
from analysis.studies.simulator_speed import MIX
from dally.cluster.topology import Link, Machine, Topology
from dally.cluster.topology_build import Attached, Switch, build_topology
from dally.jobs.knowledge import EXACTLY, Known
from dally.markdown import table
from dally.policies.monkeytree.rack_fragments import RackFragments, split_racks
from dally.policies.registry import parse_policy
from dally.profiles.files import load_profiles
from dally.runs.summary import Summary
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


@dataclass(frozen=True, slots=True)
class FragmentWorkload:
    """What is run: a generated workload and the profiles of its models."""

    trace: str
    profiles: str


WORKLOADS: Mapping[str, FragmentWorkload] = {
    "wide": FragmentWorkload(
        "poisson:jobs=800,load=0.9,cluster_gpus=1024,gpus=4:10/8:25/16:25/24:5/32:15/48:5/64:8/96:3/128:4",
        "realistic",
    ),
    "dally": FragmentWorkload("dally-batch", "realistic"),
}


@dataclass(frozen=True, slots=True)
class FragmentRun:
    """One simulation.

    Attributes:
        summary: Its times.
        migrations: Moves of running jobs.
        preemptions: Stops without a move.
        fragments: Of a rack, mean over the racks and the time until the last start.
        crowded: Share of that with more than two.
        most: Most fragments that a rack had.
    """

    summary: Summary
    migrations: int
    preemptions: int
    fragments: float
    crowded: float
    most: int


class FragmentLog(CountedEvents):
    """A log that keeps how many events of each kind there were, and for how long racks had fragments.

    Attributes:
        rack_s: Seconds of all racks by how many fragments they had, until the last start.
    """

    def __init__(self, topology: Topology) -> None:
        super().__init__()
        self.rack_s: dict[int, float] = {}
        self._machines = topology.machine_index
        self._racks = RackFragments(topology)
        self._racks_of: dict[str, list[int]] = {}
        self._fragments = dict.fromkeys(self._racks.racks, 0)
        self._now = 0.0
        self._so_far: dict[int, float] = defaultdict(float)

    def write(self, now: float, event: str, **said: Any) -> None:
        """Count an event, and the fragments of each rack from now on."""
        super().write(now, event, **said)
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


def run(
    policy: str,
    workload: FragmentWorkload,
    seed: int,
    topology: Topology,
    alone: bool = False,
    known: Known = EXACTLY,
) -> FragmentRun:
    """Simulate one policy in memory, jobs slowing each other where they share links, or each on its own.

    Raises:
        DallyError: The policy is wrong, or leaves jobs waiting for ever.
    """
    log, profiles = FragmentLog(topology), load_profiles(workload.profiles)
    jobs = assign_models(load_trace(workload.trace, seed=seed).jobs, MIX, seed)
    found = simulate(policy, jobs, topology, profiles, known, contention=not alone, log=log)
    rack_s = sum(log.rack_s.values()) or 1.0
    return FragmentRun(
        summary=found.summary,
        migrations=log.counts["migrate"],
        preemptions=log.counts["preempt"],
        fragments=sum(fragments * seconds for fragments, seconds in log.rack_s.items()) / rack_s,
        crowded=sum(seconds for fragments, seconds in log.rack_s.items() if fragments > BOUND) / rack_s,
        most=max((fragments for fragments, seconds in log.rack_s.items() if seconds), default=0),
    )


def outcome_table(found: Mapping[str, Sequence[FragmentRun]]) -> str:
    """Markdown: a row for each policy, means over the seeds, mean JCT against the first."""
    rows: list[list[str]] = []
    first_s = 0.0
    for policy, outcomes in found.items():
        summaries = [outcome.summary for outcome in outcomes]
        jct_s = fmean(each.jct_s.mean for each in summaries)
        first_s = first_s or jct_s
        rows.append(
            [
                f"`{policy}`",
                f"{jct_s / 1000:.3g}",
                f"{first_s / jct_s - 1:+.0%}",
                f"{fmean(each.jct_s.p99 for each in summaries) / 1000:.3g}",
                f"{fmean(each.makespan_s for each in summaries) / 1000:.4g}",
                f"{fmean(each.queue_s.mean for each in summaries) / 1000:.3g}",
                f"{fmean(each.comm_mean_multi_s for each in summaries) / 1000:.3g}",
                f"{fmean(each.migrations for each in outcomes):.0f}",
                f"{fmean(each.preemptions for each in outcomes):.0f}",
                f"{fmean(each.fragments for each in outcomes):.2f}",
                f"{fmean(each.crowded for each in outcomes):.1%}",
                f"{max(each.most for each in outcomes)}",
            ]
        )
    return table(_HEADER, rows)


_HEADER = (
    "policy",
    "mean JCT, ks",
    "MonkeyTree against it",
    "p99 JCT, ks",
    "makespan, ks",
    "waiting, ks",
    "network, ks",
    "migrations",
    "preemptions",
    "fragments a rack",
    "rack time over 2",
    "most",
)


def run_all(
    policies: Sequence[str],
    workload: FragmentWorkload,
    seeds: Sequence[int],
    topology: Topology,
    processes: int,
    alone: bool = False,
    known: Known = EXACTLY,
) -> dict[str, list[FragmentRun]]:
    """Every policy with every seed, so many at a time.

    Raises:
        DallyError: A policy is wrong.
    """
    for policy in policies:
        parse_policy(policy)
    tasks = [(policy, seed) for policy in policies for seed in seeds]
    with ProcessPoolExecutor(processes) as pool:
        found = [pool.submit(run, policy, workload, seed, topology, alone, known) for policy, seed in tasks]
        outcomes = iter([future.result() for future in found])
    return {policy: [next(outcomes) for _ in seeds] for policy in policies}


@click.command(cls=StudyCommand)
@click.argument("names", nargs=-1, type=click.Choice([*WORKLOADS]))
@policies_option(POLICIES)
@seeds_option
@click.option("--racks", type=click.IntRange(2), default=16, show_default=True, help="Of 64 GPUs.")
@click.option("--oversubscription", type=click.FloatRange(0, min_open=True), default=4.0, show_default=True)
@click.option("--alone", is_flag=True, help="Every job has its links for itself: what sharing costs.")
@known_option
@click.option("--processes", type=click.IntRange(1), default=2, show_default=True)
@write_option
def main(
    names: Sequence[str],
    policies: Sequence[str],
    seeds: Sequence[int],
    racks: int,
    oversubscription: float,
    alone: bool,
    known: Known,
    processes: int,
    page: Path | None,
) -> None:
    """MonkeyTree and others where jobs share the uplinks of racks, on workloads NAMES, or all."""
    topology = oversubscribed(racks, oversubscription)

    def tables() -> Iterator[tuple[str, str]]:
        for name in names or WORKLOADS:
            found = run_all(policies, WORKLOADS[name], seeds, topology, processes, alone, known)
            heading = "" if page else f"{name}\n\n"
            yield f"monkeytree-{name}", f"{heading}{knowledge_line(known, KNEW)}\n\n{outcome_table(found)}"

    publish(tables(), page)


if __name__ == "__main__":
    main()
