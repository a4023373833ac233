"""Elastic training under several policies, beside published results: `python -m analysis.studies.elastic`."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import click

from analysis.studies.elastic_runs import ElasticRun, run_all
from analysis.studies.known_option import known_option, told
from analysis.studies.ones_artifact import ABLATION, LINEAR, RIVALS, artifact_table
from analysis.studies.ones_steps import larger, steps_table
from analysis.studies.ones_workload import LOAD, draw_artifact_jobs, linear
from analysis.studies.pollux_workloads import PolluxWorkload, draw_jobs, pollux_profiles, read_workload
from dally.cluster.load import load_cluster
from dally.errors import DallyError
from dally.jobs.knowledge import Known
from dally.markdown import replace_section, table
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet, load_profiles
from dally.profiles.schema import Profile

CLUSTER = "pollux-64"
FOLDER = Path("../shared/throughputs/pollux/workloads")
TIRESIAS_OF_POLLUX = "tiresias:limits=pollux,order=arrival,interval_s=60,quantum_s=0,promote=0"
"""Tiresias as in Pollux's artifact (simulator/tiresias.py), which has no quantum and looks each minute."""

OPTIMUS_OF_POLLUX = "optimus:interval_s=60"
"""Optimus as in Pollux's artifact (simulator/optimus.py), which sizes jobs each minute."""

POLICIES = (
    "pollux",
    "optimus",
    OPTIMUS_OF_POLLUX,
    "elastic-scaling",
    "ones",
    "jps",
    "srtf",
    "tiresias",
    TIRESIAS_OF_POLLUX,
    "a-srpt",
    "a-srpt:release=ended",
    "srsf-delay",
    "dally",
    "fifo",
)
PUBLISHED_POLLUX: Mapping[str, float] = {
    "pollux": 2446.1,
    OPTIMUS_OF_POLLUX: 5301.9,
    TIRESIAS_OF_POLLUX: 3469.7,
}
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

EPOCHS: Mapping[str, int] = {"cifar10": 36, "imagenet": 47, "bert": 5}
"""Passes over its data until a job of ONES's ends: medians by task in the job history of its artifact."""

COMPANIONS_S = 0.4
"""What a resize through companions stands still for: docs/elastic-training.md has 0.1 to 0.4 s."""

ONES_JOBS: Mapping[int, Mapping[str, str]] = {
    400: {"ones": "-45.6 % of Tiresias, -41.7 % of Optimus"},
    50: {"ones": "214 s", OPTIMUS_OF_POLLUX: "453 s", "tiresias": "502 s"},
}
"""What was published, by jobs: of 400 the paper's, of 50 the artifact's (its fourth, DRL, took 354 s).

An Optimus that decides every 600 s could not have ended such jobs after 453 s.
"""


def pollux_table(found: Mapping[str, Mapping[str, ElasticRun]]) -> str:
    """Markdown: a row for each policy, means over the workloads, and workload 6 beside what was published."""
    rows = []
    for spec, outcomes in found.items():
        sixth = outcomes["6"].jct_s if "6" in outcomes else None
        published = PUBLISHED_POLLUX.get(spec)
        beside = [
            "" if sixth is None else f"{sixth:.0f}",
            "" if published is None else f"{published:.0f}",
            "" if sixth is None or published is None else f"{sixth / published:.3f}",
        ]
        rows.append([f"`{spec}`", *_means(outcomes), *beside])
    return table([*_HEADER, "mean JCT of workload 6, s", "published for all its jobs, s", "ratio"], rows)


def ones_table(found: Mapping[str, Mapping[str, ElasticRun]], jobs: int) -> str:
    """Markdown: a row for each policy, means over the seeds, beside what was published for so many jobs."""
    tiresias = [outcome for spec, outcome in found.items() if _name(spec) == "tiresias"]
    rows = []
    for spec, outcomes in found.items():
        change = [_jct_s(outcomes) / _jct_s(other) - 1 for other in tiresias[:1]]
        against = "".join(f"{each:+.0%}" for each in change)
        rows.append([f"`{spec}`", *_means(outcomes), against, ONES_JOBS.get(jobs, {}).get(spec, "")])
    return table([*_HEADER, "against Tiresias", "published"], rows)


