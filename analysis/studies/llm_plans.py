"""What knowing parallel plans gives a cluster of large models: `python -m analysis.studies.llm_plans`."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean

import click
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.advise.segments import with_interval
from analysis.studies.common import StudyCommand, publish, run_rows, simulate, write_option
from analysis.weekly_shares import WeeklyGpuTime
from dally.cluster import load_cluster
from dally.cluster.idle_cluster import IdleCluster
from dally.cluster.topology import Topology
from dally.jobs.job import Job
from dally.jobs.knowledge import Knowledge, Known
from dally.jobs.parallelism import Parallelism
from dally.jobs.training_plan import TrainingPlan
from dally.markdown import table
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet, load_profiles
from dally.runs.records import JobRecord
from dally.runs.summary import quantile
from dally.traces import load_trace
from dally.words import duration
from simulator.sweep.groups import mean, ratio_of_means

FABRICS = {"Ethernet": "ethernet-512", "InfiniBand": "infiniband-512"}
LARGEST = (256, 64)
"""GPUs of the largest jobs: half of the cluster, and a rack."""
WORKLOAD = "kalos-like:jobs={jobs},most_gpus={most},load={load},cluster_gpus=512"
ASSUMED = 1.25
"""What a live cluster takes each level farther apart to cost a gang of which nothing is known, at least."""


@dataclass(frozen=True, slots=True)
class LlmVariant:
    """A row of the tables.

    Attributes:
        policy: NAME[:knob=value,...].
        knows: What it believes of placements: what `plans` tell, that each level farther costs `1.25`, or
            `nothing`: that they are all alike.
        dealt: Whether names of machines go round over the racks, so that ranks in their order do, too.
    """

    policy: str
    knows: str
    dealt: bool = False

    def __str__(self) -> str:
        """As the tables and the figure have it."""
        return f"{self.policy}, knows {self.knows}{', names over racks' if self.dealt else ''}"


BASE = LlmVariant("slurm", "nothing")
BLIND = LlmVariant("srsf-delay", "1.25")
AWARE = LlmVariant("srsf-delay", "plans")
VARIANTS = (
    BASE,
    AWARE,
    BLIND,
    LlmVariant("srsf-delay", "nothing"),
    LlmVariant("srsf-delay", "plans", dealt=True),
)


def _axes(job: Job) -> Parallelism:
    return job.plan.parallelism if job.plan is not None else Parallelism()


CLASSES: Mapping[str, Callable[[Job], bool]] = {
    "experts": lambda job: _axes(job).ep > 1,
    "pipeline": lambda job: _axes(job).ep == 1 < _axes(job).pp,
    "tensor, FSDP": lambda job: _axes(job).ep == _axes(job).pp == 1 < _axes(job).tp,
    "FSDP": lambda job: _axes(job).ep == _axes(job).pp == _axes(job).tp == 1,
    "8 GPUs": lambda job: job.gpus == 8,
    "16 to 64": lambda job: 8 < job.gpus <= 64,
    "128 and 256": lambda job: job.gpus > 64,
}
"""Which jobs with a plan are in a class: by the axes of the plan, then by GPUs."""


def believed_costs(knows: str, topology: Topology, profiles: ProfileSet | None = None) -> CostModel | None:
    """What a row that knows so much believes placements to cost; None: what they do."""
    if knows == "plans":
        return None
    costs = CostModel(topology, profiles, assumed_slowdown=1.0 if knows == "nothing" else ASSUMED)
    costs.hides_plans = True
    return costs


def held_gpu_time(until_s: float) -> WeeklyGpuTime:
    """A log of the GPU time that jobs hold up to a moment, whoever has it."""
    return WeeklyGpuTime(defaultdict(lambda: ("", "")), until_s)


@dataclass(frozen=True, slots=True)
class LlmSite:
    """A workload on a cluster."""

    cluster: str
    workload: str
    seed: int


@dataclass(frozen=True, slots=True)
class LlmRun:
    """The figures of one simulation.

    Attributes:
        jct_s: Completion times of all jobs: mean and p99.
        training_jct_s: Mean completion time of the jobs with a plan.
        wait_p99_s: Of all jobs.
        stretch: Of jobs with a plan, GPU time of running over that at the best placement and order of ranks.
        occupancy: Part of the cluster's GPU time that was held until the last submission.
        stops: Preemptions and migrations.
        by_class: The stretch of each class of jobs with a plan.
    """

    jct_s: tuple[float, float]
    training_jct_s: float
    wait_p99_s: float
    stretch: float
    occupancy: float
    stops: int
    by_class: Mapping[str, float]


def dealt_names(topology: Topology) -> Topology:
    """The cluster with its machines' names dealt out to the racks in turn: 1, 9, 17, ... to the first."""
    racks = topology.level_domains[1]
    names = [machine.name for machine in topology.machines]
    places = {
        member: place * len(racks) + number
        for number, rack in enumerate(racks)
        for place, member in enumerate(rack.children)
    }
    renamed = [names[places[number]] for number in range(len(names))]
    machines = tuple(
        replace(machine, name=name) for machine, name in zip(topology.machines, renamed, strict=True)
    )
    lowest = [replace(each, name=name) for each, name in zip(topology.domains, renamed, strict=False)]
    return replace(topology, machines=machines, domains=(*lowest, *topology.domains[len(names) :]))


