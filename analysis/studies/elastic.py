"""Elastic training under several policies, beside published results: `python -m analysis.studies.elastic`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, median

import click

from analysis.studies.common import (
    Cell,
    StudyCommand,
    StudyRun,
    knowledge_line,
    known_option,
    mean_cell,
    on_one_switch,
    policies_option,
    policy_table,
    publish,
    run_all,
    seeds_option,
    simulate,
    write_option,
)
from analysis.studies.elastic_jobs import (
    CLUSTER,
    LOAD,
    artifact_profiles,
    draw_artifact_jobs,
    draw_jobs,
    linear,
    ones_profiles,
    pollux_profiles,
    read_workload,
)
from analysis.studies.simulator_speed import decision_times_s
from dally.cluster.load import load_cluster
from dally.cluster.topology import Link, Topology
from dally.jobs.knowledge import Known
from dally.markdown import table
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from dally.runs.summary import quantile
from simulator.sweep.groups import Mean, mean, ratio_of_means

FOLDER = Path("../shared/throughputs/pollux/workloads")
TIRESIAS, OPTIMUS, DRL = "tiresias", "optimus:interval_s=60", "drl"
"""Rivals of ONES. Optimus as in Pollux's artifact (simulator/optimus.py), which sizes jobs each minute."""

TIRESIAS_OF_POLLUX = "tiresias:limits=pollux,order=arrival,interval_s=60,quantum_s=0,promote=0"
"""Tiresias as in Pollux's artifact (simulator/tiresias.py), which has no quantum and looks each minute."""

POLICIES = (
    "pollux",
    "optimus",
    OPTIMUS,
    "elastic-scaling",
    "ones",
    "jps",
    "srtf",
    TIRESIAS,
    TIRESIAS_OF_POLLUX,
    "a-srpt",
    "a-srpt:release=ended",
    "srsf-delay",
    "dally",
    "fifo",
)
PUBLISHED_POLLUX: Mapping[str, float] = {"pollux": 2446.1, OPTIMUS: 5301.9, TIRESIAS_OF_POLLUX: 3469.7}
"""Mean completion time of all 160 jobs of workload 6, seconds, by the policy as it was run: petuum/adaptdl,
branch osdi21-artifact, simulator/README.md. Optimus there knows the iterations left (Optimus+Oracle)."""

POLLUX_KNEW = "Optimus goes by them, as published (Optimus+Oracle); Pollux and Tiresias go by none."
ONES_KNEW = (
    "Optimus is told them here and fitted them as published; ONES predicts its own, Tiresias goes by none."
)

VARIANTS = (
    "ones:first_size=least",
    "ones:two_epochs=life",
    "ones:two_epochs=stretch",
    "ones:predictor_input=raw",
    "ones:gate=all",
    "ones:scale_down=0",
    "ones:interval_s=60",
)
"""ONES with other settings: what it reconstructs, the defects of its artifact, and others."""

RIVALS = (
    TIRESIAS,
    OPTIMUS,
    DRL,
    "elastic-scaling",
    "srtf",
    "ones",
    "ones:first_size=most",
    "ones:search=padding",
    "ones:first_size=least,padding=limit,counted=running,shrink=all",
)
"""`search=padding` has no evolution; the last is as it was built here before."""

ABLATION = (
    TIRESIAS,
    OPTIMUS,
    "ones",
    "ones:search=padding",
    *(f"ones:candidates={number}" for number in (4, 8, 32)),
    *(f"ones:exchange={part}" for part in (0, 1)),
    *(f"ones:remove={part}" for part in (0, 0.1, 0.6)),
    "ones:padding=limit",
    "ones:counted=running",
    "ones:shrink=all",
    "ones:scale_down=0",
    "ones:first_size=least",
    "ones:first_size=most",
    "ones:gate=all",
    "ones:two_epochs=stretch",
)
"""ONES with one setting changed in each row: without evolution, K, xi, theta, and the rules one by one."""

LINEAR = (
    TIRESIAS,
    OPTIMUS,
    "elastic-scaling",
    "ones",
    "ones:first_size=most",
    "ones:padding=limit",
    "ones:first_size=most,padding=limit",
    "ones:first_size=most,padding=limit,search=padding",
    "ones:first_size=least,padding=limit",
)
"""For jobs that run in proportion to their GPUs."""

ONES_JOBS: Mapping[int, Mapping[str, str]] = {
    400: {"ones": "-45.6 % of Tiresias, -41.7 % of Optimus"},
    50: {"ones": "214 s", OPTIMUS: "453 s", TIRESIAS: "502 s"},
}
"""What was published, by jobs: of 400 the paper's, of 50 the artifact's (its fourth, DRL, took 354 s).

An Optimus that decides every 600 s could not have ended such jobs after 453 s.
"""

Runs = Mapping[str, Mapping[str, StudyRun]]
"""By policy, and by name of the workload."""