_HEADER = ("policy", "mean JCT, s", "makespan, h", "resizes", "migrations and preemptions")


def _means(outcomes: Mapping[str, ElasticRun]) -> list[str]:
    """Cells under `_HEADER`, less the first: means over the workloads."""
    runs = outcomes.values()
    return [
        f"{_jct_s(outcomes):.0f}",
        f"{fmean(each.makespan_s for each in runs) / 3600:.2f}",
        f"{fmean(each.resizes for each in runs):.0f}",
        f"{fmean(each.stops for each in runs):.0f}",
    ]


def _jct_s(outcomes: Mapping[str, ElasticRun]) -> float:
    return fmean(each.jct_s for each in outcomes.values())


def _name(spec: str) -> str:
    """The policy of a specification."""
    return spec.partition(":")[0]


def ones_profiles() -> ProfileSet:
    """The set `pollux`, in which a training is as many epochs as ONES's jobs on subsets of the data."""
    shipped = load_profiles("pollux")
    return replace(shipped, profiles=tuple(_with_epochs(profile) for profile in shipped.profiles))


def artifact_profiles() -> ProfileSet:
    """Those of `ones_profiles`, in which a resize costs what it does with companions (measured)."""
    given = ones_profiles()
    return replace(
        given,
        profiles=tuple(
            replace(each, restart=replace(each.restart, resize_s=COMPANIONS_S)) for each in given.profiles
        ),
    )


def _with_epochs(profile: Profile) -> Profile:
    learning, epochs = profile.learning, EPOCHS.get(profile.model.name)
    if learning is None or epochs is None:
        return profile
    return replace(profile, learning=replace(learning, epochs=epochs))


def left_out(workloads: Iterable[PolluxWorkload]) -> str:
    """How many jobs have no table, in words."""
    counts: Counter[str] = Counter()
    for workload in workloads:
        counts.update(workload.left_out)
    return ", ".join(f"{count} of {name}" for name, count in sorted(counts.items())) or "none"


def _put(body: str, section: str, write: Path | None) -> None:
    """Print a table, or put it into a document's section."""
    if write is None:
        click.echo(body)
        return
    try:
        text = write.read_text(encoding="utf-8")
        write.write_text(replace_section(text, section, body), encoding="utf-8")
    except OSError as error:
        raise DallyError(f"cannot write {write}: {error}") from error


_policies = click.option(
    "--policy", "policies", multiple=True, default=POLICIES, help="NAME[:knob=value,...]; default: all here."
)
_write = click.option("--write", type=click.Path(path_type=Path), help="Put the table into this document.")


@click.group()
def main() -> None:
    """Elastic training under several policies, one after the other, on Pollux's cluster of 64 GPUs."""


@main.command()
@click.option(
    "--workload", "numbers", type=click.IntRange(1), multiple=True, default=range(1, 9), help="Which; all 8."
)
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER, show_default=True)
@_policies
@known_option
@_write
def pollux(
    numbers: Sequence[int], folder: Path, policies: Sequence[str], known: Known, write: Path | None
) -> None:
    """Pollux's workloads."""
    try:
        topology, profiles = load_cluster(CLUSTER), pollux_profiles()
        costs = CostModel(topology, profiles)
        read = {str(each): read_workload(folder / f"workload-{each}.csv", costs) for each in numbers}
        specs = [parse_policy(policy) for policy in policies]
        found = run_all(specs, {name: each.jobs for name, each in read.items()}, topology, profiles, known)
        said = f"Workloads {', '.join(read)}; left out: {left_out(read.values())}. {told(known, POLLUX_KNEW)}"
        _put(f"{said}\n\n{pollux_table(found)}", "pollux-workloads", write)
    except DallyError as error:
        raise click.ClickException(str(error)) from error