def with_ranks_by_name(jobs: Sequence[Job], named: Topology, dealt: Topology) -> list[Job]:
    """Jobs that take longer as ranks in the order of names go back and forth between racks.

    A job's duration is the one at the best placement of its cluster, whose ranks have that order, too: it
    grows as much as a step there does.

    Args:
        jobs: Their durations are those where names follow the racks.
        named: The cluster with such names.
        dealt: The cluster with names that go round over the racks.
    """
    models = CostModel(named), CostModel(dealt)

    @cache
    def factor(model: str, plan: TrainingPlan, batch: int | None, gpus: int) -> float:
        job = Job("any", 0, gpus, 1, model=model, plan=plan, batch=batch)
        best_s = [
            min(
                found.iteration_s
                for place in IdleCluster(costs.topology).best_placements(job.gang)
                if (found := costs.prediction(job, place)) is not None
            )
            for costs in models
        ]
        return best_s[1] / best_s[0]

    return [
        job
        if job.plan is None
        else replace(job, duration_s=job.duration_s * factor(job.model, job.plan, job.batch, job.gpus))
        for job in jobs
    ]


def simulate_variant(variant: LlmVariant, site: LlmSite) -> LlmRun:
    """Run a policy on a site, with the beliefs of the variant and the costs that plans have."""
    topology = load_cluster(site.cluster)
    if variant.dealt:
        topology = dealt_names(topology)
    jobs = load_trace(site.workload, seed=site.seed).jobs
    profiles = load_profiles("realistic")
    by_id = {job.job_id: job for job in jobs}
    if variant.dealt:
        jobs = with_ranks_by_name(jobs, load_cluster(site.cluster), topology)
    believed, log = believed_costs(variant.knows, topology, profiles), held_gpu_time(jobs[-1].submit_s)
    known = Known(Knowledge.LIMITS, seed=site.seed)
    run = simulate(
        variant.policy, jobs, topology, profiles, known, contention=True, log=log, believed=believed
    )
    records = [(by_id[record.job_id], record) for record in run.records]
    training = [each for each in records if each[0].plan is not None]
    jct_s = sorted(record.jct_s for _, record in records)
    return LlmRun(
        jct_s=(fmean(jct_s), quantile(jct_s, 0.99)),
        training_jct_s=fmean(record.jct_s for _, record in training),
        wait_p99_s=run.summary.queue_s.p99,
        stretch=stretch(training),
        occupancy=log.total_gpu_s / topology.gpus / jobs[-1].submit_s,
        stops=run.stops,
        by_class={
            name: stretch([each for each in training if inside(each[0])]) for name, inside in CLASSES.items()
        },
    )


def stretch(records: Sequence[tuple[Job, JobRecord]]) -> float:
    """GPU time of running, restarts left out, over that of the jobs as asked for; 1 without jobs."""
    ideal = sum(job.gpus * job.duration_s for job, _ in records)
    held = sum(job.gpus * (record.run_s - record.restart_s) for job, record in records)
    return held / ideal if ideal else 1.0


Found = Mapping[LlmVariant, Sequence[LlmRun]]
"""The runs of one setting by variant, seed by seed."""


def run_variants(sites: Sequence[LlmSite]) -> Found:
    """Run all variants on all sites."""
    by_name = {f"{site.cluster}, seed {site.seed}": site for site in sites}
    found = run_rows(VARIANTS, by_name, simulate_variant)
    return {variant: [*runs.values()] for variant, runs in found.items()}