MEANS: Sequence[tuple[str, Cell[StudyRun]]] = (
    ("mean JCT, s", mean_cell("{:.0f}", lambda run: run.jct_s)),
    ("makespan, h", mean_cell("{:.2f}", lambda run: run.summary.makespan_s / 3600)),
    ("resizes", mean_cell("{:.0f}", lambda run: run.resizes)),
    ("migrations and preemptions", mean_cell("{:.0f}", lambda run: run.stops)),
)


def pollux_table(found: Runs) -> str:
    """Markdown: a row for each policy, means over the workloads, and workload 6 beside what was published."""

    def sixth(policy: str, runs: Mapping[str, StudyRun]) -> str:
        return f"{runs['6'].jct_s:.0f}" if "6" in runs else ""

    def published(policy: str, runs: Mapping[str, StudyRun]) -> str:
        return f"{PUBLISHED_POLLUX[policy]:.0f}" if policy in PUBLISHED_POLLUX else ""

    def ratio(policy: str, runs: Mapping[str, StudyRun]) -> str:
        there = "6" in runs and policy in PUBLISHED_POLLUX
        return f"{runs['6'].jct_s / PUBLISHED_POLLUX[policy]:.3f}" if there else ""

    headings = ("mean JCT of workload 6, s", "published for all its jobs, s", "ratio")
    return policy_table(found, [*MEANS, *zip(headings, (sixth, published, ratio), strict=True)])


def ones_table(found: Runs, jobs: int) -> str:
    """Markdown: a row for each policy, means over the seeds, beside what was published for so many jobs."""
    tiresias = next((runs for policy, runs in found.items() if policy.partition(":")[0] == TIRESIAS), None)

    def against(policy: str, runs: Mapping[str, StudyRun]) -> str:
        return f"{_jct_s(runs) / _jct_s(tiresias) - 1:+.0%}" if tiresias else ""

    def published(policy: str, runs: Mapping[str, StudyRun]) -> str:
        return ONES_JOBS.get(jobs, {}).get(policy, "")

    return policy_table(found, [*MEANS, ("against Tiresias", against), ("published", published)])


def _jct_s(runs: Mapping[str, StudyRun]) -> float:
    return fmean(each.jct_s for each in runs.values())


_BESIDE = {"Tiresias": TIRESIAS, "Optimus": OPTIMUS, "DRL": DRL}
_SHARES = (0.1, 0.5, 0.9, 0.99)


def artifact_table(found: Runs) -> str:
    """Markdown: a row for each policy, means over seeds ± half a 95 % interval, percentiles of all jobs."""

    def shown(value: Mean, times: float, how: str) -> str:
        half = "" if value.half is None else f" ± {times * value.half:.0f}"
        return how.format(times * value.value) + half

    def jct(policy: str, runs: Mapping[str, StudyRun]) -> str:
        return shown(mean([run.jct_s for run in runs.values()]), 1, "{:.0f}")

    def against(other: str, policy: str, runs: Mapping[str, StudyRun]) -> str:
        """How much more or less the mean is than another's, paired by seed."""
        if policy == other:
            return ""
        ratio = ratio_of_means([(run.jct_s, found[other][seed].jct_s) for seed, run in runs.items()])
        return shown(Mean(ratio.value - 1, ratio.half), 100, "{:+.0f}") + " %"

    def percentile(share: float, policy: str, runs: Mapping[str, StudyRun]) -> str:
        return f"{quantile(sorted(job.jct_s for run in runs.values() for job in run.records), share):.0f}"

    return policy_table(
        found,
        [
            ("mean JCT, s", jct),
            *((f"against {name}", partial(against, each)) for name, each in _BESIDE.items() if each in found),
            ("waiting, s", mean_cell("{:.0f}", lambda run: run.summary.queue_s.mean)),
            *((f"p{100 * share:.0f}, s", partial(percentile, share)) for share in _SHARES),
            ("resizes", mean_cell("{:.0f}", lambda run: run.resizes)),
            ("stops", mean_cell("{:.0f}", lambda run: run.stops)),
        ],
    )


