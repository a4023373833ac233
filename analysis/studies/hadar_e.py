"""HadarE on five nodes, beside Gavel and Hadar: `python -m analysis.studies.hadar_e`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import click

from analysis.studies.common import StudyCommand, on_one_switch, publish, seeds_option, simulate, write_option
from dally.cluster.load import load_cluster
from dally.cluster.topology import Link, Machine, Topology
from dally.jobs.job import Job, JobKind
from dally.markdown import table
from dally.profiles.files import ProfileSet, load_profiles
from dally.runs.summary import Summary
from dally.traces.generators import generate

NODES = 5
MIXES = (1, 2, 3, 4, 5, 6, 8, 10, 12)
"""Jobs of M-1 to M-12."""

SLOTS_S = (90, 180, 360, 720)
POLICIES = ("gavel", "hadar", "hadar-e", "hadar-e:utility=completion")


def equal_nodes(bandwidth_bps: float) -> Topology:
    """Five nodes of one V100, as in the lab five of one GPU, on one switch."""
    machines = [Machine(f"node-{number}", 1, "v100", Link(1.26e11, 2e-6)) for number in range(NODES)]
    return on_one_switch("lab-5", machines, Link(bandwidth_bps, 5e-6))


def clusters() -> dict[str, Topology]:
    """The lab's equal nodes, over two links, and the mixed ones."""
    return {
        "equal": equal_nodes(10e9),
        "equal, 1 Gb/s": equal_nodes(1e9),
        "mixed": load_cluster("hadar-5"),
    }


def forked(jobs: int, seed: int) -> list[Job]:
    """Gavel's single-GPU jobs, all at once, each with a copy on every node if it may."""
    drawn = generate(f"gavel:jobs={jobs},gap_s=0,gpus=1", seed)
    return [replace(job, kind=JobKind.FORKED, max_copies=NODES) for job in drawn]


Runs = Sequence[Summary]
"""Of one policy, one for each seed."""


def run(nodes: Topology, profiles: ProfileSet, spec: str, jobs: int, seeds: Sequence[int]) -> Runs:
    """Simulate a policy on so many forked jobs of each seed."""
    return [simulate(spec, forked(jobs, seed), nodes, profiles).summary for seed in seeds]


def _change(ours: Runs, gavel: Runs, jct: bool = False) -> str:
    """Mean over the seeds of how much longer than Gavel's the total duration, or mean JCT, is."""
    pairs = [
        (own.jct_s.mean, other.jct_s.mean) if jct else (own.makespan_s, other.makespan_s)
        for own, other in zip(ours, gavel, strict=True)
    ]
    return f"{fmean(own / other - 1 for own, other in pairs):+.0%}"


def mixes_table(profiles: ProfileSet, seeds: Sequence[int]) -> str:
    """Markdown: a row for each cluster and mix, means over the seeds of changes against Gavel."""
    rows = []
    for name, nodes in clusters().items():
        for jobs in MIXES:
            gavel, hadar, one, other = (run(nodes, profiles, spec, jobs, seeds) for spec in POLICIES)
            held = [fmean(each.utilization for each in runs) for runs in (gavel, hadar, one)]
            rows.append(
                [
                    name,
                    f"M-{jobs}",
                    f"{fmean(each.makespan_s for each in gavel) / 3600:.1f}",
                    _change(hadar, gavel),
                    *(_change(runs, gavel, jct) for runs in (one, other) for jct in (False, True)),
                    *(f"{each:.0%}" for each in held),
                    f"{held[2] / held[0]:.2f}",
                    f"{held[2] / held[1]:.2f}",
                ]
            )
    header = [
        "nodes",
        "mix",
        "`gavel`, total duration, h",
        "`hadar`, total",
        *(f"`{spec}`, {what}" for spec in POLICIES[2:] for what in ("total", "mean JCT")),
        *(f"GPUs held, `{spec}`" for spec in POLICIES[:3]),
        "`hadar-e` over `gavel`",
        "over `hadar`",
    ]
    return table(header, rows)


def slots_table(profiles: ProfileSet, seeds: Sequence[int]) -> str:
    """Markdown: HadarE's total duration against Gavel's, and its goodput, by the length of its slot."""
    rows = []
    for name, nodes in clusters().items():
        for jobs in (1, 5, 12):
            gavel, *slots = (
                run(nodes, profiles, spec, jobs, seeds)
                for spec in ("gavel", *(f"hadar-e:round_s={each}" for each in SLOTS_S))
            )
            cells = (f"{_change(runs, gavel)}, {fmean(each.goodput for each in runs):.0%}" for runs in slots)
            rows.append([name, f"M-{jobs}", *cells])
    return table(["nodes", "mix", *(f"slots of {each} s" for each in SLOTS_S)], rows)


@click.command(cls=StudyCommand)
@seeds_option
@write_option
def main(seeds: Sequence[int], page: Path | None) -> None:
    """HadarE beside Gavel and Hadar: mixes of 1 to 12 jobs, and slots of 90 to 720 s, on five nodes."""
    profiles = load_profiles("gavel")
    tables = {"hadar-e-mixes": mixes_table, "hadar-e-slots": slots_table}
    publish(((name, make(profiles, seeds)) for name, make in tables.items()), page)


if __name__ == "__main__":
    main()