def results_table(found: Found) -> str:
    """Markdown: a row for each variant; differences from Slurm are paired by seed."""
    rows = []
    for variant, runs in found.items():
        pairs = [(run.jct_s[0], base.jct_s[0]) for run, base in zip(runs, found[BASE], strict=True)]
        trained = [
            (run.training_jct_s, base.training_jct_s) for run, base in zip(runs, found[BASE], strict=True)
        ]
        held = mean([100 * (run.stretch - 1) for run in runs])
        rows.append(
            [
                *_name(variant),
                duration(fmean(run.jct_s[0] for run in runs)),
                "" if variant == BASE else with_interval(ratio_of_means(pairs)),
                duration(fmean(run.jct_s[1] for run in runs)),
                duration(fmean(run.training_jct_s for run in runs)),
                "" if variant == BASE else with_interval(ratio_of_means(trained)),
                duration(fmean(run.wait_p99_s for run in runs)),
                f"{held.value:+.2f}" + ("" if held.half is None else f" ±{held.half:.2f}"),
                f"{fmean(run.occupancy for run in runs):.1%}",
                f"{fmean(run.stops for run in runs):,.0f}",
            ]
        )
    headings = (
        *("policy", "knows", "mean JCT", "against Slurm", "p99 JCT", "JCT of training", "against Slurm"),
        *("p99 wait", "GPU time over the best placement, %", "occupancy", "stops and moves"),
    )
    return table(headings, rows)


def classes_table(found: Found) -> str:
    """Markdown: the GPU time of each class of jobs over that at the best placement, %."""
    rows = [
        [
            *_name(variant),
            *(f"{100 * (fmean(run.by_class[name] for run in runs) - 1):+.2f}" for name in CLASSES),
        ]
        for variant, runs in found.items()
    ]
    return table(["policy", "knows", *CLASSES], rows)


def _name(variant: LlmVariant) -> tuple[str, str]:
    return f"`{variant.policy}`", variant.knows + (", names over racks" if variant.dealt else "")


def draw(found: Mapping[str, Found], path: Path) -> None:
    """Draw what placements cost jobs with plans: a panel for each setting, a line for each variant."""
    figure = Figure(figsize=(11, 5.5), layout="constrained")
    panels = figure.subplots(2, len(found) // 2, sharex=True, sharey=True).flat
    for axes, (title, own) in zip(panels, found.items(), strict=True):
        _panel(axes, title, own)
    figure.supxlabel("GPU time of training over that at the best placement, %; 95 % over seeds", fontsize=9)
    figure.savefig(path, dpi=130)


def _panel(axes: Axes, title: str, own: Found) -> None:
    for number, runs in enumerate(own.values()):
        over = mean([100 * (run.stretch - 1) for run in runs])
        axes.errorbar(over.value, number, xerr=over.half or 0.0, fmt="o", color="tab:blue", capsize=3)
    axes.set_yticks(range(len(own)), [str(variant) for variant in own], fontsize=8)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_title(title, fontsize=9)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


@click.command(cls=StudyCommand)
@click.option("--jobs", default=1500, show_default=True, help="Jobs of each workload.")
@click.option("--load", default=1.2, show_default=True, help="GPU time asked for over that of the cluster.")
@click.option("--seed", "seeds", type=int, multiple=True, default=(21, 22, 23), show_default=True)
@click.option("--figure", type=click.Path(path_type=Path), help="Draw what placements cost into this file.")
@write_option
def main(jobs: int, load: float, seeds: Sequence[int], figure: Path | None, page: Path | None) -> None:
    """Compare a policy that knows parallel plans with the same one without, and with Slurm's own."""
    found: dict[str, Found] = {}

    def tables() -> Iterator[tuple[str, str]]:
        for (fabric, cluster), most in product(FABRICS.items(), LARGEST):
            workload = WORKLOAD.format(jobs=jobs, most=most, load=load)
            title = f"{fabric}, jobs of up to {most} GPUs"
            found[title] = run_variants([LlmSite(cluster, workload, seed) for seed in seeds])
            yield f"{fabric.lower()}-{most}", results_table(found[title])
            yield f"{fabric.lower()}-{most}-classes", classes_table(found[title])

    publish(tables(), page)
    if figure is not None:
        draw(found, figure)


if __name__ == "__main__":
    main()