def larger(like: Topology, gpus: int) -> Topology:
    """Machines like the first of a cluster on one switch, with so many GPUs in all."""
    machine = like.machines[0]
    machines = [replace(machine, name=f"n{number}") for number in range(gpus // machine.gpus)]
    return on_one_switch(f"{gpus} GPUs", machines, Link(50e9, 20e-6))


_DECISIONS = 40
"""Decisions of ONES that are timed, after the first, which works out speeds that all others remember."""


def steps_table(like: Topology, jobs: Sequence[int], gpus: Sequence[int]) -> str:
    """Markdown: median / longest decision, milliseconds; a row for each number of jobs, a column for GPUs."""
    profiles, rows = load_profiles("pollux"), []
    for count in jobs:
        crowd = [replace(job, submit_s=0.0) for job in draw_jobs(count, 1.0, 1, profiles)]
        times = [
            decision_times_s("ones", crowd, larger(like, size), profiles, _DECISIONS + 1)[1:] for size in gpus
        ]
        cells = (f"{1000 * median(each):.0f} / {1000 * max(each):.0f}" for each in times)
        rows.append([f"{count} jobs", *cells])
    return table(["median / longest, ms", *(f"{size} GPUs" for size in gpus)], rows)


@click.group()
def main() -> None:
    """Elastic training under several policies on Pollux's cluster of 64 GPUs."""


@main.command(cls=StudyCommand)
@click.option(
    "--workload", "numbers", type=click.IntRange(1), multiple=True, default=range(1, 9), help="Which; all 8."
)
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER, show_default=True)
@policies_option(POLICIES)
@known_option
@write_option
def pollux(
    numbers: Sequence[int], folder: Path, policies: Sequence[str], known: Known, page: Path | None
) -> None:
    """Pollux's workloads."""
    topology, profiles = load_cluster(CLUSTER), pollux_profiles()
    costs = CostModel(topology, profiles)
    read = {str(each): read_workload(folder / f"workload-{each}.csv", costs) for each in numbers}
    run = partial(simulate, topology=topology, profiles=profiles, known=known)
    found = run_all(policies, {name: each.jobs for name, each in read.items()}, run)
    lacking = sum((Counter(each.left_out) for each in read.values()), Counter[str]())
    left_out = ", ".join(f"{count} of {name}" for name, count in sorted(lacking.items())) or "none"
    head = f"Workloads {', '.join(read)}; left out: {left_out}. {knowledge_line(known, POLLUX_KNEW)}"
    publish([("pollux-workloads", f"{head}\n\n{pollux_table(found)}")], page)


@main.command(cls=StudyCommand)
@click.option("--jobs", type=click.IntRange(1), default=400, show_default=True, help="Of each seed.")
@click.option("--gap", "gap_s", type=click.FloatRange(0, min_open=True), default=30.0, show_default=True)
@seeds_option
@click.option("--variants", is_flag=True, help="ONES with each of its other settings, too.")
@policies_option(POLICIES)
@known_option
@write_option
def ones(
    jobs: int,
    gap_s: float,
    seeds: Sequence[int],
    variants: bool,
    policies: Sequence[str],
    known: Known,
    page: Path | None,
) -> None:
    """Random jobs in the number of ONES's experiments."""
    profiles = ones_profiles()
    workloads = {f"seed {seed}": draw_jobs(jobs, gap_s, seed, profiles) for seed in seeds}
    run = partial(simulate, topology=load_cluster(CLUSTER), profiles=profiles, known=known)
    found = run_all([*policies, *(VARIANTS if variants else ())], workloads, run)
    publish([(f"ones-{jobs}", f"{knowledge_line(known, ONES_KNEW)}\n\n{ones_table(found, jobs)}")], page)


@main.command(cls=StudyCommand)
@click.option("--jobs", type=click.IntRange(1), default=50, show_default=True, help="Of each seed.")
@click.option("--gpus", type=click.IntRange(16), default=64, show_default=True, help="In machines of four.")
@click.option("--load", type=click.FloatRange(0, min_open=True), default=LOAD, show_default=True)
@seeds_option
@policies_option()
@click.option("--linear", "in_proportion", is_flag=True, help="Jobs run in proportion to their GPUs.")
@click.option("--ablation", is_flag=True, help="ONES with one of its settings changed in each row instead.")
@known_option
@write_option
def artifact(
    jobs: int,
    gpus: int,
    load: float,
    seeds: Sequence[int],
    policies: Sequence[str],
    in_proportion: bool,
    ablation: bool,
    known: Known,
    page: Path | None,
) -> None:
    """Jobs as in the artifact of ONES: its mix, its passes drawn for each job, its throughputs."""
    topology, profiles = larger(load_cluster(CLUSTER), gpus), artifact_profiles()
    workloads = {f"seed {seed}": draw_artifact_jobs(jobs, gpus, load, seed, profiles) for seed in seeds}
    if in_proportion:
        workloads = {name: linear(jobs) for name, jobs in workloads.items()}
    usual = ABLATION if ablation else LINEAR if in_proportion else RIVALS
    found = run_all(
        policies or usual, workloads, partial(simulate, topology=topology, profiles=profiles, known=known)
    )
    head = f"Seeds {', '.join(map(str, seeds))}; load {load:g}. {knowledge_line(known, ONES_KNEW)}"
    kind = "linear-" if in_proportion else "ablation-" if ablation else ""
    section = f"artifact-{kind}{jobs}-{gpus}" + ("" if load == LOAD else f"-{load:g}")
    publish([(section, f"{head}\n\n{artifact_table(found)}")], page)


@main.command(cls=StudyCommand)
@click.option("--jobs", type=click.IntRange(1), multiple=True, default=(50, 100, 200, 400), show_default=True)
@click.option("--gpus", type=click.IntRange(8), multiple=True, default=(64, 256, 1024), show_default=True)
@write_option
def steps(jobs: Sequence[int], gpus: Sequence[int], page: Path | None) -> None:
    """How long a decision of ONES takes on larger clusters of the same machines."""
    publish([("ones-steps", steps_table(load_cluster(CLUSTER), jobs, gpus))], page)


if __name__ == "__main__":
    main()