@main.command()
@click.option("--jobs", type=click.IntRange(1), default=400, show_default=True, help="Of each seed.")
@click.option("--gap", "gap_s", type=click.FloatRange(0, min_open=True), default=30.0, show_default=True)
@click.option("--seed", "seeds", type=int, multiple=True, default=(1, 2, 3), show_default=True)
@click.option("--variants", is_flag=True, help="ONES with each of its other settings, too.")
@_policies
@known_option
@_write
def ones(
    jobs: int,
    gap_s: float,
    seeds: Sequence[int],
    variants: bool,
    policies: Sequence[str],
    known: Known,
    write: Path | None,
) -> None:
    """Random jobs in the number of ONES's experiments."""
    try:
        topology, profiles = load_cluster(CLUSTER), ones_profiles()
        workloads = {f"seed {seed}": draw_jobs(jobs, gap_s, seed, profiles) for seed in seeds}
        specs = [parse_policy(policy) for policy in (*policies, *(VARIANTS if variants else ()))]
        found = run_all(specs, workloads, topology, profiles, known)
        _put(f"{told(known, ONES_KNEW)}\n\n{ones_table(found, jobs)}", f"ones-{jobs}", write)
    except DallyError as error:
        raise click.ClickException(str(error)) from error


@main.command()
@click.option("--jobs", type=click.IntRange(1), default=50, show_default=True, help="Of each seed.")
@click.option("--gpus", type=click.IntRange(16), default=64, show_default=True, help="In machines of four.")
@click.option("--load", type=click.FloatRange(0, min_open=True), default=LOAD, show_default=True)
@click.option("--seed", "seeds", type=int, multiple=True, default=(1, 2, 3), show_default=True)
@click.option(
    "--policy", "policies", multiple=True, help="NAME[:knob=value,...]; default: ONES and its rivals."
)
@click.option("--linear", "in_proportion", is_flag=True, help="Jobs run in proportion to their GPUs.")
@click.option("--ablation", is_flag=True, help="ONES with one of its settings changed in each row instead.")
@known_option
@_write
def artifact(
    jobs: int,
    gpus: int,
    load: float,
    seeds: Sequence[int],
    policies: Sequence[str],
    in_proportion: bool,
    ablation: bool,
    known: Known,
    write: Path | None,
) -> None:
    """Jobs as in the artifact of ONES: its mix, its passes drawn for each job, its throughputs."""
    try:
        topology, profiles = larger(load_cluster(CLUSTER), gpus), artifact_profiles()
        workloads = {f"seed {seed}": draw_artifact_jobs(jobs, gpus, load, seed, profiles) for seed in seeds}
        if in_proportion:
            workloads = {name: linear(jobs) for name, jobs in workloads.items()}
        usual = ABLATION if ablation else LINEAR if in_proportion else RIVALS
        specs = [parse_policy(policy) for policy in policies or usual]
        found = run_all(specs, workloads, topology, profiles, known)
        said = f"Seeds {', '.join(map(str, seeds))}; load {load:g}. {told(known, ONES_KNEW)}"
        kind = "linear-" if in_proportion else "ablation-" if ablation else ""
        section = f"artifact-{kind}{jobs}-{gpus}" + ("" if load == LOAD else f"-{load:g}")
        _put(f"{said}\n\n{artifact_table(found)}", section, write)
    except DallyError as error:
        raise click.ClickException(str(error)) from error


@main.command()
@click.option("--jobs", type=click.IntRange(1), multiple=True, default=(50, 100, 200, 400), show_default=True)
@click.option("--gpus", type=click.IntRange(8), multiple=True, default=(64, 256, 1024), show_default=True)
@_write
def steps(jobs: Sequence[int], gpus: Sequence[int], write: Path | None) -> None:
    """How long a decision of ONES takes on larger clusters of the same machines."""
    try:
        _put(steps_table(load_cluster(CLUSTER), jobs, gpus), "ones-steps", write)
    except DallyError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
