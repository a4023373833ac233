"""Segments by a static rule on NVL72 racks, or left to policies: `python -m analysis.studies.segments`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from statistics import fmean

import click

from analysis.advise.segments import with_interval
from analysis.studies.common import StudyCommand, publish, run_rows, simulate, write_option
from analysis.studies.llm_plans import believed_costs, held_gpu_time, stretch
from dally.cluster import load_cluster
from dally.cluster.topology import Topology
from dally.jobs.knowledge import Knowledge, Known
from dally.markdown import table
from dally.profiles.files import load_profiles
from dally.runs.summary import quantile
from dally.traces import load_trace
from dally.words import duration
from simulator.failures import Outage
from simulator.sweep.groups import Mean, mean, ratio_of_means

LARGE = 128
"""Jobs of so many GPUs and more get the largest segments of the static rule."""

WORKLOAD = "gb200-like:jobs={jobs},most_gpus={most},load={load},cluster_gpus={gpus},segments={segments}"


@dataclass(frozen=True, slots=True)
class SegmentVariant:
    """A row of the tables.

    Attributes:
        policy: NAME[:knob=value,...].
        segments: `static`, or `none`: what the jobs ask for.
        knows: What the policy believes of placements: what `plans` tell, that each level farther costs
            `1.25`, or `nothing`: that they are all alike.
        down: Machines of each rack that are down all the time, as a site's spare ones are.
    """

    policy: str
    segments: str
    knows: str
    down: int = 0


BASE = SegmentVariant("slurm", "static", "nothing")
FREE = SegmentVariant("slurm", "none", "nothing")
VARIANTS = (
    BASE,
    FREE,
    SegmentVariant("srsf-delay", "static", "plans"),
    SegmentVariant("srsf-delay", "none", "plans"),
    SegmentVariant("srsf-delay", "static", "1.25"),
    SegmentVariant("srsf-delay", "none", "1.25"),
    SegmentVariant("srsf-delay", "none", "nothing"),
)
BRIEF = (
    BASE,
    SegmentVariant("srsf-delay", "static", "plans"),
    SegmentVariant("srsf-delay", "none", "plans"),
    SegmentVariant("srsf-delay", "none", "nothing"),
)
"""What is run where a simulation takes long: the rule against the policy, and one that knows no distance."""
SPARES = (1, 2)
"""Machines of each rack that are down in the table of spare machines; sites keep 2 of 18."""
WITH_SPARES = (
    BASE,
    FREE,
    SegmentVariant("srsf-delay", "static", "plans"),
    SegmentVariant("srsf-delay", "none", "plans"),
)
"""What is run with spare machines: with segments and without, of each policy."""


@dataclass(frozen=True, slots=True)
class SegmentSite:
    """A cluster and its load.

    Attributes:
        cluster: Name or file.
        jobs: How many.
        most_gpus: GPUs of the largest.
        load: GPU time asked for over that of the machines that are up.
    """

    cluster: str
    jobs: int
    most_gpus: int
    load: float


@dataclass(frozen=True, slots=True)
class SegmentRun:
    """The figures of one simulation.

    Attributes:
        jct_s: Mean completion time of all jobs.
        large_jct_s: Mean completion time of the jobs of 128 GPUs and more.
        large_wait_p99_s: Of these, the time in the queue.
        lost: GPU time of training over that at the best placement, less one.
        occupancy: Part of the GPU time of the machines that are up that was held until the last submission.
    """

    jct_s: float
    large_jct_s: float
    large_wait_p99_s: float
    lost: float
    occupancy: float


def simulate_variant(
    variant: SegmentVariant, seed: int, site: SegmentSite, knowledge: Knowledge
) -> SegmentRun:
    """Run a policy on a site, with the beliefs of the variant and the costs that plans have."""
    topology, profiles = load_cluster(site.cluster), load_profiles("realistic")
    spare = spare_machines(topology, variant.down)
    gpus_up = topology.gpus - sum(topology.machines[outage.machine].gpus for outage in spare)
    workload = WORKLOAD.format(
        jobs=site.jobs, most=site.most_gpus, load=site.load, gpus=gpus_up, segments=variant.segments
    )
    jobs = load_trace(workload, seed=seed).jobs
    log = held_gpu_time(jobs[-1].submit_s)
    run = simulate(
        variant.policy,
        jobs,
        topology,
        profiles,
        Known(knowledge, seed=seed),
        contention=True,
        log=log,
        believed=believed_costs(variant.knows, topology, profiles),
        outages=spare,
    )
    by_id = {job.job_id: job for job in jobs}
    records = [(by_id[record.job_id], record) for record in run.records]
    large = [record for job, record in records if job.gpus >= LARGE]
    return SegmentRun(
        jct_s=fmean(record.jct_s for _, record in records),
        large_jct_s=fmean(record.jct_s for record in large),
        large_wait_p99_s=quantile(sorted(record.queue_s for record in large), 0.99),
        lost=stretch([each for each in records if each[0].plan is not None]) - 1,
        occupancy=log.total_gpu_s / gpus_up / jobs[-1].submit_s,
    )


def spare_machines(topology: Topology, count: int) -> list[Outage]:
    """So many machines of each rack that are down from the beginning and for good."""
    racks = [rack.children[:count] for rack in topology.level_domains[1]]
    return [Outage(0.0, machine, inf) for machines in racks for machine in machines]


Found = Mapping[SegmentVariant, Sequence[SegmentRun]]
"""The runs by variant, seed by seed."""


def run_variants(
    variants: Sequence[SegmentVariant], site: SegmentSite, knowledge: Knowledge, seeds: Sequence[int]
) -> Found:
    """Run variants on all seeds."""
    run = partial(simulate_variant, site=site, knowledge=knowledge)
    found = run_rows(variants, {f"{site.cluster}, seed {seed}": seed for seed in seeds}, run)
    return {variant: [*runs.values()] for variant, runs in found.items()}


def results_table(found: Found) -> str:
    """Markdown: a row for each variant.

    Differences are paired by seed. Those in completion times are from Slurm's with the static rule, those in
    occupancy from the same policy without segments and without knowledge of distance.
    """
    rows = []
    for variant, runs in found.items():
        base, blind = found[BASE], replace(variant, segments="none", knows="nothing")
        large = [(run.large_jct_s, own.large_jct_s) for run, own in zip(runs, base, strict=True)]
        every = [(run.jct_s, own.jct_s) for run, own in zip(runs, base, strict=True)]
        rows.append(
            [
                f"`{variant.policy}`",
                variant.segments,
                variant.knows,
                _per_cent(mean([run.occupancy for run in runs])),
                "" if variant == blind or blind not in found else _points(runs, found[blind]),
                duration(fmean(run.large_jct_s for run in runs)),
                "" if variant == BASE else with_interval(ratio_of_means(large)),
                duration(fmean(run.large_wait_p99_s for run in runs)),
                duration(fmean(run.jct_s for run in runs)),
                "" if variant == BASE else with_interval(ratio_of_means(every)),
                f"{100 * fmean(run.lost for run in runs):+.2f}",
            ]
        )
    headings = (
        *("policy", "segments", "knows", "occupancy", "points against no segments and nothing known"),
        *(f"JCT from {LARGE} GPUs on", "against the first row"),
        *("p99 wait of these", "JCT of all", "against the first row", "GPU time over the best placement, %"),
    )
    return table(headings, rows)


def spares_table(found: Found) -> str:
    """Markdown: what leaving segments away gives each policy, by the machines that are down in each rack.

    Args:
        found: Runs with the static rule, and of the same variants without segments.
    """
    rows = []
    for variant, runs in found.items():
        if variant.segments == "none":
            continue
        free = found[replace(variant, segments="none")]
        large = [(run.large_jct_s, own.large_jct_s) for run, own in zip(free, runs, strict=True)]
        rows.append(
            [
                f"`{variant.policy}`",
                str(variant.down),
                _per_cent(mean([run.occupancy for run in runs])),
                _per_cent(mean([run.occupancy for run in free])),
                _points(free, runs),
                with_interval(ratio_of_means(large)),
            ]
        )
    headings = (
        *("policy", "machines of each rack down", "occupancy with static segments", "without segments"),
        *("points more without", f"JCT from {LARGE} GPUs on without segments, against with"),
    )
    return table(headings, rows)


def _points(runs: Sequence[SegmentRun], base: Sequence[SegmentRun]) -> str:
    """Points of occupancy that runs have more than others of the same seeds."""
    more = mean([100 * (run.occupancy - own.occupancy) for run, own in zip(runs, base, strict=True)])
    return f"{more.value:+.1f}" + ("" if more.half is None else f" ±{more.half:.1f}")


def _per_cent(of: Mean) -> str:
    around = "" if of.half is None else f" ±{100 * of.half:.1f}"
    return f"{100 * of.value:.1f}{around} %"


@click.command(cls=StudyCommand)
@click.option("--cluster", default="gb200-1152", show_default=True, help="Name or file of a cluster.")
@click.option("--jobs", default=4000, show_default=True, help="Jobs of each workload.")
@click.option("--most-gpus", default=256, show_default=True, help="GPUs of the largest jobs.")
@click.option("--load", default=2.5, show_default=True, help="GPU time asked for over that of the cluster.")
@click.option("--brief", is_flag=True, help="Only four rows with time limits known, for large sites.")
@click.option("--seed", "seeds", type=int, multiple=True, default=(31, 32, 33), show_default=True)
@write_option
def main(
    cluster: str,
    jobs: int,
    most_gpus: int,
    load: float,
    brief: bool,
    seeds: Sequence[int],
    page: Path | None,
) -> None:
    """Compare jobs with segments by a static rule with jobs whose closeness is the policy's choice."""
    site = SegmentSite(cluster, jobs, most_gpus, load)

    def tables() -> Iterator[tuple[str, str]]:
        name, limits = Path(cluster).stem, Knowledge.LIMITS
        found = run_variants(BRIEF if brief else VARIANTS, site, limits, seeds)
        yield f"{name}-limits", results_table(found)
        if brief:
            return
        yield f"{name}-exact", results_table(run_variants(VARIANTS, site, Knowledge.EXACT, seeds))
        spare = [replace(variant, down=down) for down in SPARES for variant in WITH_SPARES]
        none_down = {variant: found[variant] for variant in WITH_SPARES}
        yield f"{name}-spares", spares_table({**none_down, **run_variants(spare, site, limits, seeds)})

    publish(tables(), page)


if __name__ == "__main__":
    main()
