"""HadarE on five nodes, beside Gavel and Hadar: `python -m analysis.studies.hadar_e`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import click

from dally.cluster.load import load_cluster
from dally.cluster.topology import Link, Machine, Topology
from dally.cluster.topology_build import Attached, Switch, build_topology
from dally.errors import DallyError
from dally.jobs.job import Job, JobKind
from dally.markdown import replace_section, table
from dally.policies.registry import parse_policy
from dally.profiles.files import ProfileSet, load_profiles
from dally.runs.summary import Summary
from dally.traces.generators import generate
from simulator.scenario import Scenario, simulate

NODES = 5
MIXES = (1, 2, 3, 4, 5, 6, 8, 10, 12)
"""Jobs of M-1 to M-12."""

SLOTS_S = (90, 180, 360, 720)
POLICIES = ("gavel", "hadar", "hadar-e", "hadar-e:utility=completion")


@dataclass(frozen=True, slots=True)
class Nodes:
    """Five nodes, and how a table names them."""

    name: str
    topology: Topology


def equal_nodes(bandwidth_bps: float) -> Topology:
    """Five nodes of one V100, as in the lab five of one GPU, on one switch."""
    link = Link(bandwidth_bps, 5e-6)
    fabric = Link(1.26e11, 2e-6)
    machines = [
        Attached(Machine(f"node-{number}", 1, "v100", fabric), "switch", link) for number in range(NODES)
    ]
    return build_topology("lab-5", machines, [Switch("switch", None)])


def clusters() -> list[Nodes]:
    """The lab's equal nodes, over two links, and the mixed ones."""
    return [
        Nodes("equal", equal_nodes(10e9)),
        Nodes("equal, 1 Gb/s", equal_nodes(1e9)),
        Nodes("mixed", load_cluster("hadar-5")),
    ]


def forked(jobs: int, seed: int) -> list[Job]:
    """Gavel's single-GPU jobs, all at once, each with a copy on every node if it may."""
    drawn = generate(f"gavel:jobs={jobs},gap_s=0,gpus=1", seed)
    return [replace(job, kind=JobKind.FORKED, max_copies=NODES) for job in drawn]


def run(nodes: Nodes, profiles: ProfileSet, spec: str, jobs: Sequence[Job]) -> Summary:
    """Simulate a policy.

    Raises:
        DallyError: It does not end the jobs.
    """
    ended = simulate(
        Scenario(nodes.topology, profiles, jobs, (), lambda: (), 0.0, {}), parse_policy(spec), None
    )
    if not ended.complete:
        raise DallyError(f"{spec}: {ended.note}")
    return ended.summary


Runs = Sequence[Summary]


def _change(ours: Runs, gavel: Runs, jct: bool = False) -> str:
    """Mean over the seeds of how much longer than Gavel's the total duration, or mean JCT, is."""
    pairs = [
        (own.jct_s.mean, other.jct_s.mean) if jct else (own.makespan_s, other.makespan_s)
        for own, other in zip(ours, gavel, strict=True)
    ]
    return f"{fmean(own / other - 1 for own, other in pairs):+.0%}"


def _held(runs: Runs) -> float:
    return fmean(run.utilization for run in runs)


def mixes_table(profiles: ProfileSet, seeds: Sequence[int]) -> str:
    """Markdown: a row for each cluster and mix, means over the seeds of changes against Gavel."""
    rows = []
    for nodes in clusters():
        for jobs in MIXES:
            gavel, hadar, one, other = (
                [run(nodes, profiles, spec, forked(jobs, seed)) for seed in seeds] for spec in POLICIES
            )
            rows.append(
                [
                    nodes.name,
                    f"M-{jobs}",
                    f"{fmean(each.makespan_s for each in gavel) / 3600:.1f}",
                    _change(hadar, gavel),
                    *(_change(runs, gavel, jct) for runs in (one, other) for jct in (False, True)),
                    *(f"{_held(runs):.0%}" for runs in (gavel, hadar, one)),
                    f"{_held(one) / _held(gavel):.2f}",
                    f"{_held(one) / _held(hadar):.2f}",
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
    for nodes in clusters():
        for jobs in (1, 5, 12):
            gavel, *slots = (
                [run(nodes, profiles, spec, forked(jobs, seed)) for seed in seeds]
                for spec in ("gavel", *(f"hadar-e:round_s={each}" for each in SLOTS_S))
            )
            cells = (f"{_change(runs, gavel)}, {fmean(each.goodput for each in runs):.0%}" for runs in slots)
            rows.append([nodes.name, f"M-{jobs}", *cells])
    return table(["nodes", "mix", *(f"slots of {each} s" for each in SLOTS_S)], rows)


@click.command()
@click.option("--seed", "seeds", type=int, multiple=True, default=(1, 2, 3), show_default=True)
@click.option("--write", type=click.Path(path_type=Path), help="Put the tables into this document.")
def main(seeds: Sequence[int], write: Path | None) -> None:
    """HadarE beside Gavel and Hadar: mixes of 1 to 12 jobs, and slots of 90 to 720 s, on five nodes."""
    try:
        profiles = load_profiles("gavel")
        for name, make in (("hadar-e-mixes", mixes_table), ("hadar-e-slots", slots_table)):
            body = make(profiles, seeds)
            if write is None:
                click.echo(body + "\n")
            else:
                text = replace_section(write.read_text(encoding="utf-8"), name, body)
                write.write_text(text, encoding="utf-8")
    except (DallyError, OSError) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
